// The direct connections of a messenger: attempts on both sides, consent, limits and ends.
//
// Two devices that call each other at once agree on one attempt: the one of the device with the lower id. The other device
// drops its own and answers. A device that has ignored a request and then calls itself names it, so that the other device
// does not wait for an answer to it. A new connection takes the place of an open one, because the side that asks for it has
// lost the old one.

import Devices
import DoubleRatchet
import Envelope
import Messenger
import PeerConnection
import Protection
import Synchronization

/// What the app decides when another device wants to connect directly.
public struct P2PRequest: Sendable, Hashable {
    /// The other person; the person's own name for another device of theirs.
    public let username: Username
    /// The other device.
    public let deviceId: DeviceId
    /// The transport.
    public let transportLayerIdentifier: String
    /// Whether the other device learns a network address of this one.
    public let disclosesAddress: Bool
    /// Whether the person has written to the other one, or the device is the person's own.
    public let isUsedChat: Bool
}

/// What the app is told of direct connections. All methods have defaults.
///
/// The calls for one connection come one after the other and in their order. Those for an open connection over TCP come on
/// the event loop of its socket: code that takes long there, and runs neither on the main actor nor on an executor of the
/// app's own, keeps other sockets waiting, so it belongs into a task of its own.
public protocol P2PEventHandler: Sendable {
    /// Whether another device may connect directly. Only devices with known and unchanged keys ask.
    ///
    /// By default: if ``P2PRequest/isUsedChat``. If not, the other device receives no answer.
    func shouldAcceptP2PConnection(_ request: P2PRequest) async -> Bool
    /// Which transports a chat may use, in both directions. The stricter of it and ``P2PSettings/mode`` counts.
    ///
    /// Asked at each attempt, before and after ``shouldAcceptP2PConnection(_:)``. By default `.direct`.
    func p2pMode(with username: Username) async -> P2PSettings.Mode
    /// A connection was opened, by either side.
    func onP2PClientOpen(_ client: P2PClient, messenger: CypherMessenger) async
    /// A connection was closed. ``P2PClient/closeReason`` says why.
    func onP2PClientClose(_ client: P2PClient, messenger: CypherMessenger) async
    /// A message has come; the return is the acknowledgement.
    func onP2PMessage(_ message: [UInt8], from client: P2PClient) async
}

extension P2PEventHandler {
    /// Accepts devices of people to whom the person has written, and the person's own.
    public func shouldAcceptP2PConnection(_ request: P2PRequest) async -> Bool { request.isUsedChat }
    /// `.direct`: the messenger's mode counts.
    public func p2pMode(with username: Username) async -> P2PSettings.Mode { .direct }
    /// Does nothing.
    public func onP2PClientOpen(_ client: P2PClient, messenger: CypherMessenger) async {}
    /// Does nothing.
    public func onP2PClientClose(_ client: P2PClient, messenger: CypherMessenger) async {}
    /// Does nothing: the message is taken.
    public func onP2PMessage(_ message: [UInt8], from client: P2PClient) async {}
}

/// A device of a person.
struct P2PAddress: Hashable, Sendable {
    var username: Username
    var deviceId: DeviceId
}

/// The result of an attempt, for all who wait for it.
final class P2POutcome: Sendable {
    private struct State {
        var result: Result<P2PClient, P2PError>?
        var waiters: [CheckedContinuation<Result<P2PClient, P2PError>, Never>] = []
    }

    private let state = Mutex(State())

    func fulfil(_ result: Result<P2PClient, P2PError>) {
        let waiters = state.withLock { state in
            guard state.result == nil else { return [] as [CheckedContinuation<Result<P2PClient, P2PError>, Never>] }
            state.result = result
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.resume(returning: result) }
    }

    func value() async throws(P2PError) -> P2PClient {
        let result = await withCheckedContinuation { continuation in
            let result = state.withLock { state in
                if state.result == nil { state.waiters.append(continuation) }
                return state.result
            }
            if let result { continuation.resume(returning: result) }
        }
        return try result.get()
    }
}

/// One try to connect two devices by one factory.
final class P2PAttempt: Sendable {
    struct Packet: Sendable {
        var text: String
        var metadata: P2PMetadata
    }

    private struct State {
        var client: P2PClient?
        var tasks: [Task<Void, Never>] = []
        var packets = 0
        var isWanted = false
        var isEnded = false
    }

