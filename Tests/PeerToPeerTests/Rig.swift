import NIOPosix
import PawlMessenger
import PawlPeerToPeerTCP
import PawlPeerToPeerWebRTC
import Synchronization
import TestKit

/// The transports over which the suites run.
enum TransportKind: String, CaseIterable, Sendable {
    /// In memory, with the three ways to finish a connection.
    case memory, memoryDelayed, memoryReply
    /// Real sockets.
    case tcpIPv6, tcpIPv4
    /// Over a relay of a real gateway, in the mode that uses nothing else.
    case relay
    #if WebRTC
        /// Data channels over loopback.
        case webrtc
    #endif

    /// A factory for a device; of a relay, each has its own: see ``RelayLab``.
    func factory(_ network: SpoofP2PNetwork) -> any P2PTransportClientFactory {
        switch self {
        case .memory: SpoofP2PTransportClientFactory(network: network)
        case .memoryDelayed: SpoofP2PTransportClientFactory(network: network, finish: .delayed)
        case .memoryReply: SpoofP2PTransportClientFactory(network: network, finish: .reply)
        case .tcpIPv6: IPv6TCPP2PTransportClientFactory(addresses: .listed(["::1"]))
        case .tcpIPv4: IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]))
        case .relay: preconditionFailure("a relay needs a gateway")
        #if WebRTC
            case .webrtc: WebRTCP2PTransportClientFactory(addresses: .listed(["127.0.0.1"]))
        #endif
        }
    }
}

/// Settings for tests: times are looked at often, and none is short.
let patient: P2PSettings = {
    var settings = P2PSettings()
    settings.tick = .milliseconds(10)
    (settings.connectTime, settings.idleTime, settings.acknowledgementTime) =
        (.seconds(120), .seconds(600), .seconds(600))
    return settings
}()

/// Settings of a test that waits for the end of an attempt.
let impatient: P2PSettings = {
    var settings = patient
    settings.connectTime = .milliseconds(100)
    return settings
}()

/// Records what an app is told.
final class P2PHandler: CypherMessengerEventHandler {
    struct Events: Sendable {
        var opened: [P2PClient] = []
        var closed: [P2PClient] = []
        var messages: [[UInt8]] = []
        /// Whether each message came on an event loop.
        var onLoops: [Bool] = []
        var requests: [P2PRequest] = []
        var isHolding = false
        /// Whether requests wait for their answer.
        var isHoldingRequests = false
        /// Nil for the default.
        var accepts: Bool?
        /// The mode of all chats.
        var mode = P2PSettings.Mode.direct
        var deviceRequests = 0
    }

    private let state = Mutex(Events())

    var events: Events { state.withLock { $0 } }

    func change(_ body: (inout Events) -> Void) { state.withLock { body(&$0) } }

    func shouldAcceptP2PConnection(_ request: P2PRequest) async -> Bool {
        state.withLock { $0.requests.append(request) }
        while state.withLock({ $0.isHoldingRequests }) { try? await Task.sleep(for: .milliseconds(2)) }
        return state.withLock { $0.accepts ?? request.isUsedChat }
    }
    func p2pMode(with username: Username) async -> P2PSettings.Mode { state.withLock { $0.mode } }
    func onP2PClientOpen(_ client: P2PClient, messenger: CypherMessenger) async {
        state.withLock { $0.opened.append(client) }
    }
    func onP2PClientClose(_ client: P2PClient, messenger: CypherMessenger) async {
        state.withLock { $0.closed.append(client) }
    }
    func onP2PMessage(_ message: [UInt8], from client: P2PClient) async {
        let isOnLoop = MultiThreadedEventLoopGroup.currentEventLoop != nil
        state.withLock { state in
            state.messages.append(message)
            state.onLoops.append(isOnLoop)
        }
        while state.withLock({ $0.isHolding }) { try? await Task.sleep(for: .milliseconds(2)) }
    }
    func onDeviceRegisteryRequest(_ config: UserDeviceConfig, messenger: CypherMessenger) async {
        try? await messenger.addDevice(config)
        state.withLock { $0.deviceRequests += 1 }
    }
}

/// A person with direct connections, over a server in memory.
struct Person {
    let messenger: CypherMessenger
    let handler: P2PHandler

    static func register(
        _ name: Username, at server: SpoofServer, _ factories: [any P2PTransportClientFactory],
        _ settings: P2PSettings = patient, _ transport: (@Sendable (TransportCreationRequest) -> Void)? = nil
    ) async throws -> Person {
        let handler = P2PHandler()
        let messenger = try await CypherMessenger.registerMessenger(
            username: name, authenticationMethod: .password("hunter2"), appPassword: "open sesame",
            usingTransport: { request in
                transport?(request)
                return server.client(for: request)
            }, p2pFactories: factories, p2pSettings: settings,
            database: .inMemory(), eventHandler: handler)
        return Person(messenger: messenger, handler: handler)
    }

    func chat(_ name: Username) -> PrivateChat { messenger.createPrivateChat(with: name) }
    var open: [P2PClient] { messenger.listOpenP2PConnections() }

    /// Waits until the other person's first text has come.
    func waitForText(from name: Username) async throws {
        try await eventuallyAsync("a text of \(name)") { try await chat(name).messages().contains { !$0.isOwn } }
    }
}

