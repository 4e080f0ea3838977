// Joins the machine of calls to the messenger and to the app's RTC session. Signals go in and are handed over on a lane of
// their own for each side of a call, so that neither a slow session nor another call delays the messenger.

import CallSignalling
import Devices
import DoubleRatchet
import Envelope
import Foundation
import Messenger
import Protection
import Synchronization

/// The calls of one messenger.
final class CallRouter: Sendable {
    typealias Payload = CallEnvelope.Payload
    typealias Message = CallMessage<Payload>

    static let kind = "call"
    /// The account of a server without keys in the machine. No account has white space in its name.
    static let plainServer = "server without keys"

    /// What is known of one side.
    private struct Known {
        var call: Call
        var role: CallRole
    }

    private struct Sender: Hashable {
        var key: CallKey
        var device: DeviceID
    }

    /// The parts of a ciphertext that have come.
    private struct Partial {
        var connectionId: String?
        var count: Int
        var next = 0
        var bytes = Data()
    }

    /// The safety number of two accounts.
    private struct Pin {
        var roots: [IdentityKey]
        var digits: String
    }

    private struct State {
        var machine: CallMachine<Payload>
        weak var messenger: CypherMessenger?
        weak var session: (any RTCSession)?
        var options = CallOptions()
        var known: [CallKey: Known] = [:]
        var lanes: [CallKey: CallLane] = [:]
        /// The version of the last list of participants.
        var rosters: [CallRoute: Int] = [:]
        /// Ciphertexts of which the last part has not come.
        var partial: [Sender: Partial] = [:]
        /// The last message of each side that is being sent.
        var tails: [CallKey: (id: UInt64, task: Task<Void, any Error>)] = [:]
        var nextTail: UInt64 = 0
        var statistics = CallStatistics()
        var wake: (at: Int64, task: Task<Void, Never>)?
        var isClosed = false
    }

    private let own: Username
    private let state: Mutex<State>
    /// The last safety number. It takes thousands of hashes, and messages of the server come by the dozen.
    private let pin = Mutex<Pin?>(nil)

    init(own: Username) {
        self.own = own
        state = Mutex(State(machine: CallMachine(own: own.raw)))
    }

    var statistics: CallStatistics { state.withLock { $0.statistics } }

    func start(_ messenger: CypherMessenger, _ session: any RTCSession, _ options: CallOptions) {
        state.withLock {
            ($0.messenger, $0.session, $0.options) = (messenger, session, options)
            $0.machine.times = options.times
        }
        messenger.handleSignals(Self.kind) { [weak self] signal in self?.receive(signal) }
    }

    func close() {
        let (lanes, wake) = state.withLock { state in
            defer { (state.lanes, state.known, state.wake, state.isClosed) = ([:], [:], nil, true) }
            return (state.lanes.values, state.wake)
        }
        for lane in lanes { lane.finish(nil) }
        wake?.task.cancel()
    }

    // MARK: Names

    private func isGroup(_ call: Call, _ options: CallOptions) -> Bool {
        call.recipients.contains { $0.secretName.isSame(as: options.sfuName) }
    }

    private func names(_ call: Call) -> Set<Username> {
        Set(([call.sender] + call.recipients).map { Username($0.secretName) })
    }

    /// The participant of a call with an account, in the spelling of the call; nil if it is not in the call.
    private func participant(_ user: String, of call: Call) -> Call.Participant? {
        ([call.sender] + call.recipients).first { Username($0.secretName).raw.isSame(as: user) }
    }

    private func isOwn(_ outgoing: CallOutgoing<Payload>) -> Bool { outgoing.user.isSame(as: own.raw) }

    /// The account of the server; nil if there is none.
    private func server(_ options: CallOptions) -> String? {
        switch options.sfu {
        case .device(let account, _): account.raw
        case .plain: Self.plainServer
        case nil: nil
        }
    }

    private func route(_ call: Call) throws(CallError) -> CallRoute {
        guard CallEnvelope.isWellFormed(call), let route = CallRoute(call.sharedCommunicationId) else {
            throw .malformed
        }
        return route
    }

