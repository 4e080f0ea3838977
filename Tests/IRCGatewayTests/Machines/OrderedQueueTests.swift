import Testing

@testable import IRCGateway

@Suite struct OrderedQueueTests {
    @Test func nothingOvertakesWhatWaits() {
        var queue = OrderedQueue<String>()
        queue.append("a")
        let ticket = queue.reserve()
        queue.append("c")
        let early = [queue.popFirst(), queue.popFirst()]
        #expect(early == ["a", nil])
        #expect(queue.first == nil && !queue.isEmpty)
        queue.resolve(ticket, with: ["b1", "b2"])
        let rest = (0..<3).map { _ in queue.popFirst() }
        #expect(rest == ["b1", "b2", "c"])
        #expect(queue.isEmpty)
    }

    @Test func answersMayComeInAnyOrderAndMayBeNothing() {
        var queue = OrderedQueue<Int>()
        let tickets = (0..<4).map { _ in queue.reserve() }
        for position in [3, 1, 0, 2] { queue.resolve(tickets[position], with: position == 1 ? [] : [position]) }
        queue.resolve(99, with: [7])
        queue.resolve(tickets[0], with: [8])
        let order = (0..<4).map { _ in queue.popFirst() }
        #expect(order == [0, 2, 3, nil])
    }
}
