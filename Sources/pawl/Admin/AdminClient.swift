// The client of the control socket.

import ArgumentParser
import Foundation
import NIOCore
import NIOPosix

/// Sends commands to a running gateway and prints its answers.
struct AdminClient {
    private let path: String

    init(_ common: CommonOptions) { path = common.socketPath }

    /// Performs a command and prints the answer.
    ///
    /// If the gateway requires confirmation, the client asks the operator, provided that standard input is a terminal.
    func perform(_ words: [String]) async throws {
        var answer = try await send(words)
        if answer.exit == ExitStatus.needsConfirmation, let token = answer.confirmation, isatty(0) == 1 {
            print(answer.error)
            print("Type yes to do it: ", terminator: "")
            fflush(nil)
            guard readLine()?.lowercased() == "yes" else { throw ExitCode(ExitStatus.needsConfirmation) }
            answer = try await send(words + ["--confirm", token])
        }
        if !answer.out.isEmpty { print(answer.out) }
        try Self.throwFailure(of: answer)
    }

    /// Prints the error of an answer, and throws its exit code if it is not 0.
    static func throwFailure(of answer: AdminAnswer) throws {
        if !answer.error.isEmpty { Failures.write(answer.error, code: answer.code) }
        if answer.exit != 0 { throw ExitCode(answer.exit) }
    }

    /// Sends words and waits for the answer.
    func send(_ words: [String]) async throws -> AdminAnswer {
        try await connected(as: words.first == "sidecar" ? .sidecar : .front) { channel in
            try await channel.executeThenClose { inbound, outbound in
                try await outbound.write(
                    ByteBuffer(bytes: JSONEncoder().encode(AdminRequest(words: words)) + Data([0x0A])))
                var answer = Data()
                for try await chunk in inbound { answer.append(contentsOf: chunk.readableBytesView) }
                return try JSONDecoder().decode(AdminAnswer.self, from: answer)
            }
        }
    }

    /// Subscribes to the status of a gateway.
    ///
    /// - Parameter take: is called with each event, and returns whether to go on.
    func watch(_ subscription: AdminSubscription, _ take: @Sendable (AdminEvent) throws -> Bool) async throws {
        try await connected(as: .front) { channel in
            try await channel.executeThenClose { inbound, outbound in
                let request = try JSONEncoder().encode(subscription)
                try await outbound.write(ByteBuffer(bytes: AdminServer.subscribe + Array(request) + [0x0A]))
                var line = ByteBuffer()
                for try await var chunk in inbound {
                    line.writeBuffer(&chunk)
                    while let end = line.readableBytesView.firstIndex(of: 0x0A) {
                        let event = Data(line.readableBytesView[..<end])
                        line.moveReaderIndex(to: end + 1)
                        guard try take(JSONDecoder().decode(AdminEvent.self, from: event)) else { return }
                    }
                    line.discardReadBytes()
                }
                throw ChannelError.eof
            }
        }
    }

    private func connected<Result>(
        as role: Role, _ body: (NIOAsyncChannel<ByteBuffer, ByteBuffer>) async throws -> Result
    ) async throws -> Result {
        do {
            return try await body(
                ClientBootstrap(group: .singletonMultiThreadedEventLoopGroup)
                    .connect(unixDomainSocketPath: path) { channel in
                        channel.eventLoop.makeCompletedFuture {
                            try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                        }
                    })
        } catch is DecodingError {
            throw failure("The program at \(path) sent an answer that this program cannot read.")
        } catch let error as ExitCode {
            throw error
        } catch {
            let (name, command) =
                switch role {
                case .front: ("gateway", "serve")
                case .sidecar: ("sidecar", "sidecar")
                }
            throw failure(
                "No \(name) answers at \(path). Is it running, and is this its data directory? "
                    + "Start it with: pawl \(command) --data DIR ...")
        }
    }

    private func failure(_ text: String) -> ExitCode {
        Failures.write(text, code: FailureCode.noGateway.rawValue)
        return ExitCode(ExitStatus.noGateway)
    }
}