    /// The account to which the descriptions of a call go, and what it is.
    private func destination(of call: Call, _ options: CallOptions) throws(CallError) -> (String, CallRole) {
        if options.isServer { return (Username(call.sender.secretName).raw, .client) }
        if isGroup(call, options) {
            guard let server = server(options) else { throw .noServer }
            return (server, .sfu)
        }
        guard call.recipients.count == 1, names(call).contains(own), names(call).count == 2 else {
            throw .notParticipant
        }
        let other = Username(call.sender.secretName) == own ? call.recipients[0] : call.sender
        return (Username(other.secretName).raw, .person)
    }

    // MARK: Sending

    func send(offer call: Call) async throws {
        guard let sdp = call.sessionDescription else { throw CallError.malformed }
        try await send(call) { [.offer(Payload(call: $0, sdp: sdp))] }
    }

    func send(answer call: Call, _ metadata: SDPNegotiationMetadata) async throws {
        guard let sdp = call.sessionDescription, let device = DeviceId(metadata.offerDeviceId) else {
            throw CallError.malformed
        }
        let options = state.withLock { $0.options }
        let (user, _) = try destination(of: call, options)
        guard Username(metadata.offerSecretName).raw.isSame(as: user) else { throw CallError.notParticipant }
        try await send(call, to: device.id) { [.answer(Payload(call: $0, sdp: sdp))] }
    }

    func send(candidate: IceCandidate, _ call: Call) async throws {
        guard CallEnvelope.isWellFormed(candidate) else { throw CallError.malformed }
        try await send(call) { _ in [.candidate(Payload(candidate: candidate))] }
    }

    func send(ciphertext: Data, _ connectionId: String, to recipient: String, _ call: Call) async throws {
        guard connectionId.utf8.count <= CallEnvelope.connectionLimit else { throw CallError.malformed }
        guard ciphertext.count <= CallEnvelope.ciphertextLimit else { throw CallError.tooLong }
        try await send(call, toParticipant: recipient) {
            CallEnvelope.parts(of: ciphertext, connectionId, $0).map { .ciphertext($0) }
        }
    }

    func send(control: GroupControl, to recipient: String, _ call: Call) async throws {
        let isServer = state.withLock { $0.options.isServer }
        let isInvitation = control == .invitation
        // A server knows the participants, and participants invite.
        guard isServer != isInvitation else { throw CallError.notParticipant }
        try await send(call, toParticipant: recipient) {
            [.control(Payload(call: isInvitation ? $0 : nil, control: control), invites: isInvitation)]
        }
    }

    /// Sends messages of a call, after those before them.
    ///
    /// - Parameter recipient: nil for the account to which the descriptions go.
    private func send(
        _ call: Call, toParticipant recipient: String? = nil, to device: DeviceID? = nil,
        _ contents: (Call) -> [Message.Content]
    ) async throws {
        let route = try route(call)
        let options = state.withLock { $0.options }
        var (user, role) = try destination(of: call, options)
        if let recipient, role != .person {
            // Neither ciphertexts nor invitations are for the server.
            let name = Username(recipient)
            let isServer = recipient.isSame(as: options.sfuName) || server(options).map(name.raw.isSame) ?? false
            guard !isServer, name != own, names(call).contains(name) else { throw CallError.notParticipant }
            (user, role) = (name.raw, role == .client ? .client : .participant)
        } else if let recipient {
            guard Username(recipient).raw.isSame(as: user) else { throw CallError.notParticipant }
        }
        var wireCall = call
        wireCall.metadata = nil
        let messages = contents(wireCall)
        for message in messages {
            let payload = CallEnvelope.parts(of: message).1
            guard try CallEnvelope.encoder().encode(payload).count <= CallEnvelope.payloadLimit else {
                throw CallError.tooLong
            }
        }
        let key = CallKey(route, user)
        let place = (key, role, device)
        let task = try state.withLock { state in
            try enqueue(key, &state) { [self] in
                for message in messages { try await transmit(message, call, place, options) }
            }
        }
        try await task.value
    }

