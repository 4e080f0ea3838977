// Writes to a JSON backend, in the persistent queue.

import AsyncHTTPClient
import Foundation
import GatewayCore
import RequestQueue
import RequestQueueClient
import SQLiteQueue
import Synchronization

/// The queue as exchanges use it.
final class WriteQueue: Sendable {
    let queue: APIClientQueue
    let store: SQLiteQueueStore
    let traces: WriteTraces
    private let http: HTTPClient
    private let waiters: Shared<WriteWaiters>
    /// The queue, for what happens in it; nothing once it is closed.
    private let made = Shared<APIClientQueue?>(nil)

    /// - Parameters:
    ///   - held: accounts all of whose writes an operator holds.
    ///   - merged: hears what the backend calls messages that clients know by a local id.
    ///   - known: where credentials are remembered; one that the backend refuses is asked for again.
    /// - Throws: `QueueStoreError` where the store cannot be read.
    init(
        store: SQLiteQueueStore, host: String, settings: QueueMachine.Settings, credentials: SessionCredentials,
        http: HTTPClient, held: Set<String>, known: CredentialBook, traces: RequestTraces,
        merged: @escaping @Sendable (AccountID, MessageMerge) -> Void
    ) throws {
        let waiters = Shared(WriteWaiters())
        let writeTraces = WriteTraces(traces)
        (self.store, self.http) = (store, http)
        (self.waiters, self.traces) = (waiters, writeTraces)
        var settings = settings
        settings.keepsOutcomes = true
        let queueBox = made
        queue = try APIClientQueue(
            client: BackendClient(host: host, http: http), store: store, settings: settings, credentials: credentials,
            held: held, handlers: [MergeTeller(merged)]
        ) { event in
            switch event {
            case .sent(let token): writeTraces.sent(token)
            case .answered(let token, let reply): writeTraces.answered(token, reply)
            case .refused(let tenant, let reply, let waiting):
                guard let outcome = WriteOutcome(reply) else { return }
                let (credential, told) = waiters.withLock { $0.refuse(tenant, outcome, waiting) }
                if let credential { known.forget(credential) }
                for (request, waiters) in told where !waiters.isEmpty {
                    for waiter in waiters { waiter.end(outcome) }
                    // Its client has been told that it was not done, and has no name by which it could ask for it again.
                    guard request.isAnonymous else { continue }
                    let queue = queueBox.withLock { $0 }
                    Task { try? await queue?.cancel(request.token) }
                }
            }
        }
        let queue = queue
        made.withLock { $0 = queue }
    }

    /// What waits for a login can go.
    func loggedIn(_ account: AccountID, _ credential: Credential) {
        waiters.withLock { $0.show(credential.digest, of: account.text) }
        queue.setSession(SessionKey(credential), for: account.text)
    }

    /// What was said before under a key.
    func recall(
        _ account: AccountID, key: String, _ done: @escaping @Sendable (WriteToken?, _ creates: String?) -> Void
    ) {
        Task {
            let known = try? await queue.request(idempotencyKey: key, tenant: account.text)
            done(known.map { WriteToken($0.token) }, known?.creates.map(\.local).first(where: LocalMessageID.isOne))
        }
    }

    /// Takes a write; it is committed when this is answered.
    func enqueue(_ write: QueuedWrite, _ done: @escaping @Sendable (Result<WriteToken, WriteRefusal>) -> Void) {
        Task {
            loggedIn(write.account, write.credential)
            do throws(QueueError) {
                let token = try await queue.append(write.request)
                traces.stored(token, write.message)
                done(.success(WriteToken(token)))
            } catch {
                switch error {
                case .keyReused:
                    // Two requests with the same key have been sealed side by side; the first one counts.
                    recall(write.account, key: write.idempotencyKey ?? "") { token, _ in
                        done(token.map { .success($0) } ?? .failure(.unavailable))
                    }
                case .tenantFull, .full: done(.failure(.full))
                case .unknownDependency, .failedDependency: done(.failure(.unknownReference))
                case .tooLarge, .malformed, .unavailable, .closed: done(.failure(.unavailable))
                }
            }
        }
    }

    /// Tells how a write ends, if it does while its client waits. Where the backend refuses the credential that it is sent with,
    /// the client hears that at once; what has a name of its client's goes on waiting for the next login.
    func await(_ token: WriteToken, _ done: @escaping @Sendable (WriteOutcome) -> Void) {
        let waiter = WriteWaiter(done)
        let token = RequestToken(high: token.high, low: token.low)
        let (isWaiting, mayBeRefused) = waiters.withLock { ($0.add(waiter, for: token), $0.hasRefusals) }
        guard isWaiting else { return done(.waits) }
        Task {
            if mayBeRefused, let request = await queue.waitingForSession(token),
                let refusal = waiters.withLock({ $0.refusal(of: request.tenant) })
            {
                waiter.end(refusal)
                if request.isAnonymous { try? await queue.cancel(token) }
            } else if let outcome = await outcome(of: token) {
                waiter.end(WriteOutcome(outcome))
            }
            waiters.withLock { $0.remove(waiter, for: token) }
        }
    }

    /// How a request ends; nothing where it does not end while a client has patience.
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

    /// Tells everybody who waits that what they wrote is kept, so that their connections can end.
    func dismiss() {
        for waiter in waiters.withLock({ $0.stop() }) { waiter.end(.waits) }
    }

    /// What is under way has two seconds to be answered: a service manager waits for this process.
    func close() async {
        await queue.close(deadline: .seconds(2))
        made.withLock { $0 = nil }
        try? await http.shutdown()
    }
}

extension WriteToken {
    fileprivate init(_ token: RequestToken) { self.init(high: token.high, low: token.low) }
}

extension QueuedRequest {
    /// Whether its client gave it no name by which it could be said again.
    var isAnonymous: Bool { idempotencyKey == token.description }
}
