// Observations of what a stricter policy would affect: counted per connection, stored at intervals.

import Envelope
package import NIOCore
package import Protection
package import StorePort

/// The observations of one connection since they were last stored.
package struct ObservationCounts: Sendable {
    /// Ours: how long observations may wait, in nanoseconds.
    package static let interval: Int64 = 2_000_000_000
    /// Ours: the number of distinct recipients at which observations are stored at once.
    package static let limit = 32

    private struct Key: Hashable {
        package let target: String
        package let recipient: ObservedRecipient
    }

    private var counts: [Key: Int] = [:]
    /// The last target as written, with its key: people write many lines to one target.
    private var last: (written: ByteBuffer, key: Key, repeats: Int, until: Int64)?
    private var latest: Key?
    package private(set) var deadline: Int64?

    package var isFull: Bool { counts.count >= Self.limit }

    package mutating func note(_ target: String, _ recipient: ObservedRecipient, now: Int64) {
        let key = Key(target: target, recipient: recipient)
        counts[key, default: 0] += 1
        latest = key
        if deadline == nil { deadline = now + Self.interval }
    }

    /// Counts another message to the last target without a lookup; for one second.
    ///
    /// - Returns: what the target is; nil if the message was not counted, because the target is another one.
    package mutating func repeats(_ written: ByteBuffer, now: Int64) -> ObservedRecipient? {
        guard let last, last.until > now, last.written == written, deadline != nil else { return nil }
        self.last?.repeats += 1
        return last.key.recipient
    }

    /// Stores the last noted key for ``repeats(_:now:)``, if the line had one target.
    package mutating func remember(_ written: ByteBuffer, now: Int64) {
        flushRepeats()
        guard let latest, !written.readableBytesView.contains(UInt8(ascii: ",")) else { return }
        last = (written, latest, 0, now + 1_000_000_000)
    }

    private mutating func flushRepeats() {
        guard let done = last else { return }
        last = nil
        if done.repeats > 0 { counts[done.key, default: 0] += done.repeats }
    }

    /// Removes and returns the observations, as rows.
    package mutating func take(sender: String, wall: Int64) -> [StoreChange] {
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