    /// Runs the sends to one side of a call one after the other. Those to other sides do not wait: each side has an order
    /// of its own, and a participant without keys holds up nobody else.
    private func enqueue(
        _ key: CallKey, _ state: inout State, _ body: @escaping @Sendable () async throws -> Void
    ) throws -> Task<Void, any Error> {
        guard !state.isClosed else { throw MessengerClosed() }
        let previous = state.tails[key]?.task
        state.nextTail += 1
        let id = state.nextTail
        let task = Task {
            _ = await previous?.result
            defer { self.state.withLock { if $0.tails[key]?.id == id { $0.tails[key] = nil } } }
            try await body()
        }
        state.tails[key] = (id, task)
        return task
    }

    private func transmit(
        _ content: Message.Content, _ call: Call, _ place: (key: CallKey, role: CallRole, device: DeviceID?),
        _ options: CallOptions
    ) async throws {
        if place.role == .sfu { try await checkServer(options) }
        let output = try state.withLock { state in
            let output: [CallOutgoing<Payload>]
            do throws(CallRefusal) {
                output = try state.machine.send(
                    content, place.key, call: call.id.uuidString, as: place.role, to: place.device,
                    now: SystemTime.now())
            } catch {
                throw CallError(error)
            }
            state.known[place.key] = Known(call: call, role: place.role)
            rearm(&state)
            return output
        }
        for (number, outgoing) in output.enumerated() {
            // The call does not wait for the notice to the person's other devices.
            guard !isOwn(outgoing) else {
                transmitLater(outgoing, call)
                continue
            }
            do {
                try await transmit(outgoing, call)
            } catch {
                state.withLock { state in
                    state.machine.takeBack(Array(output[number...]))
                    if !state.machine.contains(place.key) { state.known[place.key] = nil }
                    rearm(&state)
                }
                throw error
            }
        }
        if place.role == .sfu, case .offer = content {
            state.withLock { state in perform(state.machine.joined(place.key.route), &state) }
        }
    }

    /// Sends an envelope to its device, or to the server without keys.
    private func transmit(_ outgoing: CallOutgoing<Payload>, _ call: Call) async throws {
        let (messenger, options) = state.withLock { ($0.messenger, $0.options) }
        let message = outgoing.message
        let (kind, payload) = CallEnvelope.parts(of: message.content)
        let isToServer = server(options).map(outgoing.user.isSame) ?? false
        if isToServer { try await checkServer(options) }
        // The recipient's name in the spelling of the call.
        let to =
            isToServer
            ? options.sfuName
            : participant(outgoing.user, of: call)?.secretName ?? outgoing.user
        let envelope = CallEnvelope(
            callId: call.sharedCommunicationId, call: UUID(uuidString: message.call) ?? call.id,
            from: options.isServer ? options.sfuName : own.raw, to: to, kind, (message.stream, message.number), payload)
        let text = try envelope.text()
        guard text.utf8.count <= ChatContent.textLimit else { throw CallError.tooLong }
        if outgoing.user.isSame(as: Self.plainServer) {
            guard case .plain(_, let send) = options.sfu else { throw CallError.noServer }
            return try await send(text)
        }
        guard let messenger else { throw CallError.noSession }
        let job = SignalJob(
            to: outgoing.user, device: outgoing.device, kind: Self.kind, text: text,
            lifetime: envelope.lifetime(options.times))
        try await withKeys { try await messenger.send(job) }
    }

    /// Sends a message that nothing waits for, and tries again while it matters: after the time of an answer no device
    /// rings any more.
    private func transmitLater(_ outgoing: CallOutgoing<Payload>, _ call: Call) {
        Task { [weak self] in
            guard let time = self?.state.withLock({ $0.options.times.answering }) else { return }
            let isSent = await Self.persist(for: .milliseconds(time)) {
                guard let self, !self.state.withLock({ $0.isClosed }) else { throw MessengerClosed() }
                try await self.transmit(outgoing, call)
            }
            if !isSent { self?.state.withLock { $0.statistics.unsent += 1 } }
        }
    }

