// The state of all calls of one device: who is in which call, which messages wait for which, and what has ended.
//
// It knows neither descriptions nor keys, and sends nothing by itself: messages and times go in, actions come out. The
// messages come from an authenticated channel that may lose, delay and reorder them. The channel drops copies.

package import Envelope
package import Protection

/// What to do after an event of a call, in this order.
package enum CallAction<Payload: Sendable>: Sendable {
    /// Hands a message over to the app.
    case deliver(CallKey, DeviceID, CallMessage<Payload>)
    /// Sends a message.
    case send(CallOutgoing<Payload>)
    /// The call has ended without an act of the person on this device.
    case ended(CallKey, CallEnding)
    case dropped(CallDrop)
}

/// A message to send.
package struct CallOutgoing<Payload: Sendable>: Sendable {
    package var user: String
    /// Nil for all devices of the account.
    package var device: DeviceID?
    package var message: CallMessage<Payload>
}

/// The limits and times of calls. All are ours.
package enum CallLimits {
    /// Sides of calls at once. A person is in one or two; a server of group calls has a side for each participant.
    package static let sides = 256
    /// Sides at once that a person did not begin or answer: contacts cannot fill the table.
    package static let unanswered = 32
    /// The part of one account in them; at a server, its sides in all group calls. No contact keeps others from calling.
    package static let ofOne = 4
    /// Participants of a group call. Keys are sent to each, so the traffic grows with the square.
    package static let participants = 32
    /// Candidates of one side between two offers. A device with many networks has some dozens.
    package static let candidates = 256
    /// Messages of one device that wait for an earlier one, or for the offer.
    package static let waiting = 64
    /// Bytes of all messages that wait, and of those of one account: more than a storm of candidates before its offer.
    package static let waitingBytes = 4 << 20
    package static let waitingBytesOfOne = 1 << 20
    /// Ends that are remembered. The oldest is forgotten first.
    package static let ends = 256
    /// How long an end is remembered, in milliseconds: longer than a message may be on its way.
    package static let endTime: Int64 = 600_000
    /// Messages of one stream.
    package static let numbers = 1 << 32
    /// Streams of one side: one for each device of a person.
    static let streams = 6
}

/// How long the parts of a call take. Ours.
package struct CallTimes: Sendable {
    /// How long a message waits for an earlier one, in milliseconds. Candidates are lost after that, calls are not.
    package var gap: Int64 = 5_000
    /// How long the caller's device rings, in milliseconds.
    package var ringing: Int64 = 30_000
    /// How long the other side rings and messages wait for an offer, in milliseconds: the ringing of the caller, and the
    /// longest way of an offer.
    package var answering: Int64 = 60_000
    /// How long an offer and what belongs to it are of use, in seconds: as long as the ringing.
    package var message: Int64 = 30
    /// How long an end is of use, in seconds: it tells a device that was offline for some minutes that the call is over.
    package var end: Int64 = 300

    /// The times of the program. Others are for tests on busy machines.
    package init() {}
}

