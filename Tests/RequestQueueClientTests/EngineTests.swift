import Dispatch
import Foundation
import RequestQueue
import Synchronization
import TestKit
import Testing

@testable import RequestQueueClient

/// What is made of much that comes in while commits go on.
@Suite struct EngineTests {
    private final class Log: Sendable {
        private let state = Mutex((taken: 0, ends: [(number: Int, isAccepted: Bool)](), depth: -1, isStopped: false))
        var taken: Int { state.withLock { $0.taken } }
        var ends: [Int] { state.withLock { $0.ends.map(\.number) } }
        var accepted: [Int] { state.withLock { $0.ends.filter(\.isAccepted).map(\.number) } }
        var depth: Int { state.withLock { $0.depth } }
        var isStopped: Bool { state.withLock { $0.isStopped } }

        func take(depth: Int) { state.withLock { ($0.taken, $0.depth) = ($0.taken + 1, depth) } }
        func end(_ number: Int, _ isAccepted: Bool) { state.withLock { $0.ends.append((number, isAccepted)) } }
        func stop() { state.withLock { $0.isStopped = true } }
    }

    private let store = GatedStore()
    private let engine: QueueEngine
    private let log = Log()

    init() {
        engine = QueueEngine(QueueMachine(.init(), lease: 1), store: store)
        engine.start { _, _ in }
    }

    private func token(_ number: Int) -> RequestToken { RequestToken(high: 1, low: UInt64(number)) }

    @discardableResult
    private func append(_ number: Int) -> Bool {
        let (log, token) = (log, token(number))
        return engine.post { machine, now in
            let request = NewRequest(APIRequestConfig(method: .post, path: "/"))
            let appended = try? machine.append(request, token: token, now: now)
            #expect(appended == .accepted(token))
            log.take(depth: machine.depth)
            return QueueAnswer { failure, _ in log.end(number, failure == nil) }
        }
    }

    /// The first is being committed, by the machine's thread, and these have come in.
    private func gather(_ numbers: Range<Int>) async throws {
        store.shut()
        append(numbers.lowerBound)
        try await eventuallyAsync("a commit is under way") { store.isWaiting }
        for number in numbers.dropFirst() { append(number) }
    }

    private func stored() throws -> Set<RequestToken> { Set(try store.load().requests.map(\.token)) }

    @Test func oneBatchFollowsTheOther() async throws {
        try await gather(0..<1000)
        store.open()
        try await eventuallyAsync("all are told") { log.ends.count == 1000 }
        #expect(log.accepted == Array(0..<1000))
        #expect(store.commits == [1, 256, 256, 256, 231])
        #expect(try stored().count == 1000)
        engine.stop()
    }

    /// One batch is being committed, one stands behind it, and a third is being made. The first fails: none of the others is
    /// committed, because they may stand on it.
    @Test func whatIsBehindAFailureFailsWithIt() async throws {
        try await gather(0..<701)
        store.letOneThrough()
        try await eventuallyAsync("the machine has all, and a large commit is under way") {
            log.taken == 701 && store.isWaiting
        }
        store.open(failing: true)
        try await eventuallyAsync("all are told") { log.ends.count == 701 }
        #expect(log.ends == Array(0..<701) && log.accepted == [0])
        #expect(store.commits == [1])
        // The machine goes on as if they had never been.
        for number in 1000..<1600 { append(number) }
        try await eventuallyAsync("all are told") { log.ends.count == 1301 }
        #expect(log.depth == 601 && log.accepted == [0] + Array(1000..<1600))
        #expect(try stored() == Set(log.accepted.map(token)))
        engine.stop()
    }

    /// The second of two fails: the first is accepted.
    @Test func whatIsBeforeAFailureStays() async throws {
        try await gather(0..<601)
        store.letOneThrough()
        try await eventuallyAsync("a large commit is under way") { log.taken == 601 && store.isWaiting }
        store.letOneThrough()
        try await eventuallyAsync("the next one is") { store.commits == [1, 256] && store.isWaiting }
        store.open(failing: true)
        try await eventuallyAsync("all are told") { log.ends.count == 601 }
        #expect(log.accepted == Array(0..<257))
        #expect(try stored() == Set(log.accepted.map(token)))
        engine.stop()
    }

    @Test func stoppingCommitsAllThatHasComeIn() async throws {
        try await gather(0..<1000)
        Thread { [engine, log] in
            engine.stop()
            log.stop()
        }.start()
        store.letOneThrough()
        try await eventuallyAsync("a large commit is under way") { store.commits == [1] && store.isWaiting }
        #expect(!log.isStopped)
        store.open()
        try await eventuallyAsync("it has stopped") { log.isStopped }
        // What came in before is committed; what comes now is not taken.
        #expect(log.accepted == Array(0..<1000) && store.commits.reduce(0, +) == 1000)
        #expect(!append(1000) && log.taken == 1000)
    }

    /// Attempts that are over before they are known, because others are begun behind them, and attempts that wait: nothing is left
    /// of either.
    @Test(arguments: [false, true]) func nothingIsLeftOfAttempts(_ waits: Bool) async throws {
        let network = InMemoryNetworkClient { (_) throws(NetworkFailure) in
            if waits { try? await Task.sleep(for: .milliseconds(1)) } else { usleep(500) }
            return NetworkResponse(status: 200)
        }
        let client = ChatClient(networkClient: network, host: "http://host.invalid")
        let queue = try APIClientQueue(client: client, store: store, sessions: ["": SessionKey(bearer: "k")])
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<300 {
                group.addTask {
                    let config = APIRequestConfig(method: .post, path: "/")
                    try await queue.append(NewRequest(config, lane: "\(number)"))
                }
            }
            try await group.waitForAll()
        }
        try await eventuallyAsync("all are done") { await queue.report().counts.done == 300 }
        #expect(queue.attempting == 0)
        await queue.close()
    }

    /// Whoever calls for the next answer, each is given once, with why the commit has failed.
    @Test func eachAnswerIsGivenOnce() {
        let given = Mutex([Int](repeating: 0, count: 2000))
        let answers = QueueAnswers(
            (0..<2000).map { number in
                QueueAnswer { failure, others in
                    given.withLock { $0[number] += failure?.message == "full" ? 1 : 2 }
                    if number.isMultiple(of: 3) { others.giveNext() }
                }
            }, QueueStoreError("full"))
        DispatchQueue.concurrentPerform(iterations: 4) { _ in answers.giveAll() }
        #expect(given.withLock { $0 } == [Int](repeating: 1, count: 2000))
        #expect(!answers.giveNext())
    }
}
