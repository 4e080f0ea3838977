// The queue: connects the machine with its store, the network and the handlers.

public import Foundation
public import RequestQueue
import Synchronization

/// Requests that survive the process, sent in order and until they are done.
public final class APIClientQueue: APIClientQueuing {
    /// Ours: outcomes that wait for handlers. With more, no new attempt begins.
    static let backlog = 1024

    private struct State: Sendable {
        var handlers: [any APIClientQueueResponseHandler] = []
        var unhandled = 0
        var waiters = OutcomeWaiters()
        var keepsOutcomes: Bool
        /// Whether outcomes wait for the first handler.
        var awaitsHandler: Bool
        /// Whether no handler is called any more.
        var hasHandled = false
    }

    /// The backend's client.
    public let client: any APIClient
    let store: any QueueReading
    private let watch: (@Sendable (QueueEvent) -> Void)?
    private let observers = QueueObservers()
    private let background: BackgroundWork?
    /// Chooses the session key of each attempt.
    private let credentials: any CredentialStore
    /// The same, if it is the queue's own; nil if the caller decides about session keys.
    private let sessions: TenantSessions?
    private let state: Mutex<State>
    private let results: AsyncStream<QueueBatch.Result>.Continuation
    private let handling: Mutex<Task<Void, Never>?> = Mutex(nil)
    private let firstHandler: AsyncStream<Void>.Continuation
    private let driver: any QueueDriver
    private let deliversOutcomes: Bool
    /// By lease; nil for attempts whose task is still being made.
    private let attempts: Mutex<[UInt64: Task<Void, Never>?]> = Mutex([:])
    private let tokens = RandomTokens()
    let lastReport: Mutex<Report?> = Mutex(nil)

    /// Opens the queue and continues with what an earlier process left.
    ///
    /// - Parameters:
    ///   - client: the backend.
    ///   - store: where requests survive the process, such as `SQLiteQueueStore`.
    ///   - settings: bounds, pauses, and what is kept. The host is that of the client.
    ///   - credentials: where session keys are kept between two logins.
    ///   - sessions: the session keys of tenants; see ``setSession(_:for:)``.
    ///   - held: tenants whose requests are all held from the beginning; see ``hold(tenant:_:)``.
    ///   - handlers: in the order in which they are called. Without any, outcomes are not kept.
    ///   - awaitsHandlers: whether handlers come later, by ``register(_:)``. Outcomes, also those that an earlier
    ///     process left, are kept and wait for the first of them. While more than a thousand wait, nothing is sent.
    ///   - backgroundTasks: asks the system for time while requests with `APIRequestConfig.background` are in flight.
    ///   - watch: called with each event as it happens, on the driver's threads. It must be quick. See also ``events``.
    /// - Throws: `QueueStoreError` if the store cannot be read.
    public convenience init(
        client: any APIClient, store: any QueueStore, settings: QueueMachine.Settings = .init(),
        credentials: SessionCredentials = .memory, sessions: [ExactText: SessionKey] = [:], held: [String] = [],
        handlers: [any APIClientQueueResponseHandler] = [], awaitsHandlers: Bool = false,
        backgroundTasks: (any APIBackgroundTasks)? = nil, watch: (@Sendable (QueueEvent) -> Void)? = nil
    ) throws(QueueStoreError) {
        let contents = try store.load()
        let sessions = TenantSessions(client, credentials, stored: contents.sessions, sessions: sessions)
        var settings = settings
        (settings.host, settings.reportsEnds) = (client.host, true)
        if !handlers.isEmpty || awaitsHandlers { (settings.keepsOutcomes, settings.deliversOutcomes) = (true, true) }
        if settings.attemptTimeout == nil { settings.attemptTimeout = client.timeoutInterval }
        var machine = QueueMachine(settings, lease: .random(in: .min ... .max))
        for tenant in sessions.tenants { machine.setSession(tenant, present: true) }
        let now = QueueEngine.now()
        for tenant in held { machine.hold(tenant: tenant, true, now: now) }
        machine.restore(contents, now: now)
        let health = StoreEvents()
        self.init(
            client: client, store: store, driver: QueueEngine(machine, store: store) { health.send($0) },
            credentials: sessions, handlers: handlers, keepsOutcomes: settings.keepsOutcomes,
            awaitsHandlers: awaitsHandlers && handlers.isEmpty, backgroundTasks: backgroundTasks, health: health,
            watch: watch)
    }