    /// Ours: the longest pause between two attempts to send a message that nothing waits for.
    private static let longestPause: Duration = .seconds(4)

    /// Does something again and again until it succeeds.
    ///
    /// - Returns: false if it has not succeeded in this time, or if the messenger is closed.
    static func persist(for time: Duration, _ body: () async throws -> Void) async -> Bool {
        let end = ContinuousClock.now + time
        var pause = keyPause
        while true {
            do {
                try await body()
                return true
            } catch is MessengerClosed {
                return false
            } catch {
                guard ContinuousClock.now + pause < end else { return false }
            }
            try? await Task.sleep(for: pause)
            pause = min(pause * 2, longestPause)
        }
    }

    /// Ours: how often and how long a message waits for keys that are being read. Half of that is enough for a server
    /// that answers.
    private static let keyAttempts = 20
    private static let keyPause: Duration = .milliseconds(250)

    private func withKeys(_ body: () async throws -> Void) async throws {
        for _ in 1..<Self.keyAttempts {
            do {
                return try await body()
            } catch CypherMessengerError.keysMissing {
                try await Task.sleep(for: Self.keyPause)
            }
        }
        do {
            try await body()
        } catch CypherMessengerError.keysMissing {
            throw CallError.keysMissing
        }
    }

    /// Checks that the server still has the pinned keys.
    private func checkServer(_ options: CallOptions) async throws {
        guard case .device(let account, let pinned) = options.sfu else { return }
        guard let messenger = state.withLock({ $0.messenger }) else { throw CallError.noSession }
        try await withKeys {
            guard messenger.peers[.services(account.raw)] == nil else { return }
            messenger.want(keysOf: account.raw)
            throw CypherMessengerError.keysMissing
        }
        guard isPinned(account, pinned, messenger) else { throw CallError.otherServer }
    }

    /// Whether the server has the keys that the app pins.
    private func isPinned(_ account: Username, _ pinned: String, _ messenger: CypherMessenger) -> Bool {
        guard let peer = messenger.peers[.services(account.raw)], peer.offered == nil,
            let own = messenger.peers.own
        else { return false }
        let roots = [own.deviceList.root, peer.deviceList.root]
        let digits = pin.withLock { pin -> String? in
            if let pin, pin.roots == roots { return pin.digits }
            let digits = messenger.createPrivateChat(with: account).safetyNumber()?.filter(\.isNumber)
            pin = digits.map { Pin(roots: roots, digits: $0) }
            return digits
        }
        return digits == pinned.filter(\.isNumber)
    }

    // MARK: The end

    func end(_ call: Call, _ endState: CallEndState) async throws {
        let route = try route(call)
        let tasks = try state.withLock { state in
            // Sides that a message is on its way to may not have begun.
            var keys = state.machine.keys(of: route).union(state.tails.keys.filter { $0.route == route })
            if state.options.isServer { keys.formIntersection([CallKey(route, Username(call.sender.secretName).raw)]) }
            // A group call may have the same id, and goes on.
            if !state.options.isServer, !isGroup(call, state.options) {
                keys.formIntersection(names(call).map { CallKey(route, $0.raw) })
                keys = keys.filter { state.known[$0].map { $0.role == .person } ?? true }
            }
            return try keys.map { key in
                try enqueue(key, &state) { [self] in try await end(key, call, endState) }
            }
        }
        var failure: (any Error)?
        for task in tasks {
            do {
                try await task.value
            } catch {
                failure = failure ?? error
            }
        }
        if let failure { throw failure }
    }

    /// Ends one side of a call.
    private func end(_ key: CallKey, _ call: Call, _ endState: CallEndState) async throws {
        let output = state.withLock { state in
            let output = state.machine.end(
                key.route, with: key.user, call: call.id.uuidString, state: endState.rawValue, now: SystemTime.now())
            if state.known[key] != nil, !state.machine.contains(key) { close(key, nil, &state) }
            rearm(&state)
            return output
        }
        for outgoing in output where isOwn(outgoing) { transmitLater(outgoing, call) }
        for outgoing in output where !isOwn(outgoing) { try await transmit(outgoing, call) }
    }

