/// Allows an act a limited number of times in a period that ends now.
struct RateLimit {
    private let limit: Int
    /// In nanoseconds.
    private let period: Int64
    /// The times of the acts in the last period; at most ``limit``.
    private var times: [Int64] = []

    /// - Parameter period: in nanoseconds.
    init(_ limit: Int, in period: Int64) { (self.limit, self.period) = (limit, period) }

    /// Whether the act may be done now; if so, counts it.
    mutating func allows(at now: Int64) -> Bool {
        times.removeAll { $0 + period <= now }
        guard times.count < limit else { return false }
        times.append(now)
        return true
    }
}
