// The machine of incomplete envelopes: those that arrive live, and apart from them those that the backend replays, so
// that the two are never mixed in one message.

import Envelope

/// The fragments that one connection has received.
struct FragmentCollector {
    /// A fragment, as its line has it.
    struct Fragment {
        /// The source of the line, as written.
        var source: String
        var target: String
        var id: UInt32
        var index: Int
        var count: Int
        var bytes: [UInt8]
        var isReplay: Bool

        /// That of its envelope.
        var key: FragmentAssembler.Key { .init(source: source, target: target, id: id) }
    }

    /// Ours: how long a replayed message waits for its fragments, in nanoseconds. A replay arrives in one piece.
    static let replayInactivity: Int64 = 3_000_000_000

    private var live: FragmentAssembler?
    private var replayed: FragmentAssembler?

    /// When the next envelope is given up; nil if none is incomplete.
    var nextDeadline: Int64? {
        [live?.nextDeadline, replayed?.nextDeadline].compactMap { $0 }.min()
    }

    /// Adds a fragment.
    ///
    /// - Parameter limits: those of the first fragment count.
    mutating func add(
        _ fragment: Fragment, _ limits: FragmentAssembler.Limits, now: Int64
    ) -> FragmentAssembler.Outcome {
        guard fragment.isReplay else { return Self.add(fragment, to: &live, limits, now) }
        var limits = limits
        limits.inactivity = min(limits.inactivity, Self.replayInactivity)
        return Self.add(fragment, to: &replayed, limits, now)
    }

    private static func add(
        _ fragment: Fragment, to assembler: inout FragmentAssembler?, _ limits: FragmentAssembler.Limits, _ now: Int64
    ) -> FragmentAssembler.Outcome {
        var current = assembler ?? FragmentAssembler(limits: limits)
        assembler = nil
        defer { assembler = current }
        return current.add(
            source: fragment.source, target: fragment.target, id: fragment.id, index: fragment.index,
            count: fragment.count, bytes: fragment.bytes, now: now)
    }

    /// Whether a live envelope is incomplete.
    func contains(_ envelope: FragmentAssembler.Key) -> Bool { live?.contains(envelope) ?? false }

    /// Removes live envelopes that have waited too long; returns their sources.
    mutating func expire(now: Int64) -> [String] { live?.expire(now: now) ?? [] }

    /// The same for replayed ones.
    mutating func expireReplays(now: Int64) -> [String] { replayed?.expire(now: now) ?? [] }

    /// No more fragments are replayed; returns the sources of incomplete envelopes.
    mutating func endReplays() -> [String] { expireReplays(now: .max) }
}
