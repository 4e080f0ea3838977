// One direct connection as the app sees it, and the tasks that run its machine.

import DoubleRatchet
import PeerConnection
import Protection
import Synchronization

/// What a device tells another one besides messages. Only the newest status counts.
public struct P2PStatusMessage: Sendable, Hashable {
    /// What the other person does.
    public struct StatusFlags: OptionSet, Sendable, Hashable {
        /// The bits. Apps may use those from 4 on.
        public let rawValue: UInt8
        /// A set of bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }
        /// The person is typing.
        public static let isTyping = StatusFlags(rawValue: 1)
    }

    /// What the other person does.
    public let flags: StatusFlags
    /// A value of the app's own.
    public let metadata: P2PMetadata
}

/// An open direct connection with another device.
///
/// Both devices are authenticated by the keys of their lists. What is sent is encrypted under keys of this connection,
/// which are wiped with it.
public final class P2PClient: P2PTransportClientDelegate, Sendable {
    enum Event: Sendable {
        case opened
        case message(UInt64, [UInt8])
        case status
        case ended(P2PCloseReason)
    }

    private struct Waiter {
        var number: UInt64
        var continuation: CheckedContinuation<Void, any Error>
    }

    /// What the transport gets, in this order.
    private enum Outbound {
        case packet([UInt8])
        /// Nothing comes after it.
        case end
    }

    private struct State {
        var machine: PeerConnectionMachine
        var random = SystemRandomSource()
        /// Messages that were not acknowledged, in their order.
        var sent: [Waiter] = []
        /// Messages that wait for the window.
        var unsent: [(message: [UInt8], continuation: CheckedContinuation<Void, any Error>)] = []
        /// Packets that the transport has not taken.
        var outbound = 0
        /// What no thread has given to the transport.
        var handover: [Outbound] = []
        /// Whether a thread gives it.
        var isHandingOver = false
        /// Packets that wait for the transport in a task. While there are some, all others follow them.
        var deferred = 0
        /// A status that waits until the transport has taken packets.
        var unsentStatus: (flags: UInt8, metadata: [UInt8])?
        var status: P2PStatusMessage?
        var isStatusAnnounced = false
        var reason: P2PCloseReason?
        var onStatusChange: (@Sendable (P2PStatusMessage) -> Void)?
        var onDisconnect: (@Sendable () -> Void)?

        /// Removes the first of what is to be handed over; nil if nothing is, or if another thread does it.
        ///
        /// - Parameter goesOn: whether the caller does it already.
        mutating func nextOutbound(goesOn: Bool) -> (item: Outbound, isDirect: Bool)? {
            guard goesOn || !isHandingOver else { return nil }
            isHandingOver = !handover.isEmpty
            return isHandingOver ? (handover.removeFirst(), deferred == 0) : nil
        }
    }

    /// The other person; the person's own name for another device of theirs.
    public let username: Username
    /// The other device.
    public let deviceId: DeviceId
    /// The transport that carries it.
    public let transportLayerIdentifier: String

    let id: PeerConnectionID
    let remote: PeerEndpoint
    let events: AsyncStream<Event>
    private let transport: any P2PTransportClient
    private let state: Mutex<State>
    private let eventSink: AsyncStream<Event>.Continuation
    private let packets: AsyncStream<[UInt8]>.Continuation

    init(_ agreement: PeerAgreement, over transport: any P2PTransportClient, settings: P2PSettings) {
        (username, deviceId) = (transport.state.username, transport.state.deviceId)
        transportLayerIdentifier = agreement.transport
        (id, remote, self.transport) = (agreement.connection, agreement.remote, transport)
        var limits = PeerLimits()
        limits.handshake = settings.connectTime.milliseconds
        limits.idle = settings.idleTime.milliseconds
        limits.acknowledgement = settings.acknowledgementTime.milliseconds
        state = Mutex(
            State(machine: PeerConnectionMachine(agreement, limits: limits, now: Self.now())))
        (events, eventSink) = AsyncStream.makeStream(of: Event.self)
        let (packets, sink) = AsyncStream.makeStream(of: [UInt8].self)
        self.packets = sink
        Task { [self] in await send(packets) }
    }

    /// Begins to use the transport.
    func start() {
        transport.delegate = self
        switch transport.connected {
        case .connected: p2pConnectionOpened(transport)
        case .connecting: break
        case .disconnecting, .disconnected: p2pConnectionClosed(transport)
        }
    }

    private static func now() -> Int64 { SystemTime.now().monotonic / 1_000_000 }

    // MARK: State

