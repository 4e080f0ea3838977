import IRCCodec
import RequestQueue
import Testing

@Suite struct PacerTests {
    private func spend(_ pacer: inout Pacer, _ lengths: [Int], now: Int64) -> [Bool] {
        lengths.map { pacer.spend($0, now: now) }
    }

    @Test func anotherLimitHoldsAtOnce() {
        var pacer = Pacer(.unlimited)
        let before = spend(&pacer, [10, 10], now: 0)
        pacer.renew(.init(burst: 1, linesPerSecond: 1))
        let slowed = spend(&pacer, [10, 10], now: 1)
        pacer.renew(.unlimited)
        let after = spend(&pacer, [10, 10], now: 1)
        #expect(before == [true, true] && slowed == [true, false] && after == [true, true])
    }

    @Test func unlimitedNeverWaits() {
        var pacer = Pacer(.unlimited)
        let spent = spend(&pacer, Array(repeating: 512, count: 1000), now: 0)
        let slot = pacer.nextSlot(now: 5)
        #expect(spent.allSatisfy { $0 })
        #expect(slot == 5)
    }

    @Test func burstThenRate() {
        var pacer = Pacer(.init(burst: 3, linesPerSecond: 2))
        let burst = spend(&pacer, [10, 10, 10, 10], now: 0)
        let slot = pacer.nextSlot(now: 0)
        let early = spend(&pacer, [10], now: 400_000_000)
        let later = spend(&pacer, [10, 10], now: slot)
        // A long silence refills the burst and no more.
        let refilled = spend(&pacer, [10, 10, 10, 10, 10], now: 100_000_000_000)
        #expect(burst == [true, true, true, false])
        #expect(slot >= 500_000_000 && slot < 510_000_000)
        #expect(early == [false])
        #expect(later == [true, false])
        #expect(refilled == [true, true, true, false, false])
    }

    @Test func bytesAreCountedToo() {
        var pacer = Pacer(.init(burst: 1, linesPerSecond: 0, bytesPerSecond: 512))
        let atOnce = spend(&pacer, [512, 100], now: 0)
        let later = spend(&pacer, [100], now: 300_000_000)
        #expect(atOnce == [true, false])
        #expect(later == [true])
    }

    @Test func timeNeverGoesBack() {
        var pacer = Pacer(.init(burst: 1, linesPerSecond: 1))
        let spent = [10_000_000_000, 0, 10_500_000_000, 11_000_000_000].map { pacer.spend(1, now: $0) }
        #expect(spent == [true, false, false, true])
    }
}
