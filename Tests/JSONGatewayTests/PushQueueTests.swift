import Envelope
import JSONGateway
import Testing

/// A queue that expectations may change.
private final class Queue {
    private var queue = PushQueue()

    init(_ devices: UInt64) {
        for number in 1...devices { queue.setToken("token \(number)", of: DeviceID(number)) }
    }

    var depth: Int { queue.depth }
    var counts: PushQueue.Counts { queue.counts }
    func setToken(_ token: String?, of device: DeviceID) { queue.setToken(token, of: device) }
    func wait(_ device: DeviceID, now: Int64) { queue.wait(device, now: now) }
    func fetched(_ device: DeviceID) { queue.fetched(device) }
    func take(now: Int64) -> (notices: [PushQueue.Notice], next: Int64?) { queue.take(now: now) }

    @discardableResult
    func ended(_ notice: PushQueue.Notice, _ end: PushQueue.End, retryAfter: Int64 = 0, now: Int64) -> Bool {
        queue.ended(notice, end, retryAfter: retryAfter, now: now)
    }
}

/// The queue of push notices, with a clock of the test.
@Suite struct PushQueueTests {
    private let device = DeviceID(1)
    private static let second: Int64 = 1_000_000_000

    private func queue(_ devices: UInt64 = 1) -> Queue { Queue(devices) }

    private func notice(_ number: UInt64 = 1) -> PushQueue.Notice {
        .init(device: DeviceID(number), token: "token \(number)")
    }

    @Test func manyMessagesMakeOneNotice() {
        let queue = queue()
        for now in 0..<4 { queue.wait(device, now: Int64(now) * Self.second) }
        #expect(queue.take(now: 4 * Self.second) == ([], PushQueue.grace))
        #expect(queue.take(now: PushQueue.grace) == ([notice()], nil))
        #expect(queue.take(now: PushQueue.grace) == ([], nil), "it is being sent")
        #expect(!queue.ended(notice(), .delivered, now: 6 * Self.second))
        // The next one comes after the pause, and counts from the notice.
        queue.wait(device, now: 7 * Self.second)
        #expect(queue.take(now: 12 * Self.second).next == 6 * Self.second + PushQueue.interval)
        #expect(queue.take(now: 6 * Self.second + PushQueue.interval).notices == [notice()])
    }

    @Test func aDeviceThatHasFetchedIsNotNotified() {
        let queue = queue()
        queue.wait(device, now: 0)
        queue.fetched(device)
        #expect(queue.take(now: 60 * Self.second) == ([], nil))
        queue.wait(DeviceID(9), now: 0)
        #expect(queue.take(now: 60 * Self.second) == ([], nil), "a device without a token")
        queue.wait(device, now: 60 * Self.second)
        queue.setToken(nil, of: device)
        #expect(queue.take(now: 120 * Self.second) == ([], nil))
    }

    /// A message that comes while a notice is being sent has a notice of its own, unless the device has fetched it.
    @Test(arguments: [false, true]) func aMessageDuringANotice(_ fetches: Bool) {
        let queue = queue()
        queue.wait(device, now: 0)
        #expect(queue.take(now: PushQueue.grace).notices == [notice()])
        queue.wait(device, now: PushQueue.grace + 1)
        if fetches { queue.fetched(device) }
        queue.ended(notice(), .delivered, now: 6 * Self.second)
        #expect(queue.take(now: 6 * Self.second + PushQueue.interval).notices == (fetches ? [] : [notice()]))
    }

    @Test func aFailureIsRepeatedLaterEachTimeAndGivenUp() {
        let queue = queue()
        queue.wait(device, now: 0)
        var (now, pauses) = (PushQueue.grace, [Int64]())
        for _ in 1..<PushQueue.attemptLimit {
            #expect(queue.take(now: now).notices == [notice()])
            #expect(!queue.ended(notice(), .failed, now: now))
            guard let next = queue.take(now: now).next else {
                Issue.record("given up after \(pauses)")
                return
            }
            pauses.append((next - now) / Self.second)
            now = next
        }
        #expect(pauses == [5, 10, 20, 40, 80, 160, 320, 640])
        #expect(queue.take(now: now).notices == [notice()])
        #expect(!queue.ended(notice(), .failed, now: now))
        #expect(queue.take(now: now) == ([], nil) && queue.depth == 0)
        #expect(queue.counts.retried == 8 && queue.counts.givenUp == 1)
        // The next message begins again.
        queue.wait(device, now: now + PushQueue.interval)
        #expect(queue.take(now: now + PushQueue.interval + PushQueue.grace).notices == [notice()])
    }

    @Test func aRefusedNoticeIsNotRepeatedAndAPauseIsKept() {
        let queue = queue(2)
        queue.wait(device, now: 0)
        queue.wait(DeviceID(2), now: 0)
        #expect(queue.take(now: PushQueue.grace).notices == [notice(1), notice(2)])
        #expect(!queue.ended(notice(1), .refused, now: PushQueue.grace))
        #expect(!queue.ended(notice(2), .failed, retryAfter: 90 * Self.second, now: PushQueue.grace))
        #expect(queue.take(now: PushQueue.grace) == ([], PushQueue.grace + 90 * Self.second))
        #expect(queue.counts.givenUp == 1)
    }

    @Test func aTokenThatIsGoneIsRemovedUnlessItIsAnotherOne() {
        let queue = queue()
        queue.wait(device, now: 0)
        _ = queue.take(now: PushQueue.grace)
        #expect(queue.ended(notice(), .gone, now: PushQueue.grace))
        queue.wait(device, now: 20 * Self.second)
        _ = queue.take(now: 25 * Self.second)
        queue.setToken("another", of: device)
        #expect(!queue.ended(notice(), .gone, now: 26 * Self.second))
    }

    @Test func theQueueIsBounded() {
        let limit = UInt64(PushQueue.limit)
        let queue = queue(limit + 2)
        for number in 1...(limit + 2) { queue.wait(DeviceID(number), now: 0) }
        #expect(queue.depth == PushQueue.limit && queue.counts.dropped == 2)
        #expect(queue.take(now: PushQueue.grace).notices.count == PushQueue.inFlightLimit)
        #expect(queue.take(now: PushQueue.grace).notices.isEmpty)
        // What was delivered makes room.
        queue.ended(notice(1), .delivered, now: PushQueue.grace)
        queue.wait(DeviceID(limit + 1), now: PushQueue.grace + PushQueue.interval)
        #expect(queue.depth == PushQueue.limit)
    }
}
