// Who would be affected by a stricter policy: kept per connection, written down now and then.

import Envelope
import NIOCore

/// Whom somebody wrote to, or what kind of request it was that no policy could protect, for ``ObservationRow``.
package enum ObservedRecipient: String, Sendable, CaseIterable {
    case legacy, outsider, exempt, room
    /// A file. The target is the route.
    case media
    /// A command or request that carries text in no known place. The target is the route or the verb.
    case verb
    /// Words that somebody looks for. The target is the route.
    case search
    /// A request for a direct connection.
    case directConnection = "direct_connection"
    /// A room that the sender is not in.
    case notInRoom = "not_in_room"
    /// A name that is not UTF-8.
    case name

    package init(_ refusal: UnprotectableRequest) {
        self =
            switch refusal {
            case .media: .media
            case .verb: .verb
            case .search: .search
            }
    }

    /// Whether the target is a route or a command and no name.
    var isRoute: Bool {
        switch self {
        case .media, .verb, .search: true
        case .legacy, .outsider, .exempt, .room, .directConnection, .notInRoom, .name: false
        }
    }

    /// What it is called in the list of what `hosted` would refuse; nil if it would not.
    var blocker: String? {
        switch self {
        case .legacy, .exempt, .room: nil
        case .outsider: "outsider"
        case .media: "file"
        case .verb: "request"
        case .search: "search"
        case .directConnection: "direct connection"
        case .notInRoom: "room, from outside"
        case .name: "name that is not UTF-8"
        }
    }

    /// What a policy for everyone would say.
    package func refusal(under policy: Policy, target: String) -> Refusal? {
        let refusal: Refusal
        switch self {
        case .legacy: return policy.refusal(of: .legacy(AccountID(text: target)))
        case .exempt: return policy.refusal(of: .exempt)
        case .room: return policy.refusal(of: .room(.room(target)))
        case .outsider: return policy.refusal(of: .outsider)
        case .media: refusal = .media
        case .verb: refusal = .verb
        case .search: refusal = .search
        case .directConnection: refusal = .directConnection
        case .notInRoom: refusal = .notInRoom
        case .name: refusal = .name
        }
        return policy.demandsProtection ? refusal : nil
    }
}

/// A request in which nothing could be sealed: refused under `hosted` and above.
package enum UnprotectableRequest: Sendable {
    case media, verb, search

    init(isFile: Bool) { self = isFile ? .media : .verb }

    package var refusal: Refusal {
        switch self {
        case .media: .media
        case .verb: .verb
        case .search: .search
        }
    }
}

extension Policy {
    /// Why a message in a conversation without a latch is not sent; nil if it is.
    fileprivate func refusal(of recipient: Recipient) -> Refusal? {
        guard case .refuse(let refusal) = outbound(to: recipient, latch: .plaintext) else { return nil }
        return refusal
    }
}

/// The observations of one connection since they were last written down.
struct ObservationBook: Sendable {
    /// Ours: how long observations may wait. In nanoseconds.
    static let interval: Int64 = 2_000_000_000
    /// Ours: distinct recipients kept; more are written down at once.
    static let limit = 32

    private struct Key: Hashable {
        let target: String
        let recipient: ObservedRecipient
    }

    private var counts: [Key: Int] = [:]
    /// The last target as written, and what it was counted as: people write many lines to one target.
    private var last: (written: ByteBuffer, key: Key, repeats: Int, until: Int64)?
    private var latest: Key?
    private(set) var deadline: Int64?

    var isFull: Bool { counts.count >= Self.limit }

    mutating func note(_ target: String, _ recipient: ObservedRecipient, now: Int64) {
        let key = Key(target: target, recipient: recipient)
        counts[key, default: 0] += 1
        latest = key
        if deadline == nil { deadline = now + Self.interval }
    }

    /// Counts one more message to the target of before, if it is that; nothing is looked up again for a second.
    mutating func repeats(_ written: ByteBuffer, now: Int64) -> Bool {
        guard let last, last.until > now, last.written == written, deadline != nil else { return false }
        self.last?.repeats += 1
        return true
    }

    /// Remembers what was noted just now for one target.
    mutating func remember(_ written: ByteBuffer, now: Int64) {
        flushRepeats()
        guard let latest, !written.readableBytesView.contains(UInt8(ascii: ",")) else { return }
        last = (written, latest, 0, now + 1_000_000_000)
    }

    private mutating func flushRepeats() {
        guard let done = last else { return }
        last = nil
        if done.repeats > 0 { counts[done.key, default: 0] += done.repeats }
    }

    /// What was noted, as rows, and begins anew.
    mutating func take(sender: String, wall: Int64) -> [StoreChange] {
        flushRepeats()
        defer {
            counts.removeAll()
            deadline = nil
        }
        return counts.map { key, count in
            .addObservation(
                ObservationRow(
                    sender: sender, target: key.target, recipient: key.recipient.rawValue, messages: count,
                    lastSeen: wall))
        }
    }
}
