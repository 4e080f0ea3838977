// Two token buckets that limit writes to a backend with flood protection.

/// Limits lines and bytes per time. Time is an argument.
package struct Pacer: Sendable {
    /// What a backend accepts from one connection.
    package struct Limit: Equatable, Sendable {
        /// Lines that may be written at once after a pause.
        package var burst: Double
        /// Lines per second by which the bucket refills; zero means unlimited.
        package var linesPerSecond: Double
        /// Bytes per second; zero means unlimited. The burst in bytes is 512 for each line of `burst`.
        package var bytesPerSecond: Double

        package init(burst: Double, linesPerSecond: Double, bytesPerSecond: Double = 0) {
            self.burst = max(burst, 1)
            self.linesPerSecond = max(linesPerSecond, 0)
            self.bytesPerSecond = max(bytesPerSecond, 0)
        }

        package static let unlimited = Limit(burst: 1, linesPerSecond: 0)
    }

    private var limit: Limit
    private var lines: Double
    private var bytes: Double
    private var updated: Int64?

    package init(_ limit: Limit) {
        self.limit = limit
        lines = limit.burst
        bytes = limit.burst * 512
    }

    /// Replaces the limit. What was spent stays spent.
    package mutating func renew(_ new: Limit) {
        guard new != limit else { return }
        limit = new
        lines = min(lines, new.burst)
        bytes = min(bytes, new.burst * 512)
    }

    /// Whether there is no limit.
    package var isUnlimited: Bool { limit.linesPerSecond == 0 && limit.bytesPerSecond == 0 }

    /// Spends one line of this length; false if the line has to wait.
    package mutating func spend(_ length: Int, now: Int64) -> Bool {
        guard !isUnlimited else { return true }
        refill(now: now)
        guard delay(for: length) <= 0 else { return false }
        take(length)
        return true
    }

    /// Spends a line that could not be delayed. The debt is bounded, so that a pause always ends it.
    package mutating func charge(_ length: Int, now: Int64) {
        guard !isUnlimited else { return }
        refill(now: now)
        take(length)
        lines = max(lines, -limit.burst)
        bytes = max(bytes, -limit.burst * 512)
    }

    /// When the next line may be written, in nanoseconds of the owner's clock.
    package mutating func nextSlot(now: Int64) -> Int64 {
        guard !isUnlimited else { return now }
        refill(now: now)
        let seconds = delay(for: 512)
        // A configured rate may be arbitrarily small; the next attempt is at most a day away.
        return seconds <= 0 ? now : now + Int64(min(seconds, 86_400) * 1_000_000_000) + 1_000_000
    }

    private mutating func take(_ length: Int) {
        if limit.linesPerSecond > 0 { lines -= 1 }
        if limit.bytesPerSecond > 0 { bytes -= Double(length) }
    }

    /// Seconds until a line of this length may be written.
    private func delay(for length: Int) -> Double {
        let byLines = limit.linesPerSecond > 0 ? (1 - lines) / limit.linesPerSecond : 0
        let byBytes = limit.bytesPerSecond > 0 ? (Double(length) - bytes) / limit.bytesPerSecond : 0
        return max(byLines, byBytes)
    }

    private mutating func refill(now: Int64) {
        if let updated, now > updated {
            let seconds = Double(now - updated) / 1_000_000_000
            lines = min(limit.burst, lines + seconds * limit.linesPerSecond)
            bytes = min(limit.burst * 512, bytes + seconds * limit.bytesPerSecond)
        }
        updated = max(now, updated ?? now)
    }
}
