import Foundation

/// A point in time after which a wait gives up. Nothing in this kit waits without one.
package struct Deadline: Sendable {
    /// Generous, because it is only spent when something is broken and the machine may be busy.
    package static let usual: Duration = .seconds(60)

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

/// Asks until the answer is yes; throws when it is still no after `timeout`.
package func eventually(
    _ what: String, timeout: Duration = Deadline.usual, every pause: Duration = .milliseconds(5),
    _ condition: () throws -> Bool
) throws {
    let deadline = Deadline(timeout)
    while try !condition() {
        guard !deadline.hasPassed else { throw PeerError("not within \(timeout): \(what)") }
        nap(pause)
    }
}

/// One pause of a bounded loop that asks again.
func nap(_ pause: Duration) {
    let parts = pause.components
    Thread.sleep(forTimeInterval: Double(parts.seconds) + Double(parts.attoseconds) / 1e18)
}