    private func close(_ key: CallKey, _ endState: CallEndState?, _ state: inout State) {
        let known = state.known.removeValue(forKey: key)
        state.partial = state.partial.filter { $0.key.key != key }
        if endState != nil, state.lanes[key] == nil { _ = lane(key, &state) }
        state.lanes.removeValue(forKey: key)?.finish(endState.flatMap { end in known.map { ($0.call, end) } })
        if !state.known.keys.contains(where: { $0.route == key.route }) { state.rosters[key.route] = nil }
    }

    // MARK: Receiving

    /// Takes a signal. Does not wait for the session.
    func receive(_ signal: ReceivedSignal) {
        take(signal.text, from: signal.user, signal.device, isSealed: true)
    }

    /// Takes an envelope of a server without keys.
    func receive(plain text: String, from name: String) throws(CallError) {
        guard case .plain(let allowed, _) = state.withLock({ $0.options.sfu }), name.isSame(as: allowed) else {
            throw .noServer
        }
        take(text, from: Self.plainServer, DeviceID(0), isSealed: false)
    }

    private func take(_ text: String, from user: String, _ device: DeviceID, isSealed: Bool) {
        let envelope: CallEnvelope
        do throws(CallEnvelope.Failure) {
            envelope = try CallEnvelope(text: text)
        } catch {
            return state.withLock { $0.statistics.dropped[error.rawValue, default: 0] += 1 }
        }
        guard let route = envelope.route else { return }
        state.withLock { state in
            guard !state.isClosed else { return }
            guard case .admitted(as: let role) = admission(of: user, envelope, CallKey(route, user), state) else {
                return state.statistics.dropped[CallDrop.notParticipant.rawValue, default: 0] += 1
            }
            let message = Message(
                route, call: envelope.call.uuidString, role: role, stream: envelope.stream, number: envelope.seq,
                envelope.content, size: text.utf8.count)
            perform(state.machine.receive(message, from: user, device, now: SystemTime.now()), &state)
        }
    }

    /// Whether the sender of an envelope may send it.
    private enum Admission {
        case refused
        /// What the sender is in the call; nil if the envelope does not tell.
        case admitted(as: CallRole?)
    }

    private func admission(
        of user: String, _ envelope: CallEnvelope, _ key: CallKey, _ state: State
    ) -> Admission {
        let options = state.options
        let isToOwn =
            Username(envelope.to) == own || (options.isServer && envelope.to.isSame(as: options.sfuName))
        guard isToOwn else { return .refused }
        if server(options).map(user.isSame) ?? false {
            // Even the pinned server sends neither offers nor ciphertexts.
            let isAllowed = [.sdpAnswer, .iceCandidate, .groupControl, .end].contains(envelope.type)
            guard isAllowed, envelope.payload.caller == nil, envelope.from.isSame(as: options.sfuName),
                isPinned(state), envelope.payload.control != .invitation
            else { return .refused }
            return .admitted(as: .sfu)
        }
        guard Username(envelope.from).raw.isSame(as: user) else { return .refused }
        if user.isSame(as: own.raw) { return .admitted(as: nil) }
        guard let call = envelope.payload.call else {
            // Lists of participants come from the server only.
            guard envelope.type != .groupControl else { return .refused }
            return .admitted(as: options.isServer ? .client : nil)
        }
        let names = names(call)
        guard names.contains(Username(user)) else { return .refused }
        // With a call or without, participants invite, and nothing else.
        guard envelope.type != .groupControl || envelope.payload.control == .invitation else { return .refused }
        if options.isServer { return isGroup(call, options) ? .admitted(as: .client) : .refused }
        guard names.contains(own) else { return .refused }
        if isGroup(call, options) { return .admitted(as: .participant) }
        // Only the caller begins a call.
        let isCaller = Username(call.sender.secretName).raw.isSame(as: user)
        guard call.recipients.count == 1, state.known[key] != nil || isCaller else { return .refused }
        return .admitted(as: .person)
    }

    private func isPinned(_ state: State) -> Bool {
        guard case .device(let account, let number) = state.options.sfu, let messenger = state.messenger else {
            return true
        }
        return isPinned(account, number, messenger)
    }

