/// Keeps work from a host that does not work, and finds out with one request at a time whether it does again. Requests that
/// wait for it spend no attempt.
public struct CircuitBreaker: Sendable {
    /// When it opens, and for how long.
    public struct Rule: Hashable, Sendable {
        /// So many failures in a row open it.
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
        /// One request is under way to find out.
        case halfOpen
    }

    /// Whether requests go to the host.
    public private(set) var state: State = .closed
    private let rule: Rule
    private var failures = 0
    private var openings = 0

    /// Of a host that nothing is known of: closed.
    public init(_ rule: Rule) { self.rule = rule }

    /// Whether a request may go to the host now. Asking changes nothing.
    public func allows(now: Int64) -> Bool {
        switch state {
        case .closed: true
        case .open(let until): now >= until
        case .halfOpen: false
        }
    }

    /// Whether it remembers nothing.
    var isQuiet: Bool { state == .closed && failures == 0 }

    /// A request goes to the host.
    public mutating func began() {
        if case .open = state { state = .halfOpen }
    }

    /// The host has answered, whatever it said: it works.
    public mutating func succeeded() {
        (state, failures, openings) = (.closed, 0, 0)
    }

    /// The host was not reached, or says that it does not work.
    public mutating func failed(now: Int64) {
        failures += 1
        switch state {
        case .halfOpen:
            open(now: now)
        case .closed where failures >= rule.threshold: open(now: now)
        case .closed, .open: break
        }
    }

    /// A request that went to the host ended without saying anything about it.
    public mutating func withdrew(now: Int64) {
        if state == .halfOpen { state = .open(until: now) }
    }

    private mutating func open(now: Int64) {
        let pause = openings < 32 ? min(rule.pause << Int64(openings), rule.longestPause) : rule.longestPause
        openings += 1
        state = .open(until: now + pause)
    }
}