    let address: P2PAddress
    let factory: any P2PTransportClientFactory
    let agreement: PeerAgreement
    let deadline: Int64
    let outcome: P2POutcome
    /// A request of the other device that was ignored before; nil if there is none.
    let instead: PeerConnectionID?
    let packets: AsyncStream<Packet>
    private let sink: AsyncStream<Packet>.Continuation
    private let state = Mutex(State())

    init(
        _ address: P2PAddress, _ factory: any P2PTransportClientFactory, _ agreement: PeerAgreement, deadline: Int64,
        instead: PeerConnectionID? = nil
    ) {
        (self.address, self.factory, self.agreement) = (address, factory, agreement)
        (self.deadline, self.instead, outcome) = (deadline, instead, P2POutcome())
        (packets, sink) = AsyncStream.makeStream(of: Packet.self)
    }

    var id: PeerConnectionID { agreement.connection }
    var isInitiator: Bool { agreement.role == .initiator }
    /// Whether this device calls, or has called at the same time as the other one.
    var isOwn: Bool { isInitiator || state.withLock { $0.isWanted } }
    var client: P2PClient? { state.withLock { $0.client } }

    func run(_ body: @escaping @Sendable () async -> Void) {
        let task = Task { await body() }
        let isEnded = state.withLock { state in
            state.tasks.append(task)
            return state.isEnded
        }
        if isEnded { task.cancel() }
    }

    /// This device has called too.
    func noteWanted() { state.withLock { $0.isWanted = true } }

    /// - Returns: false if there are too many.
    func add(_ packet: Packet) -> Bool {
        let isAllowed = state.withLock { state in
            state.packets += 1
            return state.packets <= P2PSettings.packetsPerAttempt
        }
        if isAllowed { sink.yield(packet) }
        return isAllowed
    }

    /// Takes a client; false if there is one already, or if the attempt has ended.
    func attach(_ client: P2PClient) -> Bool {
        state.withLock { state in
            guard state.client == nil, !state.isEnded else { return false }
            state.client = client
            return true
        }
    }

    /// Ends the tasks; the client goes on only if it was opened.
    func end(keepingClient: Bool) {
        let (tasks, client) = state.withLock { state in
            state.isEnded = true
            defer { (state.tasks, state.client) = ([], nil) }
            return (state.tasks, state.client)
        }
        sink.finish()
        for task in tasks { task.cancel() }
        if !keepingClient { client?.close(.closed) }
    }
}

/// All direct connections of one messenger.
final class P2PConnections: Sendable {
    private struct State {
        weak var messenger: CypherMessenger?
        var attempts: [PeerConnectionID: P2PAttempt] = [:]
        var open: [PeerConnectionID: P2PClient] = [:]
        /// Requests of each device since a time.
        var requests: [P2PAddress: (since: Int64, count: Int)] = [:]
        /// The last request of each device to which the app has not consented, until its attempt has ended there.
        var ignored: [P2PAddress: (connection: PeerConnectionID, until: Int64)] = [:]
        /// Attempts that other devices have begun, each until no packet of it can come any more.
        var begun: [PeerConnectionID: Int64] = [:]
        var ticker: Task<Void, Never>?
        var isClosed = false
    }

    /// The kind of the signals.
    static let signalKind = "p2p"

    let settings: P2PSettings
    private let factories: [any P2PTransportClientFactory]
    private let handler: any P2PEventHandler
    private let peers: PeerCache
    private let own: Username
    private let identity: DeviceIdentity
    private let state = Mutex(State())

    /// Factories that may be used: with a name that no factory before has, and of a kind that the mode allows.
    init(
        _ factories: [any P2PTransportClientFactory], settings: P2PSettings, handler: any P2PEventHandler,
        peers: PeerCache, own: Username, identity: DeviceIdentity
    ) {
        var names: Set<String> = []
        self.factories = factories.filter { factory in
            P2PSignal.isTransportName(factory.transportLayerIdentifier)
                && (settings.mode == .direct || !factory.disclosesAddress)
                && names.insert(factory.transportLayerIdentifier).inserted
        }
        (self.settings, self.handler, self.peers) = (settings, handler, peers)
        (self.own, self.identity) = (own, identity)
    }

    /// Takes requests of other devices from now on.
    func start(_ messenger: CypherMessenger) {
        state.withLock { $0.messenger = messenger }
        guard !factories.isEmpty else { return }
        messenger.handleSignals(Self.signalKind) { [weak self] signal in self?.receive(signal) }
    }

