// Writes to a JSON backend, in the persistent queue.
//
// Sealing a write and queueing it are two transactions, in that order, because the queue has a file of its own that
// applications can use without a gateway. The client has been promised nothing between the two. A crash there costs one
// ratchet number and the client's answer; the same request is then sealed again.
//
// Holds are applied before the queue is restored, so that nothing of a held account is sent at a start.

import AsyncHTTPClient
import Foundation
import JSONGateway
import Outbox
import Protection
import RequestQueue
import RequestQueueClient
import SQLiteQueue
import Synchronization

/// The queue, as HTTP exchanges use it.
final class WriteQueue: Sendable {
    let queue: APIClientQueue
    let store: SQLiteQueueStore
    let traces: WriteTraces
    private let http: HTTPClient
    private let credentials: KnownCredentials
    private let waiting: WaitingWrites
    private let keys: WriteKeys
    private let waiters: Shared<WriteWaiters>
    /// The queue, for its own event handler; nil once it is closed.
    private let made = Shared<APIClientQueue?>(nil)

    /// - Parameters:
    ///   - held: accounts whose writes an operator holds.
    ///   - environment: the state that exchanges share. A credential that the backend refuses is looked up again there.
    /// - Throws: `QueueStoreError` if the store cannot be read.
    init(
        store: SQLiteQueueStore, host: String, settings: QueueMachine.Settings, credentials: SessionCredentials,
        http: HTTPClient, held: [String], environment: JSONEnvironment, traces: RequestTraces
    ) throws {
        let waiters = Shared(WriteWaiters())
        let writeTraces = WriteTraces(traces)
        (self.store, self.http) = (store, http)
        (self.waiters, self.traces) = (waiters, writeTraces)
        (waiting, keys) = (environment.waitingWrites, environment.writeKeys)
        let own = KnownCredentials(environment.credentials)
        self.credentials = own
        try Self.note(store, in: waiting)
        var settings = settings
        settings.keepsOutcomes = true
        settings.createsAllEntities = true
        let (queueBox, sockets) = (made, environment.sockets)
        let ends = WriteEnds(waiting) { sockets.notify($0, $1) }
        queue = try APIClientQueue(
            client: BackendClient(host: host, http: http, credentials: own) { environment.mapping.refusal },
            store: store, settings: settings, credentials: credentials, held: held, handlers: [ends]
        ) { event in
            switch event {
            case .sent(let token): writeTraces.sent(token)
            case .answered(let token, let reply):
                writeTraces.answered(token, reply)
                waiters.withLock { $0.note(reply, to: token) }
            case .ended(let token, let outcome):
                guard let (notified, outcome) = waiters.withLock({ $0.end(token, outcome) }) else { return }
                for waiter in notified { waiter.end(outcome) }
            case .refused(let tenant, let reply, let waiting):
                guard let outcome = WriteOutcome(reply) else { return }
                // If the account has shown another credential, as from another device, its writes continue with that.
                let shown = waiters.withLock { $0.shown(by: tenant) }
                if let (digest, key) = own.another(of: tenant, than: shown) {
                    waiters.withLock { $0.show(digest, of: tenant) }
                    queueBox.withLock { $0 }?.setSession(key, for: tenant)
                    return
                }
                let notified = waiters.withLock { $0.refuse(tenant, outcome, waiting) }
                for (request, waiters) in notified where !waiters.isEmpty {
                    for waiter in waiters { waiter.end(outcome) }
                    // Its client was notified of the failure, and cannot repeat the write without an idempotency key.
                    guard request.isAnonymous else { continue }
                    let queue = queueBox.withLock { $0 }
                    Task { try? await queue?.cancel(request.token) }
                }
            // `StoreHealth` reports it.
            case .store: break
            }
        }
        let queue = queue
        made.withLock { $0 = queue }
    }

    /// Resumes the writes that wait for a login of an account.
    func loggedIn(_ account: AccountID, _ credential: Credential) {
        shown(credential, keys.mark(of: credential), by: account.text)
    }

