// A server in memory, for tests of apps: it stores and forwards for each device, and has faults under a seed.

import Foundation
import Synchronization

/// A server in memory. Its clients are ``SpoofTransportClient``s.
public final class SpoofServer: Sendable {
    /// How often something goes wrong, in percent of the calls or deliveries.
    public struct Faults: Sendable, Hashable {
        /// A call fails before it has an effect.
        public var drop = 0
        /// A call has its effect, and its answer is lost.
        public var lostAnswer = 0
        /// A call finds its client offline, for some milliseconds.
        public var offline = 0
        /// An event waits for some milliseconds.
        public var delay = 0
        /// An event is delivered twice.
        public var duplicate = 0
        /// A later event is delivered first.
        public var reorder = 0
        /// The server forgets all connections; what was not acknowledged is delivered again.
        public var crash = 0

        /// No faults.
        public init() {}

        /// The same rate for all faults.
        public static func all(_ percent: Int) -> Faults {
            var faults = Faults()
            (faults.drop, faults.lostAnswer, faults.offline, faults.delay) = (percent, percent, percent, percent)
            (faults.duplicate, faults.reorder, faults.crash) = (percent, percent, percent)
            return faults
        }
    }

    struct Address: Hashable {
        var user: Username
        var device: DeviceId
    }

    struct Delivery {
        var number: UInt64
        var event: CypherServerEvent
    }

    enum Fault: CaseIterable { case drop, lostAnswer, offline, delay, duplicate, reorder, crash }

    /// What is published. The devices are read once, not for each message.
    private struct Account {
        let config: UserConfig
        let devices: [DeviceId]
        let masterDevice: DeviceId?

        init(_ config: UserConfig) {
            (self.config, devices, masterDevice) = (config, config.devices, config.masterDevice)
        }
    }

    private struct State {
        var faults: Faults
        var random: FaultSource
        var accounts: [Username: Account] = [:]
        var mailboxes: [Address: [Delivery]] = [:]
        var signals: [Address: AsyncStream<Void>.Continuation] = [:]
        var offlineUntil: [Address: ContinuousClock.Instant] = [:]
        var blobs: [String: [UInt8]] = [:]
        var next: UInt64 = 0
        var seen: [[UInt8]] = []
        var takesPublications = true
    }

    private let state: Mutex<State>

    /// A server without accounts.
    ///
    /// - Parameters:
    ///   - seed: of the faults. They are the same for the same order of calls.
    ///   - faults: none by default.
    public init(seed: UInt64 = 0, faults: Faults = Faults()) {
        state = Mutex(State(faults: faults, random: FaultSource(seed: seed)))
    }

    /// Changes the faults from now on.
    public func setFaults(_ faults: Faults) {
        state.withLock { ($0.faults, $0.offlineUntil) = (faults, [:]) }
        wakeAll()
    }

    /// The client of a device, for `usingTransport`.
    public func client(for request: TransportCreationRequest) -> SpoofTransportClient {
        SpoofTransportClient(server: self, Address(user: request.username, device: request.deviceId))
    }

    /// The bytes of all messages that the server has received, for tests that look for texts in them.
    public var receivedBytes: [[UInt8]] { state.withLock { $0.seen } }

    /// How many events wait for devices that are in the list of their account.
    public var waitingEvents: Int { state.withLock { $0.mailboxes.values.reduce(0) { $0 + $1.count } } }

    // MARK: Faults

    /// While it takes none, calls that publish keys fail as if the server were away.
    package func setTakesPublications(_ takesPublications: Bool) {
        state.withLock { $0.takesPublications = takesPublications }
    }

    /// Whether a fault happens now.
    func draws(_ fault: Fault) -> Bool {
        state.withLock { state in
            let percent =
                switch fault {
                case .drop: state.faults.drop
                case .lostAnswer: state.faults.lostAnswer
                case .offline: state.faults.offline
                case .delay: state.faults.delay
                case .duplicate: state.faults.duplicate
                case .reorder: state.faults.reorder
                case .crash: state.faults.crash
                }
            return state.random.draws(percent: percent)
        }
    }

    /// Ours: how long a fault takes a client offline.
    private static let offlineTime: Duration = .milliseconds(20)

    func isOffline(_ address: Address) -> Bool {
        state.withLock { ($0.offlineUntil[address] ?? .now) > .now }
    }

    /// Runs a call with the faults of the network around it.
    func call<Value>(by address: Address, _ body: () throws -> Value) throws -> Value {
        if draws(.offline) { state.withLock { $0.offlineUntil[address] = .now + Self.offlineTime } }
        if draws(.crash) { wakeAll() }
        guard !isOffline(address), !draws(.drop) else { throw CypherTransportError.offline }
        let value = try body()
        guard !draws(.lostAnswer) else { throw CypherTransportError.offline }
        return value
    }

