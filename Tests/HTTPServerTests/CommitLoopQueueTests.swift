import Devices
import DoubleRatchet
import HTTPServer
import NIOCore
import NIOPosix
import NIOSupport
import Protection
import RequestQueue
import StorePort
import Synchronization
import TestKit
import TestThreads
import Testing

@testable import JSONGateway

/// The queue's place in the commit loop of a JSON gateway.
@Suite struct CommitLoopQueueTests {
    /// Values that several threads add, in order.
    private final class Recorder<Element: Sendable>: Sendable {
        private let elements = Mutex<[Element]>([])

        func add(_ element: Element) { elements.withLock { $0.append(element) } }
        func add(_ new: [Element]) { elements.withLock { $0 += new } }
        var all: [Element] { elements.withLock { $0 } }
    }

    /// A queue on a real event loop, whose jobs are only recorded and whose clock stands still.
    private final class Rig: Sendable {
        typealias Drained = @Sendable (any EventLoop) -> EventLoopFuture<Void>

        /// Milliseconds of uptime.
        static let now: Int64 = 1_000_000
        let queue: CommitLoopQueue
        let jobs = Recorder<JSONJob>()
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

        init(drained: @escaping Drained = { $0.makeSucceededVoidFuture() }) {
            let jobs = jobs
            queue = CommitLoopQueue(
                on: group.next(), submit: { jobs.add($0) }, drained: drained,
                clock: { Timestamp(monotonic: Self.now * 1_000_000, wall: 0) })
        }

        /// The kinds of the jobs.
        var kinds: [String] {
            jobs.all.map { job in
                switch job {
                case .queue: "queue"
                case .wake: "wake"
                default: "\(job)"
                }
            }
        }

        /// Passes turns to the queue, as the commit thread does.
        func take(_ turns: [QueueTurn]) async throws {
            try await queue.eventLoop.submit { self.queue.answered(turns.map { .turn($0) }) }.get()
        }

        /// Passes turns with these times, relative to now, and returns after 80 milliseconds.
        ///
        /// The event loop runs timers in the order of their times. So all that were set for an earlier time have run,
        /// however busy the machine is.
        func take(wakes: [Int64?]) async throws {
            let loop = queue.eventLoop
            try await loop.flatSubmit {
                for wake in wakes {
                    let turn = QueueTurn(batch: nil, answers: QueueAnswers([], nil), wake: wake.map { Self.now + $0 })
                    self.queue.answered([.turn(turn)])
                }
                return loop.scheduleTask(in: .milliseconds(80)) {}.futureResult
            }.get()
        }

        func stop() async throws {
            let queue = queue
            try await blocking { queue.stop() }
            try await group.shutdownGracefully()
        }
    }

    private static let request = NewRequest(
        APIRequestConfig(method: .post, path: "/send", includeSessionKey: false),
        tenant: AccountID.services("alice").text, lane: "room")

    private static func machine() -> QueueMachine {
        QueueMachine(JSONParticipants.queueSettings(host: "backend"), lease: 1)
    }

    /// A batch that accepts one request, with this token.
    private static func batch(_ number: UInt64) throws -> QueueBatch {
        var machine = machine()
        let now = QueueTime(wall: 0, uptime: 0)
        _ = try machine.append(request, token: RequestToken(number: number), now: now)
        return machine.turn(now: now)
    }

    /// Answers that add their numbers to a log, with the failure if there is one.
    private static func answers(_ numbers: ClosedRange<Int>, _ log: Recorder<String>) -> [QueueAnswer] {
        numbers.map { number in
            QueueAnswer { failure, _ in log.add("answer \(number)" + (failure.map { ": \($0.message)" } ?? "")) }
        }
    }

    // MARK: Jobs

    @Test func theFirstJobIsAWake() async throws {
        let rig = Rig()
        #expect(rig.kinds == [])
        rig.queue.start { _, _ in }
        #expect(rig.kinds == ["wake"])
        try await rig.stop()
    }

    @Test func eventsBecomeJobs() async throws {
        let rig = Rig()
        let calls = Recorder<Int>()
        rig.queue.start { _, _ in }
        for number in 1...2 {
            let isPosted = rig.queue.post { _, _ in
                calls.add(number)
                return nil
            }
            #expect(isPosted)
        }
        #expect(rig.kinds == ["wake", "queue", "queue"])
        #expect(calls.all == [], "the machine belongs to the participants")
        var machine = Self.machine()
        for case .queue(let event) in rig.jobs.all { _ = event(&machine, QueueTime(wall: 0, uptime: 0)) }
        #expect(calls.all == [1, 2])
        try await rig.stop()
    }

    // MARK: Turns

    @Test func aTurnIsActedOnBeforeItsAnswersAreGiven() async throws {
        let rig = Rig()
        let log = Recorder<String>()
        rig.queue.start { batch, answers in
            log.add("batch \(batch.accepted.map(\.low))")
            answers.giveNext()
            log.add("end of batch")
        }
        let answers = QueueAnswers(Self.answers(1...3, log), nil)
        try await rig.take([QueueTurn(batch: try Self.batch(7), answers: answers, wake: nil)])
        #expect(log.all == ["batch [7]", "answer 1", "end of batch", "answer 2", "answer 3"])
        try await rig.stop()
    }