/// The calls of one device.
package struct CallMachine<Payload: Sendable> {
    package typealias Message = CallMessage<Payload>
    package typealias Action = CallAction<Payload>

    /// The messages of one device, in their order.
    private struct Stream {
        var began: Int64
        var next = 0
        var held: [Int: Message] = [:]
        /// When the wait for a missing message ends; nil if none is missing.
        var gapEnd: Int64?
    }

    private enum Phase { case unopened, ringing, open }

    /// One side of a call.
    private struct Side {
        var role: CallRole?
        var call: String
        /// What messages from here call it: in a group call each participant has a call of its own. Nil for ``call``.
        var ownCall: String?
        var phase = Phase.unopened
        var isOutgoing = false
        /// The device at the other end; nil while several may answer.
        var device: DeviceID?
        /// When the ringing or the wait for an offer ends, in milliseconds of uptime; nil for never.
        var deadline: Int64?
        var stream: Int64 = 0
        var nextNumber = 0
        var streams: [DeviceID: Stream] = [:]
        /// Messages that wait for an offer, or for this device to join the group call.
        var kept: [(device: DeviceID, message: Message)] = []
        /// Own candidates from before the own offer.
        var keptCandidates: [Payload] = []
        /// Whether an offer was sent, and whether one was received.
        var hasSentOffer = false
        var hasOffer = false
        /// Own offers that were not answered for good, and whether any was. A second offer may be sent before the answer to
        /// the first one has come.
        var unansweredOffers = 0
        var hasBeenAnswered = false
        var candidatesSent = 0
        var candidatesReceived = 0

        /// When the ringing would have ended, if the answer has ended it.
        var rangUntil: Int64?

        /// Somebody has answered: it does not ring any more.
        mutating func open() {
            if phase == .ringing { rangUntil = deadline }
            (phase, deadline) = (.open, nil)
        }

        var waitingBytes: Int {
            kept.reduce(0) { $0 + $1.message.size }
                + streams.values.reduce(0) { $0 + $1.held.values.reduce(0) { $0 + $1.size } }
        }
    }

    private struct End {
        var call: String
        /// Whether the account at the other end may come back with a device that has sent nothing: it is in a group call.
        var allowsOtherDevices = false
        /// Whether another device of the person is in the call, or has ended it.
        var isElsewhere = false
        /// The last streams of the devices of the other side.
        var streams: [DeviceID: Int64]
        var until: Int64
    }

    /// The name of the person.
    private let own: String
    /// How long the parts of a call take. A change holds for what begins after it.
    package var times = CallTimes()
    private var sides: [CallKey: Side] = [:]
    private var ends: [CallKey: End] = [:]
    private var lastStream: Int64 = 0

    package init(own: String) { self.own = own }

    /// Whether the call with an account goes on.
    package func contains(_ key: CallKey) -> Bool { sides[key] != nil }

    /// The sides of the calls with a route.
    package func keys(of route: CallRoute) -> Set<CallKey> { Set(sides.keys.filter { $0.route == route }) }

    /// Sides of calls, those that wait for an offer included.
    package var count: Int { sides.count }

    /// When a ``tick(_:)`` is due, in milliseconds of uptime; nil if none is.
    package var nextWake: Int64? {
        sides.values.flatMap { side in
            [side.deadline].compactMap(\.self) + side.streams.values.compactMap(\.gapEnd)
        }.min()
    }

    private static func uptime(_ now: Timestamp) -> Int64 { now.monotonic / 1_000_000 }

    // MARK: Sending

    /// Prepares a message. The messages are sent in this order; those that were not are given to ``takeBack(_:)``.
    ///
    /// - Returns: empty if the message waits for the offer, or is a candidate of a call that has ended.
    package mutating func send(
        _ content: Message.Content, _ key: CallKey, call: String, as role: CallRole, to device: DeviceID? = nil,
        now: Timestamp
    ) throws(CallRefusal) -> [CallOutgoing<Payload>] {
        if sides[key] == nil, ends[key]?.call == call, role == .person {
            if case .candidate = content { return [] }
            throw .ended
        }
        var side = try side(key, call, role, content, now)
        var output: [CallOutgoing<Payload>] = []
        switch content {
        case .offer:
            side.hasSentOffer = true
            side.unansweredOffers = min(side.unansweredOffers + 1, Int(UInt16.max))
            (side.candidatesSent, side.candidatesReceived) = (0, 0)
            if role == .sfu {
                // A server that does not answer has no call. A later offer changes one that goes on.
                if !side.hasBeenAnswered, side.deadline == nil { side.deadline = Self.uptime(now) + times.answering }
                // The person comes from the device on which the group call was.
                ends = ends.filter { $0.key.route != key.route || !$0.value.isElsewhere }
            }
            if side.phase == .ringing, side.isOutgoing, role == .person {
                side.deadline = Self.uptime(now) + times.ringing
            }
            append(content, key, &side, to: device, &output)
            for candidate in side.keptCandidates { append(.candidate(candidate), key, &side, to: device, &output) }
            side.keptCandidates = []
        case .answer:
            guard side.hasOffer else { throw .noCall }
            append(content, key, &side, to: device, &output)
            if role == .person, side.phase == .ringing, !side.isOutgoing {
                output.append(toOwnDevices(.answered(caller: key.user), key.route, side.call))
            }
            side.open()
        case .candidate(let payload):
            side.candidatesSent += 1
            guard side.candidatesSent <= CallLimits.candidates else { throw .limit }
            if side.isOutgoing, !side.hasSentOffer {
                side.keptCandidates.append(payload)
            } else {
                append(content, key, &side, to: device, &output)
            }
        case .ciphertext, .control: append(content, key, &side, to: device, &output)
        case .answered, .end: throw .noCall
        }
        sides[key] = side
        if role == .sfu, case .offer = content { output += answerInvitations(to: key.route, call) }
        return output
    }

    /// The side that a message belongs to. Offers, ciphertexts and own candidates begin one.
    private mutating func side(
        _ key: CallKey, _ call: String, _ role: CallRole, _ content: Message.Content, _ now: Timestamp
    ) throws(CallRefusal) -> Side {
        if var side = sides[key], side.phase != .unopened {
            guard side.call == call || role != .person else { throw .noCall }
            if role != .person { side.ownCall = call }
            // The other side's first message, or joining, has opened it without a message from here.
            if side.stream == 0 { side.stream = newStream(now) }
            return side
        }
        if case .answer = content { throw .noCall }
        guard sides.count < CallLimits.sides, participants(key.route) <= CallLimits.participants || role == .client
        else { throw .limit }
        var side = Side(role: role, call: call)
        // What a participant has sent before this device has anything to do with it is not lost.
        if role == .participant, let earlier = sides[key] {
            (side.streams, side.kept) = (earlier.streams, earlier.kept)
        }
        side.isOutgoing = role == .person || role == .sfu
        side.open()
        if role == .person { (side.phase, side.deadline) = (.ringing, Self.uptime(now) + times.ringing) }
        side.stream = newStream(now)
        return side
    }

    private func participants(_ route: CallRoute) -> Int { sides.keys.count { $0.route == route } }

    private mutating func newStream(_ now: Timestamp) -> Int64 {
        lastStream = max(lastStream + 1, now.wall)
        return lastStream
    }

    private func append(
        _ content: Message.Content, _ key: CallKey, _ side: inout Side, to device: DeviceID?,
        _ output: inout [CallOutgoing<Payload>]
    ) {
        let message = Message(
            key.route, call: side.ownCall ?? side.call, role: side.role, stream: side.stream, number: side.nextNumber,
            content, size: 0)
        side.nextNumber += 1
        output.append(CallOutgoing(user: key.user, device: device ?? side.device, message: message))
    }

    /// To the person's other devices. These messages have no order: each is the last one of its call.
    private func toOwnDevices(_ content: Message.Content, _ route: CallRoute, _ call: String) -> CallOutgoing<Payload> {
        CallOutgoing(
            user: own, device: nil,
            message: Message(route, call: call, role: nil, stream: 0, number: 0, content, size: 0))
    }

    /// This device joins: the person's others stop ringing.
    private mutating func answerInvitations(to route: CallRoute, _ call: String) -> [CallOutgoing<Payload>] {
        var output: [CallOutgoing<Payload>] = []
        for (key, side) in sides where key.route == route && side.role == .participant && side.phase == .ringing {
            sides[key]?.open()
            output.append(toOwnDevices(.answered(caller: key.user), route, side.call))
        }
        return output
    }

    /// Undoes the preparation of messages that could not be sent, so that the other side does not wait for them.
    package mutating func takeBack(_ messages: [CallOutgoing<Payload>]) {
        for message in messages.reversed() {
            if message.user.isSame(as: own), case .answered(let caller) = message.message.content {
                ringAgain(CallKey(message.message.route, caller), message.message.call)
                continue
            }
            let key = CallKey(message.message.route, message.user)
            guard let side = sides[key], side.stream == message.message.stream,
                side.nextNumber == message.message.number + 1
            else { continue }
            sides[key]?.nextNumber -= 1
            if case .offer = message.message.content { sides[key]?.hasSentOffer = false }
            // A call that has not begun leaves nothing.
            if side.nextNumber == 1, side.streams.isEmpty { sides[key] = nil }
        }
    }

    /// The answer was not sent. Without this a second attempt would not notify the person's other devices, and a call that
    /// is not answered after all would not end.
    private mutating func ringAgain(_ key: CallKey, _ call: String) {
        guard let side = sides[key], side.call == call, side.phase == .open, let deadline = side.rangUntil else {
            return
        }
        sides[key]?.phase = .ringing
        sides[key]?.deadline = deadline
    }

    /// The person joins a group call: what participants have sent before is handed over.
    package mutating func joined(_ route: CallRoute) -> [Action] {
        var actions: [Action] = []
        for (key, side) in sides where key.route == route && side.role == .participant {
            sides[key]?.kept = []
            sides[key]?.open()
            actions += side.kept.map { .deliver(key, $0.device, $0.message) }
        }
        return actions
    }

    private func isJoined(_ route: CallRoute) -> Bool {
        sides.contains { $0.key.route == route && $0.value.role == .sfu && $0.value.phase == .open }
    }

    // MARK: The end

    /// Ends a call of this device. Nothing happens if it has ended before.
    ///
    /// - Parameters:
    ///   - user: the side that ends; nil for all sides of the call.
    ///   - state: the end state as the person sees it.
    package mutating func end(
        _ route: CallRoute, with user: String? = nil, call: String, state: String, now: Timestamp
    ) -> [CallOutgoing<Payload>] {
        var output: [CallOutgoing<Payload>] = []
        let keys = sides.keys.filter { $0.route == route && (user ?? $0.user).isSame(as: $0.user) }
            .sorted { $0.user < $1.user }
        for key in keys {
            guard var side = sides[key], side.phase != .unopened, side.call == call || side.role != .person else {
                continue
            }
            // A side that nothing was sent to and that has sent nothing does not know the call.
            if side.nextNumber > 0 || !side.streams.isEmpty {
                append(.end(state: state, caller: nil), key, &side, to: nil, &output)
            }
            if !side.isOutgoing, side.phase == .ringing {
                output.append(toOwnDevices(.end(state: state, caller: key.user), route, side.call))
            }
            remember(key, side, now)
        }
        return output
    }

    /// Removes a side and remembers its end.
    private mutating func remember(_ key: CallKey, _ side: Side, _ now: Timestamp, isElsewhere: Bool = false) {
        sides[key] = nil
        var end = End(call: side.call, streams: side.streams.mapValues(\.began), until: 0)
        end.allowsOtherDevices = !isElsewhere && side.role != nil && side.role != .person
        end.isElsewhere = isElsewhere
        remember(key, end, now)
    }

    private mutating func remember(_ key: CallKey, _ end: End, _ now: Timestamp) {
        let uptime = Self.uptime(now)
        ends = ends.filter { $0.value.until > uptime }
        if ends.count >= CallLimits.ends, let oldest = ends.min(by: { $0.value.until < $1.value.until }) {
            ends[oldest.key] = nil
        }
        var end = end
        end.until = uptime + CallLimits.endTime
        // What the devices before have sent stays old.
        if end.allowsOtherDevices, let earlier = ends[key]?.streams, earlier.count <= CallLimits.streams {
            end.streams.merge(earlier) { max($0, $1) }
        }
        ends[key] = end
    }

    // MARK: Receiving

    /// Takes a message of an authenticated device.
    package mutating func receive(
        _ message: Message, from user: String, _ device: DeviceID, now: Timestamp
    ) -> [Action] {
        if user.isSame(as: own) { return receiveOwn(message, now) }
        let key = CallKey(message.route, user)
        if let end = ends[key], end.until > Self.uptime(now), end.call == message.call,
            end.streams[device].map({ message.stream <= $0 }) ?? !end.allowsOtherDevices
        {
            return [.dropped(.ended)]
        }
        var actions: [Action] = []
        if givesWay(to: message, key) { actions = giveWay(to: message, key, now) }
        if comesBack(with: message, device, key) { actions += moveOver(key, to: message.call, now) }
        if isOver(by: message, device, key) { actions += finish(key, now) }
        var side: Side
        if let known = sides[key] {
            side = known
        } else {
            guard hasRoom(for: message, from: user) else { return actions + [.dropped(.limit)] }
            side = Side(role: nil, call: message.call)
            side.deadline = Self.uptime(now) + times.answering
        }
        let isOther = side.call != message.call && (side.role ?? .person) == .person
        if isOther, side.phase != .unopened || message.role != .participant { return [.dropped(.otherCall)] }
        if let other = side.device, other != device {
            if side.role == .person, side.isOutgoing, case .answer = message.content {
                // Two devices have answered: the second one is told.
                append(.end(state: Self.answeredElsewhere, caller: nil), key, &side, to: device, &actions)
                sides[key] = side
            }
            return actions + [.dropped(.otherDevice)]
        }
        let ready = order(message, of: user, device, &side, now, &actions)
        sides[key] = side
        for message in ready { actions += apply(message, key, device, now) }
        return actions
    }

    /// Whether another side may begin with a message of an account.
    private func hasRoom(for message: Message, from user: String) -> Bool {
        let isClient = message.role == .client
        let ofOne = sides.count { key, side in
            key.user.isSame(as: user) && !side.isOutgoing && (isClient || side.phase != .open)
        }
        guard sides.count < CallLimits.sides, ofOne < CallLimits.ofOne else { return false }
        return isClient || sides.values.count(where: { $0.phase != .open }) < CallLimits.unanswered
    }

    /// Whether a message may wait for others.
    private func hasRoom(toKeep message: Message, of user: String) -> Bool {
        var (all, ofOne) = (message.size, message.size)
        for (key, side) in sides {
            let bytes = side.waitingBytes
            all += bytes
            if key.user.isSame(as: user) { ofOne += bytes }
        }
        return all <= CallLimits.waitingBytes && ofOne <= CallLimits.waitingBytesOfOne
    }

    /// Whether both people call each other under this id, and the call of the other one goes on.
    ///
    /// It is the call of the person with the lower name. Both know the names, so both decide the same; the other call is
    /// dropped there as one with an id that is in use.
    private func givesWay(to message: Message, _ key: CallKey) -> Bool {
        guard let side = sides[key], side.role == .person, side.isOutgoing, side.phase == .ringing,
            key.user == own ? key.user.utf8.lexicographicallyPrecedes(own.utf8) : key.user < own,
            message.role ?? .person == .person
        else { return false }
        return switch message.content {
        case .offer: true
        // A ciphertext begins a call; in the own call it is the other side's answer to the own ones.
        case .ciphertext: side.call != message.call
        case .answer, .candidate, .control, .answered, .end: false
        }
    }

    /// Ends the own call, which nobody has answered, so that the other person's rings.
    private mutating func giveWay(to message: Message, _ key: CallKey, _ now: Timestamp) -> [Action] {
        guard var side = sides[key] else { return [] }
        guard side.call != message.call else {
            // Both have given it one UUID, so it is one call, and only its direction changes.
            var turned = Side(role: nil, call: side.call)
            (turned.streams, turned.deadline) = (side.streams, Self.uptime(now) + times.answering)
            sides[key] = turned
            return []
        }
        var actions: [Action] = []
        if side.nextNumber > 0 {
            // It rings on the other devices of the person.
            var output: [CallOutgoing<Payload>] = []
            append(.end(state: Self.unanswered, caller: nil), key, &side, to: nil, &output)
            actions += output.map { .send($0) }
        }
        remember(key, side, now)
        return actions + [.ended(key, .unanswered(isOutgoing: true))]
    }

    /// Whether a participant joins a group call of this server with another device than before.
    ///
    /// The device before has not left, or its end was lost. It cannot come back with what it has sent already.
    private func comesBack(with message: Message, _ device: DeviceID, _ key: CallKey) -> Bool {
        guard let side = sides[key], side.role == .client, let other = side.device, other != device,
            message.role == .client, case .offer = message.content
        else { return false }
        return side.streams[device].map { $0.began < message.stream } ?? (side.streams.count < CallLimits.streams)
    }

    /// Ends a participant's side, so that another device of the participant has the call.
    private mutating func moveOver(_ key: CallKey, to call: String, _ now: Timestamp) -> [Action] {
        guard var side = sides[key], let device = side.device else { return [] }
        var actions: [Action] = []
        append(.end(state: Self.answeredElsewhere, caller: nil), key, &side, to: device, &actions)
        var next = Side(role: nil, call: call)
        next.deadline = Self.uptime(now) + times.answering
        next.streams = side.streams.mapValues { stream in
            var stream = stream
            (stream.held, stream.gapEnd) = ([:], nil)
            return stream
        }
        sides[key] = next
        return actions + [.ended(key, .byPeer(Self.failed))]
    }

    /// Whether a message is of a later call of the other person, so that the one here is over.
    ///
    /// A device has one call with a person under an id at a time. If it sends in another one, in a later stream, it has
    /// ended the earlier one, or was restarted: the end was lost, or is late. Messages without their offer are no call yet,
    /// so they keep no call of another device away either.
    private func isOver(by message: Message, _ device: DeviceID, _ key: CallKey) -> Bool {
        guard let side = sides[key], side.call != message.call, (side.role ?? .person) == .person,
            (message.role ?? .person) == .person, side.phase != .ringing || !side.isOutgoing,
            side.device == nil || side.device == device
        else { return false }
        let isLater = side.streams[device].map { $0.began < message.stream }
        return switch message.content {
        case .offer, .ciphertext: isLater ?? (side.phase == .unopened)
        case .candidate: isLater ?? false
        case .answer, .control, .answered, .end: false
        }
    }

    /// Ends a call that the other side has left.
    private mutating func finish(_ key: CallKey, _ now: Timestamp) -> [Action] {
        guard let side = sides[key] else { return [] }
        var actions: [Action] = side.streams.values.flatMap(\.held).map { _ in .dropped(.expired) }
        actions += side.kept.map { _ in .dropped(.expired) }
        remember(key, side, now)
        switch side.phase {
        case .unopened: break
        case .ringing: actions.append(.ended(key, .byPeer(Self.unanswered)))
        case .open: actions.append(.ended(key, .byPeer(Self.failed)))
        }
        return actions
    }

    /// The end state of a call whose other side was restarted.
    private static var failed: String { "failed" }

    /// The end state of a call that nobody has answered, as the caller sees it.
    private static var unanswered: String { "userInitiatedUnanswered" }

    /// The end state of a device whose answer came too late.
    package static var answeredElsewhere: String { "auxiliaryDeviceAnswered" }

    private func append(
        _ content: Message.Content, _ key: CallKey, _ side: inout Side, to device: DeviceID, _ actions: inout [Action]
    ) {
        var output: [CallOutgoing<Payload>] = []
        append(content, key, &side, to: device, &output)
        // The other device's stream goes on without this message.
        side.nextNumber -= 1
        actions += output.map { .send($0) }
    }

    /// Puts a message in its place, and returns those whose turn it is.
    private func order(
        _ message: Message, of user: String, _ device: DeviceID, _ side: inout Side, _ now: Timestamp,
        _ actions: inout [Action]
    ) -> [Message] {
        var stream = side.streams[device] ?? Stream(began: message.stream)
        guard side.streams[device] != nil || side.streams.count < CallLimits.streams else {
            actions.append(.dropped(.limit))
            return []
        }
        if message.stream > stream.began {
            // The sender has started again and numbers from 0.
            actions += stream.held.map { _ in .dropped(.late) }
            stream = Stream(began: message.stream)
        }
        guard message.stream == stream.began, (stream.next..<CallLimits.numbers).contains(message.number),
            stream.held[message.number] == nil
        else {
            actions.append(.dropped(.late))
            return []
        }
        guard message.number == stream.next || hasRoom(toKeep: message, of: user) else {
            actions.append(.dropped(.limit))
            return []
        }
        stream.held[message.number] = message
        if stream.held.count > CallLimits.waiting { stream.next = stream.held.keys.min() ?? stream.next }
        defer { side.streams[device] = stream }
        return ready(&stream, now)
    }

    private func ready(_ stream: inout Stream, _ now: Timestamp) -> [Message] {
        var ready: [Message] = []
        while let message = stream.held.removeValue(forKey: stream.next) {
            ready.append(message)
            stream.next += 1
        }
        if stream.held.isEmpty {
            stream.gapEnd = nil
        } else if stream.gapEnd == nil || !ready.isEmpty {
            stream.gapEnd = Self.uptime(now) + times.gap
        }
        return ready
    }

    /// Does what a message asks for, in its order.
    private mutating func apply(
        _ message: Message, _ key: CallKey, _ device: DeviceID, _ now: Timestamp
    ) -> [Action] {
        // An earlier message has ended the call, or another device is in it now.
        guard var side = sides[key], side.device == nil || side.device == device else { return [.dropped(.ended)] }
        defer { if sides[key] != nil { sides[key] = side } }
        let deliver = Action.deliver(key, device, message)
        switch message.content {
        case .answered: return [.dropped(.unexpected)]
        case .offer: return applyOffer(deliver, message, key, device, &side, now)
        case .answer(_, let isFinal):
            // An offer has one answer: another one would be taken for that to the next offer.
            guard side.unansweredOffers > 0, side.phase != .unopened else { return [.dropped(.unexpected)] }
            (side.device, side.phase, side.deadline) = (device, .open, nil)
            side.hasBeenAnswered = true
            if isFinal { side.unansweredOffers -= 1 }
            return [deliver]
        case .candidate: return applyCandidate(deliver, message, key, device, &side)
        case .ciphertext: return applyCiphertext(deliver, message, key, device, &side, now)
        case .control(_, let invites):
            if side.role == .sfu { return [deliver] }
            guard message.role == .participant, side.role == nil || side.role == .participant else {
                return [.dropped(.unexpected)]
            }
            side.role = .participant
            if invites, isJoined(key.route) {
                // The person is in the call, with this device: the others do not ring for it.
                if side.phase == .unopened { side.call = message.call }
                side.open()
                return [deliver, .send(toOwnDevices(.answered(caller: key.user), key.route, message.call))]
            }
            guard invites, side.phase == .unopened else {
                return side.phase == .unopened && !isJoined(key.route)
                    ? keep(message, key.user, device, &side) : [deliver]
            }
            open(&side, message, now)
            return [deliver]
        case .end(let state, nil):
            remember(key, side, now)
            return side.phase == .unopened ? [] : [.ended(key, .byPeer(state))]
        case .end: return [.dropped(.unexpected)]
        }
    }

    private mutating func applyOffer(
        _ deliver: Action, _ message: Message, _ key: CallKey, _ device: DeviceID, _ side: inout Side, _ now: Timestamp
    ) -> [Action] {
        let role = message.role ?? .person
        guard role == .person || role == .client, side.role == nil || side.role == role else {
            return [.dropped(.unexpected)]
        }
        if side.phase == .unopened {
            side.role = role
            open(&side, message, now)
            side.device = device
        }
        // Until it is answered, the one who calls offers.
        guard !side.isOutgoing || side.phase == .open else { return [.dropped(.unexpected)] }
        (side.device, side.hasOffer) = (device, true)
        if side.phase == .ringing { side.deadline = Self.uptime(now) + times.answering }
        (side.candidatesReceived, side.candidatesSent) = (0, 0)
        let kept = side.kept
        side.kept = []
        return [deliver]
            + kept.flatMap { kept -> [Action] in
                guard kept.device == device else { return [.dropped(.otherDevice)] }
                side.candidatesReceived += 1
                return [.deliver(key, device, kept.message)]
            }
    }

    private func applyCandidate(
        _ deliver: Action, _ message: Message, _ key: CallKey, _ device: DeviceID, _ side: inout Side
    ) -> [Action] {
        if side.role == .participant { return [.dropped(.unexpected)] }
        // The caller's candidates wait for its offer; those of the called one do not wait for the answer.
        guard side.hasOffer || (side.isOutgoing && side.hasSentOffer) else {
            return keep(message, key.user, device, &side)
        }
        side.candidatesReceived += 1
        return side.candidatesReceived <= CallLimits.candidates ? [deliver] : [.dropped(.limit)]
    }

    private mutating func applyCiphertext(
        _ deliver: Action, _ message: Message, _ key: CallKey, _ device: DeviceID, _ side: inout Side, _ now: Timestamp
    ) -> [Action] {
        switch side.role ?? message.role ?? .person {
        case .person:
            if side.phase == .unopened {
                side.role = .person
                open(&side, message, now)
                side.device = device
            }
            return [deliver]
        case .participant:
            side.role = .participant
            // What waits comes first, also while the offer to the server is on its way.
            guard isJoined(key.route), side.kept.isEmpty else { return keep(message, key.user, device, &side) }
            side.open()
            return [deliver]
        case .sfu, .client: return [.dropped(.unexpected)]
        }
    }

    private mutating func open(_ side: inout Side, _ message: Message, _ now: Timestamp) {
        (side.phase, side.call) = (.ringing, message.call)
        side.deadline = Self.uptime(now) + times.answering
        if side.role == .client { side.open() }
        if side.stream == 0 { side.stream = newStream(now) }
    }

    private func keep(_ message: Message, _ user: String, _ device: DeviceID, _ side: inout Side) -> [Action] {
        guard side.kept.count < CallLimits.waiting, hasRoom(toKeep: message, of: user) else {
            return [.dropped(.limit)]
        }
        side.kept.append((device, message))
        return []
    }

    /// A message of the person's other device: a call was answered or ended there.
    private mutating func receiveOwn(_ message: Message, _ now: Timestamp) -> [Action] {
        let (caller, ending): (String, CallEnding)
        switch message.content {
        case .answered(let name): (caller, ending) = (name, .answeredElsewhere)
        case .end(let state, let name?): (caller, ending) = (name, .endedElsewhere(state))
        default: return [.dropped(.unexpected)]
        }
        let key = CallKey(message.route, caller)
        var end = End(call: message.call, streams: [:], until: 0)
        end.isElsewhere = true
        guard let side = sides[key] else {
            // It has overtaken the offer, which is late then.
            remember(key, end, now)
            return []
        }
        guard side.call == message.call else {
            // What waits is of another call.
            guard side.phase == .unopened else { return [.dropped(.otherCall)] }
            remember(key, end, now)
            return []
        }
        // Both have answered: the caller decides.
        guard !side.isOutgoing, side.phase != .open else { return [.dropped(.late)] }
        remember(key, side, now, isElsewhere: true)
        return side.phase == .ringing ? [.ended(key, ending)] : []
    }

    // MARK: Time

    /// Ends what rings too long, and stops waiting for messages that were lost.
    package mutating func tick(_ now: Timestamp) -> [Action] {
        let uptime = Self.uptime(now)
        var actions: [Action] = []
        for key in sides.keys.sorted(by: { ($0.route.text, $0.user) < ($1.route.text, $1.user) }) {
            guard var side = sides[key] else { continue }
            if let deadline = side.deadline, deadline <= uptime {
                actions += side.kept.map { _ in .dropped(.expired) }
                if side.phase == .ringing || side.role == .sfu {
                    if side.isOutgoing, side.nextNumber > 0 {
                        var output: [CallOutgoing<Payload>] = []
                        append(
                            .end(state: Self.unanswered, caller: nil), key, &side, to: nil, &output)
                        actions += output.map { .send($0) }
                    }
                    actions.append(.ended(key, .unanswered(isOutgoing: side.isOutgoing)))
                    remember(key, side, now)
                } else {
                    actions += side.streams.values.flatMap(\.held).map { _ in .dropped(.expired) }
                    sides[key] = nil
                }
                continue
            }
            for (device, stream) in side.streams {
                guard let gapEnd = stream.gapEnd, gapEnd <= uptime else { continue }
                var stream = stream
                (stream.next, stream.gapEnd) = (stream.held.keys.min() ?? stream.next, nil)
                let ready = ready(&stream, now)
                sides[key]?.streams[device] = stream
                for message in ready { actions += apply(message, key, device, now) }
            }
        }
        return actions
    }
}