    // MARK: Actions

    private func perform(_ actions: [CallAction<Payload>], _ state: inout State) {
        for action in actions {
            switch action {
            case .deliver(let key, let device, let message): deliver(message, key, device, &state)
            case .send(let outgoing):
                var user = outgoing.user
                // A notice to the person's other devices belongs to the call of the caller that it names.
                if case .answered(let caller) = outgoing.message.content { user = caller }
                guard let call = state.known[CallKey(outgoing.message.route, user)]?.call else { continue }
                transmitLater(outgoing, call)
            case .ended(let key, let ending): end(key, ending, &state)
            case .dropped(let reason): state.statistics.dropped[reason.rawValue, default: 0] += 1
            }
        }
        rearm(&state)
    }

    private func deliver(_ message: Message, _ key: CallKey, _ device: DeviceID, _ state: inout State) {
        if state.known[key] == nil, var call = CallEnvelope.parts(of: message.content).1.call {
            // A server sees each participant as the one who calls it.
            if message.role == .client {
                call.sender = participant(key.user, of: call) ?? call.sender
            }
            state.known[key] = Known(call: call, role: message.role ?? .person)
        }
        if case .participants(let list, let version)? = CallEnvelope.parts(of: message.content).1.control {
            guard !list.isEmpty, version > state.rosters[key.route] ?? .min else {
                return state.statistics.dropped[CallDrop.late.rawValue, default: 0] += 1
            }
            state.rosters[key.route] = version
        }
        guard let message = whole(message, Sender(key: key, device: device), &state) else { return }
        guard let known = state.known[key], let delivery = delivery(message, key, device, known, state) else {
            return state.statistics.dropped[CallDrop.notParticipant.rawValue, default: 0] += 1
        }
        if !lane(key, &state).yield(delivery) { state.statistics.dropped[CallDrop.limit.rawValue, default: 0] += 1 }
    }

    /// Ours: ciphertexts at once of which a part is missing; 2 MB of them.
    private static let partialLimit = 64

    /// The message, and in place of the last part of a ciphertext the whole one; nil while parts are missing.
    private func whole(_ message: Message, _ sender: Sender, _ state: inout State) -> Message? {
        guard case .ciphertext(var payload) = message.content else { return message }
        func drop(_ reason: CallDrop) { state.statistics.dropped[reason.rawValue, default: 0] += 1 }
        var earlier = state.partial.removeValue(forKey: sender)
        if payload.part == nil || payload.part?.number == 0 {
            // The rest of the one before was lost.
            if earlier != nil { drop(.expired) }
            earlier = nil
        }
        guard let part = payload.part, let bytes = payload.ciphertext else { return message }
        if part.number == 0 { earlier = Partial(connectionId: payload.connectionId, count: part.count) }
        guard var partial = earlier, partial.next == part.number, partial.count == part.count,
            (partial.connectionId ?? "").isSame(as: payload.connectionId ?? "")
        else {
            drop(.expired)
            return nil
        }
        partial.bytes += bytes
        partial.next += 1
        guard partial.next == partial.count else {
            guard state.partial.count < Self.partialLimit else {
                drop(.limit)
                return nil
            }
            state.partial[sender] = partial
            return nil
        }
        (payload.ciphertext, payload.part) = (partial.bytes, nil)
        var message = message
        message.content = .ciphertext(payload)
        return message
    }

