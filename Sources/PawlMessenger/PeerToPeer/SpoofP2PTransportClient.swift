// Direct connections in memory, for tests of apps: a network with faults under a seed.

import Synchronization

/// A network in memory that connects ``SpoofP2PTransportClient``s.
public final class SpoofP2PNetwork: Sendable {
    /// How often something goes wrong, in percent of the packets.
    public struct Faults: Sendable, Hashable {
        /// The packet is lost. Real transports never lose one of a connection that goes on.
        public var drop = 0
        /// The packet and all after it wait for some milliseconds.
        public var delay = 0
        /// The connection ends.
        public var disconnect = 0
        /// A bit of the packet is changed.
        public var flip = 0

        /// No faults.
        public init() {}
    }

    private struct State {
        var faults: Faults
        var random: FaultSource
        var waiting: [String: SpoofP2PTransportClient] = [:]
    }

    private let state: Mutex<State>

    /// A network without connections.
    ///
    /// - Parameters:
    ///   - seed: of the faults. They are the same for the same order of packets.
    ///   - faults: none by default.
    public init(seed: UInt64 = 0, faults: Faults = Faults()) {
        state = Mutex(State(faults: faults, random: FaultSource(seed: seed)))
    }

    /// Changes the faults from now on.
    public func setFaults(_ faults: Faults) { state.withLock { $0.faults = faults } }

    enum Fault { case drop, delay, disconnect, flip }

    func draws(_ fault: Fault) -> Bool {
        state.withLock { state in
            let percent =
                switch fault {
                case .drop: state.faults.drop
                case .delay: state.faults.delay
                case .disconnect: state.faults.disconnect
                case .flip: state.faults.flip
                }
            return state.random.draws(percent: percent)
        }
    }

    func number(below bound: Int) -> Int { state.withLock { Int($0.random.next() % UInt64(bound)) } }

    /// Clients that wait for the other side.
    public var waitingClients: Int { state.withLock { $0.waiting.count } }

    /// Makes a client to which the other side connects by a token.
    func listen(_ framework: P2PFrameworkState) -> (client: SpoofP2PTransportClient, token: String) {
        state.withLock { state in
            let token = "spoof-\(state.random.next())"
            let client = SpoofP2PTransportClient(network: self, state: framework, token: token)
            state.waiting[token] = client
            return (client, token)
        }
    }

    func forget(_ token: String) { state.withLock { _ = $0.waiting.removeValue(forKey: token) } }

    func join(_ token: String, _ framework: P2PFrameworkState) throws -> SpoofP2PTransportClient {
        guard let other = state.withLock({ $0.waiting.removeValue(forKey: token) }) else {
            throw P2PError.transport("No client waits for this token.")
        }
        let client = SpoofP2PTransportClient(network: self, state: framework, token: token)
        client.connect(to: other)
        other.connect(to: client)
        return client
    }
}

/// A direct connection in memory. For tests.
public final class SpoofP2PTransportClient: P2PTransportClient {
    private struct State {
        weak var other: SpoofP2PTransportClient?
        var connected = ConnectionState.connecting
        var inbox = P2PInbox()
    }

    /// From the handle of the factory.
    public let state: P2PFrameworkState
    private let network: SpoofP2PNetwork
    private let token: String
    private let inner = Mutex(State())

    init(network: SpoofP2PNetwork, state: P2PFrameworkState, token: String) {
        (self.network, self.state, self.token) = (network, state, token)
    }

    /// Receives the packets.
    public var delegate: (any P2PTransportClientDelegate)? {
        get { inner.withLock { $0.inbox.delegate } }
        set {
            inner.withLock { $0.inbox.delegate = newValue }
            deliver()
        }
    }

    /// Whether packets can be sent.
    public var connected: ConnectionState { inner.withLock { $0.connected } }

