import Foundation
import TestKit
import Testing

@testable import pawl

/// The admin service alone: bytes in, bytes out, and events.
@Suite(.timeLimit(.minutes(20))) struct AdminServiceTests {
    /// A service whose commands answer with their words, and whose status is a text that the test sets.
    final class Desk: Sendable {
        let status = Shared("first")
        /// Whether every report is another one.
        let grows = Shared(false)
        let performed = Shared<[[String]]>([])
        let changes = StateChanges()

        var service: AdminService {
            AdminService(changes: changes) { [status, grows, performed] words in
                let count = performed.withLock { performed in
                    performed.append(words)
                    return performed.count
                }
                guard words.first == "status" else { return .text(words.joined(separator: " ")) }
                return .text(status.withLock { $0 } + (grows.withLock { $0 } ? "\(count)" : ""))
            }
        }

        /// Changes the status, and says so.
        func set(_ text: String) {
            status.withLock { $0 = text }
            changes.signal()
        }
    }

    private let desk = Desk()

    private func answer(_ request: [UInt8]) async throws -> AdminAnswer {
        try JSONDecoder().decode(AdminAnswer.self, from: Data(await desk.service.answer(request)))
    }

    private func subscription(every: Double = 3600, json: Bool = false) throws -> [UInt8] {
        Array(try JSONEncoder().encode(AdminSubscription(json: json, every: every)))
    }

    /// Reads the events of a subscription one by one.
    private final class Reader {
        private var events: AdminEvents.AsyncIterator

        init(_ events: AdminEvents) { self.events = events.makeAsyncIterator() }

        /// The next event; nil after the last.
        func next() async throws -> AdminEvent? {
            try await events.next().map { try JSONDecoder().decode(AdminEvent.self, from: Data($0)) }
        }
    }

    // MARK: The function

    @Test func aCommandIsAnswered() async throws {
        let answer = try await answer(Array(#"{"words":["users","--json"]}"#.utf8))
        #expect(answer == .text("users --json"))
        #expect(desk.performed.withLock { $0 } == [["users", "--json"]])
    }

    private static let malformedTexts = [
        "", "\n", " ", "words", "{}", "[]", "null", #"{"words":"status"}"#, #"{"words":[1]}"#, #"{"words":[null]}"#,
        #"{"Words":["status"]}"#, #"{"words":["status"]} {"words":[]}"#,
    ]

    /// Bytes that are no UTF-8: one that never is, a character that is cut off, and a surrogate.
    private static let noUTF8: [[UInt8]] = [[0xFF], [0xE2, 0x82], [0xED, 0xA0, 0x80]]

    static let malformed: [[UInt8]] = {
        var all: [[UInt8]] = malformedTexts.map { Array($0.utf8) }
        for bytes in noUTF8 {
            all.append(bytes)
            all.append(Array(#"{"words":[""#.utf8) + bytes + Array(#""]}"#.utf8))
        }
        all.append([UInt8](repeating: UInt8(ascii: "["), count: AdminService.requestLimit))
        all.append([UInt8](repeating: 0, count: 100))
        return all
    }()

    static let malformedSubscriptions: [[UInt8]] = {
        var all = malformed
        for text in [#"{"json":true}"#, #"{"json":true,"every":"2"}"#] { all.append(Array(text.utf8)) }
        return all
    }()

    @Test(arguments: malformed) func aMalformedRequestIsRefusedInWords(_ request: [UInt8]) async throws {
        let answer = try await answer(request)
        #expect(answer.exit == 64 && answer.out.isEmpty && answer.failure == .notACommand)
        #expect(desk.performed.withLock { $0 }.isEmpty)
    }

    @Test func everyBeginningOfARequestIsRefused() async throws {
        let request = Array(#"{"words":["policy","set","hösted","--yes"]}"#.utf8)
        for count in request.indices {
            let answer = try await answer(Array(request.prefix(count)))
            #expect(answer.exit == 64, "\(count) bytes")
        }
        #expect(desk.performed.withLock { $0 }.isEmpty)
        #expect(try await answer(request).exit == 0)
    }

    @Test func aRequestOfTheLimitIsPerformedAndALongerOneIsNot() async throws {
        let frame = #"{"words":[""]}"#.utf8.count
        func request(_ count: Int) -> [UInt8] {
            Array((#"{"words":[""# + String(repeating: "x", count: count - frame) + #""]}"#).utf8)
        }
        #expect(try await answer(request(AdminService.requestLimit)).exit == 0)
        let refused = try await answer(request(AdminService.requestLimit + 1))
        #expect(refused.exit == 64 && refused.failure == .commandTooLong)
        #expect(desk.performed.withLock { $0.count } == 1)
    }

    // MARK: The subscription

    @Test func theFirstReportComesAtOnceAndChangesArePushed() async throws {
        let events = Reader(desk.service.subscribe(try subscription()))
        #expect(try await events.next() == .status(answer: .text("first")))
        // The interval is an hour: an act alone brings these.
        desk.set("second")
        #expect(try await events.next() == .status(answer: .text("second")))
        desk.changes.signal()
        #expect(try await events.next() == .unchanged)
        #expect(desk.performed.withLock { $0 } == [["status"], ["status"], ["status"]])
    }

    @Test func anIntervalWithoutAChangeIsAShortEvent() async throws {
        let events = Reader(desk.service.subscribe(try subscription(every: 0.1, json: true)))
        #expect(try await events.next() == .status(answer: .text("first")))
        #expect(try await events.next() == .unchanged)
        // Without a signal it is seen at the next interval.
        desk.status.withLock { $0 = "second" }
        #expect(try await events.next() == .status(answer: .text("second")))
        #expect(desk.performed.withLock { $0.first } == ["status", "--json"])
    }

    /// Ten that watch take together what one takes alone, and a report of an act is not put off for ever.
    @Test func reportsTakeATenthOfTheTime() {
        #expect(AdminService.rest(after: .milliseconds(10), subscriptions: 1) == .milliseconds(90))
        #expect(AdminService.rest(after: .milliseconds(10), subscriptions: 10) == .milliseconds(990))
        #expect(AdminService.rest(after: .milliseconds(10), subscriptions: 0) == .milliseconds(90))
        #expect(AdminService.rest(after: .seconds(100), subscriptions: 16) == .seconds(60))
        #expect(AdminService.rest(after: .zero, subscriptions: 1) == .zero)
    }

    @Test func aReaderThatIsTooSlowIsDroppedWithAMessage() async throws {
        let ends = Shared(0)
        let events = desk.service.subscribe(try subscription(every: 0.1)) { ends.withLock { $0 += 1 } }
        try await eventuallyAsync("the reader is dropped") { ends.withLock { $0 } == 1 }
        // It made no more reports than wait, and the one too many.
        #expect(desk.performed.withLock { $0.count } == AdminService.eventLimit + 1)
        let reader = Reader(events)
        guard case .ended(let answer)? = try await reader.next() else {
            Issue.record("no reason")
            return
        }
        #expect(try await reader.next() == nil)
        #expect(answer.exit == 1 && answer.failure == .slowReader)
        #expect(ends.withLock { $0 } == 1)
    }

    @Test func nobodyElseWaitsForASlowReader() async throws {
        let slow = desk.service
        let ends = Shared(0)
        let left = slow.subscribe(try subscription(every: 0.1)) { ends.withLock { $0 += 1 } }
        let events = Reader(slow.subscribe(try subscription(every: 0.1)))
        while ends.withLock({ $0 }) == 0 { #expect(try await events.next() != nil) }
        #expect(try await events.next() == .unchanged)
        _ = left
    }

    @Test(arguments: malformedSubscriptions) func aMalformedSubscriptionHasOneEvent(_ request: [UInt8]) async throws {
        let events = Reader(desk.service.subscribe(request))
        guard case .ended(let answer)? = try await events.next() else {
            Issue.record("no reason")
            return
        }
        #expect(answer.exit == 64 && answer.failure == .notACommand)
        #expect(try await events.next() == nil)
        #expect(desk.performed.withLock { $0 }.isEmpty)
    }

    @Test(arguments: ["0", "-1", "0.09", "86401", "1e300"]) func anIntervalHasBounds(_ every: String) async throws {
        let request = Array(#"{"json":false,"every":\#(every)}"#.utf8)
        let events = Reader(desk.service.subscribe(request))
        guard case .ended(let answer) = try await events.next() else {
            Issue.record("accepted")
            return
        }
        #expect(answer.exit == 64 && answer.failure == .wrongInterval)
    }

    @Test func aSubscriptionTooManyIsRefusedAndItsPlaceIsFreeAgain() async throws {
        let service = desk.service
        var all = try (0..<AdminService.subscriptionLimit).map { _ in service.subscribe(try subscription()) }
        let refused = Reader(service.subscribe(try subscription()))
        guard case .ended(let answer) = try await refused.next() else {
            Issue.record("admitted")
            return
        }
        #expect(answer.exit == 1 && answer.failure == .tooManyWatchers)
        // The last reference ends a subscription.
        all.removeLast()
        try await eventuallyAsync("a place is free") {
            let events = Reader(service.subscribe(try subscription()))
            return try await events.next() == .status(answer: .text("first"))
        }
        #expect(all.count == AdminService.subscriptionLimit - 1)
    }

    @Test func aCancelledReaderEnds() async throws {
        let events = desk.service.subscribe(try subscription())
        let reader = Task {
            var count = 0
            for await _ in events { count += 1 }
            return count
        }
        try await eventuallyAsync("the first report") { desk.performed.withLock { $0.count } == 1 }
        reader.cancel()
        #expect(await reader.value <= 1)
    }

    // MARK: The buffer

    /// What a buffer hands out until nothing waits, and whether it has ended then.
    private static func drain(_ buffer: inout EventBuffer<Int>) -> (events: [Int], hasEnded: Bool) {
        var events: [Int] = []
        while true {
            switch buffer.next() {
            case .event(let event): events.append(event)
            case .wait: return (events, false)
            case .end: return (events, true)
            }
        }
    }

    @Test func aFullBufferKeepsTheLastEventOnly() {
        var buffer = EventBuffer<Int>(limit: 2)
        var accepted = [1, 2].map { buffer.add($0, overflow: -1) }
        let first = Self.drain(&buffer)
        #expect(accepted == [true, true] && first.events == [1, 2] && !first.hasEnded)
        accepted = [3, 4, 5, 6].map { buffer.add($0, overflow: -$0) }
        // The third that waits is one too many: the reader gets its overflow, and nothing after it.
        let second = Self.drain(&buffer)
        #expect(accepted == [true, true, false, false] && second.events == [-5] && second.hasEnded)
    }

    @Test func anEndedBufferIsReadToItsEnd() {
        var buffer = EventBuffer<Int>(limit: 1)
        let isAccepted = buffer.add(1, overflow: -1)
        buffer.end(with: 2)
        buffer.end(with: 3)
        let rest = Self.drain(&buffer)
        #expect(isAccepted && rest.events == [1, 2] && rest.hasEnded)
    }
}