    /// What the session is called with; nil if the message is not for it.
    private func delivery(
        _ message: Message, _ key: CallKey, _ device: DeviceID, _ known: Known, _ state: State
    ) -> CallLane.Delivery? {
        var call = known.call
        let payload = CallEnvelope.parts(of: message.content).1
        if known.role == .person, let newer = payload.call { call = newer }
        if let sdp = payload.sdp { call.sessionDescription = sdp }
        let name = participant(key.user, of: call)
        let device = DeviceId(device).raw
        switch message.content {
        case .offer:
            guard let sdp = payload.sdp, let messenger = state.messenger else { return nil }
            let metadata = SDPNegotiationMetadata(
                offerSecretName: name?.secretName ?? key.user, offerDeviceId: device,
                answerDeviceId: messenger.deviceId.raw)
            return .offer(call, sdp, metadata)
        case .answer:
            guard let sdp = payload.sdp else { return nil }
            return known.role == .sfu ? .control(call, .sfuAnswer(sdp)) : .answer(call, sdp)
        case .candidate:
            guard let candidate = payload.candidate else { return nil }
            return known.role == .sfu ? .control(call, .sfuCandidate(candidate)) : .candidate(call, candidate)
        case .ciphertext:
            guard let id = payload.connectionId, let bytes = payload.ciphertext else { return nil }
            guard known.role == .participant else {
                var participant = name ?? Call.Participant(secretName: key.user, nickname: key.user)
                participant.deviceId = device
                return .ciphertext(participant, id, bytes, call)
            }
            // The person's own call says who takes part, not that of the sender.
            guard let joined = joined(key.route, state), names(joined).contains(Username(key.user)) else { return nil }
            return .groupCiphertext(joined, name?.secretName ?? key.user, id, bytes)
        case .control:
            guard let control = payload.control else { return nil }
            return .control(call, .groupControl(control))
        case .answered, .end: return nil
        }
    }

    private func joined(_ route: CallRoute, _ state: State) -> Call? {
        server(state.options).flatMap { state.known[CallKey(route, $0)]?.call }
    }

    private func end(_ key: CallKey, _ ending: CallEnding, _ state: inout State) {
        guard let known = state.known[key] else { return }
        let endState: CallEndState
        switch ending {
        case .byPeer(let name):
            if known.role == .participant {
                let call = joined(key.route, state) ?? known.call
                let name = participant(key.user, of: call)
                _ = lane(key, &state).yield(
                    .control(call, .participantLeft(participantId: name?.secretName ?? key.user)))
                state.known[key] = nil
                state.partial = state.partial.filter { $0.key.key != key }
                state.lanes.removeValue(forKey: key)?.finishAfterAll()
                return
            }
            endState = CallEndState(name: name)?.seenByPartner ?? .failed
        case .answeredElsewhere: endState = .auxiliaryDeviceAnswered
        case .endedElsewhere(let name): endState = CallEndState(name: name) ?? .failed
        case .unanswered(let isOutgoing):
            endState = isOutgoing ? .userInitiatedUnanswered : .partnerInitiatedUnanswered
        }
        close(key, endState, &state)
        guard known.role == .sfu else { return }
        // Without the server there is no group call.
        _ = state.machine.end(
            key.route, call: known.call.id.uuidString, state: endState.rawValue, now: SystemTime.now())
        for other in state.known.keys where other.route == key.route { close(other, nil, &state) }
    }

    private func lane(_ key: CallKey, _ state: inout State) -> CallLane {
        if let lane = state.lanes[key] { return lane }
        let lane = CallLane(
            session: { [weak self] in self?.state.withLock { $0.session } },
            onError: { [weak self] in self?.state.withLock { $0.statistics.sessionErrors += 1 } })
        state.lanes[key] = lane
        return lane
    }

    // MARK: Time

    private func rearm(_ state: inout State) {
        guard let at = state.machine.nextWake, !state.isClosed else {
            state.wake?.task.cancel()
            state.wake = nil
            return
        }
        guard state.wake?.at != at else { return }
        state.wake?.task.cancel()
        let pause = max(at - SystemTime.now().monotonic / 1_000_000, 1)
        let task = Task { [weak self] in
            guard (try? await Task.sleep(for: .milliseconds(pause))) != nil else { return }
            self?.tick()
        }
        state.wake = (at, task)
    }

    private func tick() {
        state.withLock { state in
            state.wake = nil
            perform(state.machine.tick(SystemTime.now()), &state)
        }
    }
}

extension CallError {
    fileprivate init(_ refusal: CallRefusal) {
        switch refusal {
        case .ended: self = .ended
        case .limit: self = .limit
        case .noCall: self = .noCall
        }
    }
}