    private func shown(_ credential: Credential, _ mark: String, cookies: [String] = [], by account: String) {
        credentials.remember(mark, of: account, credential.digest, SessionKey(credential, cookies: cookies))
        waiters.withLock { $0.show(credential.digest, of: account) }
        queue.setSession(SessionKey(credential), for: account)
    }

    /// Notes the writes that an earlier process has left in the queue.
    private static func note(_ store: SQLiteQueueStore, in waiting: WaitingWrites) throws {
        var last: UInt64 = 0
        while true {
            let page = try store.requests(states: [.pending, .inFlight], after: last, limit: 1000)
            for request in page { waiting.begin(request) }
            guard let id = page.last?.id else { return }
            last = id
        }
    }

    /// Looks up an earlier write with the same key. A dead one is sent again.
    func findWrite(
        _ account: AccountID, _ key: WriteKey, by credential: Credential,
        _ done: @escaping @Sendable (WriteMatch) -> Void
    ) {
        Task { done(await findWrite(key, of: account, by: keys.mark(of: credential))) }
    }

    /// Looks up an earlier write. One that is done under another credential is not the same write.
    private func findWrite(_ key: WriteKey, of account: AccountID, by mark: String) async -> WriteMatch {
        // A queue that cannot be read accepts no write either.
        guard let first = try? await known(key, of: account) else { return .new(key) }
        guard first.state == .done, first.mark != mark else { return .known(await knownWrite(first)) }
        let own = keys.own(key, mark: mark)
        guard let second = try? await known(own, of: account) else { return .new(own) }
        return .known(await knownWrite(second))
    }

    private func known(_ key: WriteKey, of account: AccountID) async throws -> QueuedRequest? {
        try await queue.request(idempotencyKey: key.name, tenant: account.text)
    }

    private func knownWrite(_ request: QueuedRequest) async -> KnownWrite {
        var isLost = request.state == .cancelled
        if request.state == .dead {
            do { try await revive(request) } catch { isLost = true }
        }
        return KnownWrite(
            token: WriteToken(request.token), localID: request.creates.map(\.local).first(where: LocalMessageID.isOne),
            isLost: isLost)
    }

    /// Sends a dead write again.
    func revive(_ request: QueuedRequest) async throws {
        waiting.begin(request)
        waiters.withLock { $0.forget(request.token) }
        do {
            try await queue.retry(request.token)
        } catch {
            waiting.end(request)
            throw error
        }
    }

    /// Enqueues a write. It is committed when `done` is called with success.
    func enqueue(_ write: QueuedWrite, _ done: @escaping @Sendable (Result<KnownWrite, WriteRefusal>) -> Void) {
        Task { done(await enqueue(write)) }
    }

    private func enqueue(_ write: QueuedWrite) async -> Result<KnownWrite, WriteRefusal> {
        let mark = keys.mark(of: write.credential)
        shown(write.credential, mark, cookies: write.cookies, by: write.account.text)
        let creates = write.creates(marked: UUID().uuidString)
        guard let request = write.request(mark: mark, creates: creates) else {
            return .failure(.unavailable)
        }
        waiting.begin(write.account.text, in: write.lane, creates)
        let token = queue.makeToken()
        waiters.withLock { $0.expect(token) }
        do throws(QueueError) {
            switch try await queue.offer(request, token: token) {
            case .accepted(let token):
                traces.stored(token, write.message)
                return .success(KnownWrite(token: WriteToken(token), localID: write.localID, isLost: false))
            case .existing(let first):
                waiters.withLock { $0.forget(token) }
                waiting.end(write.account.text, in: write.lane, creates)
                let token = WriteToken(first)
                return .success(await self.first(of: write) ?? KnownWrite(token: token, localID: nil, isLost: false))
            }
        } catch {
            waiters.withLock { $0.forget(token) }
            waiting.end(write.account.text, in: write.lane, creates)
            switch error {
            case .keyReused:
                return await first(of: write).map(Result.success) ?? .failure(.unavailable)
            case .tenantFull, .full: return .failure(.full)
            case .unknownDependency, .failedDependency: return .failure(.unknownReference)
            case .tooLarge, .malformed, .unavailable, .closed: return .failure(.unavailable)
            }
        }
    }

