import TestKit
import Testing

@testable import RequestQueue

/// A queue with a store in memory, a clock of its own, and a backend that answers when and how a test says.
final class QueueWorld {
    /// What the backend makes of an attempt.
    struct Answer {
        var reply: AttemptReply
        /// Milliseconds.
        var latency: Int64 = 10

        static func status(_ status: Int, retryAfter: Int64? = nil, latency: Int64 = 10) -> Answer {
            RetryTable.isSuccess(status)
                ? Answer(reply: .success(status: status, headers: [], body: [], identifiers: []), latency: latency)
                : Answer(
                    reply: .failure(.status(status), retryAfter: retryAfter, headers: [], body: []), latency: latency)
        }
        static func network(_ failure: NetworkFailure, latency: Int64 = 10) -> Answer {
            Answer(reply: .failure(.network(failure), retryAfter: nil, headers: [], body: []), latency: latency)
        }
        static func created(_ identifiers: EntityIdentifier..., latency: Int64 = 10) -> Answer {
            Answer(reply: .success(status: 201, headers: [], body: [], identifiers: identifiers), latency: latency)
        }
    }

    struct Sent {
        var at: Int64
        var dispatch: QueueBatch.Dispatch
        var target: String { dispatch.resolved.target }
    }

    let store = InMemoryQueueStore()
    let settings: QueueMachine.Settings
    var machine: QueueMachine
    var now = QueueTime(wall: 1_790_000_000_000, uptime: 5_000)
    var random: SeededGenerator
    var backend: (QueueBatch.Dispatch) -> Answer = { _ in .status(200) }
    /// Everything that has gone to the backend.
    var sent: [Sent] = []
    var results: [QueueBatch.Result] = []
    /// Which process has handed which result to its handlers.
    struct Delivery: Hashable {
        var process: Int
        var token: RequestToken
    }
    var deliveries: [Delivery] = []
    private var process = 0
    var accepted: [RequestToken] = []
    /// Given up for their age.
    var expired: [RequestToken] = []
    var refused: [RequestToken] = []
    var withdrawn: [UInt64] = []
    private var answers: [(at: Int64, id: UInt64, lease: UInt64, reply: AttemptReply)] = []
    /// So many batches are handed out before the first of them is committed.
    var lag = 0
    private var held: [QueueBatch] = []
    /// Whether outcomes are taken by handlers at once.
    var handles = true
    /// The outcome at which a handler ends the process.
    var poisonOutcome: RequestToken?

    init(seed: UInt64 = 1, session: String? = "", _ change: (inout QueueMachine.Settings) -> Void = { _ in }) {
        var settings = QueueMachine.Settings()
        settings.host = "http://backend"
        settings.keepsOutcomes = true
        change(&settings)
        self.settings = settings
        random = SeededGenerator(seed: seed)
        machine = QueueMachine(settings, lease: random.next())
        if let session { machine.setSession(session, present: true) }
    }

    /// Appends and commits.
    @discardableResult
    func append(_ new: NewRequest) throws(QueueError) -> RequestToken {
        let token = try offer(new)
        turn()
        return token
    }

    @discardableResult
    func append(_ config: APIRequestConfig, lane: String? = nil) throws(QueueError) -> RequestToken {
        try append(NewRequest(config, lane: lane))
    }

    /// Appends; the next turn commits.
    func offer(_ new: NewRequest) throws(QueueError) -> RequestToken {
        let token = RequestToken(high: random.next(), low: random.next())
        switch try machine.append(new, token: token, now: now) {
        case .accepted(let token), .existing(let token): return token
        }
    }

    /// One turn: commit, then do what the batch allows.
    func turn() {
        if lag > 0, held.count == lag { commitFirst() }
        let batch = machine.turn(now: now)
        if !batch.isEmpty { held.append(batch) }
        if !held.isEmpty, lag == 0 || batch.isEmpty { commitFirst() }
    }

