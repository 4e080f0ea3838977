import RequestQueue
import RequestQueueClient
import TestKit
import Testing

/// What goes on while a batch is being committed, and what becomes of it when that fails or the queue is closed.
@Suite struct CommitTests {
    private let store = GatedStore()
    private let queue: APIClientQueue

    init() throws {
        let network = InMemoryNetworkClient { (_) throws(NetworkFailure) in NetworkResponse(status: 200) }
        queue = try APIClientQueue(
            client: ChatClient(networkClient: network, host: "http://host.invalid"), store: store)
    }

    /// So many are appended at the same time; nobody is logged in, so that they wait.
    private func appending(_ name: String, _ count: Int) -> [Task<RequestToken, any Error>] {
        let queue = queue
        return (0..<count).map { number in
            Task { try await queue.append(APIRequestConfig(method: .post, path: "/\(name)/\(number)")) }
        }
    }

    /// One batch is being committed, larger than what is committed on the machine's own thread, and as much has come in since.
    ///
    /// - Returns: those of the batch, and those after it.
    private func twoBatches() async throws -> (
        first: [Task<RequestToken, any Error>], later: [Task<RequestToken, any Error>]
    ) {
        store.shut()
        // The first of them is committed alone; the others are the batch.
        let first = appending("first", 200)
        try await eventuallyAsync("a commit is under way") { store.isWaiting }
        let later = appending("later", 200)
        // Whoever has been appended is in the machine or before it when this returns.
        try await Task.sleep(for: .milliseconds(50))
        return (first, later)
    }

    private func tokens(_ tasks: [Task<RequestToken, any Error>]) async -> (accepted: [RequestToken], refused: Int) {
        var accepted: [RequestToken] = []
        var refused = 0
        for task in tasks {
            do { accepted.append(try await task.value) } catch {
                #expect("\(error)".contains("disk is full"))
                refused += 1
            }
        }
        return (accepted, refused)
    }

    @Test func whatComesInMeanwhileIsTheNextBatch() async throws {
        let (first, later) = try await twoBatches()
        store.open()
        let (accepted, refused) = await tokens(first + later)
        #expect(refused == 0 && Set(accepted).count == 400)
        #expect(store.commits.reduce(0, +) == 400)
        #expect(try store.load().requests.map(\.id) == Array(1...400))
        await queue.close()
    }

    /// Each commit is answered as it ended; what was refused is nowhere, and what was accepted is stored.
    @Test func aFailureIsReportedToAllWaiters() async throws {
        for _ in 0..<5 {
            let before = try store.load().requests.count
            let (first, later) = try await twoBatches()
            store.open(failing: true)
            let (accepted, refused) = await tokens(first + later)
            #expect(refused > 0 && accepted.count + refused == 400)
            let stored = try store.load().requests
            #expect(stored.count == before + accepted.count)
            #expect(Set(accepted).isSubset(of: stored.map(\.token)))
            let report = await queue.report()
            #expect(report.depth == stored.count && report.counts.appended == stored.count)
        }
        await queue.close()
    }

    @Test func closingWaitsForBoth() async throws {
        let (first, later) = try await twoBatches()
        let queue = queue
        let closing = Task { await queue.close(deadline: .zero) }
        try await Task.sleep(for: .milliseconds(20))
        store.open()
        await closing.value
        var accepted: [RequestToken] = []
        for task in first + later {
            do { accepted.append(try await task.value) } catch { #expect(error as? QueueError == .closed) }
        }
        // Nobody waits for ever, and whoever was told that it is accepted finds it.
        #expect(Set(try store.load().requests.map(\.token)) == Set(accepted))
        #expect(accepted.count >= 1)
    }

    @Test func closingOnADiskThatFails() async throws {
        let (first, later) = try await twoBatches()
        let queue = queue
        let closing = Task { await queue.close(deadline: .zero) }
        try await Task.sleep(for: .milliseconds(20))
        store.open(failing: true)
        await closing.value
        var accepted: [RequestToken] = []
        for task in first + later { if let token = try? await task.value { accepted.append(token) } }
        #expect(Set(try store.load().requests.map(\.token)) == Set(accepted))
    }

    /// All answers come at once, and so their ends are committed while more is appended: none of them is lost or told twice.
    @Test func outcomesWhileCommitsAreSlow() async throws {
        queue.setSession(SessionKey(bearer: "k"))
        var tokens: [RequestToken] = []
        for round in 0..<5 {
            let tasks = appending("\(round)", 100)
            store.shut()
            try await Task.sleep(for: .milliseconds(5))
            store.open(failing: round == 2)
            for task in tasks { if let token = try? await task.value { tokens.append(token) } }
        }
        let all = tokens
        try await eventuallyAsync("all are done") {
            try queue.requests(states: [.done], limit: 1000).count == all.count
        }
        #expect(Set(try queue.requests(states: [.done], limit: 1000).map(\.token)) == Set(all))
        let counts = await queue.report().counts
        #expect(counts.done == all.count && counts.appended == all.count)
        await queue.close()
    }
}
