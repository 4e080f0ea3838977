import Foundation
import Glibc

/// A raw client: sends the bytes it is told to and keeps every line it gets. It belongs to one thread at a time.
///
/// Lines that nobody asked for yet stay in `pending`, in order. A PING is answered when it is read, and kept out of
/// `pending`; `transcript` has it.
package final class IRCClient {
    /// How the other side ended the connection.
    package enum Ending: Sendable {
        case closed
        case reset
    }

    package private(set) var pending: [IRCLine] = []
    /// Every line that ever came.
    package private(set) var transcript: [IRCLine] = []
    /// Every byte that ever came.
    package private(set) var received: [UInt8] = []
    package private(set) var ending: Ending?
    package private(set) var nick = "*"
    /// What the server offered in CAP LS, with values, and what it acknowledged.
    package private(set) var offered: [String: String] = [:]
    package private(set) var enabled: Set<String> = []
    package var answersPing = true

    private var socket: Int32
    private var partial: [UInt8] = []
    private var lastToken = 0

    /// `receiveBuffer` bounds what the kernel takes in for a client that does not read. `host` is the last byte of the loopback
    /// address that it connects from.
    package init(port: UInt16, receiveBuffer: Int32? = nil, host: UInt8 = 1) throws {
        socket = try LoopbackSocket.open()
        if host != 1, LoopbackSocket.bind(socket, to: 0, host: host) != 0 {
            throw PeerError("cannot bind: \(String(cString: strerror(errno)))")
        }
        if let receiveBuffer {
            LoopbackSocket.set(socket, SOL_SOCKET, SO_RCVBUF, receiveBuffer)
        }
        // Torn as soon as it was taken: the first read says so.
        guard LoopbackSocket.connect(socket, to: port) == 0 || errno == ECONNRESET else {
            // An error thrown from here on runs `deinit`, which closes the socket.
            throw PeerError("cannot connect to \(port): \(String(cString: strerror(errno)))")
        }
        LoopbackSocket.set(socket, Int32(IPPROTO_TCP), TCP_NODELAY, 1)
        LoopbackSocket.setNonBlocking(socket)
    }

    deinit {
        close()
    }

    // MARK: Saying

    package func send(_ line: String) {
        sendRaw(Array(line.utf8) + [13, 10])
    }

    /// True when all was written. A peer that closed or does not read makes it false; `ending` says which.
    @discardableResult
    package func sendRaw(_ bytes: [UInt8], timeout: Duration = Deadline.usual) -> Bool {
        let deadline = Deadline(timeout)
        var rest = bytes[...]
        while !rest.isEmpty {
            guard socket >= 0 else { return false }
            let flags = Int32(MSG_NOSIGNAL)
            let count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, flags) }
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN {
                guard !deadline.hasPassed else { return false }
                // keep reading, or a server that waits for us would wait for ever
                if poll(POLLIN | POLLOUT, deadline) & Int16(POLLIN) != 0 { readSome() }
            } else if errno != EINTR {
                return false
            }
        }
        return true
    }

    // MARK: Hearing

    /// The first line that fits, taken out of `pending`. Lines before it stay there.
    @discardableResult
    package func expect(
        _ what: String = "line", timeout: Duration = Deadline.usual, where fits: (IRCLine) -> Bool
    ) throws -> IRCLine {
        try pending.remove(at: find(what, timeout: timeout, where: fits))
    }

    /// Where in `pending` the first line that fits is, once it has come.
    private func find(_ what: String, timeout: Duration, where fits: (IRCLine) -> Bool) throws -> Int {
        let deadline = Deadline(timeout)
        var seen = 0
        while true {
            while seen < pending.count {
                if fits(pending[seen]) { return seen }
                seen += 1
            }
            guard ending == nil else { throw PeerError("\(nick): connection \(ending!), no \(what)\(recent)") }
            guard !deadline.hasPassed else { throw PeerError("\(nick): no \(what) within \(timeout)\(recent)") }
            if poll(POLLIN, deadline) != 0 { readSome() }
        }
    }

    /// The first line with this command or numeric.
    @discardableResult
    package func expect(_ command: String, timeout: Duration = Deadline.usual) throws -> IRCLine {
        try expect(command, timeout: timeout) { $0.command == command }
    }

    /// The first private message or notice whose text is `body`.
    @discardableResult
    package func expectMessage(_ body: String, timeout: Duration = Deadline.usual) throws -> IRCLine {
        try expect("message \"\(body)\"", timeout: timeout) {
            ($0.command == "PRIVMSG" || $0.command == "NOTICE") && $0.body == body
        }
    }

    /// All that comes within `duration`, after what is pending. It always takes that long: prefer `synchronize`.
    package func drain(for duration: Duration) -> [IRCLine] {
        let deadline = Deadline(duration)
        while !deadline.hasPassed, ending == nil {
            if poll(POLLIN, deadline) != 0 { readSome() }
        }
        return takePending()
    }

    /// Sends PING and answers all that came before its PONG: what the server had to say to the lines before.
    package func synchronize() throws -> [IRCLine] {
        lastToken += 1
        let token = "sync\(lastToken)"
        send("PING \(token)")
        try expect("PONG \(token)") { $0.command == "PONG" && $0.body == token }
        return takePending()
    }

    /// Waits for the other side to end the connection.
    @discardableResult
    package func expectEnd(timeout: Duration = Deadline.usual) throws -> Ending {
        let deadline = Deadline(timeout)
        while true {
            if let ending { return ending }
            guard !deadline.hasPassed else { throw PeerError("\(nick): still connected after \(timeout)\(recent)") }
            if poll(POLLIN, deadline) != 0 { readSome() }
        }
    }

    // MARK: Ending

    package func close() {
        guard socket >= 0 else { return }
        Glibc.close(socket)
        socket = -1
        ending = ending ?? .closed
    }

    /// Closes with RST.
    package func reset() {
        guard socket >= 0 else { return }
        LoopbackSocket.reset(socket)
        socket = -1
        ending = ending ?? .reset
    }

    /// Says that nothing more will be said, and goes on listening.
    package func halfClose() {
        shutdown(socket, Int32(SHUT_WR))
    }

    // MARK: Registration

    /// NICK and USER up to the end of the MOTD. `caps` nil: a client that never heard of CAP. Otherwise CAP LS 302, REQ
    /// of those in `caps` that are offered, the login if there is one, and END. Answers what was acknowledged. The
    /// greeting is left in `transcript` only.
    @discardableResult
    package func register(
        nick: String, user: String? = nil, caps: [String]? = [], password: String? = nil,
        login: (account: String, password: String)? = nil, timeout: Duration = Deadline.usual
    ) throws -> Set<String> {
        if let password { send("PASS \(password)") }
        self.nick = nick
        if caps != nil { send("CAP LS 302") }
        send("NICK \(nick)")
        send("USER \(user ?? nick.lowercased()) 0 * :\(nick) of a test")
        if let caps {
            try listCapabilities(timeout: timeout)
            try request(caps.filter { offered[$0] != nil }, timeout: timeout)
            if login != nil, offered["sasl"] == nil { throw PeerError("\(nick): no sasl is offered") }
            if let login { try self.login(account: login.account, password: login.password, timeout: timeout) }
            send("CAP END")
        }
        let welcome = try expect("001 for \(nick)", timeout: timeout) {
            ["001", "432", "433", "437", "464", "465", "ERROR"].contains($0.command)
        }
        guard welcome.command == "001" else { throw PeerError("\(nick) refused: \(welcome)") }
        self.nick = welcome.parameters.first ?? nick
        let end = try find("end of MOTD", timeout: timeout) { $0.command == "376" || $0.command == "422" }
        // A message that waited for this login may stand among the greeting.
        let messages = pending[...end].filter { $0.command == "PRIVMSG" }
        pending.replaceSubrange(...end, with: messages)
        return enabled
    }

    /// Requests capabilities in one line; throws when the server refuses it.
    package func request(_ caps: [String], timeout: Duration = Deadline.usual) throws {
        guard !caps.isEmpty else { return }
        send("CAP REQ :" + caps.joined(separator: " "))
        let answer = try expect("answer to CAP REQ", timeout: timeout) {
            $0.command == "CAP" && $0.parameters.count > 1 && ["ACK", "NAK"].contains($0.parameters[1])
        }
        guard answer.parameters[1] == "ACK" else { throw PeerError("\(nick): \(answer)") }
        enabled.formUnion(answer.body.split(separator: " ").map(String.init))
    }

    /// SASL PLAIN; `sasl` must have been requested. Answers the 900 line.
    @discardableResult
    package func login(account: String, password: String, timeout: Duration = Deadline.usual) throws -> IRCLine {
        send("AUTHENTICATE PLAIN")
        let challenge = try expect("AUTHENTICATE", timeout: timeout) {
            ["AUTHENTICATE", "904", "905", "908"].contains($0.command)
        }
        guard challenge.command == "AUTHENTICATE" else { throw PeerError("\(nick): \(challenge)") }
        var rest = Data("\(account)\0\(account)\0\(password)".utf8).base64EncodedString()[...]
        // a chunk of exactly 400 says that another follows
        while rest.utf8.count >= 400 {
            send("AUTHENTICATE \(rest.prefix(400))")
            rest = rest.dropFirst(400)
        }
        send("AUTHENTICATE \(rest.isEmpty ? "+" : rest)")
        let answer = try expect("end of SASL", timeout: timeout) {
            ["903", "902", "904", "905", "906", "907"].contains($0.command)
        }
        guard answer.command == "903" else { throw PeerError("\(nick): \(answer)") }
        return try expect("900", timeout: timeout)
    }

    private func listCapabilities(timeout: Duration) throws {
        while true {
            let line = try expect("CAP LS", timeout: timeout) {
                ($0.command == "CAP" && $0.parameters.dropFirst().first == "LS") || $0.command == "ERROR"
            }
            guard line.command == "CAP" else { throw PeerError("\(nick): \(line)") }
            for capability in line.body.split(separator: " ") {
                let parts = capability.split(separator: "=", maxSplits: 1)
                offered[String(parts[0])] = parts.count > 1 ? String(parts[1]) : ""
            }
            if line.parameters.count < 4 || line.parameters[2] != "*" { return }
        }
    }

    // MARK: Bytes

    private var recent: String {
        transcript.suffix(12).map { "\n    < \($0)" }.joined()
    }

    private func takePending() -> [IRCLine] {
        defer { pending = [] }
        return pending
    }

    private func poll(_ events: Int32, _ deadline: Deadline) -> Int16 {
        var entry = pollfd(fd: socket, events: Int16(events), revents: 0)
        let ready = Glibc.poll(&entry, 1, deadline.milliseconds)
        return ready > 0 ? entry.revents : 0
    }

    private func readSome() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = recv(socket, &buffer, buffer.count, 0)
        if count > 0 {
            received += buffer[..<count]
            partial += buffer[..<count]
            splitLines()
        } else if count == 0 {
            ending = .closed
        } else if errno != EAGAIN, errno != EINTR {
            ending = .reset
        }
    }

    private func splitLines() {
        var start = 0
        while let end = partial[start...].firstIndex(of: 10) {
            var line = partial[start..<end]
            if line.last == 13 { line = line.dropLast() }
            start = end + 1
            take(IRCLine(Array(line)))
        }
        partial.removeFirst(start)
    }

    private func take(_ line: IRCLine) {
        transcript.append(line)
        if answersPing, line.command == "PING" {
            send("PONG :\(line.body)")
        } else {
            pending.append(line)
        }
    }
}