    // MARK: Accounts

    func config(of user: Username) throws -> UserConfig {
        guard let account = state.withLock({ $0.accounts[user] }) else { throw CypherTransportError.notFound }
        return account.config
    }

    /// Publishes a configuration. An account's master device only, and no list that does not continue the last one.
    func publish(_ config: UserConfig, by address: Address) throws {
        try state.withLock { state in
            guard state.takesPublications else { throw CypherTransportError.offline }
            if let earlier = state.accounts[address.user]?.config, !config.continues(earlier) {
                throw CypherTransportError.conflict
            }
            let account = Account(config)
            guard account.masterDevice == address.device else {
                throw CypherTransportError.refused("Only the master device publishes.")
            }
            state.accounts[address.user] = account
            state.mailboxes = state.mailboxes.filter {
                $0.key.user != address.user || account.devices.contains($0.key.device)
            }
        }
    }

    /// - Throws: an error if the sender's account does not have the device: it is muted until it is adopted.
    private static func demand(_ sender: Address, _ state: State) throws {
        guard state.accounts[sender.user]?.devices.contains(sender.device) == true else {
            throw CypherTransportError.refused("The device is not in the account's list.")
        }
    }

    // MARK: Mail

    func send(_ event: CypherServerEvent, bytes: [UInt8], to addresses: [Address], by sender: Address) throws {
        try state.withLock { state in
            try Self.demand(sender, state)
            state.seen.append(bytes)
            for address in addresses {
                guard state.accounts[address.user]?.devices.contains(address.device) == true else {
                    throw CypherTransportError.notFound
                }
            }
            for address in addresses { Self.put(event, address, &state) }
        }
    }

    /// Passes an event on to all devices of a person, as far as they have an account.
    func sendToAll(_ event: CypherServerEvent, of user: Username, by sender: Address) throws {
        try state.withLock { state in
            try Self.demand(sender, state)
            for device in state.accounts[user]?.devices ?? [] {
                Self.put(event, Address(user: user, device: device), &state)
            }
        }
    }

    /// Passes the request of a device on to the master device of its account.
    func register(_ config: UserDeviceConfig, by sender: Address) throws {
        try state.withLock { state in
            guard let master = state.accounts[sender.user]?.masterDevice else { throw CypherTransportError.notFound }
            Self.put(
                .requestDeviceRegistery(config), Address(user: sender.user, device: master), &state)
        }
    }

    private static func put(_ event: CypherServerEvent, _ address: Address, _ state: inout State) {
        state.next += 1
        state.mailboxes[address, default: []].append(Delivery(number: state.next, event: event))
        state.signals[address]?.yield()
    }

    /// The next event for a device; nil if there is none.
    func next(for address: Address) -> Delivery? {
        guard !isOffline(address) else { return nil }
        let later = draws(.reorder)
        return state.withLock { state in
            let mailbox = state.mailboxes[address] ?? []
            return later && mailbox.count > 1 ? mailbox[1] : mailbox.first
        }
    }

    func acknowledge(_ number: UInt64, by address: Address) {
        state.withLock { $0.mailboxes[address]?.removeAll { $0.number == number } }
    }

    func connect(_ address: Address, _ signal: AsyncStream<Void>.Continuation) {
        state.withLock { $0.signals[address] = signal }
        signal.yield()
    }

    private func wakeAll() {
        let signals = state.withLock { $0.signals.values.map(\.self) }
        for signal in signals { signal.yield() }
    }

    // MARK: Blobs

    func put(blob: [UInt8]) -> String {
        state.withLock { state in
            state.next += 1
            let id = "blob-\(state.next)"
            state.blobs[id] = blob
            return id
        }
    }

    func removeBlob(_ id: String) { state.withLock { $0.blobs[id.lowercased()] = nil } }

    func blob(_ id: String) -> [UInt8]? { state.withLock { $0.blobs[id.lowercased()] } }
}

/// A transport to a ``SpoofServer``, in memory. For tests.
public final class SpoofTransportClient: CypherServerTransportClient {
    private struct State {
        weak var delegate: (any CypherTransportClientDelegate)?
        var isOnline = true
        var supportsMultiRecipientMessages = false
    }

    private let server: SpoofServer
    private let address: SpoofServer.Address
    private let state = Mutex(State())
    private let signal: AsyncStream<Void>.Continuation
    private let task = Mutex<Task<Void, Never>?>(nil)

    init(server: SpoofServer, _ address: SpoofServer.Address) {
        (self.server, self.address) = (server, address)
        let (signals, signal) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        self.signal = signal
        task.withLock { task in
            task = Task { [weak self] in
                for await _ in signals { await self?.deliver() }
            }
        }
        server.connect(address, signal)
    }

    deinit {
        signal.finish()
        task.withLock { $0?.cancel() }
    }

