// Clients that wait for the end of a write, and how it is told to them.

import HTTPCodec
import JSONGateway
import NIOCore
import RequestQueue
import RequestQueueClient
import Synchronization

/// One client that waits. It is told once.
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

/// What becomes of one who begins to wait.
enum WriteWait {
    /// There is nothing to wait for.
    case tells(WriteOutcome)
    /// They are told when the write ends. Another one, perhaps of a connection that is gone, makes room for them.
    case waits(insteadOf: WriteWaiter?)
    /// The same, and whether it has ended already has to be asked.
    case asks(insteadOf: WriteWaiter?)
}

/// Those who wait, with the credentials that the backend has stopped to accept.
struct WriteWaiters: Sendable {
    private var waiters: [RequestToken: [WriteWaiter]] = [:]
    /// Ours: who waits for one write at a time. Nobody says when a client has left.
    private static let widest = 16
    private var isStopping = false
    /// Writes that have been offered to the queue by this process and have not ended.
    private var expected: Set<RequestToken> = []
    /// Of these, how those ended that nobody waited for yet; mostly for as long as it takes to begin.
    private var ends: [RequestToken: WriteOutcome] = [:]
    private var endings = CircularBuffer<RequestToken>()
    /// Ours: how many such ends are kept, and the bytes of an answer that is. The store has all of them.
    private static let (keptEnds, keptBytes) = (1024, 16 << 10)
    /// What the backend said to the last credential of an account, until it shows another one.
    private var refusals: [ExactText: WriteOutcome] = [:]
    /// The credential that an account showed last.
    private var shown: [ExactText: CredentialBook.Digest] = [:]
    /// Ours: answers whose cookies are kept until their client is told, which is soon.
    private static let answersWithCookies = 1024
    /// Cookies that the backend has given in its last answer to a write. They are stored nowhere.
    private var cookies: [RequestToken: [HeaderFields.Field]] = [:]
    private var order: [RequestToken] = []

    /// Tenants whose credential is refused; mostly none.
    var hasRefusals: Bool { !refusals.isEmpty }

    /// A write is offered to the queue under this name: its end will be heard of.
    mutating func expect(_ token: RequestToken) { expected.insert(token) }

    /// It was not taken, or is to be done once more.
    mutating func forget(_ token: RequestToken) {
        expected.remove(token)
        ends[token] = nil
    }

    mutating func add(_ waiter: WriteWaiter, for token: RequestToken) -> WriteWait {
        guard !isStopping else { return .tells(.waits) }
        if let outcome = ends.removeValue(forKey: token) { return .tells(outcome) }
        var waiting = waiters[token] ?? []
        waiting.append(waiter)
        let first = waiting.count > Self.widest ? waiting.removeFirst() : nil
        waiters[token] = waiting
        return expected.contains(token) && refusals.isEmpty ? .waits(insteadOf: first) : .asks(insteadOf: first)
    }

    /// A write has ended.
    ///
    /// - Returns: those who are to be told, and what.
    mutating func end(_ token: RequestToken, _ outcome: RequestOutcome) -> ([WriteWaiter], WriteOutcome)? {
        let isExpected = expected.remove(token) != nil
        let waiting = waiters.removeValue(forKey: token) ?? []
        guard !waiting.isEmpty || isExpected && outcome.body.count <= Self.keptBytes else { return nil }
        let told = WriteOutcome(outcome, cookies: cookies(of: token))
        forgetCookies(of: token)
        guard waiting.isEmpty else { return (waiting, told) }
        ends[token] = told
        endings.append(token)
        if endings.count > Self.keptEnds { ends[endings.removeFirst()] = nil }
        return nil
    }

    /// Nobody waits any more.
    ///
    /// - Returns: those who did.
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

    /// The backend has answered to an attempt; maybe before its client has begun to wait.
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

    func shown(by tenant: String) -> CredentialBook.Digest? { shown[ExactText(tenant)] }

    mutating func show(_ credential: CredentialBook.Digest, of tenant: String) {
        shown[ExactText(tenant)] = credential
        refusals[ExactText(tenant)] = nil
    }

    /// The backend refuses an account's credential.
    ///
    /// - Returns: those who are to be told.
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
            self = .failed("the chat server has done it, but what it answered is not kept here")
        case .success(let status), .failure(let status?):
            self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: outcome.body))
        case .failure(nil): self = .failed(outcome.cause ?? "the chat server did not take it")
        case .aborted: self = .dropped
        }
    }
}

extension WriteOutcome {
    /// What the backend has answered to an attempt; nothing where it has not.
    init?(_ reply: AttemptReply) {
        guard case .failure(.status(let status), _, let fields, let body) = reply else { return nil }
        let headers = HeaderFields(fields.map { HeaderFields.Field($0.name, $0.value) })
        self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: body))
    }
}
