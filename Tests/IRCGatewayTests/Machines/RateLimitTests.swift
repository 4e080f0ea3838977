import Testing

@testable import IRCGateway

@Suite struct RateLimitTests {
    @Test func theLimitIsOfAnyPeriod() {
        var limit = RateLimit(2, in: 100)
        // The first act leaves the period at 100, the second one at 160; a refused one does not count.
        let allowed = [0, 60, 99, 100, 159, 160, 199, 200].map { limit.allows(at: $0) }
        #expect(allowed == [true, true, false, true, false, true, false, true])
    }

    @Test func aLimitOfZeroAllowsNothing() {
        var none = RateLimit(0, in: 100)
        let allowed = [0, 1000].map { none.allows(at: $0) }
        #expect(allowed == [false, false])
    }
}
