/// How long a request waits before it is sent again: exponential, with full jitter, with a cap.
public struct Backoff: Hashable, Sendable {
    /// Milliseconds; what the first pause is at most.
    public var base: Int64
    /// Milliseconds; what no pause exceeds.
    public var cap: Int64
    /// Milliseconds; what a host's `Retry-After` is believed up to.
    public var retryAfterCap: Int64

    /// No pause is longer, so that times can be added without overflow: about 140,000 years.
    static let longest: Int64 = 1 << 52

    /// All in milliseconds.
    public init(base: Int64 = 500, cap: Int64 = 300_000, retryAfterCap: Int64 = 3_600_000) {
        self.base = min(max(base, 1), Self.longest)
        self.cap = min(max(cap, base), Self.longest)
        self.retryAfterCap = min(max(retryAfterCap, 0), Self.longest)
    }

    /// The longest pause after so many attempts.
    public func bound(attempts: Int) -> Int64 {
        guard attempts < 40 else { return cap }
        let (bound, overflow) = base.multipliedReportingOverflow(by: 1 << Int64(max(attempts - 1, 0)))
        return overflow ? cap : min(bound, cap)
    }

    /// A pause in milliseconds: somewhere between nothing and the bound, so that many who failed together do not come back together;
    /// at least what the host has asked for.
    ///
    /// - Parameter random: 64 uniformly random bits.
    public func pause(attempts: Int, retryAfter: Int64?, random: UInt64) -> Int64 {
        let bound = UInt64(min(max(bound(attempts: attempts), 0), Self.longest))
        let jittered = Int64(random.multipliedFullWidth(by: bound + 1).high)
        return max(jittered, min(max(retryAfter ?? 0, 0), min(max(retryAfterCap, 0), Self.longest)))
    }
}

extension Int64 {
    /// The sum, or the nearest value that there is. Times and pauses may come from outside.
    func adding(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? (other > 0 ? .max : .min) : sum
    }
}