    /// Receives the server's events.
    public var delegate: (any CypherTransportClientDelegate)? {
        get { state.withLock { $0.delegate } }
        set {
            state.withLock { $0.delegate = newValue }
            signal.yield()
        }
    }

    /// Whether the client is online, apart from faults.
    public var authenticated: AuthenticationState {
        state.withLock { $0.isOnline ? .authenticated : .unauthenticated }
    }

    /// Whether messages to several devices are sent as one. May change at any time.
    public var supportsMultiRecipientMessages: Bool {
        get { state.withLock { $0.supportsMultiRecipientMessages } }
        set { state.withLock { $0.supportsMultiRecipientMessages = newValue } }
    }

    /// Goes online.
    public func reconnect() async throws { setOnline(true) }

    /// Goes offline: calls fail, and events wait.
    public func disconnect() async throws { setOnline(false) }

    private func setOnline(_ isOnline: Bool) {
        state.withLock { $0.isOnline = isOnline }
        delegate?.authenticationChanged(to: authenticated)
        signal.yield()
    }

    // MARK: Deliveries

    /// Ours: the pause after a delivery that was not acknowledged.
    private static let pause: Duration = .milliseconds(5)

    private func deliver() async {
        while !Task.isCancelled, authenticated == .authenticated, let delegate {
            guard let delivery = server.next(for: address) else {
                guard server.isOffline(address) else { return }
                try? await Task.sleep(for: Self.pause)
                continue
            }
            if server.draws(.delay) { try? await Task.sleep(for: Self.pause) }
            do {
                if server.draws(.duplicate) { try await delegate.receiveServerEvent(delivery.event) }
                try await delegate.receiveServerEvent(delivery.event)
                if !server.draws(.lostAnswer) { server.acknowledge(delivery.number, by: address) }
            } catch is MessengerClosed {
                return
            } catch {
                try? await Task.sleep(for: Self.pause)
            }
        }
    }

    // MARK: Calls

    private func call<Value>(_ body: () throws -> Value) throws -> Value {
        guard authenticated == .authenticated else { throw CypherTransportError.offline }
        return try server.call(by: address, body)
    }

    /// Stores a message for a device.
    public func sendMessage(
        _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId, messageId: String
    ) async throws {
        try call {
            try server.send(
                .messageSent(message, id: messageId, byUser: address.user, deviceId: address.device),
                bytes: message.bytes, to: [.init(user: username, device: otherUserDeviceId)], by: address)
        }
    }

    /// Stores a message for several devices.
    public func sendMultiRecipientMessage(
        _ message: MultiRecipientCypherMessage, messageId: String
    ) async throws {
        try call {
            try server.send(
                .multiRecipientMessageSent(message, id: messageId, byUser: address.user, deviceId: address.device),
                bytes: message.message.bytes,
                to: message.recipients.map { .init(user: $0.user, device: $0.deviceId) }, by: address)
        }
    }

    /// Returns the published keys of a person.
    public func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
        try call { try server.config(of: username) }
    }

    /// Publishes the keys of the own account.
    public func publishKeyBundle(_ data: UserConfig) async throws {
        try call { try server.publish(data, by: address) }
    }

    /// Passes a request on to the master device.
    public func requestDeviceRegistery(_ config: UserDeviceConfig) async throws {
        try call { try server.register(config, by: address) }
    }

    /// Passes a receipt on to all devices of a person.
    public func sendMessageReadReceipt(byRemoteId remoteId: String, to username: Username) async throws {
        try call {
            try server.sendToAll(
                .messageDisplayed(by: address.user, deviceId: address.device, id: remoteId), of: username, by: address)
        }
    }

    /// Passes a receipt on to all devices of a person.
    public func sendMessageReceivedReceipt(byRemoteId remoteId: String, to username: Username) async throws {
        try call {
            try server.sendToAll(
                .messageReceived(by: address.user, deviceId: address.device, id: remoteId), of: username, by: address)
        }
    }

    /// Stores a value.
    public func publishBlob<C: Codable & Sendable>(_ blob: C) async throws -> ReferencedBlob<C> {
        let bytes = Array(try JSONEncoder().encode(blob))
        return ReferencedBlob(id: try call { server.put(blob: bytes) }, blob: blob)
    }

    /// Removes a stored value.
    public func removePublishedBlob(byId id: String) async throws { try call { server.removeBlob(id) } }

    /// Returns a stored value.
    public func readPublishedBlob<C: Codable & Sendable>(
        byId id: String, as type: C.Type
    ) async throws -> ReferencedBlob<C>? {
        guard let bytes = try call({ server.blob(id) }) else { return nil }
        return ReferencedBlob(id: id, blob: try JSONDecoder().decode(C.self, from: Data(bytes)))
    }
}