    @Test func turnsAreTakenInTheirOrder() async throws {
        let rig = Rig()
        let log = Recorder<String>()
        rig.queue.start { batch, _ in log.add("batch \(batch.accepted.map(\.low))") }
        try await rig.take(
            try (1...3).map { number in
                let answers = QueueAnswers(Self.answers(number...number, log), nil)
                return QueueTurn(batch: try Self.batch(UInt64(number)), answers: answers, wake: nil)
            })
        #expect(log.all == ["batch [1]", "answer 1", "batch [2]", "answer 2", "batch [3]", "answer 3"])
        try await rig.stop()
    }

    @Test func theTurnOfAFailedCommitIsNotActedOn() async throws {
        let rig = Rig()
        let log = Recorder<String>()
        rig.queue.start { _, _ in log.add("batch") }
        let answers = QueueAnswers(Self.answers(1...2, log), QueueStoreError("full"))
        try await rig.take([QueueTurn(batch: nil, answers: answers, wake: nil)])
        #expect(log.all == ["answer 1: full", "answer 2: full"])
        try await rig.stop()
    }

    // MARK: The timer

    /// Times of turns, in milliseconds from now, and the number of wakes after 80 milliseconds.
    @Test(
        arguments: [
            ([20], 1), ([0], 1), ([-5], 1), ([nil], 0),
            // An earlier time, a later one, the same one, and none.
            ([40, 20], 1), ([3_600_000, 20], 1), ([20, 3_600_000], 0), ([20, 20], 1), ([20, nil], 0),
            ([20, nil, 20], 1), ([nil, 20], 1),
        ] as [([Int64?], Int)])
    func theLastTimeIsTheOneThatWakes(_ times: [Int64?], _ count: Int) async throws {
        let rig = Rig()
        try await rig.take(wakes: times)
        #expect(rig.kinds == [String](repeating: "wake", count: count))
        try await rig.stop()
    }

    @Test func aTimeThatIsNamedAgainAfterItsWakeWakesAgain() async throws {
        let rig = Rig()
        for count in 1...3 {
            try await rig.take(wakes: [20])
            #expect(rig.kinds == [String](repeating: "wake", count: count))
        }
        try await rig.stop()
    }

    // MARK: The end

    @Test func noEventAndNoTimerAfterTheEnd() async throws {
        let rig = Rig()
        let log = Recorder<String>()
        let queue = rig.queue
        let soon = QueueTurn(batch: nil, answers: QueueAnswers([], nil), wake: Rig.now + 40)
        try await rig.take([soon])
        try await blocking { queue.stop() }
        // A timer that was running already has ended.
        try await queue.eventLoop.submit {}.get()
        let before = rig.kinds
        #expect(!queue.post { _, _ in nil })
        // The turn of an earlier event is answered, and sets no timer.
        let answers = QueueAnswers(Self.answers(1...1, log), nil)
        try await rig.take([QueueTurn(batch: nil, answers: answers, wake: Rig.now)])
        try await rig.take(wakes: [20])
        #expect(log.all == ["answer 1"])
        #expect(rig.kinds == before)
        try await rig.stop()
    }

    @Test func theEndWaitsForTheCommitThread() async throws {
        let promises = Recorder<EventLoopPromise<Void>>()
        let rig = Rig { loop in
            let promise = loop.makePromise(of: Void.self)
            promises.add(promise)
            return promise.futureResult
        }
        let log = Recorder<String>()
        let queue = rig.queue
        async let stopped: Void = blocking {
            queue.stop()
            log.add("stopped")
        }
        try await eventuallyAsync("it waits for the commit thread") { promises.all.count == 1 }
        log.add("drained")
        for promise in promises.all { promise.succeed(()) }
        try await stopped
        #expect(log.all == ["drained", "stopped"])
        try await rig.stop()
    }

    @Test func theSecondEndDoesNotUseTheEventLoop() async throws {
        let drained = Recorder<String>()
        let rig = Rig { loop in
            drained.add("drained")
            return loop.makeSucceededVoidFuture()
        }
        let queue = rig.queue
        try await rig.stop()
        // The event loop has ended.
        try await blocking { queue.stop() }
        #expect(drained.all == ["drained"])
        #expect(!queue.post { _, _ in nil })
        #expect(rig.kinds == [])
    }

    // MARK: With a commit thread

    /// The queue of participants over a store in memory.
    private final class World: Sendable {
        typealias State = JSONParticipants

        let store = InMemoryStore()
        let failures = Recorder<StoreError>()
        let queue: CommitLoopQueue
        private let thread: CommitThread<State>
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

