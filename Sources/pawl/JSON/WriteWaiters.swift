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
    private var refusals: [String: WriteOutcome] = [:]
    /// The credential that an account's writes are sent with.
    private var shown: [String: CredentialBook.Digest] = [:]

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
        if waiters[token]?.isEmpty == true { waiters[token] = nil }
    }

    mutating func show(_ credential: CredentialBook.Digest, of tenant: String) {
        shown[tenant] = credential
        refusals[tenant] = nil
    }

    /// The backend refuses an account's credential.
    ///
    /// - Returns: the credential, where this process has seen it, and those who are to be told.
    mutating func refuse(
        _ tenant: String, _ outcome: WriteOutcome, _ waiting: [QueuedRequest]
    ) -> (CredentialBook.Digest?, told: [(QueuedRequest, [WriteWaiter])]) {
        refusals[tenant] = outcome
        return (shown.removeValue(forKey: tenant), waiting.map { ($0, waiters.removeValue(forKey: $0.token) ?? []) })
    }

    func refusal(of tenant: String) -> WriteOutcome? { refusals[tenant] }
}

extension WriteOutcome {
    init(_ outcome: RequestOutcome) {
        let headers = HeaderFields(outcome.headers.map { HeaderFields.Field($0.name, $0.value) })
        switch outcome.result {
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