    func close() {
        let (attempts, clients, ticker) = state.withLock { state in
            state.isClosed = true
            return (Array(state.attempts.values), Array(state.open.values), state.ticker)
        }
        ticker?.cancel()
        for attempt in attempts { fail(attempt, .closed(.closed)) }
        for client in clients { client.close(.closed) }
    }

    private static func now() -> Int64 { SystemTime.now().monotonic / 1_000_000 }

    // MARK: Lists

    var openClients: [P2PClient] {
        state.withLock { Array($0.open.values) }.sorted { ($0.username, $0.deviceId) < ($1.username, $1.deviceId) }
    }

    /// Attempts that are under way, own ones and those of others.
    var attemptCount: Int { state.withLock { $0.attempts.count } }

    private func openClient(_ address: P2PAddress) -> P2PClient? {
        openClients.first { $0.username == address.username && $0.deviceId == address.deviceId && $0.isConnected }
    }

    /// The devices of a person, apart from this one; empty if their keys are not known.
    func devices(of username: Username) -> [DeviceId] {
        let own = identity.endpoint.device
        return (list(of: username)?.current ?? []).filter { $0.id.value != own }.map { DeviceId($0.id) }
    }

    private func list(of username: Username) -> DeviceList? {
        if username == own { return peers.own?.deviceList }
        guard let peer = peers[.services(username.raw)], peer.offered == nil else { return nil }
        return peer.deviceList
    }

    /// The key that counts for a device now; nil if there is none.
    private func endpoint(_ address: P2PAddress) -> PeerEndpoint? {
        list(of: address.username)?.identity(of: address.deviceId.id).map {
            PeerEndpoint(device: address.deviceId.id.value, identity: $0)
        }
    }

    // MARK: Connecting

    /// Connects, by one factory after the other.
    func connect(to address: P2PAddress, preferred: String?) async throws(P2PError) -> P2PClient {
        if let client = openClient(address),
            let factory = factories.first(where: { $0.transportLayerIdentifier == client.transportLayerIdentifier }),
            await isAllowed(factory, with: address.username)
        {
            return client
        }
        var last = P2PError.noTransport
        let first = factories.filter { $0.transportLayerIdentifier == preferred }
        let rest = factories.filter { $0.transportLayerIdentifier != preferred }
        for factory in first + rest {
            // The mode may have changed during the attempt before.
            guard await isAllowed(factory, with: address.username) else { continue }
            do {
                return try await attempt(address, factory).value()
            } catch {
                last = error
                switch error {
                case .keysMissing, .tooMany, .closed(.closed): throw error
                default: break
                }
            }
        }
        throw last
    }

    /// Whether the mode of a chat allows a factory now.
    private func isAllowed(_ factory: any P2PTransportClientFactory, with username: Username) async -> Bool {
        guard factory.disclosesAddress else { return true }
        return await handler.p2pMode(with: username) == .direct
    }

    /// Begins an attempt, or waits for the one that is under way.
    private func attempt(
        _ address: P2PAddress, _ factory: any P2PTransportClientFactory
    ) throws(P2PError) -> P2POutcome {
        guard let remote = endpoint(address) else { throw .keysMissing }
        var random = SystemRandomSource()
        let agreement = PeerAgreement(
            connection: PeerConnectionID(random: &random),
            secret: SecretBytes(count: PeerAgreement.secretSize, random: &random),
            transport: factory.transportLayerIdentifier, role: .initiator, own: identity.endpoint, remote: remote,
            sign: identity.sign)
        let now = Self.now()
        let ignored = state.withLock { $0.ignored[address] }
        let new = P2PAttempt(
            address, factory, agreement, deadline: now + settings.connectTime.milliseconds,
            instead: ignored.flatMap { $0.until > now ? $0.connection : nil })
        let result: Result<P2PAttempt, P2PError> = state.withLock { state in
            guard !state.isClosed else { return .failure(.closed(.closed)) }
            if let other = state.attempts.values.first(where: { $0.address == address }) { return .success(other) }
            guard hasRoom(state, forOwn: true) else { return .failure(.tooMany) }
            state.attempts[new.id] = new
            return .success(new)
        }
        let attempt = try result.get()
        guard attempt === new else { return attempt.outcome }
        startTicker()
        let handle = handle(new)
        new.run { [weak self] in
            do {
                guard let transport = try await new.factory.createConnection(handle: handle) else { return }
                self?.attach(transport, to: new)
            } catch {
                self?.fail(new, (error as? P2PError) ?? .transport("\(error)"))
            }
        }
        takePackets(of: new, handle)
        return new.outcome
    }

