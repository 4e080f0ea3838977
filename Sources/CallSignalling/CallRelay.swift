// The calls that a gateway signals between devices without keys: who is in which call, and what waits for whom.
//
// The devices belong to accounts that the backend has confirmed; a device is a name that its app gives it. The relay
// reads who, which call, which kind and which number. Payloads are opaque to it, but the operator of the gateway can read
// and replace them: nothing here is protected between the devices. All is in memory. Time is an argument.

package import Protection

/// The limits of a relay, besides ``CallLimits``. All are ours. Its times are the ``CallTimes`` of the messenger.
package enum CallRelayLimits {
    /// Bytes of the name of a device, and of the id of a call. A UUID has 36.
    package static let nameLimit = 64
    /// Bytes of a payload; a description has some thousands.
    package static let payloadLimit = 60_000
    /// Entries that wait for one account, and their bytes.
    package static let boxEntries = 1024
    package static let boxBytes = 8 << 20
    /// The part of one sender: no account can fill another's box. More than a storm of candidates has.
    package static let senderEntries = 320
    package static let senderBytes = 4 << 20
    /// Bytes that one account has in all boxes: none fills the memory of all. An end with a long payload waits for minutes.
    package static let accountBytes = 8 << 20
    /// Bytes of all boxes.
    package static let totalBytes = 64 << 20
    /// Calls at once of two accounts: none takes all places of another one. In one call two people have one.
    package static let pairSides = 8
    /// Calls at once of one account, and of all.
    package static let accountSides = 64
    package static let sides = 20_000
    /// Devices of both accounts that have sent something in one call.
    package static let senders = 12
    /// Ends that are remembered. The oldest are forgotten first.
    package static let ends = 20_000
    /// How long a call without any message is remembered, in milliseconds.
    package static let idleTime: Int64 = 12 * 3_600_000
    /// Entries of one answer, and their bytes.
    package static let pageEntries = 50
    package static let pageBytes = 512 << 10
    /// How often calls are checked for their ends, in milliseconds.
    static let pruneInterval: Int64 = 1000
}

/// A device of an account, under the name that its app has given it.
package struct RelayedDevice: Hashable, Sendable {
    package var account: AccountID
    package var name: String

    package init(account: AccountID, name: String) { (self.account, self.name) = (account, name) }
}

/// One message about a call, as a device posts it.
package struct RelayedMessage<Payload: Sendable>: Sendable {
    package enum Kind: String, Sendable, CaseIterable {
        case sdpOffer, sdpAnswer, iceCandidate, ciphertext, groupControl, end
        /// Made by the relay, for the other devices of the account that has answered.
        case answered
    }

    /// The routing key as its sender spells it.
    package var id: String
    package var route: CallRoute
    package var call: String
    package var to: AccountID
    package var kind: Kind
    /// The place among the messages of this device to this account in this call, from 0.
    package var number: Int
    /// Nil in messages of the relay.
    package var payload: Payload?
    /// Bytes of the payload.
    package var size: Int
    /// The end state in an end that the relay has made.
    package var endState: String?

    package init(
        id: String, route: CallRoute, call: String, to: AccountID, kind: Kind, number: Int, payload: Payload?, size: Int
    ) {
        (self.id, self.route, self.call, self.to, self.kind) = (id, route, call, to, kind)
        (self.number, self.payload, self.size) = (number, payload, size)
    }
}

/// Why a message is not relayed.
package enum CallRelayRefusal: Error, Sendable, Equatable {
    /// The call has ended.
    case ended
    /// There is no call that this could belong to.
    case noCall
    /// Another device of the account is in the call.
    case otherDevice
    /// An earlier message has not come; the next number is named.
    case outOfOrder(next: Int)
    /// A limit is reached.
    case full
}

