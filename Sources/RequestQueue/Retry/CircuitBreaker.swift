/// Stops requests to a host that cannot be reached, and probes it until it can. Requests that wait for it spend no attempt.
///
/// A connection that fails counts each time. An answer that says the service is unavailable counts once for each lane, so that one
/// conversation cannot stop the others. A request without an answer does not count: the host was reached.
public struct CircuitBreaker: Sendable {
    /// When it opens, and for how long.
    public struct Rule: Hashable, Sendable {
        /// Number of failures in a row that opens it.
        public var threshold: Int
        /// Milliseconds until the first probe; doubled after each probe that fails.
        public var pause: Int64
        /// Milliseconds; what no pause exceeds.
        public var longestPause: Int64

        /// A threshold below one is one, and so is a pause.
        public init(threshold: Int = 5, pause: Int64 = 1000, longestPause: Int64 = 60_000) {
            self.threshold = max(threshold, 1)
            self.pause = max(pause, 1)
            self.longestPause = max(longestPause, pause)
        }
    }

    /// Whether requests go to the host.
    public enum State: Equatable, Sendable {
        case closed
        /// Nothing goes to the host before this time.
        case open(until: Int64)
        /// A probe is under way. Another one may begin at this time, in case the first gets no answer.
        case halfOpen(until: Int64)
    }

    /// Whether requests go to the host.
    public private(set) var state: State = .closed
    private let rule: Rule
    private var failures = 0
    private var openings = 0
    /// Lanes in which the host said that it is unavailable, since it last worked.
    private var unavailable: Set<LaneID> = []
    /// Bound of ``unavailable``.
    private static let lanes = 64

    /// Of a host that nothing is known of: closed.
    public init(_ rule: Rule) { self.rule = rule }

    /// Whether a request may go to the host now. Asking changes nothing.
    public func allows(now: Int64) -> Bool {
        switch state {
        case .closed: true
        case .open(let until), .halfOpen(let until): now >= until
        }
    }

    /// When the next request may go to the host; nil if one may go at any time.
    var opens: Int64? {
        switch state {
        case .closed: nil
        case .open(let until), .halfOpen(let until): until
        }
    }

    /// Whether it remembers nothing.
    var isQuiet: Bool { state == .closed && failures == 0 }

    /// A request goes to the host.
    public mutating func began(now: Int64) {
        guard state != .closed else { return }
        state = .halfOpen(until: now.adding(rule.pause))
    }

    /// The host has answered, whatever it said: it works.
    public mutating func succeeded() {
        (state, failures, openings, unavailable) = (.closed, 0, 0, [])
    }

    /// The host was not reached.
    public mutating func failed(now: Int64) { failed(now: now, retryAfter: 0) }

    /// The host answered that it is unavailable.
    ///
    /// - Parameters:
    ///   - lane: the lane of the request. A lane that has had this answer before says nothing new of the host.
    ///   - retryAfter: milliseconds, as the host asked; believed up to ``Rule/longestPause``.
    mutating func refused(_ lane: LaneID, retryAfter: Int64?, now: Int64) {
        guard unavailable.count < Self.lanes, unavailable.insert(lane).inserted else { return withdrew(now: now) }
        failed(now: now, retryAfter: max(retryAfter ?? 0, 0))
    }

    /// A request that went to the host ended without saying anything about it.
    public mutating func withdrew(now: Int64) {
        if case .halfOpen = state { state = .open(until: now) }
    }

    private mutating func failed(now: Int64, retryAfter: Int64) {
        failures += 1
        switch state {
        case .halfOpen: open(now: now, retryAfter)
        case .closed where failures >= rule.threshold: open(now: now, retryAfter)
        case .closed, .open: break
        }
    }

    private mutating func open(now: Int64, _ retryAfter: Int64) {
        var pause = rule.longestPause
        if openings < 32 {
            let (doubled, overflow) = rule.pause.multipliedReportingOverflow(by: 1 << Int64(openings))
            if !overflow { pause = min(doubled, pause) }
        }
        openings += 1
        state = .open(until: now.adding(max(pause, min(retryAfter, rule.longestPause))))
    }
}
