// Reassembles fragments. It uses neither sockets nor clocks: the owner passes the time and asks for expired entries.

/// Collects fragments per (source, target, id), bounded in number, bytes and time.
package struct FragmentAssembler: Sendable {
    /// The limits; each is small because a fragment costs an outsider one line and the gateway memory.
    package struct Limits: Sendable {
        /// Incomplete envelopes, over all sources.
        package var envelopes = 64
        /// Incomplete envelopes from one source.
        package var envelopesPerSource = 8
        /// Bytes of all fragments held.
        package var bytes = 128 * 1024
        /// How long an envelope waits for its next fragment, in nanoseconds. Paced senders send a line every two
        /// seconds, so after thirty seconds the fragment is lost.
        package var inactivity: Int64 = 30_000_000_000

        package init() {}
    }

    /// The result of adding a fragment.
    package enum Outcome: Equatable, Sendable {
        /// More fragments are missing.
        case waiting
        /// The envelope is complete.
        case complete([UInt8])
        /// The fragment was received before; nothing changed.
        case duplicate
        /// The fragment contradicts an earlier one with the same id; the envelope is dropped.
        case contradiction
        /// A limit is reached: the fragment is dropped, earlier ones are kept.
        case overflow
    }

    private struct Key: Hashable {
        let source: String
        let target: String
        let id: UInt32
    }

    private struct Partial {
        var pieces: [[UInt8]?]
        var missing: Int
        var bytes: Int
        var deadline: Int64
    }

    private let limits: Limits
    private var partials: [Key: Partial] = [:]
    private var perSource: [String: Int] = [:]
    private var bytes = 0

    package init(limits: Limits = Limits()) { self.limits = limits }

    /// When the next incomplete envelope expires, in nanoseconds of the owner's clock; nil if there is none.
    package var nextDeadline: Int64? { partials.values.map(\.deadline).min() }

    package var isEmpty: Bool { partials.isEmpty }

    /// Adds one fragment. The source is the whole `nick!user@host`, so that fragments of different people never mix.
    package mutating func add(
        source: String, target: String, id: UInt32, index: Int, count: Int, bytes piece: [UInt8], now: Int64
    ) -> Outcome {
        let key = Key(source: source, target: target, id: id)
        if var partial = partials[key] {
            guard partial.pieces.count == count else {
                drop(key)
                return .contradiction
            }
            if let present = partial.pieces[index] {
                guard present == piece else {
                    drop(key)
                    return .contradiction
                }
                return .duplicate
            }
            guard bytes + piece.count <= limits.bytes else { return .overflow }
            partial.pieces[index] = piece
            partial.missing -= 1
            partial.bytes += piece.count
            partial.deadline = now + limits.inactivity
            bytes += piece.count
            partials[key] = partial
            guard partial.missing == 0 else { return .waiting }
            drop(key)
            return .complete(partial.pieces.flatMap { $0 ?? [] })
        }
        guard partials.count < limits.envelopes, perSource[source, default: 0] < limits.envelopesPerSource,
            bytes + piece.count <= limits.bytes
        else { return .overflow }
        var partial = Partial(
            pieces: Array(repeating: nil, count: count), missing: count - 1, bytes: piece.count,
            deadline: now + limits.inactivity)
        partial.pieces[index] = piece
        partials[key] = partial
        perSource[source, default: 0] += 1
        bytes += piece.count
        return .waiting
    }

    /// Drops expired envelopes and returns the sources whose messages were lost.
    package mutating func expire(now: Int64) -> [String] {
        let overdue = partials.filter { $0.value.deadline <= now }.map(\.key)
        for key in overdue { drop(key) }
        return overdue.map(\.source)
    }

    private mutating func drop(_ key: Key) {
        guard let partial = partials.removeValue(forKey: key) else { return }
        bytes -= partial.bytes
        perSource[key.source, default: 1] -= 1
        if perSource[key.source] == 0 { perSource[key.source] = nil }
    }
}