    func connect(to other: SpoofP2PTransportClient) {
        inner.withLock { state in
            (state.other, state.connected) = (other, .connected)
            state.inbox.append(.opened)
        }
        deliver()
    }

    /// Sends a packet, with the faults of the network.
    public func sendMessage(_ message: [UInt8]) async throws {
        let (state, other) = inner.withLock { ($0.connected, $0.other) }
        guard state == .connected, let other else { throw P2PError.transport("It is not connected.") }
        guard !network.draws(.disconnect), (1...P2PSettings.packetLimit).contains(message.count) else {
            try await disconnect()
            throw P2PError.transport("It was disconnected.")
        }
        if network.draws(.drop) { return }
        var message = message
        if network.draws(.flip) {
            let bit = network.number(below: message.count * 8)
            message[bit / 8] ^= 1 << (bit % 8)
        }
        other.put(.packet(message))
    }

    /// Closes both sides.
    public func disconnect() async throws {
        network.forget(token)
        let other = inner.withLock { $0.other }
        put(.closed)
        other?.put(.closed)
    }

    private func put(_ item: P2PInbox.Item) {
        inner.withLock { state in
            guard state.connected != .disconnected else { return }
            if case .closed = item { state.connected = .disconnected }
            state.inbox.append(item)
        }
        deliver()
    }

    /// Ours: how long a fault delays packets.
    private static let delay: Duration = .milliseconds(5)

    /// Delivers what waits, one item after the other, if there is a delegate.
    private func deliver() {
        guard inner.withLock({ $0.inbox.begins() }) else { return }
        Task {
            while true {
                if network.draws(.delay) { try? await Task.sleep(for: Self.delay) }
                guard let (item, delegate) = inner.withLock({ $0.inbox.next() }) else { return }
                item.deliver(to: delegate, by: self)
            }
        }
    }
}

/// Makes connections in memory. For tests.
public struct SpoofP2PTransportClientFactory: P2PTransportClientFactory {
    /// When a connection is finished.
    public enum Finish: Sendable, Hashable, CaseIterable {
        /// `createConnection` waits for the other side.
        case delayed
        /// `createConnection` returns a client that is connecting.
        case connecting
        /// `createConnection` returns nil, and a magic packet of the other side brings the client.
        case reply
    }

    private struct Step: Codable {
        var name: String
    }

    /// The name of the transport.
    public let transportLayerIdentifier: String
    /// Memory has no addresses; true only to test what apps do with others.
    public let disclosesAddress: Bool
    private let network: SpoofP2PNetwork
    private let finish: Finish

    /// A factory for one network.
    public init(
        network: SpoofP2PNetwork, finish: Finish = .connecting, transportLayerIdentifier: String = "_spoof",
        disclosesAddress: Bool = false
    ) {
        (self.network, self.finish) = (network, finish)
        (self.transportLayerIdentifier, self.disclosesAddress) = (transportLayerIdentifier, disclosesAddress)
    }

    /// Waits for the other side, or asks it to wait.
    public func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
        guard finish != .reply else {
            try await handle.sendMessage("", metadata: P2PMetadata(Step(name: "ask")))
            return nil
        }
        let client = try await listen(handle)
        guard finish == .delayed else { return client }
        do {
            while client.connected == .connecting { try await Task.sleep(for: .milliseconds(1)) }
        } catch {
            try await client.disconnect()
            throw error
        }
        return client
    }

    private func listen(_ handle: P2PTransportFactoryHandle) async throws -> SpoofP2PTransportClient {
        let (client, token) = network.listen(handle.state)
        try await handle.sendMessage(token, metadata: P2PMetadata(Step(name: "join")))
        return client
    }

    /// Connects to the side that waits, or waits as asked.
    public func receiveMessage(
        _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
    ) async throws -> (any P2PTransportClient)? {
        switch try metadata.decode(Step.self).name {
        case "ask": try await listen(handle)
        case "join": try network.join(text, handle.state)
        default: nil
        }
    }
}
