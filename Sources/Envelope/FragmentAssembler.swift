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
        /// The source has too many incomplete envelopes, or this one has too many bytes: the fragment is dropped, earlier ones
        /// are kept.
        case overflow
    }

    /// Identifies an envelope among those of all sources.
    package struct Key: Hashable, Sendable {
        let source: String
        let target: String
        let id: UInt32

        package init(source: String, target: String, id: UInt32) {
            (self.source, self.target, self.id) = (source, target, id)
        }
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
    /// Sources of envelopes that were dropped for others, until they are reported.
    private var displaced: Set<String> = []

    package init(limits: Limits = Limits()) { self.limits = limits }

    /// When the next incomplete envelope expires, in nanoseconds of the owner's clock; nil if there is none.
    package var nextDeadline: Int64? { partials.values.map(\.deadline).min() }

    package var isEmpty: Bool { partials.isEmpty }

    /// Whether an envelope is incomplete.
    package func contains(_ key: Key) -> Bool { partials[key] != nil }

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
            guard partial.bytes + piece.count <= limits.bytes else { return .overflow }
            makeRoom(for: piece.count, of: key)
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
        guard perSource[source, default: 0] < limits.envelopesPerSource, piece.count <= limits.bytes else {
            return .overflow
        }
        makeRoom(for: piece.count, of: key)
        var partial = Partial(
            pieces: Array(repeating: nil, count: count), missing: count - 1, bytes: piece.count,
            deadline: now + limits.inactivity)
        partial.pieces[index] = piece
        partials[key] = partial
        perSource[source, default: 0] += 1
        bytes += piece.count
        return .waiting
    }

    /// Drops other envelopes until there is room for a fragment: one of the source that has the most of them, and of those the
    /// one that has waited longest. So nobody keeps others from sending by beginning envelopes that never end.
    private mutating func makeRoom(for count: Int, of key: Key) {
        let isNew = partials[key] == nil
        while isNew && partials.count >= limits.envelopes || bytes + count > limits.bytes {
            let others = partials.filter { $0.key != key }
            let victim = others.max {
                let held = (perSource[$0.key.source, default: 0], perSource[$1.key.source, default: 0])
                return held.0 == held.1 ? $0.value.deadline > $1.value.deadline : held.0 < held.1
            }
            guard let victim else { return }
            drop(victim.key)
            if displaced.count < limits.envelopes { displaced.insert(victim.key.source) }
        }
    }

    /// Drops expired envelopes and returns the sources whose messages were lost, with those of envelopes that were dropped for
    /// others.
    package mutating func expire(now: Int64) -> [String] {
        let overdue = partials.filter { $0.value.deadline <= now }.map(\.key)
        for key in overdue { drop(key) }
        defer { displaced = [] }
        return overdue.map(\.source) + displaced.sorted()
    }

    private mutating func drop(_ key: Key) {
        guard let partial = partials.removeValue(forKey: key) else { return }
        bytes -= partial.bytes
        perSource[key.source, default: 1] -= 1
        if perSource[key.source] == 0 { perSource[key.source] = nil }
    }
}
