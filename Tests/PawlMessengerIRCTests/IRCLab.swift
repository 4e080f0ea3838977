import Foundation
import NIOSSL
import PawlMessenger
import PawlMessengerIRC
import PeerKit
import Synchronization
import TestKit
import TestThreads

/// Records what an app is told.
final class IRCHandler: CypherMessengerEventHandler {
    struct Events: Sendable {
        var exchanged: [Username] = []
        var changed: [Username] = []
        var withheld: [Username] = []
        var unreadable: [String] = []
    }

    private let state = Mutex(Events())
    var events: Events { state.withLock { $0 } }

    func onKeysExchanged(with username: Username) async { state.withLock { $0.exchanged.append(username) } }
    func onContactIdentityChange(of username: Username) async { state.withLock { $0.changed.append(username) } }
    func onWithheldMessage(from username: Username) async { state.withLock { $0.withheld.append(username) } }
    func onUnreadableMessage(from username: Username, reason: String) async {
        state.withLock { $0.unreadable.append(reason) }
    }
}

/// A messenger of one person on IRC.
struct IRCApp {
    let messenger: CypherMessenger
    let handler: IRCHandler
    let transport: IRCChat

    static func register(
        _ name: Username, port: UInt16, _ database: MessengerDatabase = .inMemory(),
        _ configure: @escaping @Sendable (inout IRCChat.Settings) -> Void = { _ in }
    ) async throws -> IRCApp {
        let handler = IRCHandler()
        let made = Mutex<IRCChat?>(nil)
        let messenger = try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .identity, appPassword: "open sesame",
            usingTransport: { request in
                var settings = IRCChat.Settings(host: "127.0.0.1", port: Int(port))
                (settings.security, settings.linesPerSecond) = (.none, 0)
                configure(&settings)
                let chat = try IRCChat(for: request, settings: settings)
                made.withLock { $0 = chat }
                return chat
            }, database: database, eventHandler: handler)
        guard let transport = made.withLock({ $0 }) else { throw CypherTransportError.offline }
        let app = IRCApp(messenger: messenger, handler: handler, transport: transport)
        return app
    }

    func connected() async throws -> IRCApp {
        try await eventuallyAsync("\(messenger.username) is connected") { transport.authenticated == .authenticated }
        return self
    }

    func chat(_ name: Username) -> PrivateChat { messenger.createPrivateChat(with: name) }

    func texts(with name: Username) async throws -> [String] {
        try await chat(name).messages(limit: 200).map(\.text)
    }

    func expect(_ text: String, from name: Username) async throws {
        try await eventuallyAsync("\(text) from \(name)") { try await texts(with: name).contains(text) }
    }

    /// Until the messenger knows the keys of a person.
    func hasKeys(of name: Username) async throws {
        try await eventuallyAsync("keys of \(name)") { chat(name).safetyNumber() != nil }
    }

    func close() { messenger.close() }
}

/// A server that knows nothing of Pawl, and a tap before it.
final class IRCLab: Sendable {
    enum Kind: CaseIterable, Sendable {
        /// Without tags.
        case ngircd
        /// With tags.
        case inspircd
    }

    let server: any IRCServer
    let tap: WireTap
    private let sidecars = Mutex<[PawlProcess]>([])

    init(_ kind: Kind) async throws {
        (server, tap) = try await blocking {
            let server: any IRCServer
            switch kind {
            case .ngircd: server = try NgIRCd(NgIRCd.Options())
            case .inspircd:
                var options = InspIRCd.Options()
                options.flood = .lifted
                server = try InspIRCd(options)
            }
            return (server, try WireTap(backend: server.port))
        }
    }

    func sidecar() async throws -> PawlProcess {
        let port = tap.port
        let sidecar = try await blocking {
            var options = PawlProcess.Options()
            options.isSidecar = true
            options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0"
            return try PawlProcess(upstream: port, options)
        }
        sidecars.withLock { $0.append(sidecar) }
        return sidecar
    }

    func app(
        _ name: Username, _ database: MessengerDatabase = .inMemory(),
        _ configure: @escaping @Sendable (inout IRCChat.Settings) -> Void = { _ in }
    ) async throws -> IRCApp {
        try await IRCApp.register(name, port: tap.port, database, configure).connected()
    }

    func stop() {
        for sidecar in sidecars.withLock({ $0 }) { sidecar.stop() }
        tap.stop()
        server.stop()
    }
}

/// A client of a person. A test awaits each step with it before the next one; that makes it safe to call this `Sendable`.
struct IRCPerson: @unchecked Sendable {
    private let client: IRCClient

    init(_ nick: String, at sidecar: PawlProcess) async throws {
        let port = sidecar.port
        self = try await blocking { IRCPerson(try Self.registered(nick, port)) }
    }

    private init(_ client: IRCClient) { self.client = client }

    private static func registered(_ nick: String, _ port: UInt16) throws -> IRCClient {
        let client = try IRCClient(port: port)
        try client.register(nick: nick, caps: nil)
        return client
    }

    func send(_ line: String) async throws { try await blocking { [self] in client.send(line) } }

    /// Waits for a message; returns the sender and the target.
    @discardableResult
    func expect(_ text: String) async throws -> (from: String, to: String?) {
        try await blocking { [self] in
            let line = try client.expectMessage(text)
            return (line.nick, line.parameters.first)
        }
    }

    /// Whether a message comes within a few seconds.
    func hears(_ text: String) async throws -> Bool {
        try await blocking { [self] in (try? client.expectMessage(text, timeout: .seconds(5))) != nil }
    }

    func join(_ room: String) async throws {
        try await blocking { [self] in
            client.send("JOIN \(room)")
            try client.expect("366")
        }
    }
}

extension PawlProcess {
    /// `pawl sidecar WORDS`, and again with the token that it asks for.
    func sidecar(_ words: String...) async throws -> String {
        try await blocking {
            let first = try self.admin(["sidecar"] + words)
            guard let token = first.stderr.firstMatch(of: /--confirm ([a-z0-9-]+)/)?.1 else { return first.stdout }
            return try self.admin(["sidecar"] + words + ["--confirm", String(token)]).stdout
        }
    }
}
