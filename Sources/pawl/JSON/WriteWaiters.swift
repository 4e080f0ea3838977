// Clients that wait for the outcome of a write.

import HTTPCodec
import JSONGateway
import NIOCore
import RequestQueue
import RequestQueueClient
import Synchronization

/// A waiting client. It is notified once.
final class WriteWaiter: Sendable {
    private let done: Mutex<(@Sendable (WriteOutcome) -> Void)?>

    init(_ done: @escaping @Sendable (WriteOutcome) -> Void) { self.done = Mutex(done) }

    func end(_ outcome: WriteOutcome) {
        let done = done.withLock { done in
            defer { done = nil }
            return done
        }
        done?(outcome)
    }
}

/// What happens to a client that begins to wait.
enum WriteWait {
    /// The outcome is known.
    case ended(WriteOutcome)
    /// The client is notified when the write ends. It may replace the oldest one, whose connection may be closed.
    case waits(insteadOf: WriteWaiter?)
    /// The same, but the write may have ended already: the caller has to ask the queue.
    case asks(insteadOf: WriteWaiter?)
}

/// The waiting clients, with the refusals of their accounts' credentials.
struct WriteWaiters: Sendable {
    private var waiters: [RequestToken: [WriteWaiter]] = [:]
    /// Ours: clients that wait for one write. The limit is there because a client that leaves stays in the list.
    private static let widest = 16
    private var isStopping = false
    /// Writes that this process has offered to the queue and that have not ended.
    private var expected: Set<RequestToken> = []
    /// Outcomes of such writes for which no client waits yet.
    private var ends: [RequestToken: WriteOutcome] = [:]
    private var endings = CircularBuffer<RequestToken>()
    /// Ours: outcomes that are kept, and the largest answer of one in bytes. The store has all outcomes.
    private static let (keptEnds, keptBytes) = (1024, 16 << 10)
    /// The backend's refusal of an account's last credential, until the account shows another one.
    private var refusals: [ExactText: WriteOutcome] = [:]
    /// The most recent credential of each account.
    private var shown: [ExactText: CredentialCache.Digest] = [:]
    /// Ours: answers whose cookies are kept until their client is notified.
    private static let answersWithCookies = 1024
    /// Cookies of the backend's last answer to a write. They are kept in memory only.
    private var cookies: [RequestToken: [HeaderFields.Field]] = [:]
    private var order: [RequestToken] = []

    /// Whether the credential of any account is refused.
    var hasRefusals: Bool { !refusals.isEmpty }

    /// Records that a write is offered to the queue, so that ``end(_:_:)`` will be called for it.
    mutating func expect(_ token: RequestToken) { expected.insert(token) }

    /// Forgets a write that the queue did not accept, or that is sent again.
    mutating func forget(_ token: RequestToken) {
        expected.remove(token)
        ends[token] = nil
    }

    mutating func add(_ waiter: WriteWaiter, for token: RequestToken) -> WriteWait {
        guard !isStopping else { return .ended(.waits) }
        if let outcome = ends.removeValue(forKey: token) { return .ended(outcome) }
        var waiting = waiters[token] ?? []
        waiting.append(waiter)
        let first = waiting.count > Self.widest ? waiting.removeFirst() : nil
        waiters[token] = waiting
        return expected.contains(token) && refusals.isEmpty ? .waits(insteadOf: first) : .asks(insteadOf: first)
    }

    /// Records the outcome of a write.
    ///
    /// - Returns: the clients to notify and the outcome for them; nil if none waits.
    mutating func end(_ token: RequestToken, _ outcome: RequestOutcome) -> ([WriteWaiter], WriteOutcome)? {
        let isExpected = expected.remove(token) != nil
        let waiting = waiters.removeValue(forKey: token) ?? []
        guard !waiting.isEmpty || isExpected && outcome.body.count <= Self.keptBytes else { return nil }
        let writeOutcome = WriteOutcome(outcome, cookies: cookies(of: token))
        forgetCookies(of: token)
        guard waiting.isEmpty else { return (waiting, writeOutcome) }
        ends[token] = writeOutcome
        endings.append(token)
        if endings.count > Self.keptEnds { ends[endings.removeFirst()] = nil }
        return nil
    }

    /// Ends all waiting.
    ///
    /// - Returns: the clients that were waiting.
    mutating func stop() -> [WriteWaiter] {
        isStopping = true
        defer { waiters = [:] }
        return waiters.values.flatMap { $0 }
    }

    mutating func remove(_ waiter: WriteWaiter, for token: RequestToken) {
        waiters[token]?.removeAll { $0 === waiter }
        guard waiters[token]?.isEmpty != false else { return }
        waiters[token] = nil
        forgetCookies(of: token)
    }

    private mutating func forgetCookies(of token: RequestToken) {
        if cookies.removeValue(forKey: token) != nil { order.removeAll { $0 == token } }
    }

    /// Keeps the cookies of an answer, which may come before its client begins to wait.
    mutating func note(_ reply: AttemptReply, to token: RequestToken) {
        let fields: [ResolvedRequest.Header]
        switch reply {
        case .success(_, let headers, _, _, _), .failure(_, _, let headers, _): fields = headers
        }
        let given = fields.filter { $0.name.lowercased() == "set-cookie" }
        guard !given.isEmpty else { return }
        if cookies.updateValue(given.map { .init($0.name, $0.value) }, forKey: token) == nil { order.append(token) }
        if order.count > Self.answersWithCookies { cookies[order.removeFirst()] = nil }
    }

    func cookies(of token: RequestToken) -> [HeaderFields.Field] { cookies[token] ?? [] }

    func shown(by tenant: String) -> CredentialCache.Digest? { shown[ExactText(tenant)] }

    mutating func show(_ credential: CredentialCache.Digest, of tenant: String) {
        shown[ExactText(tenant)] = credential
        refusals[ExactText(tenant)] = nil
    }

    /// Records that the backend refuses an account's credential.
    ///
    /// - Returns: the account's waiting writes, each with the clients to notify.
    mutating func refuse(
        _ tenant: String, _ outcome: WriteOutcome, _ waiting: [QueuedRequest]
    ) -> [(QueuedRequest, [WriteWaiter])] {
        refusals[ExactText(tenant)] = outcome
        shown[ExactText(tenant)] = nil
        return waiting.map { ($0, waiters.removeValue(forKey: $0.token) ?? []) }
    }

    func refusal(of tenant: String) -> WriteOutcome? { refusals[ExactText(tenant)] }
}

extension WriteOutcome {
    init(_ outcome: RequestOutcome, cookies: [HeaderFields.Field] = []) {
        let headers = HeaderFields(outcome.headers.map { HeaderFields.Field($0.name, $0.value) } + cookies)
        switch outcome.result {
        case .success where outcome.isCut:
            self = .failed("the chat server has done it, but its answer was not kept here")
        case .success(let status), .failure(let status?):
            self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: outcome.body))
        case .failure(nil): self = .failed(outcome.cause ?? "the chat server did not accept it")
        case .aborted: self = .dropped
        }
    }
}

extension WriteOutcome {
    /// The backend's answer to an attempt; nil if there is none.
    init?(_ reply: AttemptReply) {
        guard case .failure(.status(let status), _, let fields, let body) = reply else { return nil }
        let headers = HeaderFields(fields.map { HeaderFields.Field($0.name, $0.value) })
        self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: body))
    }
}