    /// Own attempts and those of others are counted apart: requests that wait for the app's answer, such as those of
    /// strangers, keep this device from no call.
    private func hasRoom(_ state: State, forOwn: Bool) -> Bool {
        state.attempts.values.count { $0.isOwn == forOwn } < settings.attemptLimit
            && state.open.count < settings.openLimit
    }

    private func handle(_ attempt: P2PAttempt) -> P2PTransportFactoryHandle {
        let (address, agreement) = (attempt.address, attempt.agreement)
        let state = P2PFrameworkState(
            username: address.username, deviceId: address.deviceId, transportLayerIdentifier: agreement.transport)
        return P2PTransportFactoryHandle(state: state) { [weak self] text, metadata in
            guard let self, self.isUnderWay(attempt) else { throw P2PError.timedOut }
            // The responder knows the secret; it is not sent back.
            let secret = attempt.isInitiator ? agreement.secret.withUnsafeBytes { Array($0) } : nil
            try await self.send(.packet(text: text, metadata: metadata, secret: secret), attempt)
        }
    }

    private func isUnderWay(_ attempt: P2PAttempt) -> Bool {
        state.withLock { $0.attempts[attempt.id] === attempt }
    }

    private func send(_ kind: P2PSignal.Kind, _ attempt: P2PAttempt) async throws {
        guard let messenger = state.withLock({ $0.messenger }) else { throw P2PError.closed(.closed) }
        let signal = P2PSignal(
            connection: attempt.id, transport: attempt.agreement.transport, kind: kind, instead: attempt.instead)
        do {
            try await messenger.send(
                SignalJob(
                    to: attempt.address.username.raw, device: attempt.address.deviceId.id, kind: Self.signalKind,
                    text: signal.text, lifetime: P2PSettings.magicPacketLifetime))
        } catch CypherMessengerError.keysMissing {
            throw P2PError.keysMissing
        } catch CypherMessengerError.tooLong {
            throw P2PError.tooLong
        }
    }

    private func takePackets(of attempt: P2PAttempt, _ handle: P2PTransportFactoryHandle) {
        attempt.run { [weak self] in
            for await packet in attempt.packets {
                do {
                    let transport = try await attempt.factory.receiveMessage(
                        packet.text, metadata: packet.metadata, handle: handle)
                    if let transport { self?.attach(transport, to: attempt) }
                } catch {
                    if !attempt.isInitiator, self?.isUnderWay(attempt) == true {
                        try? await self?.send(.refused, attempt)
                    }
                    self?.fail(attempt, (error as? P2PError) ?? .transport("\(error)"))
                    return
                }
            }
        }
    }

    /// Runs the handshake over a client of the attempt's factory.
    private func attach(_ transport: any P2PTransportClient, to attempt: P2PAttempt) {
        let client = P2PClient(attempt.agreement, over: transport, settings: settings)
        guard isUnderWay(attempt), attempt.attach(client) else {
            // The attempt has ended, or the factory has made two clients.
            client.start()
            client.close(.closed)
            return
        }
        Task(executorPreference: transport.executor) { [self] in await follow(client, attempt) }
        client.start()
    }

    /// Tells the app what happens to a client.
    private func follow(_ client: P2PClient, _ attempt: P2PAttempt) async {
        var isOpen = false
        for await event in client.events {
            switch event {
            case .opened:
                guard endpoint(attempt.address) == client.remote else {
                    // The device was removed, or the person shows other keys, since the attempt has begun.
                    client.close(.keysChanged)
                    continue
                }
                guard let messenger = opened(client, attempt) else {
                    client.close(.closed)
                    continue
                }
                isOpen = true
                attempt.outcome.fulfil(.success(client))
                await handler.onP2PClientOpen(client, messenger: messenger)
            case .message(let number, let message):
                // The app does not know a connection that was closed at its opening.
                guard isOpen else { continue }
                await handler.onP2PMessage(message, from: client)
                client.taken(number)
            case .status: if isOpen { client.announceStatus() }
            case .ended(let reason):
                let messenger = state.withLock { state in
                    if state.open[client.id] === client { state.open[client.id] = nil }
                    return state.messenger
                }
                fail(attempt, .closed(reason))
                if isOpen, let messenger { await handler.onP2PClientClose(client, messenger: messenger) }
            }
        }
    }

