// Writes to a JSON backend. The queue's machine belongs to the participants of the commit loop; this is the side of
// connections and operators: credentials, attempts, waiting clients and reports.

import HTTPServer
import JSONGateway
import Protection
import RequestQueue
import RequestQueueClient

/// The queue, as HTTP exchanges use it.
final class WriteQueue: Sendable {
    let queue: APIClientQueue
    let store: any QueueReading
    private let tables: WriteTables
    private let submit: @Sendable ([JSONJob]) -> Void
    private let credentials: AccountCredentials

    var traces: WriteTraces { tables.traces }

    /// - Parameters:
    ///   - store: the tables that the commit loop writes.
    ///   - credentials: those of accounts. The queue's machine knows which accounts have one.
    ///   - environment: the state that exchanges share.
    ///   - submit: hands jobs to the commit thread.
    init(
        store: any QueueReading, driver: any QueueDriver, host: String, credentials: AccountCredentials,
        sender: UpstreamSender, environment: JSONEnvironment, submit: @escaping @Sendable ([JSONJob]) -> Void
    ) {
        (self.store, self.credentials, self.submit) = (store, credentials, submit)
        tables = environment.writes
        let tables = environment.writes
        queue = APIClientQueue(
            client: BackendClient(host: host, sender: sender, carriers: tables.carriers) {
                environment.mapping.refusal
            },
            store: store, driver: driver, credentials: credentials, keepsOutcomes: true, deliversOutcomes: false
        ) { event in
            switch event {
            case .sent(let request): tables.traces.sent(request.token, at: SystemClock.now().wall)
            case .answered(let request, let reply):
                tables.traces.answered(request.token, reply, at: SystemClock.now().wall)
                tables.waiters.note(reply, to: request.token)
            case .refused(let tenant, let reply, let waiting):
                guard let outcome = WriteOutcome(reply) else { return }
                // A client that was notified of the failure cannot repeat the write without an idempotency key.
                let anonymous = tables.waiters.refuse(tenant, outcome, waiting).filter(\.isAnonymous).map(\.token)
                guard !anonymous.isEmpty else { return }
                let cancel: MachineEvent = { machine, now in
                    for token in anonymous { try? machine.cancel(token, now: now) }
                    return nil
                }
                submit([.queue(cancel)])
            // The participants have recorded an outcome, and `StoreHealth` reports the store.
            case .appended, .ended, .reachable, .backgroundTimeEnded, .store, .missed: break
            }
        }
        tables.carriers.notify { Self.resume($0, submit) }
    }

    /// Resumes the writes that wait for a WebSocket of their account.
    private static func resume(_ account: AccountID, _ submit: @Sendable ([JSONJob]) -> Void) {
        submit([
            .queue { machine, now in
                machine.connected(
                    host: SocketWrites.host(of: account.text), tenant: account.text, now: now)
                return nil
            }
        ])
    }

    /// Resumes the writes that wait for a login of an account.
    func loggedIn(_ account: AccountID, _ credential: Credential) { show(credential, by: account) }

    /// Notes a credential that a client has shown.
    ///
    /// - Parameter cookies: those of the write that it came with; nil if it came with no write.
    /// - Returns: its mark.
    @discardableResult
    private func show(_ credential: Credential, cookies: [String]? = nil, by account: AccountID) -> String {
        let mark = tables.keys.mark(of: credential)
        let isNew = credentials.show(credential, mark, cookies: cookies, by: account.text)
        tables.waiters.forgetRefusal(of: account.text)
        if isNew { queue.credentialsChanged(of: account.text) }
        return mark
    }

    /// Looks up an earlier write with the same key. A dead one is sent again.
    func find(_ connection: ConnectionID, _ account: AccountID, _ key: WriteKey, by credential: Credential) {
        let mark = show(credential, by: account)
        submit([.find(FindWriteJob(connection: connection, account: account, key: key, mark: mark))])
    }

    /// Queues a write, with its text to seal.
    ///
    /// - Parameter waiter: is notified of the outcome; nil if the client is answered before.
    func enqueue(_ connection: ConnectionID, _ write: QueuedWrite, _ waiter: WriteWaiter?) {
        // The cookies of a WebSocket are those of its first request.
        let mark = show(write.credential, cookies: write.frame == nil ? write.cookies : nil, by: write.account)
        let token = queue.makeToken()
        tables.waiters.expect(token, waiter)
        submit([.write(WriteJob(connection: connection, token: token, write: write, mark: mark))])
    }

    /// Sends a dead write again.
    func revive(_ request: QueuedRequest) async throws {
        tables.waiting.begin(request)
        tables.waiters.forget(request.token)
        do {
            try await queue.retry(request.token)
        } catch {
            tables.waiting.end(request)
            throw error
        }
    }

    /// Notifies a client of the outcome of its write, if the write ends while the client waits.
    ///
    /// If the backend refuses the write's credential, the client is notified at once. A write with an idempotency key
    /// of its client continues to wait for the next login.
    func await(_ token: RequestToken, _ waiter: WriteWaiter) {
        switch tables.waiters.add(waiter, for: token) {
        case .waits: break
        case .asks: ask(token, waiter)
        }
    }

    /// Looks for the outcome of a write that may have ended before its client began to wait. The participants notify the
    /// waiting client of a later end.
    private func ask(_ token: RequestToken, _ waiter: WriteWaiter) {
        let mayBeRefused = tables.waiters.hasRefusals
        Task {
            if mayBeRefused, let request = await queue.waitingForSession(token),
                let refusal = tables.waiters.refusal(of: request.tenant)
            {
                waiter.end(refusal)
                if request.isAnonymous { try? await queue.cancel(token) }
            } else if let outcome = storedOutcome(of: token) {
                waiter.end(outcome)
            } else {
                return
            }
            tables.waiters.remove(waiter, for: token)
        }
    }

    /// The outcome of a write in the store; nil if it has not ended, or the store cannot be read.
    private func storedOutcome(of token: RequestToken) -> WriteOutcome? {
        do {
            if let outcome = try store.outcome(token) {
                return WriteOutcome(outcome, cookies: tables.waiters.cookies(of: token))
            }
            guard let request = try store.request(token) else {
                return .failed("the gateway does not know this write any more")
            }
            // A row that could not be read has become dead without an outcome.
            return request.state.isFinal ? .failed(request.cause ?? "it could not be read") : nil
        } catch {
            return nil
        }
    }

    /// Notifies all waiting clients that their writes are kept, so that their connections can end.
    func dismiss() {
        tables.waiters.dismiss()
    }

    /// Closes the queue. Requests in flight get two seconds, because a service manager waits for this process.
    func close() async { await queue.close(deadline: .seconds(2)) }
}
