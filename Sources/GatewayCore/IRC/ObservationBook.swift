// Who would be affected by a stricter policy: kept per connection, written down now and then.

/// Whom somebody wrote to, for ``ObservationRow``.
package enum ObservedRecipient: String, Sendable, CaseIterable {
    case legacy, outsider, exempt, room
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
    private(set) var deadline: Int64?

    var isFull: Bool { counts.count >= Self.limit }

    mutating func note(_ target: String, _ recipient: ObservedRecipient, now: Int64) {
        counts[Key(target: target, recipient: recipient), default: 0] += 1
        if deadline == nil { deadline = now + Self.interval }
    }

    /// What was noted, as rows, and begins anew.
    mutating func take(sender: String, wall: Int64) -> [StoreChange] {
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
