import TestKit

/// A point in time after which a wait gives up. Nothing in this kit waits without one.
package struct Deadline: Sendable {
    /// The bound of a wait that has no other.
    package static let usual: Duration = usualTimeout

    private let end: ContinuousClock.Instant

    package init(_ timeout: Duration) {
        end = ContinuousClock.now + timeout
    }

    package var hasPassed: Bool { ContinuousClock.now >= end }

    /// What is left, rounded up, as `poll` wants it.
    package var milliseconds: Int32 {
        let left = (end - ContinuousClock.now).components
        guard left.seconds >= 0, left.attoseconds >= 0 else { return 0 }
        let total = left.seconds * 1000 + (left.attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
        return Int32(clamping: total)
    }
}