    /// Returns the queued one of equal writes that were sealed at the same time.
    private func first(of write: QueuedWrite) async -> KnownWrite? {
        guard let key = write.key, let first = try? await known(key, of: write.account) else { return nil }
        return await knownWrite(first)
    }

    /// Notifies a client of the outcome of its write, if the write ends while the client waits.
    ///
    /// If the backend refuses the write's credential, the client is notified at once. A write with an idempotency key
    /// of its client continues to wait for the next login.
    func await(_ token: WriteToken, _ done: @escaping @Sendable (WriteOutcome) -> Void) {
        let waiter = WriteWaiter(done)
        let token = RequestToken(high: token.high, low: token.low)
        switch waiters.withLock({ $0.add(waiter, for: token) }) {
        case .ended(let outcome): waiter.end(outcome)
        case .waits(let other): other?.end(.waits)
        case .asks(let other):
            other?.end(.waits)
            ask(token, waiter)
        }
    }

    /// Asks the queue for the outcome of a write whose end this process may not be notified of.
    private func ask(_ token: RequestToken, _ waiter: WriteWaiter) {
        let mayBeRefused = waiters.withLock { $0.hasRefusals }
        Task {
            if mayBeRefused, let request = await queue.waitingForSession(token),
                let refusal = waiters.withLock({ $0.refusal(of: request.tenant) })
            {
                waiter.end(refusal)
                if request.isAnonymous { try? await queue.cancel(token) }
            } else if let outcome = await outcome(of: token) {
                let cookies = waiters.withLock { $0.cookies(of: token) }
                waiter.end(WriteOutcome(outcome, cookies: cookies))
            }
            waiters.withLock { $0.remove(waiter, for: token) }
        }
    }

    /// Waits for the outcome of a request; nil if it does not end within ``HTTPExchange/patience``.
    private func outcome(of token: RequestToken) async -> RequestOutcome? {
        await withTaskGroup(of: RequestOutcome?.self) { group in
            group.addTask { [queue] in try? await queue.outcome(of: token) }
            group.addTask {
                try? await Task.sleep(for: .nanoseconds(HTTPExchange.patience))
                return nil
            }
            defer { group.cancelAll() }
            return await group.next() ?? nil
        }
    }

    /// Notifies all waiting clients that their writes are kept, so that their connections can end.
    func dismiss() {
        for waiter in waiters.withLock({ $0.stop() }) { waiter.end(.waits) }
    }

    /// Closes the queue. Requests in flight get two seconds, because a service manager waits for this process.
    func close() async {
        await queue.close(deadline: .seconds(2))
        made.withLock { $0 = nil }
        try? await http.shutdown()
    }
}

extension WriteToken {
    fileprivate init(_ token: RequestToken) { self.init(high: token.high, low: token.low) }
}

extension WaitingWrites {
    fileprivate func begin(_ request: QueuedRequest) {
        begin(request.tenant, in: request.lane ?? "", request.creates.map(\.local))
    }

    fileprivate func end(_ request: QueuedRequest) {
        end(request.tenant, in: request.lane ?? "", request.creates.map(\.local))
    }
}

extension APIRequestConfig {
    /// The mark of the credential that came with the write.
    fileprivate var mark: String? {
        for case .text(let mark) in headers.items.filter({ $0.name == BackendNetwork.markField }).map(\.value) {
            return mark
        }
        return nil
    }
}

extension APIClientQueueRequest {
    /// The mark of the credential that came with the write.
    var mark: String? { wrapped.config.mark }
}

extension QueuedRequest {
    /// The mark of the credential that came with the write.
    fileprivate var mark: String? { config.mark }

    /// Whether its client gave no idempotency key, so that the client cannot repeat the write.
    var isAnonymous: Bool { idempotencyKey == token.description }
}