    /// Opens a queue whose machine the caller has made, with what an earlier process left, and owns.
    ///
    /// - Parameters:
    ///   - store: the tables that the driver commits to.
    ///   - credentials: the session keys. The machine knows which tenants have one; see ``credentialsChanged(of:)``.
    ///   - keepsOutcomes: as the machine has it.
    ///   - deliversOutcomes: whether handlers and ``outcome(of:)`` get outcomes; false if the owner of the machine passes
    ///     them on itself.
    package init(
        client: any APIClient, store: any QueueReading, driver: any QueueDriver,
        credentials: any CredentialStore, handlers: [any APIClientQueueResponseHandler] = [], keepsOutcomes: Bool,
        awaitsHandlers: Bool = false, deliversOutcomes: Bool = true, backgroundTasks: (any APIBackgroundTasks)? = nil,
        health: StoreEvents? = nil, watch: (@Sendable (QueueEvent) -> Void)?
    ) {
        self.client = client
        self.store = store
        self.credentials = credentials
        sessions = credentials as? TenantSessions
        self.watch = watch
        self.driver = driver
        let observers = observers
        background = backgroundTasks.map { tasks in
            BackgroundWork(tasks) {
                watch?(.backgroundTimeEnded)
                observers.send(.backgroundTimeEnded)
            }
        }
        self.deliversOutcomes = deliversOutcomes
        let (stream, results) = AsyncStream<QueueBatch.Result>.makeStream()
        self.results = results
        state = Mutex(
            State(handlers: handlers, keepsOutcomes: keepsOutcomes, awaitsHandler: awaitsHandlers))
        let (arrival, firstHandler) = AsyncStream<Void>.makeStream()
        self.firstHandler = firstHandler
        health?.start { error in
            watch?(.store(error))
            observers.send(.store(error))
        }
        driver.start { [weak self] batch, answers in self?.act(on: batch, answers) }
        let task = Task { [weak self] in
            var isOpen = !awaitsHandlers
            if awaitsHandlers {
                for await _ in arrival {
                    isOpen = true
                    break
                }
            }
            // Without a handler the outcomes stay for the next process.
            if isOpen { for await result in stream { await self?.handle(result) } }
            self?.state.withLock { $0.hasHandled = true }
        }
        handling.withLock { $0 = task }
    }

    deinit {
        results.finish()
        firstHandler.finish()
        observers.close()
        background?.close()
        let (driver, attempts) = (driver, attempts.withLock { $0.values.compactMap { $0 } })
        driver.post { machine, now in
            machine.release(now: now)
            return nil
        }
        Thread {
            driver.stop()
            for task in attempts { task.cancel() }
        }.start()
    }

