// The client of the control socket.

import ArgumentParser
import Foundation
import TransportsClient

/// Sends commands to a running gateway and prints its answers.
struct AdminClient {
    private let path: String

    init(_ common: CommonOptions) { path = common.socketPath }

    /// Performs a command and prints the answer.
    ///
    /// If the gateway requires confirmation, the client asks the operator, provided that standard input is a terminal.
    func perform(_ words: [String]) async throws {
        var answer = try await send(words)
        let asks = isatty(0) == 1 && !Failures.wantJSON(words)
        if answer.exit == ExitStatus.needsConfirmation, let token = answer.confirmation, asks {
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
        guard answer.exit != 0 || !answer.error.isEmpty else { return }
        let code = Failures.write(answer)
        if !code.isSuccess { throw code }
    }

    /// Nothing answers at the control socket, or something that is no gateway. It has not been reported yet.
    struct NoAnswer: Error {
        let text: String

        /// Writes the failure.
        ///
        /// - Returns: the exit code, to be thrown.
        func report() -> ExitCode {
            let code = FailureCode.noGateway.rawValue
            return Failures.write(
                .init(code: code, message: text, hint: FailureCode.hint(of: code), exit: ExitStatus.noGateway))
        }
    }

    /// Sends words and waits for the answer. A failure is written.
    func send(_ words: [String]) async throws -> AdminAnswer {
        do {
            return try await answer(to: words)
        } catch let error as NoAnswer {
            throw error.report()
        }
    }

    /// Sends words and waits for the answer.
    ///
    /// - Throws: ``NoAnswer`` if there is no gateway.
    func answer(to words: [String]) async throws -> AdminAnswer {
        try await connected(as: words.first == "sidecar" ? .sidecar : .front) { connection in
            let request = try JSONEncoder().encode(AdminRequest(words: words))
            let reply = try await connection.exchange(request: request).get()
            return try JSONDecoder().decode(AdminAnswer.self, from: reply)
        }
    }

    /// Subscribes to the status of a gateway.
    ///
    /// - Parameter take: is called with each event, and returns whether to go on. It may throw an `ExitCode`.
    /// - Throws: ``NoAnswer`` if there is no gateway, and when it ends.
    func watch(_ subscription: AdminSubscription, _ take: @Sendable (AdminEvent) throws -> Bool) async throws {
        try await connected(as: .front) { connection in
            func exchange<Reply: Decodable>(_ request: AdminExchange.Request, as type: Reply.Type) async throws -> Reply
            {
                let reply = try await connection.exchange(request: try JSONEncoder().encode(request)).get()
                return try JSONDecoder().decode(type, from: reply)
            }
            let opened = try await exchange(.subscribe(subscription), as: AdminExchange.Opened.self)
            while true {
                let event = try await exchange(.next(opened.subscription), as: AdminEvent.self)
                guard try take(event) else { break }
            }
            let end = try JSONEncoder().encode(AdminExchange.Request.end(opened.subscription))
            _ = await connection.exchange(request: end)
        }
    }

    private func connected<Value>(
        as role: Role, _ body: (any Connection) async throws -> Value
    ) async throws -> Value {
        let transport = UnixTransport(path: path, limits: AdminExchange.limits)
        do {
            return try await body(transport.connect(proto: AdminExchange.proto))
        } catch is DecodingError {
            throw NoAnswer(text: "The program at \(path) sent an answer that this program cannot read.")
        } catch TesseractError.tooLarge {
            let limit = AdminExchange.limits.message
            throw NoAnswer(text: "The answer has more than \(limit) bytes. Ask for fewer rows: --limit ROWS.")
        } catch let error where error is ExitCode || error is NoAnswer {
            throw error
        } catch {
            let (name, command) =
                switch role {
                case .front: ("gateway", "serve")
                case .sidecar: ("sidecar", "sidecar")
                }
            // The socket has the mode 0600.
            let isOthers = access(path, F_OK) != 0 ? errno == EACCES : access(path, R_OK | W_OK) != 0
            guard !isOthers else {
                throw NoAnswer(
                    text: "You may not use the socket \(path). Run the command as root, or as the user that runs "
                        + "the \(name): sudo -u USER pawl ...")
            }
            throw NoAnswer(
                text: "No \(name) answers at \(path). Is it running, and is this its data directory? "
                    + "Start it with: pawl \(command) --data DIR ...")
        }
    }
}