/// Two people who have written to each other.
struct Couple {
    let server: SpoofServer
    let network: SpoofP2PNetwork
    let alice: Person
    let bob: Person
    /// The gateway between both; nil for other transports.
    private let relay: RelayLab?

    init(
        _ kind: TransportKind = .memory, alice aliceSettings: P2PSettings = patient,
        bob bobSettings: P2PSettings = patient, network: SpoofP2PNetwork = SpoofP2PNetwork()
    ) async throws {
        guard kind == .relay else {
            try await self.init(
                [kind.factory(network)], [kind.factory(network)], aliceSettings, bobSettings, network: network)
            return
        }
        let (server, lab) = (SpoofServer(), try await RelayLab())
        try await self.init(
            server, try await lab.register("alice", at: server, aliceSettings).person,
            try await lab.register("bob", at: server, bobSettings).person, network, lab)
    }

    init(
        _ aliceFactories: [any P2PTransportClientFactory], _ bobFactories: [any P2PTransportClientFactory],
        _ aliceSettings: P2PSettings = patient, _ bobSettings: P2PSettings = patient,
        network: SpoofP2PNetwork = SpoofP2PNetwork()
    ) async throws {
        let server = SpoofServer()
        try await self.init(
            server, try await Person.register("alice", at: server, aliceFactories, aliceSettings),
            try await Person.register("bob", at: server, bobFactories, bobSettings), network, nil)
    }

    private init(
        _ server: SpoofServer, _ alice: Person, _ bob: Person, _ network: SpoofP2PNetwork, _ relay: RelayLab?
    ) async throws {
        (self.server, self.network, self.relay) = (server, network, relay)
        (self.alice, self.bob) = (alice, bob)
        try await alice.chat("bob").sendText("hello")
        try await bob.waitForText(from: "alice")
        try await bob.chat("alice").sendText("hello")
        try await alice.waitForText(from: "bob")
    }

    /// Connects, and waits until both sides have it.
    func connect() async throws -> (alice: P2PClient, bob: P2PClient) {
        let result = try await alice.chat("bob").buildP2PConnections()
        guard let client = result.clients.first else { throw result.failures.values.first ?? P2PError.noTransport }
        try await eventuallyAsync("bob has the connection") { bob.open.count == 1 }
        return (client, bob.open[0])
    }

    func close() {
        alice.messenger.close()
        bob.messenger.close()
    }
}

/// Receives packets and remembers them.
final class Recorder: P2PTransportClientDelegate {
    struct Events: Sendable {
        var opened = 0
        var packets: [[UInt8]] = []
        var closed = 0
    }

    private let state = Mutex(Events())

    var events: Events { state.withLock { $0 } }

    func p2pConnectionOpened(_ connection: any P2PTransportClient) { state.withLock { $0.opened += 1 } }
    func p2pConnection(_ connection: any P2PTransportClient, receivedMessage message: [UInt8]) {
        state.withLock { $0.packets.append(message) }
    }
    func p2pConnectionClosed(_ connection: any P2PTransportClient) { state.withLock { $0.closed += 1 } }
}

/// Two factories that exchange magic packets without a messenger.
final class FactoryPair: Sendable {
    let factories: [any P2PTransportClientFactory]
    private let clients = Mutex<[(side: Int, client: any P2PTransportClient)]>([])
    private let failures = Mutex<[any Error]>([])
    /// The magic packets that were sent.
    let packets = Mutex<[(text: String, metadata: P2PMetadata)]>([])

    /// The device of the other side, for each side.
    private let devices: [DeviceId]

    init(
        _ one: any P2PTransportClientFactory, _ other: any P2PTransportClientFactory, devices: [DeviceId] = []
    ) {
        factories = [one, other]
        guard let device = DeviceId("00000000000000ff") else { preconditionFailure("16 digits are an id") }
        self.devices = devices.isEmpty ? [device, device] : devices
    }

    func handle(_ side: Int) -> P2PTransportFactoryHandle {
        let state = P2PFrameworkState(
            username: side == 0 ? "bob" : "alice", deviceId: devices[side],
            transportLayerIdentifier: factories[side].transportLayerIdentifier)
        return P2PTransportFactoryHandle(state: state) { [weak self] text, metadata in
            guard let self else { return }
            self.packets.withLock { $0.append((text, metadata)) }
            Task {
                let other = 1 - side
                do {
                    let client = try await self.factories[other].receiveMessage(
                        text, metadata: metadata, handle: self.handle(other))
                    if let client { self.clients.withLock { $0.append((other, client)) } }
                } catch {
                    self.failures.withLock { $0.append(error) }
                }
            }
        }
    }

    func connect() async throws -> (any P2PTransportClient, any P2PTransportClient) {
        if let client = try await factories[0].createConnection(handle: handle(0)) {
            clients.withLock { $0.append((0, client)) }
        }
        try await eventuallyAsync("both sides are connected") {
            if let error = failures.withLock({ $0.first }) { throw error }
            return clients.withLock { $0.count == 2 && $0.allSatisfy { $0.client.connected == .connected } }
        }
        let both = clients.withLock { $0.sorted { $0.side < $1.side }.map(\.client) }
        return (both[0], both[1])
    }
}