    /// Ends the queue: accepts and begins nothing more, and waits for attempts in flight.
    ///
    /// - Parameter deadline: how long to wait for attempts in flight, and for handlers. The next process sends
    ///   unanswered requests again, and delivers outcomes that no handler has finished with.
    public func close(deadline: Duration = .seconds(5)) async {
        post { machine, _ in
            machine.close()
            return nil
        }
        let end = ContinuousClock.now + deadline
        func wait(while isBusy: () -> Bool) async {
            while ContinuousClock.now < end, isBusy() { try? await Task.sleep(for: .milliseconds(5)) }
        }
        await wait {
            !attempts.withLock { $0.isEmpty } || state.withLock { $0.unhandled > 0 && !$0.awaitsHandler }
        }
        results.finish()
        firstHandler.finish()
        await wait { !state.withLock { $0.hasHandled } }
        // A handler that hangs is abandoned.
        handling.withLock { $0 }?.cancel()
        // Released before they are cancelled: an attempt that ends because of that has not failed.
        post { machine, now in
            machine.release(now: now)
            return nil
        }
        // The last commit may take long, so it must not block a thread that others need.
        let driver = driver
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            Thread {
                driver.stop()
                continuation.resume()
            }.start()
        }
        for task in attempts.withLock({ $0.values.compactMap { $0 } }) { task.cancel() }
        for waiter in state.withLock({ $0.waiters.close() }) { waiter.end(.failure(QueueError.closed)) }
        background?.close()
        observers.close()
    }

    // MARK: What an application does

    /// Makes a token for a request that the owner of the machine appends.
    package func makeToken() -> RequestToken { tokens.next() }

    /// See ``APIClientQueuing/append(_:)``.
    @discardableResult
    public func append(_ request: NewRequest) async throws(QueueError) -> RequestToken {
        let token = tokens.next()
        let (outcome, others) = await withCheckedContinuation {
            (continuation: CheckedContinuation<(Result<QueueMachine.Appended, QueueError>, QueueAnswers?), Never>) in
            let isPosted = post { machine, now in
                do throws(QueueError) {
                    let appended = try machine.append(request, token: token, now: now)
                    return QueueAnswer { failure, others in
                        if let failure {
                            continuation.resume(returning: (.failure(.unavailable(failure.message)), others))
                        } else {
                            continuation.resume(returning: (.success(appended), others))
                        }
                    }
                } catch {
                    return QueueAnswer { _, others in continuation.resume(returning: (.failure(error), others)) }
                }
            }
            if !isPosted { continuation.resume(returning: (.failure(.closed), nil)) }
        }
        // The thread that was woken up for this caller stays awake and gives the next answer, which saves another
        // wake-up.
        others?.giveNext()
        switch try outcome.get() {
        case .accepted(let token), .existing(let token): return token
        }
    }

    /// Appends a request of the unnamed tenant.
    @discardableResult
    public func append(_ config: APIRequestConfig) async throws(QueueError) -> RequestToken {
        try await append(NewRequest(config))
    }

    /// See ``APIClientQueuing/register(_:)``.
    public func register(_ handler: any APIClientQueueResponseHandler) {
        state.withLock { state in
            guard !state.handlers.contains(where: { $0 === handler }) else { return }
            state.handlers.append(handler)
            (state.keepsOutcomes, state.awaitsHandler) = (true, false)
        }
        // Outcomes from now on are kept for it, also if the queue was made without handlers.
        post { machine, _ in
            machine.keepOutcomes()
            return nil
        }
        firstHandler.yield()
    }

    /// See ``APIClientQueuing/unregister(_:)``.
    public func unregister(_ handler: any APIClientQueueResponseHandler) {
        state.withLock { state in state.handlers.removeAll { $0 === handler } }
    }

    /// See ``APIClientQueuing/merge(with:tenant:)``.
    public func merge(with identifier: EntityIdentifier, tenant: String) async throws {
        try await perform { (machine, now) throws in
            try machine.merge(identifier, tenant: tenant, now: now)
        }
    }

    /// Sets the session key of a tenant after a login; nil after a logout. ``SessionCredentials`` determines where it
    /// is kept.
    public func setSession(_ key: SessionKey?, for tenant: String = "") {
        guard let sessions else { preconditionFailure("this queue was made with a credential store of its caller's") }
        // A caller that sets it with every request would have it sealed and stored with every request.
        if sessions.set(key, for: tenant) { credentialsChanged(of: tenant) }
    }

    /// Has the machine take over the present state of a tenant's session keys, which have changed.
    package func credentialsChanged(of tenant: String) {
        post { [credentials] machine, _ in
            // Asked for here, in the order of the machine's events, so that a later state is never replaced by an earlier
            // one.
            if credentials.isStored { machine.storeSession(tenant, sealed: credentials.sealed(of: tenant)) }
            machine.setSession(tenant, present: credentials.hasKey(tenant))
            return nil
        }
    }

    /// The request that was accepted under an idempotency key, in any state; nil if the key is new or forgotten.
    ///
    /// Keys are forgotten after `QueueLimits.retention`. A caller that cannot make the same bytes twice, such as a
    /// sealed body, calls this before it appends.
    ///
    /// - Throws: `QueueStoreError`, `QueueError.unavailable(_:)`, `QueueError.closed`.
    public func request(idempotencyKey key: String, tenant: String = "") async throws -> QueuedRequest? {
        let (token, live) = try await perform { (machine, _) throws in
            let token = machine.token(idempotencyKey: key, tenant: tenant)
            return (token, token.flatMap { machine.request($0) })
        }
        if let live { return live }
        return try token.flatMap { try store.request($0) }
    }

    /// Waits until a request has ended, and returns its outcome with the backend's response.
    ///
    /// It does not matter when the request was appended, or by which process. The outcome of one that has ended comes
    /// from the store, until it is forgotten after `QueueLimits.retention`. To stop waiting, cancel the task.
    ///
    /// Requires handlers, or `QueueMachine.Settings.keepsOutcomes`; else no outcomes are kept.
    ///
    /// - Throws: `QueueActError.unknown`, `QueueActError.refused(_:)` if no outcomes are kept,
    ///   `QueueError.closed`, `QueueStoreError`, `CancellationError`.
    public func outcome(of token: RequestToken) async throws -> RequestOutcome {
        guard state.withLock({ $0.keepsOutcomes }) else {
            throw QueueActError.refused("The queue keeps no outcomes: it has neither handlers nor keepsOutcomes.")
        }
        let waiter = OutcomeWaiter()
        let isOpen = state.withLock { $0.waiters.add(waiter, for: token) }
        defer { state.withLock { $0.waiters.remove(waiter, for: token) } }
        // Checked after the waiter is registered: it gets an outcome from now on, and an earlier one is in the store.
        let isLive = await withCheckedContinuation { (continuation: CheckedContinuation<Bool, Never>) in
            let isPosted = post { machine, _ in
                let isLive = machine.request(token) != nil
                return QueueAnswer { _, _ in continuation.resume(returning: isLive) }
            }
            if !isPosted { continuation.resume(returning: false) }
        }
        if !isLive, let outcome = try stored(token) { return outcome }
        guard isOpen else { throw QueueError.closed }
        return try await waiter.value()
    }

    /// The stored outcome of a request; nil if the store has none yet.
    private func stored(_ token: RequestToken) throws -> RequestOutcome? {
        if let outcome = try store.outcome(token) { return outcome }
        guard let request = try store.request(token) else { throw QueueActError.unknown }
        // A row that could not be read has become dead without an outcome.
        return request.state.isFinal ? RequestOutcome(.failure(status: nil), cause: request.cause) : nil
    }

    /// Sends a request at once and waits for the answer, with the tenant's session key and the known remote identifiers
    /// of the entities that it names. Nothing is stored or repeated.
    ///
    /// - Throws: ``APIError``.
    public func send(
        _ config: APIRequestConfig, tenant: String = ""
    ) async throws(APIError) -> APIClientResponse<Data> {
        let names = await remoteIdentifiers(of: config.references, tenant: tenant)
        var key: BackgroundWork.Key?
        if config.background, let background {
            let number = BackgroundWork.Key.direct(.random(in: .min ... .max))
            background.begin(number)
            key = number
        }
        defer { if let key { background?.end(key) } }
        return try await client.send(config, session: sessions?.key(of: tenant), names: names)
    }

    /// Reports whether there is a network, as the system reports it to the application.
    ///
    /// Without one, requests wait and no attempt is counted. Once there is one, they are sent at once. A queue begins
    /// with the assumption that there is one.
    public func setReachable(_ isReachable: Bool) {
        post { [weak self] machine, now in
            guard machine.isReachable != isReachable else { return nil }
            machine.setReachable(isReachable, now: now)
            self?.emit(.reachable(isReachable))
            return nil
        }
    }

    /// Waits until no request is in flight, none can be sent now, and the outcomes of those that were in flight are
    /// stored. Returns early if the task is cancelled.
    ///
    /// A task of the system that refreshes an application in the background is done then. Requests may still wait for a
    /// pause, a login or a network.
    public func waitUntilIdle() async {
        while !Task.isCancelled {
            do {
                if try await perform({ (machine, _) throws in machine.isIdle }) { return }
            } catch QueueError.unavailable {
                // Outcomes are stored with the next commit that succeeds.
            } catch {
                return
            }
            try? await Task.sleep(for: .milliseconds(10))
        }
    }

    // MARK: Events

    /// The events of the queue from now on. Each value that this returns observes on its own.
    public var events: QueueEvents { observers.add() }

    /// Whether anything is done with events.
    private var isObserved: Bool { watch != nil || client.logHandler != nil || !observers.isEmpty }

    private func emit(_ event: QueueEvent) {
        watch?(event)
        observers.send(event)
        guard let log = client.logHandler else { return }
        func note(_ request: APIClientQueueRequest, _ step: APIClientLogEntry.Step) {
            log(APIClientLogEntry(client, request.wrapped.config, token: request.token, step))
        }
        switch event {
        case .appended(let request): note(request, .appended)
        case .sent(let request): note(request, .sent)
        case .answered(let request, let reply): note(request, .init(reply))
        case .ended(let request, let outcome): note(request, .ended(outcome.state, cause: outcome.cause))
        case .refused, .reachable, .backgroundTimeEnded, .store, .missed: break
        }
    }

    // MARK: The driver

    @discardableResult
    func post(_ event: @escaping MachineEvent) -> Bool { driver.post(event) }

    func perform<Value: Sendable>(
        _ body: @escaping @Sendable (inout QueueMachine, QueueTime) throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Value, any Error>) in
            let isPosted = post { machine, now in
                let outcome = Result { try body(&machine, now) }
                return QueueAnswer { failure, _ in
                    if let failure {
                        continuation.resume(throwing: QueueError.unavailable(failure.message))
                    } else {
                        continuation.resume(with: outcome)
                    }
                }
            }
            if !isPosted { continuation.resume(throwing: QueueError.closed) }
        }
    }

    /// Reads from the machine. Unlike ``perform(_:)`` it waits for no commit.
    ///
    /// - Returns: nil if the queue is closed.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (inout QueueMachine, QueueTime) -> Value
    ) async -> Value? {
        await withCheckedContinuation { (continuation: CheckedContinuation<Value?, Never>) in
            let isPosted = post { machine, now in
                continuation.resume(returning: body(&machine, now))
                return nil
            }
            if !isPosted { continuation.resume(returning: nil) }
        }
    }

    /// Does what a batch allows. Called after each commit, in the order of the commits.
    private func act(on batch: QueueBatch, _ answers: QueueAnswers) {
        let isObserved = isObserved
        if isObserved {
            for case .insert(let request, _) in batch.changes { emit(.appended(APIClientQueueRequest(request))) }
        }
        guard !batch.dispatches.isEmpty || !batch.results.isEmpty || !batch.withdrawn.isEmpty else { return }
        if isObserved { for dispatch in batch.dispatches { emit(.sent(APIClientQueueRequest(dispatch.request))) } }
        // Before any earlier attempt ends its own, so that one task of the system covers both.
        if let background {
            for dispatch in batch.dispatches where dispatch.request.config.background {
                background.begin(.attempt(dispatch.lease))
            }
            for lease in batch.withdrawn { background.end(.attempt(lease)) }
        }
        let delivered = deliversOutcomes ? batch.results.count { $0.isKept } : 0
        let (waiters, isBehind) = state.withLock { state in
            state.unhandled += delivered
            return (state.waiters.take(batch.results), state.unhandled > Self.backlog)
        }
        // Noted before its task is known, because an attempt may have ended by then.
        let withdrawn = attempts.withLock { attempts in
            for dispatch in batch.dispatches { attempts.updateValue(nil, forKey: dispatch.lease) }
            return batch.withdrawn.compactMap { attempts.removeValue(forKey: $0) ?? nil }
        }
        // Outside the lock: a network client's cancellation handler runs at once, on this thread.
        for task in withdrawn { task.cancel() }
        for (waiter, outcome) in waiters { waiter.end(.success(outcome)) }
        for result in batch.results {
            if isObserved { emit(.ended(APIClientQueueRequest(result.request), result.outcome)) }
            if deliversOutcomes, result.isKept { results.yield(result) }
        }
        if isBehind {
            post { [weak self] machine, _ in
                // Handlers may have caught up meanwhile, and then no later event would end the pause.
                if self?.isBehind == true { machine.isPaused = true }
                return nil
            }
        }
        // Callers that have appended continue while the attempts are begun.
        answers.giveNext()
        begin(batch.dispatches)
    }

    /// Whether handlers have not caught up since attempts were paused; see ``handle(_:)``, which ends the pause.
    private var isBehind: Bool { state.withLock { $0.unhandled > Self.backlog / 2 } }

    private func begin(_ dispatches: [QueueBatch.Dispatch]) {
        let begun = dispatches.map { dispatch in
            Task.beginning(on: driver.taskExecutor) { [weak self] in await self?.attempt(dispatch) }
        }
        attempts.withLock { attempts in
            for (dispatch, task) in zip(dispatches, begun) {
                // An attempt that was withdrawn before its task was known is cancelled now; one that has ended ignores
                // that.
                if attempts[dispatch.lease] != nil { attempts[dispatch.lease] = task } else { task.cancel() }
            }
        }
    }

    /// Number of attempts that may not have ended.
    var attempting: Int { attempts.withLock { $0.count } }

    private func attempt(_ dispatch: QueueBatch.Dispatch) async {
        let attempt = Attempt(client: client, dispatch: dispatch, credentials: credentials)
        guard let (answer, sent) = await attempt.run() else { return withhold(dispatch) }
        if isObserved { emit(.answered(APIClientQueueRequest(dispatch.request), answer)) }
        let reply = answer.keeping(client.keepsHeader)
        var refused: SessionKey?
        // A host that did not get the key has not refused it.
        if case .failure(.status(401), _, _, _) = reply, dispatch.request.config.includeSessionKey { refused = sent }
        var metadata: [UInt8]?
        if case .success = reply, let sent {
            metadata = credentials.metadata(of: APIClientQueueRequest(dispatch.request), sentWith: sent)
        }
        post { [weak self, credentials, refused, metadata] machine, now in
            let (id, lease, tenant) = (dispatch.id, dispatch.lease, dispatch.request.tenant)
            self?.attempts.withLock { $0[lease] = nil }
            // Random bits cost a system call, so they are drawn only if a pause is needed.
            var random: UInt64 = 0
            if case .failure = reply { random = .random(in: .min ... .max) }
            // Decided here, in the order of the machine's events: that of a later login comes later.
            let next = refused.map { credentials.refused($0, for: APIClientQueueRequest(dispatch.request)) } ?? .fails
            if refused != nil, credentials.isStored {
                machine.storeSession(tenant, sealed: credentials.sealed(of: tenant))
            }
            if let metadata { machine.setMetadata(metadata, of: id, lease: lease) }
            machine.reply(id, lease: lease, reply, waitsForLogin: next != .fails, now: now, random: random)
            var refusal: QueueEvent?
            switch next {
            case .fails: break
            case .isSentAgain: machine.setSession(tenant, present: true)
            case .waits:
                guard !machine.hasSession(tenant) else { break }
                refusal = .refused(tenant: tenant, reply, machine.waitingForSession(of: tenant))
            }
            guard refusal != nil || self?.background != nil else { return nil }
            // After the commit: before it, the outcome could be lost with the application.
            return QueueAnswer { [weak self, refusal] _, _ in
                if let refusal { self?.emit(refusal) }
                self?.background?.end(.attempt(lease))
            }
        }
    }

    /// Returns an attempt that has no session key: its tenant has logged out, or its key was refused, since it began.
    private func withhold(_ dispatch: QueueBatch.Dispatch) {
        post { [weak self, credentials] machine, now in
            self?.attempts.withLock { $0[dispatch.lease] = nil }
            // The tenant may have logged in again.
            let hasKey = credentials.key(for: APIClientQueueRequest(dispatch.request)) != nil
            machine.withhold(dispatch.id, lease: dispatch.lease, hasSession: hasKey, now: now)
            guard self?.background != nil else { return nil }
            return QueueAnswer { [weak self] _, _ in self?.background?.end(.attempt(dispatch.lease)) }
        }
    }

    private func handle(_ result: QueueBatch.Result) async {
        let handlers = state.withLock { $0.handlers }
        let request = APIClientQueueRequest(result.request)
        let outcome = result.outcome.clientResult(client)
        if let deliveries = result.deliveries {
            // Stored before handlers get it: if they end the process, the delivery of this outcome alone has been
            // counted.
            let number = result.request.id
            while true {
                do {
                    try await perform { (machine, _) throws in machine.deliver(number, times: deliveries) }
                    break
                } catch QueueError.unavailable {
                    try? await Task.sleep(for: .milliseconds(QueueEngine.pause))
                } catch {
                    // The queue is closed: the next process delivers it.
                    return
                }
            }
        }
        for handler in handlers { await handler.clientQueue(self, didReceiveResponse: outcome, for: request) }
        let catchesUp = state.withLock { state in
            state.unhandled -= 1
            return state.unhandled == Self.backlog / 2
        }
        let (id, isOld) = (result.request.id, result.deliveries != nil)
        post { machine, _ in
            if isOld || machine.deliversOutcomes { machine.handled(id) }
            if catchesUp { machine.isPaused = false }
            return nil
        }
    }
}

/// Carries the store's failures from a driver to the queue that is made after it.
package final class StoreEvents: Sendable {
    private let send = Mutex<@Sendable (QueueStoreError?) -> Void>({ _ in })

    func start(_ send: @escaping @Sendable (QueueStoreError?) -> Void) { self.send.withLock { $0 = send } }

    func send(_ error: QueueStoreError?) { send.withLock { $0 }(error) }
}