    /// Moves an authenticated client from the attempts to the open ones; nil if the attempt has ended.
    private func opened(_ client: P2PClient, _ attempt: P2PAttempt) -> CypherMessenger? {
        let (messenger, replaced) = state.withLock { state -> (CypherMessenger?, [P2PClient]) in
            guard !state.isClosed, state.attempts[attempt.id] === attempt, let messenger = state.messenger else {
                return (nil, [])
            }
            state.attempts[attempt.id] = nil
            let earlier = state.open.values.filter {
                $0.username == client.username && $0.deviceId == client.deviceId
            }
            for other in earlier { state.open[other.id] = nil }
            state.open[client.id] = client
            return (messenger, earlier)
        }
        for other in replaced { other.close(.replaced) }
        if messenger != nil { attempt.end(keepingClient: true) }
        return messenger
    }

    /// Ends an attempt without a connection. An attempt that has ended stays as it is.
    private func fail(_ attempt: P2PAttempt, _ error: P2PError) {
        let isFirst = state.withLock { state in
            guard state.attempts[attempt.id] === attempt else { return false }
            state.attempts[attempt.id] = nil
            return true
        }
        guard isFirst else { return }
        attempt.end(keepingClient: false)
        attempt.outcome.fulfil(.failure(error))
    }

    // MARK: Requests

    /// Ours: how long after the end of an attempt its packets may come, in milliseconds: their lifetime, and as much for
    /// clocks that differ.
    private static let packetTime = 2 * P2PSettings.magicPacketLifetime * 1000

    /// Takes a signal of another device. Signals of one device come in their order.
    private func receive(_ received: ReceivedSignal) {
        // What is no signal of this version is dropped: a later version may know more.
        guard let signal = P2PSignal(received.text) else { return }
        let address = P2PAddress(username: Username(received.user), deviceId: DeviceId(received.device))
        let attempt = state.withLock { $0.attempts[signal.connection] }
        switch (attempt, signal.kind) {
        case (let attempt?, _) where attempt.address != address || attempt.agreement.transport != signal.transport:
            return
        case (let attempt?, .refused): fail(attempt, .refused)
        case (let attempt?, .packet(let text, let metadata, _)):
            if !attempt.add(.init(text: text, metadata: metadata)) { fail(attempt, .overloaded) }
        case (nil, .packet(let text, let metadata, let secret?)):
            begin(signal, P2PAttempt.Packet(text: text, metadata: metadata), secret: secret, address)
        case (nil, _): return
        }
    }

    private func begin(_ signal: P2PSignal, _ packet: P2PAttempt.Packet, secret: [UInt8], _ address: P2PAddress) {
        guard let remote = endpoint(address) else { return }
        let factory = factories.first { $0.transportLayerIdentifier == signal.transport }
        let now = Self.now()
        let agreement = PeerAgreement(
            connection: signal.connection,
            secret: SecretBytes(count: secret.count) { $0.copyBytes(from: secret) },
            transport: signal.transport, role: .responder, own: identity.endpoint, remote: remote, sign: identity.sign)
        let attempt = P2PAttempt(
            address, factory ?? UnknownFactory(transportLayerIdentifier: signal.transport), agreement,
            deadline: now + settings.connectTime.milliseconds)
        var (superseded, isWanted, isAllowed) = ([] as [P2PAttempt], false, false)
        state.withLock { state in
            state.ignored = state.ignored.filter { $0.value.until > now }
            state.begun = state.begun.filter { $0.value > now }
            // An id begins one attempt: each packet repeats the request, and some come when it has ended. With the id of an
            // open connection, one of the two would be in no list, and would be closed by nothing.
            guard !state.isClosed, state.begun[signal.connection] == nil, state.open[signal.connection] == nil,
                notes(address, now, &state.requests)
            else { return }
            let others = state.attempts.values.filter { $0.address == address }
            if others.contains(where: \.isInitiator) {
                // Both call at once: the call of the lower id counts, unless the other device has ignored it.
                let isIgnored = others.contains { $0.isInitiator && $0.id == signal.instead }
                guard isIgnored || identity.endpoint.device > address.deviceId.id.value else { return }
                isWanted = true
                attempt.noteWanted()
            }
            // The other device has given up its earlier attempt.
            superseded = others
            for other in others { state.attempts[other.id] = nil }
            guard hasRoom(state, forOwn: isWanted) else { return }
            state.attempts[attempt.id] = attempt
            state.begun[attempt.id] = attempt.deadline + Self.packetTime
            isAllowed = true
        }
        for other in superseded {
            other.end(keepingClient: false)
            guard isAllowed else {
                other.outcome.fulfil(.failure(.tooMany))
                continue
            }
            Task {
                do throws(P2PError) {
                    other.outcome.fulfil(.success(try await attempt.outcome.value()))
                } catch {
                    other.outcome.fulfil(.failure(error))
                }
            }
        }
        guard isAllowed else { return }
        startTicker()
        _ = attempt.add(packet)
        attempt.run { [weak self, isWanted] in
            guard let self else { return }
            var isAllowed = await self.isAllowed(attempt.factory, with: address.username)
            guard await self.isAccepted(attempt, isWanted: isWanted, isAllowed: isAllowed), !Task.isCancelled else {
                // No answer: a stranger does not learn whether this device is online.
                return self.ignore(attempt)
            }
            // The person may have changed the mode while they were asked.
            if isAllowed { isAllowed = await self.isAllowed(attempt.factory, with: address.username) }
            guard isAllowed, !Task.isCancelled else {
                try? await self.send(.refused, attempt)
                return self.fail(attempt, .refused)
            }
            self.takePackets(of: attempt, self.handle(attempt))
        }
    }

