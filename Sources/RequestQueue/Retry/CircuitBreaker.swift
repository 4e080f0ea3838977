/// Stops requests to a host that cannot be reached, and probes it until it can. Waiting requests use no attempt.
///
/// Each connection that fails counts. An answer that the service is unavailable counts once for each lane, so that one
/// conversation cannot stop the others. A request without an answer does not count: the host was reached.
public struct CircuitBreaker: Sendable {
    /// When it opens, and for how long.
    public struct Rule: Hashable, Sendable {
        /// Failures in a row that open it.
        public var threshold: Int
        /// Milliseconds until the first probe; doubled after each probe that fails.
        public var pause: Int64
        /// Upper bound of all pauses, in milliseconds.
        public var longestPause: Int64

        /// A threshold or pause below one is taken as one.
        public init(threshold: Int = 5, pause: Int64 = 1000, longestPause: Int64 = 60_000) {
            self.threshold = max(threshold, 1)
            self.pause = max(pause, 1)
            self.longestPause = max(longestPause, pause)
        }
    }

    /// Whether requests go to the host.
    public enum State: Equatable, Sendable {
        case closed
        /// No request goes to the host before this time.
        case open(until: Int64)
        /// A probe is in flight. Another one may begin at this time, in case the first gets no answer.
        case halfOpen(until: Int64)
    }

    /// Whether requests go to the host.
    public private(set) var state: State = .closed
    private let rule: Rule
    private var failures = 0
    private var openings = 0
    /// Lanes in which the host answered that it is unavailable, since it last worked.
    private var unavailable: Set<LaneID> = []
    /// Bound of ``unavailable``.
    private static let lanes = 64

    /// A closed breaker, for a host without history.
    public init(_ rule: Rule) { self.rule = rule }

    /// Whether a request may go to the host now.
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

    /// Whether it has no history.
    var isQuiet: Bool { state == .closed && failures == 0 }

    /// Notes that a request goes to the host.
    public mutating func began(now: Int64) {
        guard state != .closed else { return }
        state = .halfOpen(until: now.adding(rule.pause))
    }

    /// Notes an answer that shows that the host works.
    public mutating func succeeded() {
        (state, failures, openings, unavailable) = (.closed, 0, 0, [])
    }

    /// Notes that the host was not reached.
    public mutating func failed(now: Int64) { failed(now: now, retryAfter: 0) }

    /// Notes that the host answered that it is unavailable.
    ///
    /// - Parameters:
    ///   - lane: the lane of the request. A second such answer in the same lane does not count.
    ///   - retryAfter: the pause that the host asked for, in milliseconds; at most ``Rule/longestPause`` is applied.
    mutating func refused(_ lane: LaneID, retryAfter: Int64?, now: Int64) {
        guard unavailable.count < Self.lanes, unavailable.insert(lane).inserted else { return withdrew(now: now) }
        failed(now: now, retryAfter: max(retryAfter ?? 0, 0))
    }

    /// Notes that there is a network again, so that earlier failures say nothing about the host.
    mutating func reconnected() { if state != .closed || failures > 0 { succeeded() } }

    /// Notes that a request ended without showing whether the host works.
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
