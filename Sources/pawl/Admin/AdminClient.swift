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
        if !answer.error.isEmpty { FileHandle.standardError.write(Data((answer.error + "\n").utf8)) }
        if answer.exit != 0 { throw ExitCode(answer.exit) }
    }

    /// Sends words and waits for the answer.
    func send(_ words: [String]) async throws -> AdminAnswer {
        do {
            let channel = try await ClientBootstrap(group: .singletonMultiThreadedEventLoopGroup)
                .connect(unixDomainSocketPath: path) { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                    }
                }
            let line = try JSONEncoder().encode(AdminRequest(words: words)) + Data([0x0A])
            return try await channel.executeThenClose { inbound, outbound in
                try await outbound.write(ByteBuffer(bytes: line))
                var answer = Data()
                for try await chunk in inbound { answer.append(contentsOf: chunk.readableBytesView) }
                return try JSONDecoder().decode(AdminAnswer.self, from: answer)
            }
        } catch is DecodingError {
            throw failure("The program at \(path) sent an answer that this program cannot read.")
        } catch {
            let isSidecar = words.first == "sidecar"
            throw failure(
                "No \(isSidecar ? "sidecar" : "gateway") answers at \(path). Is it running, and is this its data directory? "
                    + "Start it with: pawl \(isSidecar ? "sidecar" : "serve") --data DIR ...")
        }
    }

    private func failure(_ text: String) -> ExitCode {
        FileHandle.standardError.write(Data((text + "\n").utf8))
        return ExitCode(ExitStatus.noGateway)
    }
}