    private func commitFirst() {
        let batch = held.removeFirst()
        do throws(QueueStoreError) {
            try store.commit(batch.changes)
        } catch {
            for batch in ([batch] + held).reversed() { refused += machine.failed(batch) }
            held = []
            return
        }
        accepted += batch.accepted
        expired += batch.expired.map(\.token)
        withdrawn += batch.withdrawn
        results += batch.results
        deliveries += batch.results.map { Delivery(process: process, token: $0.request.token) }
        for result in batch.results {
            // A handler that ends the process has been given it, and nothing comes after.
            if let deliveries = result.deliveries, handles || result.request.token == poisonOutcome {
                machine.deliver(result.request.id, times: deliveries)
            }
            if result.request.token == poisonOutcome { break }
            if handles { machine.handled(result.request.id) }
        }
        for dispatch in batch.dispatches {
            sent.append(Sent(at: now.uptime, dispatch: dispatch))
            let answer = backend(dispatch)
            answers.append((now.uptime + answer.latency, dispatch.id, dispatch.lease, answer.reply))
        }
    }

    /// Lets time go by, answer by answer.
    func run(_ milliseconds: Int64 = 100_000) {
        let end = now.uptime + milliseconds
        turn()
        while true {
            let next = [answers.map(\.at).min(), machine.nextWake()].compactMap { $0 }.min()
            guard let next, next <= end else {
                guard !held.isEmpty else { break }
                turn()
                continue
            }
            let step = max(next - now.uptime, 0)
            now = QueueTime(wall: now.wall + step, uptime: now.uptime + step)
            let due = answers.filter { $0.at <= now.uptime }
            answers.removeAll { $0.at <= now.uptime }
            for answer in due {
                machine.reply(answer.id, lease: answer.lease, answer.reply, now: now, random: random.next())
            }
            turn()
            if due.isEmpty, machine.nextWake() == next { pass(1) }
        }
        pass(max(end - now.uptime, 0))
        turn()
    }

    /// Time goes by and nobody looks.
    func pass(_ milliseconds: Int64) {
        now = QueueTime(wall: now.wall + milliseconds, uptime: now.uptime + milliseconds)
    }

    /// The process ends and another one begins. Answers that were on their way are lost.
    ///
    /// - Parameter committed: whether a batch that was being committed is, though nobody has been told.
    func restart(session: String? = "", after milliseconds: Int64 = 1_000, committed: Bool = false) throws {
        // Where the disk fails just then, it is not.
        if committed, let first = held.first { try? store.commit(first.changes) }
        held = []
        answers.removeAll()
        process += 1
        now = QueueTime(wall: now.wall + milliseconds, uptime: 50)
        machine = QueueMachine(settings, lease: random.next())
        if let session { machine.setSession(session, present: true) }
        machine.restore(try store.load(), now: now)
        turn()
    }

    var targets: [String] { sent.map(\.target) }

    func state(_ token: RequestToken) throws -> RequestState? {
        if let live = machine.request(token) { return live.state }
        return try store.requests(states: RequestState.allCases, after: 0, limit: .max).first { $0.token == token }?
            .state
    }

    func cause(_ token: RequestToken) throws -> String? {
        if let live = machine.request(token) { return live.cause }
        return try store.requests(states: RequestState.allCases, after: 0, limit: .max).first { $0.token == token }?
            .cause
    }
}

func post(_ path: APIRequestPath, body: RequestBody? = nil, strategy: QueueingStrategy? = nil) -> APIRequestConfig {
    APIRequestConfig(method: .post, path: path, body: body, queueingStrategy: strategy)
}

func read(_ path: APIRequestPath) -> APIRequestConfig { APIRequestConfig(path: path) }

let message = EntityReference(type: "message", local: "L1")

extension QueueBatch.Dispatch {
    /// What goes to the backend; nothing readable where that cannot be written, which is never to happen.
    var resolved: ResolvedRequest {
        (try? resolved()) ?? ResolvedRequest(method: .get, target: ":unresolved", headers: [], body: [])
    }
}
