import Foundation
import PawlMessenger
import Synchronization
import TestKit

/// Records what an app is told.
final class RecordingHandler: CypherMessengerEventHandler {
    struct Events: Sendable {
        var created: [AnyChatMessage] = []
        var requests: [UserDeviceConfig] = []
        var identityChanges: [Username] = []
        var exchanged: [Username] = []
        var unreadable: [String] = []
        var withheld: [Username] = []
        var losses = 0
        var unavailableGroups: [String] = []
    }

    private let state = Mutex(Events())
    /// Whether requests of devices are accepted at once.
    let adopts: Bool

    init(adopts: Bool = false) { self.adopts = adopts }

    var events: Events { state.withLock { $0 } }

    func onCreateChatMessage(_ message: AnyChatMessage) async { state.withLock { $0.created.append(message) } }
    func onDeviceRegisteryRequest(_ config: UserDeviceConfig, messenger: CypherMessenger) async {
        state.withLock { $0.requests.append(config) }
        if adopts { try? await messenger.addDevice(config) }
    }
    func onKeysExchanged(with username: Username) async { state.withLock { $0.exchanged.append(username) } }
    func onContactIdentityChange(of username: Username) async {
        state.withLock { $0.identityChanges.append(username) }
    }
    func onUnreadableMessage(from username: Username, reason: String) async {
        state.withLock { $0.unreadable.append(reason) }
    }
    func onWithheldMessage(from username: Username) async { state.withLock { $0.withheld.append(username) } }
    func onGroupChatUnavailable(_ group: GroupChatId, reason: String) async {
        state.withLock { $0.unavailableGroups.append(reason) }
    }
    func onMessageLoss(from username: Username, count: Int) async { state.withLock { $0.losses += count } }
}

/// An app of one person over a server in memory.
struct App {
    let messenger: CypherMessenger
    let handler: RecordingHandler
    let database: MessengerDatabase

    static func register(
        _ name: Username, at server: SpoofServer, _ database: MessengerDatabase = .inMemory(), adopts: Bool = false
    ) async throws -> App {
        let handler = RecordingHandler(adopts: adopts)
        let messenger = try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .password("hunter2"), appPassword: "open sesame",
            usingTransport: { server.client(for: $0) }, database: database, eventHandler: handler)
        return App(messenger: messenger, handler: handler, database: database)
    }

    /// Registers, and tries again while the server has faults.
    static func registerStubbornly(
        _ name: Username, at server: SpoofServer, _ database: MessengerDatabase = .inMemory(), adopts: Bool = false
    ) async throws -> App {
        for _ in 0..<200 {
            do {
                return try await register(name, at: server, database, adopts: adopts)
            } catch CypherMessengerError.registrationIncomplete {
                try await Task.sleep(for: .milliseconds(5))
            }
        }
        return try await register(name, at: server, database, adopts: adopts)
    }

    var transport: SpoofTransportClient? { messenger.transport as? SpoofTransportClient }

    func chat(_ name: Username) -> PrivateChat { messenger.createPrivateChat(with: name) }

    func texts(with name: Username) async throws -> [String] {
        try await chat(name).messages(limit: 200).map(\.text)
    }

    func close() { messenger.close() }
}

/// A text message of an app without encryption.
struct PlainText: Sendable, Hashable {
    var from: Username
    var to: Username
    var text: String
    /// The flag that upgraded clients set; nil as old ones send it.
    var encrypted: Bool?
}

/// The server of an app without encryption: it passes texts on, and shows them to whoever looks.
final class PlainServer: Sendable {
    private struct State {
        var clients: [Username: @Sendable (PlainText) async throws -> Void] = [:]
        var log: [PlainText] = []
        var keepsFlags = true
        var isOffline = false
    }

    private let state = Mutex(State())

    var log: [PlainText] { state.withLock { $0.log } }

    func setKeepsFlags(_ keepsFlags: Bool) { state.withLock { $0.keepsFlags = keepsFlags } }
    func setOffline(_ isOffline: Bool) { state.withLock { $0.isOffline = isOffline } }

    func connect(_ name: Username, _ receive: @escaping @Sendable (PlainText) async throws -> Void) {
        state.withLock { $0.clients[name] = receive }
    }

    func send(_ text: PlainText) async throws {
        let (client, text) = try state.withLock { state in
            guard !state.isOffline else { throw CypherTransportError.offline }
            state.log.append(text)
            var text = text
            if !state.keepsFlags { text.encrypted = nil }
            return (state.clients[text.to], text)
        }
        // The recipient's client takes it later, as over a network.
        Task { try? await client?(text) }
    }
}

/// A client from before the upgrade: it shows all texts as they are.
final class OldClient: Sendable {
    let name: Username
    private let server: PlainServer
    private let shown = Mutex<[String]>([])

    init(_ name: Username, at server: PlainServer) {
        (self.name, self.server) = (name, server)
        server.connect(name) { [weak self] text in self?.shown.withLock { $0.append(text.text) } }
    }

    var texts: [String] { shown.withLock { $0 } }

    func send(_ text: String, to name: Username) async throws {
        try await server.send(PlainText(from: self.name, to: name, text: text, encrypted: nil))
    }
}

/// An upgraded client of the same app.
struct UpgradedClient {
    let app: App
    let channel: PlaintextChannel

    static func register(
        _ name: Username, at server: PlainServer, format: PlaintextChannel.Format = .flag,
        policy: PlaintextChannel.Policy = .opportunistic, _ database: MessengerDatabase = .inMemory()
    ) async throws -> UpgradedClient {
        let handler = RecordingHandler()
        let made = Mutex<PlaintextChannel?>(nil)
        let messenger = try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .password("hunter2"), appPassword: "open sesame",
            usingTransport: { request in
                let channel = PlaintextChannel(for: request, format: format, policy: policy) { text, flag, to in
                    try await server.send(PlainText(from: name, to: to, text: text, encrypted: flag))
                }
                made.withLock { $0 = channel }
                return channel
            }, database: database, eventHandler: handler)
        guard let channel = made.withLock({ $0 }) else { throw CypherTransportError.notFound }
        server.connect(name) { [weak channel] text in
            try await channel?.receive(text.text, encrypted: text.encrypted, from: text.from)
        }
        return UpgradedClient(
            app: App(messenger: messenger, handler: handler, database: database), channel: channel)
    }
}
