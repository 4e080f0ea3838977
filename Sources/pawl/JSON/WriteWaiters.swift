// Clients that wait for the end of a write, and how it is told to them.

import GatewayCore
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

/// Those who wait, with the credentials that the backend has stopped to accept.
struct WriteWaiters: Sendable {
    private var waiters: [RequestToken: [WriteWaiter]] = [:]
    private var isStopping = false
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

    /// - Returns: whether it may wait; not where the process ends.
    mutating func add(_ waiter: WriteWaiter, for token: RequestToken) -> Bool {
        guard !isStopping else { return false }
        waiters[token, default: []].append(waiter)
        return true
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
        if cookies.removeValue(forKey: token) != nil { order.removeAll { $0 == token } }
    }

    /// The backend has answered to an attempt; maybe before its client has begun to wait.
    mutating func note(_ reply: AttemptReply, to token: RequestToken) {
        let fields: [ResolvedRequest.Header]
        switch reply {
        case .success(_, let headers, _, _), .failure(_, _, let headers, _): fields = headers
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
