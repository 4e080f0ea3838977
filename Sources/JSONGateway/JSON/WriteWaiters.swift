// Clients that wait for the outcome of a write.

package import Envelope
package import HTTPCodec
import NIOCore
package import RequestQueue
import Synchronization

/// A waiting client. It is notified once, and not of a write that is not stored.
package final class WriteWaiter: Sendable {
    private struct State {
        /// Nil once the client is notified.
        var done: (@Sendable (WriteOutcome) -> Void)?
        var isStored = false
        var hasGivenUp = false
    }

    private let state: Mutex<State>

    /// - Parameter done: called on any thread.
    package init(_ done: @escaping @Sendable (WriteOutcome) -> Void) { state = Mutex(State(done: done)) }

    package func end(_ outcome: WriteOutcome) { notify(outcome) { _ in true } }

    /// Records that the write is stored.
    func stored() {
        notify(.waits) { state in
            state.isStored = true
            return state.hasGivenUp
        }
    }

    /// Notifies the client that its write is kept: now, or when the write is stored.
    package func giveUp() {
        notify(.waits) { state in
            state.hasGivenUp = true
            return state.isStored
        }
    }

    private func notify(_ outcome: WriteOutcome, if isDue: (inout State) -> Bool) {
        let done = state.withLock { state -> (@Sendable (WriteOutcome) -> Void)? in
            guard isDue(&state) else { return nil }
            defer { state.done = nil }
            return state.done
        }
        done?(outcome)
    }
}

/// What happens to a client that begins to wait.
package enum WriteWait {
    /// The client is notified: at once if the outcome is known, else when the write ends.
    case waits
    /// The same, but the write may have ended already: the caller has to ask the queue.
    case asks
}

/// The waiting clients of all writes, with the refusals of their accounts' credentials. Safe from any thread.
package final class WriteWaiters: Sendable {
    private let state = Mutex(State())

    package init() {}

    /// Records that a write is about to be queued, so that ``end(_:_:)`` will be called for it.
    ///
    /// - Parameter waiter: the client that waits for the outcome; nil if it is answered before.
    package func expect(_ token: RequestToken, _ waiter: WriteWaiter?) {
        if state.withLock({ $0.expect(token, waiter) }) { waiter?.giveUp() }
    }

    /// Records that a write is stored.
    ///
    /// - Parameter message: the message that is sealed in it; nil if there is none.
    /// - Returns: whether the client has to ask the queue, because the backend has refused its credential meanwhile.
    package func stored(_ token: RequestToken, _ message: MessageID?, of tenant: String) -> Bool {
        let (waiting, isRefused) = state.withLock { $0.stored(token, message, of: tenant) }
        for waiter in waiting { waiter.stored() }
        return isRefused && !waiting.isEmpty
    }

    /// Whether this process has offered a write to the queue, and it has not ended since.
    package func expects(_ token: RequestToken) -> Bool { state.withLock { $0.isExpected(token) } }

    /// Forgets how a write ended that is sent again.
    package func forget(_ token: RequestToken) { state.withLock { $0.forget(token) } }

    /// Forgets a write that the queue did not accept, and its client, which gets a reply.
    package func drop(_ token: RequestToken) { state.withLock { $0.drop(token) } }

    /// Adds a client that waits for a stored write.
    ///
    /// It may replace the oldest one that waits for the same write, whose connection may be closed.
    package func add(_ waiter: WriteWaiter, for token: RequestToken) -> WriteWait {
        waiter.stored()
        let (ended, wait) = state.withLock { $0.add(waiter, for: token) }
        if let (waiter, outcome) = ended { waiter.end(outcome) }
        return wait
    }

    package func remove(_ waiter: WriteWaiter, for token: RequestToken) {
        state.withLock { $0.remove(waiter, for: token) }
    }

    /// Records the outcome of a write, and notifies the clients that wait for it.
    package func end(_ token: RequestToken, _ outcome: RequestOutcome) {
        guard let (waiting, outcome) = state.withLock({ $0.end(token, outcome) }) else { return }
        for waiter in waiting { waiter.end(outcome) }
    }

    /// Whether a field sets a cookie, which may be a credential.
    package static func isCookie(_ name: String) -> Bool {
        name.utf8.count == 10 && name.lowercased() == "set-cookie"
    }

    /// Keeps the cookies of an answer, which may come before its client begins to wait.
    package func note(_ reply: AttemptReply, to token: RequestToken) { state.withLock { $0.note(reply, to: token) } }

    package func cookies(of token: RequestToken) -> [HeaderFields.Field] { state.withLock { $0.cookies[token] ?? [] } }

    /// Notifies all clients that their writes are kept, each once that is so, and lets none wait any more.
    package func dismiss() {
        for waiter in state.withLock({ $0.stop() }) { waiter.giveUp() }
    }

    // MARK: Credentials

    /// Whether the credential of any account is refused.
    package var hasRefusals: Bool { state.withLock { !$0.refusals.isEmpty } }

    /// Notes that an account has shown a credential, so that the last refusal no longer counts.
    package func forgetRefusal(of tenant: String) {
        state.withLock { state in
            if !state.refusals.isEmpty { state.refusals[ExactText(tenant)] = nil }
        }
    }

    /// Records that the backend refuses an account's credential, and notifies the clients of its waiting writes.
    ///
    /// - Returns: the writes with a client that was notified.
    package func refuse(_ tenant: String, _ outcome: WriteOutcome, _ waiting: [QueuedRequest]) -> [QueuedRequest] {
        let notified = state.withLock { $0.refuse(tenant, outcome, waiting) }
        for (_, waiters) in notified { for waiter in waiters { waiter.end(outcome) } }
        return notified.filter { !$0.1.isEmpty }.map(\.0)
    }

    /// The backend's refusal of an account's last credential; nil since the account has shown another one.
    package func refusal(of tenant: String) -> WriteOutcome? { state.withLock { $0.refusals[ExactText(tenant)] } }
}