        init() throws {
            let clock: @Sendable () -> Timestamp = {
                Timestamp(monotonic: Int64(NIODeadline.now().uptimeNanoseconds), wall: 1_700_000_000_000)
            }
            var changes: [StoreChange] = []
            let participants = try State(
                network: "lab", sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
                latches: LatchTable(), writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))),
                queue: State.queueSettings(host: "backend"), historyRetention: 0, now: clock(),
                random: SystemRandomSource(), changes: &changes)
            _ = try store.commit([ChangeGroup(changes, in: .several)])
            let failures = failures
            thread = CommitThread(
                participants: participants, clock: clock,
                onFailure: { failure, _ in failures.add(failure) },
                onUnknown: { _ in Issue.record("the outcome of every commit is known") })
            queue = CommitLoopQueue(on: group.next(), thread: thread, clock: clock)
            thread.register(queue, as: State.sender)
        }

        /// Posts an event that appends ``CommitLoopQueueTests/request``. The answer is recorded with the state of the
        /// store when it is given.
        func append(_ token: RequestToken, _ log: Recorder<String>) {
            let store = store
            queue.post { machine, now in
                let appended = try? machine.append(CommitLoopQueueTests.request, token: token, now: now)
                guard appended == .accepted(token) else { return nil }
                return QueueAnswer { failure, _ in
                    let stored = (try? store.queueTables.request(token)) ?? nil
                    let answer = failure == nil ? "appended" : "not appended"
                    log.add("\(answer), \(stored == nil ? "not stored" : "stored")")
                }
            }
        }

        /// Completes when the commit thread has nothing to do and the queue has received all turns.
        func settle() async throws { try await thread.drained(on: queue.eventLoop).get() }

        func stop() async throws {
            let queue = queue
            try await blocking { queue.stop() }
            await thread.stop()
            try await group.shutdownGracefully()
        }
    }

    private static let token = RequestToken(high: 1, low: 2)

    /// Appended, sent, refused for now, and sent again when the timer wakes the queue.
    @Test func aRequestIsSentAfterItsCommitAndAgainWhenItsTimeComes() async throws {
        let world = try World()
        let log = Recorder<String>()
        world.queue.start { [weak queue = world.queue, store = world.store] batch, _ in
            for dispatch in batch.dispatches {
                let (id, lease, attempts) = (dispatch.id, dispatch.lease, dispatch.request.attempts)
                let stored = (try? store.queueTables.request(dispatch.request.token)) ?? nil
                log.add("attempt \(attempts), \(stored?.state == .inFlight ? "stored" : "not stored")")
                let reply: AttemptReply =
                    attempts == 1
                    ? .failure(.status(500), retryAfter: 20, headers: [], body: [])
                    : .success(status: 201, headers: [], body: [], identifiers: [])
                queue?.post { machine, now in
                    machine.reply(id, lease: lease, reply, now: now, random: 1)
                    return QueueAnswer { failure, _ in log.add("end \(attempts)" + (failure == nil ? "" : " failed")) }
                }
            }
        }
        world.append(Self.token, log)
        try await eventuallyAsync("the request is done") { log.all.contains("end 2") }
        #expect(log.all == ["attempt 1, stored", "appended, stored", "end 1", "attempt 2, stored", "end 2"])
        let contents = try world.store.queueContents()
        #expect(contents.requests.isEmpty)
        #expect(contents.finished.map(\.request.token) == [Self.token])
        #expect(contents.finished.map(\.request.state) == [.done])
        #expect(world.failures.all.isEmpty)
        try await world.stop()
    }

    @Test func anEventOfAFailedCommitIsAnsweredWithTheFailure() async throws {
        let world = try World()
        let log = Recorder<String>()
        world.queue.start { batch, _ in
            for dispatch in batch.dispatches { log.add("attempt \(dispatch.request.attempts)") }
        }
        try await world.settle()
        world.store.failNextCommit()
        world.append(Self.token, log)
        try await eventuallyAsync("the event is answered") { log.all.count == 1 }
        #expect(log.all == ["not appended, not stored"])
        #expect(world.failures.all == [.unavailable("The disk is full (pretended).")])
        // The same request is new.
        world.append(Self.token, log)
        try await eventuallyAsync("the event is answered") { log.all.count == 3 }
        #expect(log.all.dropFirst() == ["attempt 1", "appended, stored"])
        try await world.stop()
    }

    /// What an attempt does after its answer needs no other thread.
    @Test func anAttemptStaysOnTheEventLoop() async throws {
        let world = try World()
        let eventLoop = world.queue.eventLoop
        let promise = eventLoop.makePromise(of: Void.self)
        let attempt = Task(executorPreference: world.queue.taskExecutor) {
            let isAtFirst = eventLoop.inEventLoop
            try await promise.futureResult.get()
            return isAtFirst && eventLoop.inEventLoop
        }
        eventLoop.scheduleTask(in: .milliseconds(5)) { promise.succeed() }
        #expect(try await attempt.value)
        try await world.stop()
    }

    @Test func theEndCommitsAllPostedEvents() async throws {
        let world = try World()
        let log = Recorder<String>()
        world.queue.start { _, _ in }
        for number in UInt64(1)...50 { world.append(RequestToken(high: 9, low: number), log) }
        let queue = world.queue
        try await blocking { queue.stop() }
        #expect(try world.store.queueContents().requests.count == 50)
        #expect(log.all == [String](repeating: "appended, stored", count: 50))
        try await world.stop()
    }
}