    /// Whether messages can be sent.
    public var isConnected: Bool { state.withLock { $0.machine.isOpen } }
    /// Why the connection was closed; nil while it is open.
    public var closeReason: P2PCloseReason? { state.withLock { $0.reason } }
    /// The last status of the other side; nil if it has sent none.
    public var remoteStatus: P2PStatusMessage? { state.withLock { $0.status } }

    /// Sets what is called with each new status of the other side. If they come fast, some are skipped.
    public func onStatusChange(perform body: @escaping @Sendable (P2PStatusMessage) -> Void) {
        let current = state.withLock { state in
            state.onStatusChange = body
            return state.status
        }
        if let current { body(current) }
    }

    /// Sets what is called once when the connection is closed; at once if it is.
    public func onDisconnect(perform body: @escaping @Sendable () -> Void) {
        let isClosed = state.withLock { state in
            if state.reason == nil { state.onDisconnect = body }
            return state.reason != nil
        }
        if isClosed { body() }
    }

    // MARK: Sending

    /// Sends a message of at most ``P2PSettings/messageLimit`` bytes, and waits until the other side's app has taken it.
    ///
    /// Messages of one task arrive in their order.
    ///
    /// - Throws: ``P2PError``: `tooLong`, `overloaded`, or `closed`. After `closed` the message may have been taken or
    ///   not: what must not be lost belongs into the chat.
    public func sendMessage(_ message: [UInt8]) async throws {
        guard message.count <= P2PSettings.messageLimit else { throw P2PError.tooLong }
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
            let refusal: P2PError? = state.withLock { state in
                guard state.machine.isOpen else { return .closed(state.reason ?? .closed) }
                guard state.unsent.count < P2PSettings.waitingLimit else { return .overloaded }
                state.unsent.append((message, continuation))
                return nil
            }
            if let refusal { return continuation.resume(throwing: refusal) }
            change { state in Self.sendWaiting(&state) }
        }
    }

    /// Sends a status, such as a typing indicator. It is not acknowledged, and not sent again.
    ///
    /// - Throws: ``P2PError``: `tooLong` for metadata of more than 4096 bytes, or `closed`.
    public func updateStatus(
        flags: P2PStatusMessage.StatusFlags, metadata: P2PMetadata = P2PMetadata()
    ) async throws {
        let bytes = Array(metadata.json.utf8)
        guard bytes.count <= PeerLimits.metadataLimit else { throw P2PError.tooLong }
        let isOpen = state.withLock { state in
            guard state.machine.isOpen else { return false }
            state.unsentStatus = (flags.rawValue, bytes)
            return true
        }
        guard isOpen else { throw P2PError.closed(closeReason ?? .closed) }
        change { state in Self.sendWaiting(&state) }
    }

    /// Closes the connection. Later calls do nothing.
    public func disconnect() async { close(.closed) }

    func close(_ reason: P2PCloseReason) {
        change(reason) { state in state.machine.close() }
    }

    /// The app has taken a message.
    func taken(_ number: UInt64) {
        change { state in state.machine.taken(number, now: Self.now()) }
    }

    func tick() {
        change { state in state.machine.tick(now: Self.now()) }
    }

    /// Sends what the window and the transport allow.
    private static func sendWaiting(_ state: inout State) -> [PeerAction] {
        var actions: [PeerAction] = []
        while let first = state.unsent.first,
            let sent = try? state.machine.send(first.message, now: now())
        {
            state.unsent.removeFirst()
            state.sent.append(Waiter(number: sent.number, continuation: first.continuation))
            actions += sent.actions
        }
        if let status = state.unsentStatus, state.outbound + actions.count < PeerLimits.window {
            state.unsentStatus = nil
            actions += (try? state.machine.send(status: status.flags, metadata: status.metadata, now: now())) ?? []
        }
        return actions
    }

    // MARK: Transport

    /// The transport is connected.
    public func p2pConnectionOpened(_ connection: any P2PTransportClient) {
        change { state in state.machine.connected(random: &state.random, now: Self.now()) }
    }

    /// A packet has come.
    public func p2pConnection(_ connection: any P2PTransportClient, receivedMessage message: [UInt8]) {
        change { state in
            // A packet shows that the transport is connected, even if that was not reported.
            let first = state.machine.connected(random: &state.random, now: Self.now())
            return first + state.machine.received(message, random: &state.random, now: Self.now())
        }
    }

    /// The transport has ended.
    public func p2pConnectionClosed(_ connection: any P2PTransportClient) {
        change { state in state.machine.disconnected() }
    }

    private func send(_ packets: AsyncStream<[UInt8]>) async {
        for await packet in packets {
            do {
                try await transport.sendMessage(packet)
            } catch {
                p2pConnectionClosed(transport)
                break
            }
            change { state in
                state.outbound -= 1
                state.deferred -= 1
                return Self.sendWaiting(&state)
            }
        }
        try? await transport.disconnect()
    }

    /// Gives the transport what waits for it. One thread at a time does, and without the lock, which what comes from the
    /// other side needs meanwhile.
    private func handOver() {
        var goesOn = false
        while let next = state.withLock({ [goesOn] state in state.nextOutbound(goesOn: goesOn) }) {
            goesOn = true
            guard case .packet(let packet) = next.item else {
                packets.finish()
                continue
            }
            // Another task costs as much as a packet, so it is used only for what has to wait.
            let isTaken = next.isDirect && transport.sendAtOnce(packet)
            let isStatusWaiting = state.withLock { state in
                if isTaken { state.outbound -= 1 } else { state.deferred += 1 }
                return isTaken && state.unsentStatus != nil
            }
            if !isTaken { packets.yield(packet) }
            if isStatusWaiting { change { state in Self.sendWaiting(&state) } }
        }
    }

    // MARK: Actions

    /// Changes the state, and runs the actions in their order.
    ///
    /// - Parameter reason: the reason of an end that the app has asked for.
    private func change(_ reason: P2PCloseReason? = nil, _ body: (inout State) -> [PeerAction]) {
        var (acknowledged, refused): ([Waiter], [CheckedContinuation<Void, any Error>]) = ([], [])
        let ended: (reason: P2PCloseReason, handler: (@Sendable () -> Void)?)? = state.withLock { state in
            var actions = body(&state)[...]
            while let action = actions.popFirst() {
                switch action {
                case .transmit(let packet):
                    state.outbound += 1
                    state.handover.append(.packet(packet))
                    if state.outbound > P2PSettings.outboundLimit, !state.machine.isEnded {
                        actions += state.machine.close(.overloaded)
                    }
                case .opened: eventSink.yield(.opened)
                case .deliver(let number, let message): eventSink.yield(.message(number, message))
                case .acknowledged(let number):
                    let count = state.sent.prefix { $0.number <= number }.count
                    acknowledged += state.sent.prefix(count)
                    state.sent.removeFirst(count)
                    actions += Self.sendWaiting(&state)
                case .status(let flags, let metadata):
                    let metadata = P2PMetadata(json: String(decoding: metadata, as: UTF8.self))
                    state.status = P2PStatusMessage(flags: .init(rawValue: flags), metadata: metadata)
                    if !state.isStatusAnnounced { eventSink.yield(.status) }
                    state.isStatusAnnounced = true
                case .ended(let end):
                    let reason = reason ?? P2PCloseReason(end)
                    refused = state.sent.map(\.continuation) + state.unsent.map(\.continuation)
                    (state.sent, state.unsent, state.reason) = ([], [], reason)
                    state.handover.append(.end)
                    defer { (state.onStatusChange, state.onDisconnect) = (nil, nil) }
                    return (reason, state.onDisconnect)
                }
            }
            return nil
        }
        handOver()
        for waiter in acknowledged { waiter.continuation.resume() }
        guard let ended else { return }
        for continuation in refused { continuation.resume(throwing: P2PError.closed(ended.reason)) }
        eventSink.yield(.ended(ended.reason))
        eventSink.finish()
        ended.handler?()
        // The last packets may wait for a peer that does not read.
        Task { [transport] in
            try? await Task.sleep(for: P2PSettings.closingTime)
            try? await transport.disconnect()
        }
    }

    /// Calls the app's function for the newest status.
    func announceStatus() {
        let (body, status) = state.withLock { state in
            state.isStatusAnnounced = false
            return (state.onStatusChange, state.status)
        }
        if let status { body?(status) }
    }
}

extension P2PCloseReason {
    init(_ end: PeerEnd) {
        self =
            switch end {
            case .closed: .closed
            case .closedByPeer: .closedByPeer
            case .lost: .lost
            case .notAuthentic: .notAuthentic
            case .malformed, .otherVersion, .exhausted: .protocolError
            case .handshakeTimeout: .handshakeTimedOut
            case .idle: .idle
            case .notTaken: .notAcknowledged
            case .overloaded: .overloaded
            }
    }
}

extension Duration {
    /// Whole milliseconds.
    var milliseconds: Int64 { components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000 }
}