extension WriteWaiters {
    fileprivate struct State {
        private var waiters: [RequestToken: [WriteWaiter]] = [:]
        /// Ours: clients that wait for one write. The limit is there because a client that leaves stays in the list.
        private static let widest = 16
        private var isStopping = false
        private struct Expected {
            var message: MessageID?
        }

        /// Writes that this process has offered to the queue and that have not ended.
        private var expected: [RequestToken: Expected] = [:]
        /// Outcomes of such writes for which no client waits yet.
        private var ends: [RequestToken: WriteOutcome] = [:]
        private var endings = CircularBuffer<RequestToken>()
        /// Ours: outcomes that are kept, and the largest answer of one in bytes. The store has all outcomes.
        private static let (keptEnds, keptBytes) = (1024, 16 << 10)
        var refusals: [ExactText: WriteOutcome] = [:]
        /// Ours: answers whose cookies are kept until their client is notified.
        private static let answersWithCookies = 1024
        /// Cookies of the backend's last answer to a write. They are kept in memory only.
        private(set) var cookies: [RequestToken: [HeaderFields.Field]] = [:]
        private var order: [RequestToken] = []

        /// - Returns: whether no client waits any more.
        mutating func expect(_ token: RequestToken, _ waiter: WriteWaiter?) -> Bool {
            expected[token] = Expected()
            if let waiter { waiters[token] = [waiter] }
            return isStopping
        }

        /// - Returns: the clients that wait, and whether the credential of their account is refused.
        mutating func stored(
            _ token: RequestToken, _ message: MessageID?, of tenant: String
        ) -> ([WriteWaiter], isRefused: Bool) {
            // A write may end in the batch that stores it.
            guard expected[token] != nil else { return ([], false) }
            expected[token]?.message = message
            return (waiters[token] ?? [], !refusals.isEmpty && refusals[ExactText(tenant)] != nil)
        }

        func isExpected(_ token: RequestToken) -> Bool { expected[token] != nil }

        mutating func forget(_ token: RequestToken) {
            expected[token] = nil
            ends[token] = nil
        }

        mutating func drop(_ token: RequestToken) {
            forget(token)
            waiters[token] = nil
        }

        /// - Returns: a client to notify at once, and whether the queue has to be asked for the new one.
        mutating func add(
            _ waiter: WriteWaiter, for token: RequestToken
        ) -> (ended: (WriteWaiter, WriteOutcome)?, wait: WriteWait) {
            guard !isStopping else { return ((waiter, .waits), .waits) }
            if let outcome = ends.removeValue(forKey: token) { return ((waiter, outcome), .waits) }
            var waiting = waiters[token] ?? []
            waiting.append(waiter)
            let first = waiting.count > Self.widest ? waiting.removeFirst() : nil
            waiters[token] = waiting
            let isKnown = expected[token] != nil && refusals.isEmpty
            return (first.map { ($0, .waits) }, isKnown ? .waits : .asks)
        }

        /// - Returns: the clients to notify and the outcome for them; nil if none waits.
        mutating func end(_ token: RequestToken, _ outcome: RequestOutcome) -> ([WriteWaiter], WriteOutcome)? {
            let known = expected.removeValue(forKey: token)
            let waiting = waiters.removeValue(forKey: token) ?? []
            guard !waiting.isEmpty || known != nil && outcome.body.count <= Self.keptBytes else { return nil }
            let writeOutcome = WriteOutcome(outcome, cookies: cookies[token] ?? [], sealed: known?.message)
            forgetCookies(of: token)
            guard waiting.isEmpty else { return (waiting, writeOutcome) }
            ends[token] = writeOutcome
            endings.append(token)
            if endings.count > Self.keptEnds { ends[endings.removeFirst()] = nil }
            return nil
        }

        /// - Returns: the clients that wait.
        mutating func stop() -> [WriteWaiter] {
            isStopping = true
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

        mutating func note(_ reply: AttemptReply, to token: RequestToken) {
            let fields: [ResolvedRequest.Header]
            switch reply {
            case .success(_, let headers, _, _, _), .failure(_, _, let headers, _): fields = headers
            }
            let given = fields.filter { WriteWaiters.isCookie($0.name) }
            guard !given.isEmpty else { return }
            if cookies.updateValue(given.map { .init($0.name, $0.value) }, forKey: token) == nil {
                order.append(token)
            }
            if order.count > Self.answersWithCookies { cookies[order.removeFirst()] = nil }
        }

        mutating func refuse(
            _ tenant: String, _ outcome: WriteOutcome, _ waiting: [QueuedRequest]
        ) -> [(QueuedRequest, [WriteWaiter])] {
            refusals[ExactText(tenant)] = outcome
            return waiting.map { ($0, waiters.removeValue(forKey: $0.token) ?? []) }
        }
    }
}

extension WriteOutcome {
    /// - Parameter sealed: the message that this process has sealed for the write.
    package init(_ outcome: RequestOutcome, cookies: [HeaderFields.Field] = [], sealed: MessageID? = nil) {
        let headers = HeaderFields(outcome.headers.map { HeaderFields.Field($0.name, $0.value) } + cookies)
        switch outcome.result {
        case .success where outcome.isCut:
            self = .failed("the chat server has done it, but its answer was not kept here")
        case .success(let status), .failure(let status?):
            self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: outcome.body), sealed: sealed)
        case .failure(nil): self = .failed(outcome.cause ?? "the chat server did not accept it")
        case .aborted: self = .dropped
        }
    }

    /// The backend's answer to an attempt; nil if there is none.
    package init?(_ reply: AttemptReply) {
        guard case .failure(.status(let status), _, let fields, let body) = reply else { return nil }
        let headers = HeaderFields(fields.map { HeaderFields.Field($0.name, $0.value) })
        self = .answered(ResponseHead(status, headers: headers), ByteBuffer(bytes: body))
    }
}