    /// Ends an attempt of another device without an answer.
    private func ignore(_ attempt: P2PAttempt) {
        state.withLock { state in
            guard state.attempts[attempt.id] === attempt else { return }
            state.ignored[attempt.address] = (attempt.id, attempt.deadline)
        }
        fail(attempt, .refused)
    }

    /// - Returns: whether the device may ask again.
    private func notes(
        _ address: P2PAddress, _ now: Int64, _ requests: inout [P2PAddress: (since: Int64, count: Int)]
    ) -> Bool {
        requests = requests.filter { now - $0.value.since < settings.requestTime.milliseconds }
        requests[address, default: (now, 0)].count += 1
        return requests[address, default: (now, 0)].count <= P2PSettings.requestLimit
    }

    /// Ours: messages of a chat among which one of the person's own makes it a used one.
    private static let messagesToLookAt = 200

    /// - Parameters:
    ///   - isWanted: whether this device has asked for a connection itself.
    ///   - isAllowed: whether the chat's mode allows the factory. If not, it is asked for nothing.
    private func isAccepted(_ attempt: P2PAttempt, isWanted: Bool, isAllowed: Bool) async -> Bool {
        if isWanted { return true }
        guard let messenger = state.withLock({ $0.messenger }) else { return false }
        let username = attempt.address.username
        var isUsed = username == own
        if !isUsed {
            let chat = messenger.createPrivateChat(with: username)
            isUsed = (try? await chat.messages(limit: Self.messagesToLookAt))?.contains(where: \.isOwn) ?? false
        }
        return await handler.shouldAcceptP2PConnection(
            P2PRequest(
                username: username, deviceId: attempt.address.deviceId,
                transportLayerIdentifier: attempt.agreement.transport,
                disclosesAddress: isAllowed && attempt.factory.disclosesAddress, isUsedChat: isUsed))
    }

    // MARK: Times

    /// Looks at the times while there are attempts or connections.
    private func startTicker() {
        state.withLock { state in
            guard state.ticker == nil, !state.isClosed else { return }
            state.ticker = Task { [weak self, pause = settings.tick] in
                while !Task.isCancelled {
                    try? await Task.sleep(for: pause)
                    guard self?.tick() == true else { return }
                }
            }
        }
    }

    /// - Returns: whether there is more to look at later.
    private func tick() -> Bool {
        let now = Self.now()
        let (attempts, clients) = state.withLock { ($0.attempts.values.map(\.self), $0.open.values.map(\.self)) }
        for attempt in attempts {
            if attempt.deadline <= now { fail(attempt, .timedOut) } else { attempt.client?.tick() }
        }
        for client in clients {
            let address = P2PAddress(username: client.username, deviceId: client.deviceId)
            // A device that was removed, or whose person shows other keys, is not trusted any more.
            if endpoint(address) == client.remote { client.tick() } else { client.close(.keysChanged) }
        }
        return state.withLock { state in
            guard state.attempts.isEmpty, state.open.isEmpty else { return true }
            state.ticker = nil
            return false
        }
    }
}

/// Stands for a factory that is not registered: the other device is told after consent.
private struct UnknownFactory: P2PTransportClientFactory {
    let transportLayerIdentifier: String
    var disclosesAddress: Bool { false }

    func receiveMessage(
        _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
    ) async throws -> (any P2PTransportClient)? { throw P2PError.noTransport }

    func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
        throw P2PError.noTransport
    }
}