/// The calls of a gateway.
package struct CallRelay<Payload: Sendable>: Sendable {
    package typealias Message = RelayedMessage<Payload>

    /// A message that waits for the devices of an account.
    package struct Entry: Sendable {
        /// Rises with each entry, also over restarts of the gateway.
        package var sequence: UInt64
        /// When it was posted, in milliseconds since 1970.
        package var at: Int64
        /// In milliseconds of uptime.
        var expires: Int64
        package var from: RelayedDevice
        /// The one device that it is for; nil for all of the account.
        var device: String?
        /// The device that it is not for.
        var except: String?
        package var message: Message
    }

    private struct Pair: Hashable {
        var first: AccountID
        var second: AccountID

        init(_ one: AccountID, _ other: AccountID) { (first, second) = (min(one, other), max(one, other)) }

        var both: [AccountID] { [first, second] }

        func other(than account: AccountID) -> AccountID { first == account ? second : first }
    }

    /// One call of two accounts.
    private struct Key: Hashable {
        var route: CallRoute
        var call: String
        var accounts: Pair

        init(_ route: CallRoute, _ call: String, _ one: AccountID, _ other: AccountID) {
            (self.route, self.call, accounts) = (route, call, Pair(one, other))
        }
    }

    private struct Side {
        /// The routing key as the one who has begun the call spells it.
        var id: String
        /// The device of each account that is in the call; none while several may answer.
        var devices: [AccountID: String] = [:]
        /// The account whose offer was the last one.
        var offerer: AccountID?
        var isAnswered = false
        /// When the ringing ends, in milliseconds of uptime; nil if it does not ring.
        var ringEnd: Int64?
        var next: [RelayedDevice: Int] = [:]
        var touched: Int64
    }

    /// The calls that go on, with the number of them that each account has, and each two.
    private struct Sides {
        private(set) var all: [Key: Side] = [:]
        private var counts: [AccountID: Int] = [:]
        private var pairCounts: [Pair: Int] = [:]

        var count: Int { all.count }

        func count(of account: AccountID) -> Int { counts[account] ?? 0 }

        func count(of pair: Pair) -> Int { pairCounts[pair] ?? 0 }

        subscript(key: Key) -> Side? {
            get { all[key] }
            set {
                let change = (newValue == nil ? 0 : 1) - (all[key] == nil ? 0 : 1)
                all[key] = newValue
                guard change != 0 else { return }
                for account in key.accounts.both {
                    let left = count(of: account) + change
                    counts[account] = left == 0 ? nil : left
                }
                let left = count(of: key.accounts) + change
                pairCounts[key.accounts] = left == 0 ? nil : left
            }
        }
    }

    private struct Box {
        var entries: [Entry] = []

        var bytes: Int { CallRelay.bytes(of: entries) }
    }

    private let times = CallTimes()
    private var sides = Sides()
    private var ends: [Key: Int64] = [:]
    private var boxes: [AccountID: Box] = [:]
    private var bytes = 0
    /// The part of each account in them, by their senders.
    private var sentBytes: [AccountID: Int] = [:]
    private var lastSequence: UInt64 = 0
    private var nextPrune: Int64 = 0
    /// The accounts that have got entries and were not reported.
    private var woken: Set<AccountID> = []

    package init() {}

    /// The accounts that have got entries since the last call of this, whatever has made them: also a fetch of another
    /// account, or a message that was refused, ends calls that nobody has answered.
    package mutating func takeWoken() -> Set<AccountID> {
        defer { woken = [] }
        return woken
    }

    /// Calls that go on, for reports.
    package var count: Int { sides.count }

    private static func uptime(_ now: Timestamp) -> Int64 { now.monotonic / 1_000_000 }

    // MARK: Posting

    /// Takes a message of a device. A repeated one, and an end of a call that has ended, change nothing.
    package mutating func post(
        _ message: Message, from sender: RelayedDevice, now: Timestamp
    ) throws(CallRelayRefusal) {
        prune(now)
        let key = Key(message.route, message.call, sender.account, message.to)
        guard message.to != sender.account, message.kind != .answered else { throw .noCall }
        guard ends[key] == nil else {
            guard message.kind == .end else { throw .ended }
            return
        }
        guard var side = try side(key, message, sender, now) else { return }
        if let device = side.devices[sender.account], device != sender.name { throw .otherDevice }
        guard side.next[sender] != nil || side.next.count < CallRelayLimits.senders else { throw .full }
        let next = side.next[sender] ?? 0
        if message.kind != .end {
            guard message.number >= next else { return }
            guard message.number == next else { throw .outOfOrder(next: next) }
        }
        try check(message, of: key, from: sender)
        let rang = side.ringEnd != nil
        try take(message, from: sender, &side, now)
        (side.next[sender], side.touched) = (next + 1, Self.uptime(now))
        sides[key] = side
        switch message.kind {
        case .sdpAnswer where rang:
            // The others stop ringing, and get nothing of the call that they do not have yet. What this device has not
            // fetched still waits for it.
            keep(key, for: sender)
            notify(.answered, of: message, except: sender, now)
        case .end:
            remove(key, for: sender.account)
            remove(key, for: message.to)
            if rang, side.offerer != sender.account { notify(.end, of: message, except: sender, now) }
            remember(key, now)
        default: break
        }
        put(message, from: sender, to: message.to, device: side.devices[message.to], now)
    }

    /// The call of a message; nil for the end of a call that has not begun.
    private func side(
        _ key: Key, _ message: Message, _ sender: RelayedDevice, _ now: Timestamp
    ) throws(CallRelayRefusal) -> Side? {
        if let side = sides[key] { return side }
        switch message.kind {
        case .end: return nil
        case .sdpAnswer, .iceCandidate, .answered: throw .noCall
        case .sdpOffer, .ciphertext, .groupControl: break
        }
        guard message.number == 0 else { throw .noCall }
        guard sides.count < CallRelayLimits.sides, sides.count(of: key.accounts) < CallRelayLimits.pairSides,
            key.accounts.both.allSatisfy({ sides.count(of: $0) < CallRelayLimits.accountSides })
        else { throw .full }
        var side = Side(id: message.id, touched: Self.uptime(now))
        side.devices[sender.account] = sender.name
        return side
    }

    private func check(_ message: Message, of key: Key, from sender: RelayedDevice) throws(CallRelayRefusal) {
        let box = boxes[message.to] ?? Box()
        // An end takes the place of all that waits of its call, so it is not refused because of that.
        let rest = box.entries.filter { message.kind != .end || !Self.isOf(key, $0, for: message.to) }
        let own = rest.filter { $0.from.account == sender.account }
        let (restBytes, ownBytes) = (Self.bytes(of: rest), Self.bytes(of: own))
        guard message.size <= CallRelayLimits.payloadLimit,
            bytes - (box.bytes - restBytes) + message.size <= CallRelayLimits.totalBytes,
            (sentBytes[sender.account] ?? 0) + message.size <= CallRelayLimits.accountBytes,
            rest.count < CallRelayLimits.boxEntries, restBytes + message.size <= CallRelayLimits.boxBytes,
            own.count < CallRelayLimits.senderEntries, ownBytes + message.size <= CallRelayLimits.senderBytes
        else { throw .full }
    }

    private static func bytes(of entries: [Entry]) -> Int { entries.reduce(0) { $0 + $1.message.size } }

    private func take(
        _ message: Message, from sender: RelayedDevice, _ side: inout Side, _ now: Timestamp
    ) throws(CallRelayRefusal) {
        switch message.kind {
        case .sdpOffer:
            // Until it is answered, the one who calls offers.
            guard side.isAnswered || side.offerer.map({ $0 == sender.account }) ?? true else { throw .noCall }
            (side.offerer, side.devices[sender.account]) = (sender.account, sender.name)
            if !side.isAnswered { side.ringEnd = Self.uptime(now) + times.answering }
        case .sdpAnswer:
            guard side.offerer == message.to else { throw .noCall }
            side.devices[sender.account] = sender.name
            (side.isAnswered, side.ringEnd) = (true, nil)
        case .iceCandidate:
            guard side.offerer != nil else { throw .noCall }
        case .ciphertext, .groupControl, .end: break
        case .answered: throw .noCall
        }
    }

    /// To the other devices of the sender's account.
    private mutating func notify(
        _ kind: Message.Kind, of message: Message, except sender: RelayedDevice, _ now: Timestamp
    ) {
        var notice = message
        (notice.kind, notice.to) = (kind, sender.account)
        if kind == .answered { (notice.payload, notice.size) = (nil, 0) }
        put(notice, from: sender, to: sender.account, except: sender.name, now)
    }

    private mutating func put(
        _ message: Message, from sender: RelayedDevice, to account: AccountID, device: String? = nil,
        except: String? = nil, _ now: Timestamp
    ) {
        lastSequence = max(lastSequence + 1, UInt64(max(now.wall, 0)) * 1000)
        let isEnd = message.kind == .end || message.kind == .answered
        let life = isEnd ? times.end : times.message
        boxes[account, default: Box()].entries.append(
            Entry(
                sequence: lastSequence, at: now.wall, expires: Self.uptime(now) + life * 1000, from: sender,
                device: device, except: except, message: message))
        count(message.size, of: sender.account)
        woken.insert(account)
    }

    // MARK: Fetching

    /// The entries for a device after a place, the first ones first. What was for this device only is removed up to the
    /// place: it has it.
    package mutating func entries(
        for device: RelayedDevice, after: UInt64, now: Timestamp
    ) -> (entries: [Entry], more: Bool) {
        prune(now)
        let uptime = Self.uptime(now)
        remove(from: device.account) { $0.expires <= uptime || ($0.device == device.name && $0.sequence <= after) }
        var page: [Entry] = []
        var size = 0
        for entry in boxes[device.account]?.entries ?? []
        where entry.sequence > after && entry.device ?? device.name == device.name && entry.except != device.name {
            size += entry.message.size
            guard page.count < CallRelayLimits.pageEntries, page.isEmpty || size <= CallRelayLimits.pageBytes else {
                return (page, true)
            }
            page.append(entry)
        }
        return (page, false)
    }

    private mutating func remove(from account: AccountID, where isRemoved: (Entry) -> Bool) {
        guard var box = boxes[account] else { return }
        var removed: [Entry] = []
        box.entries.removeAll { entry in
            guard isRemoved(entry) else { return false }
            removed.append(entry)
            return true
        }
        for entry in removed { count(-entry.message.size, of: entry.from.account) }
        boxes[account] = box.entries.isEmpty ? nil : box
    }

    private mutating func count(_ change: Int, of sender: AccountID) {
        bytes += change
        let left = (sentBytes[sender] ?? 0) + change
        sentBytes[sender] = left == 0 ? nil : left
    }

    private mutating func remove(_ key: Key, for account: AccountID) {
        remove(from: account) { Self.isOf(key, $0, for: account) }
    }

    private static func isOf(_ key: Key, _ entry: Entry, for account: AccountID) -> Bool {
        Key(entry.message.route, entry.message.call, entry.from.account, account) == key
    }

    /// Keeps the entries of a call for one device of the account.
    private mutating func keep(_ key: Key, for device: RelayedDevice) {
        guard var box = boxes[device.account] else { return }
        for index in box.entries.indices where Self.isOf(key, box.entries[index], for: device.account) {
            box.entries[index].device = device.name
        }
        boxes[device.account] = box
    }

    // MARK: Time

    private mutating func remember(_ key: Key, _ now: Timestamp) {
        sides[key] = nil
        if ends.count >= CallRelayLimits.ends {
            // A half at a time, so that the search for them is rare.
            let oldest = ends.sorted { $0.value < $1.value }.prefix(CallRelayLimits.ends / 2)
            for (old, _) in oldest { ends[old] = nil }
        }
        ends[key] = Self.uptime(now) + CallLimits.endTime
    }

    /// Ends what nobody has answered, and forgets what is over.
    package mutating func prune(_ now: Timestamp) {
        let uptime = Self.uptime(now)
        guard uptime >= nextPrune else { return }
        nextPrune = uptime + CallRelayLimits.pruneInterval
        ends = ends.filter { $0.value > uptime }
        for account in boxes.keys.sorted() { remove(from: account) { $0.expires <= uptime } }
        for (key, side) in sides.all {
            guard side.touched + CallRelayLimits.idleTime > uptime else {
                sides[key] = nil
                continue
            }
            guard let ringEnd = side.ringEnd, ringEnd <= uptime, let caller = side.offerer else { continue }
            remember(key, now)
            for account in key.accounts.both {
                remove(key, for: account)
                var message = Message(
                    id: side.id, route: key.route, call: key.call, to: account, kind: .end, number: 0,
                    payload: nil, size: 0)
                message.endState = account == caller ? "userInitiatedUnanswered" : "partnerInitiatedUnanswered"
                let other = key.accounts.other(than: account)
                put(
                    message, from: RelayedDevice(account: other, name: side.devices[other] ?? ""), to: account,
                    device: side.devices[account], now)
            }
        }
    }
}
