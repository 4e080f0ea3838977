/// How long a request waits before it is sent again: exponential, with full jitter and a cap.
public struct Backoff: Hashable, Sendable {
    /// Upper bound of the first pause, in milliseconds.
    public var base: Int64
    /// Upper bound of all pauses without `Retry-After`, in milliseconds.
    public var cap: Int64
    /// Upper bound of a host's `Retry-After`, in milliseconds.
    public var retryAfterCap: Int64

    /// Upper bound of all settings, about 140,000 years, so that times can be added without overflow. In milliseconds.
    static let longest: Int64 = 1 << 52

    /// All in milliseconds.
    public init(base: Int64 = 500, cap: Int64 = 300_000, retryAfterCap: Int64 = 3_600_000) {
        self.base = min(max(base, 1), Self.longest)
        self.cap = min(max(cap, base), Self.longest)
        self.retryAfterCap = min(max(retryAfterCap, 0), Self.longest)
    }

    /// The longest pause after this number of attempts, in milliseconds.
    public func bound(attempts: Int) -> Int64 {
        guard attempts < 40 else { return cap }
        let (bound, overflow) = base.multipliedReportingOverflow(by: 1 << Int64(max(attempts - 1, 0)))
        return overflow ? cap : min(bound, cap)
    }

    /// A random pause up to the bound, and at least as long as the host asked for, in milliseconds.
    ///
    /// It is random so that many requests that failed together do not return together.
    ///
    /// - Parameters:
    ///   - attempts: the attempts that have failed.
    ///   - retryAfter: the pause that the host asked for, in milliseconds; nil for none.
    ///   - random: 64 uniformly random bits.
    public func pause(attempts: Int, retryAfter: Int64?, random: UInt64) -> Int64 {
        let bound = UInt64(min(max(bound(attempts: attempts), 0), Self.longest))
        let jittered = Int64(random.multipliedFullWidth(by: bound + 1).high)
        return max(jittered, min(max(retryAfter ?? 0, 0), min(max(retryAfterCap, 0), Self.longest)))
    }
}

extension Int64 {
    /// The sum, or the nearest value that can be represented. Times and pauses may come from outside.
    func adding(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? (other > 0 ? .max : .min) : sum
    }
}
