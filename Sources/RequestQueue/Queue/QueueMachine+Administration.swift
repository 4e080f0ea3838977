// Logins, and the actions of an operator.

/// Why an action on a request was refused. A refusal changes nothing.
public enum QueueActError: Error, Hashable, Sendable, CustomStringConvertible {
    case unknown
    case finished(RequestState)
    case notDead
    /// Refused for this reason, in words.
    case refused(String)

    /// For people and logs.
    public var description: String {
        switch self {
        case .unknown: "There is no such request."
        case .finished(let state): "The request is \(state.name) already."
        case .notDead: "Only a dead request can be sent again or removed; this one is still in the queue."
        case .refused(let cause): cause
        }
    }
}

extension QueueMachine {
    /// Notes whether a tenant has a session key. Without one, the requests that need it wait.
    public mutating func setSession(_ tenant: String, present: Bool) {
        let tenant = tenants.add(tenant)
        tenant.hasSession = present
        guard present else {
            if tenant.isQuiet { tenants.remove(tenant) }
            return
        }
        for lane in tenant.waitingForSession.take() { wake(lane) }
    }

    /// Stores the sealed session key of a tenant for the next process, or removes it if nil.
    public mutating func storeSession(_ tenant: String, sealed: [UInt8]?) {
        steps.append(.change(.session(tenant: tenant, sealed: sealed), nil))
    }

    /// Whether the tenant has a session key.
    public func hasSession(_ tenant: String) -> Bool { tenants[tenant]?.hasSession == true }

    /// Cancels a request. The backend may still do one that is in flight.
    ///
    /// - Parameters:
    ///   - token: the request.
    ///   - cause: in words; nil if its sender cancels it.
    ///   - now: the time.
    public mutating func cancel(
        _ token: RequestToken, cause: String? = nil, now: QueueTime
    ) throws(QueueActError) {
        let entry = try live(token)
        if let lease = entry.request.lease {
            entry.host.breaker.withdrew(now: now.uptime)
            steps.append(.withdraw(lease))
        }
        var words = cause ?? "It was cancelled."
        if entry.request.state == .inFlight || entry.request.doubts > 0 { words += " The backend may have done it." }
        end(entry, RequestOutcome(.aborted, cause: words), now: now)
    }

    /// Stores an uncommitted insertion even if its request ends first, so that its outcome can be looked up.
    mutating func settle(_ entry: QueueEntry) {
        guard let form = fresh.removeValue(forKey: entry.id) else { return }
        for (place, step) in steps.enumerated() {
            if case .insert(entry.id) = step {
                steps[place] = .change(.insert(entry.request, form: form), nil)
                return
            }
        }
    }

    /// Replaces the data of the application in a request in flight. Ignored if the lease has ended.
    ///
    /// From then on the idempotency key stands for the request with this data.
    package mutating func setMetadata(_ metadata: [UInt8], of id: UInt64, lease: UInt64) {
        guard let entry = entries[id], entry.request.state == .inFlight, entry.request.lease == lease,
            entry.request.metadata != metadata
        else { return }
        entry.request.metadata = metadata
        let form = RequestForm.encode(entry.request)
        keys[KeyName(entry.request)] = KeyRecord(
            token: entry.request.token, digest: RequestDigest(of: entry.request, form: form))
        steps.append(.change(.rewrite(id: id, form: form), nil))
    }

    /// Holds a request or releases it. After a release its age counts from now.
    public mutating func hold(_ token: RequestToken, _ isHeld: Bool, now: QueueTime) throws(QueueActError) {
        let entry = try live(token)
        guard entry.request.isHeld != isHeld else { return }
        entry.request.hold = isHeld ? 1 : -now.wall
        steps.append(.change(.hold(id: entry.id, isHeld, at: now.wall), nil))
        guard !isHeld else { return }
        renew(entry, now: now)
        wake(entry.lane)
    }

    /// Holds all requests of a tenant, present and future, or releases them.
    ///
    /// The hold is not stored: the caller repeats it after a restart. After a release the age of the requests counts
    /// from now, also after a restart.
    public mutating func hold(tenant: String, _ isHeld: Bool, now: QueueTime) {
        guard (tenants[tenant]?.isHeld ?? false) != isHeld else { return }
        let state = tenants.add(tenant)
        state.isHeld = isHeld
        guard !isHeld else { return }
        for entry in live(of: tenant) {
            renew(entry, now: now)
            wake(entry.lane)
            // One that is held itself ages from its own release.
            guard !entry.request.isHeld else { continue }
            entry.request.hold = -now.wall
            steps.append(.change(.hold(id: entry.id, false, at: now.wall), nil))
        }
        if state.isQuiet { tenants.remove(state) }
    }

    func isHeld(_ entry: QueueEntry) -> Bool {
        entry.request.isHeld || tenants[entry.request.tenant]?.isHeld == true
    }

    /// A summary of the live requests, for reports.
    public struct Census: Sendable, Equatable {
        /// Requests that are held, alone or with all of their tenant.
        public var held = 0
        /// Requests that wait for the next login of their tenant.
        public var withoutSession = 0
        /// Requests of which an attempt ended without an answer.
        public var doubtful = 0
        /// When the oldest request was accepted, in milliseconds since 1970.
        public var oldest: Int64?
        /// Ids of the first requests that are held after crashes, see ``QueueLimits/crashes``.
        public var heldAfterCrashes: [UInt64] = []
        /// Dead requests that are kept.
        public var deadLetters = 0

        /// Maximum length of ``heldAfterCrashes``.
        static let named = 10

        /// An empty census.
        public init() {}
    }

    /// Counts the requests that wait or are in flight.
    public func census() -> Census {
        var census = Census()
        census.deadLetters = deadLetters.count
        census.heldAfterCrashes = Array(
            entries.values.lazy.map(\.request).filter(isHeldAfterCrashes).map(\.id).sorted().prefix(Census.named))
        for entry in entries.values {
            if isHeld(entry) { census.held += 1 }
            if needsSession(entry) { census.withoutSession += 1 }
            if entry.request.doubts > 0 { census.doubtful += 1 }
            census.oldest = min(census.oldest ?? .max, entry.request.timestamp)
        }
        return census
    }

    /// The requests that wait for a login, of one tenant or of all, in the order of acceptance.
    public func waitingForSession(of tenant: String? = nil) -> [QueuedRequest] {
        let wanted = tenant.map { ExactText($0) }
        return entries.values.filter { (wanted == nil || ExactText($0.request.tenant) == wanted) && needsSession($0) }
            .map(\.request).sorted { $0.id < $1.id }
    }

    /// The request; nil if it does not wait for the next login of its tenant.
    public func waitingForSession(_ token: RequestToken) -> QueuedRequest? {
        tokens[token].flatMap { entries[$0] }.flatMap { needsSession($0) ? $0.request : nil }
    }

    private func needsSession(_ entry: QueueEntry) -> Bool {
        entry.request.state == .pending && entry.needsSession
            && tenants[entry.request.tenant]?.hasSession != true
    }

    /// Ends the pause of a request that waits for its next attempt.
    public mutating func hurry(_ token: RequestToken, now: QueueTime) throws(QueueActError) {
        let entry = try live(token)
        entry.notBefore = now.uptime
        wake(entry.lane)
    }

    /// Ends the pauses of all requests that wait for their next attempt.
    ///
    /// - Returns: the number of these requests.
    public mutating func hurryAll(now: QueueTime) -> Int {
        let paused = entries.values.filter { $0.request.state == .pending && $0.notBefore > now.uptime }
        for entry in paused {
            entry.notBefore = now.uptime
            wake(entry.lane)
        }
        return paused.count
    }

    /// Queues a dead request again, at its former position and with its idempotency key.
    ///
    /// - Parameters:
    ///   - request: as the store returns it.
    ///   - now: the time.
    public mutating func revive(_ request: QueuedRequest, now: QueueTime) throws(QueueActError) {
        guard entries[request.id] == nil, request.state == .dead else { throw .notDead }
        // The insertion of one that has ended may have been undone since.
        guard deadLetters[request.id] != nil else { throw .unknown }
        var revived = request
        revived.apply(.init(notBefore: 0, attempts: 0, crashes: 0, doubts: request.doubts, cause: nil))
        revived.hold = 0
        revived.timestamp = now.wall
        do throws(QueueError) { try checkBounds(revived) } catch { throw .refused("\(error)") }
        for reference in revived.creates {
            let name = TenantReference(tenant: revived.tenant, reference: reference)
            guard creators[name] == nil, map[revived.tenant, reference] == nil else {
                throw .refused("Another request creates \(reference) by now.")
            }
        }
        if let dead = revived.dependsOn.first(where: { deadLetters[$0] != nil }) {
            throw .refused("It depends on request \(dead), which is dead. Send that one again first.")
        }
        let blockers = liveBlockers(of: revived)
        if let missing = withoutCreator(blockers, tenant: revived.tenant) {
            throw .refused("It names \(missing), which no request in the queue creates.")
        }
        ended[revived.token] = nil
        forgetEnd(of: revived.id)
        if unhandled.remove(revived.id) != nil { superseded[revived.id, default: 0] += 1 }
        steps.append(.change(.revive(id: revived.id, at: now.wall), nil))
        counts.revived += 1
        let entry = entry(revived, deadline: now.uptime.adding(limits.age), blockers: blockers)
        entry.isParked = settings.isCarried
        enter(entry)
    }

    /// Removes a dead request, with all that is stored of it.
    public mutating func purge(_ id: UInt64) throws(QueueActError) {
        guard deadLetters[id] != nil else { throw entries[id] == nil ? .unknown : .notDead }
        bury(id)
    }

    /// Prepares for the end of the process: requests in flight wait for the next process, and later answers are
    /// ignored.
    public mutating func release(now: QueueTime) {
        isClosed = true
        for entry in entries.values where entry.request.state == .inFlight {
            let attempts = entry.request.attempts
            requeue(
                entry, isBegun: true,
                cause: "Attempt \(attempts): the process was stopped before the answer came.")
        }
    }

    /// What a request that was accepted earlier waits for now.
    func liveBlockers(of request: QueuedRequest) -> Set<QueueEntry.Blocker> {
        var blockers = Set(request.dependsOn.filter { entries[$0] != nil }.map(QueueEntry.Blocker.request))
        for reference in request.config.references where map[request.tenant, reference] == nil {
            blockers.insert(.reference(reference))
        }
        return blockers
    }

    /// An entity that a request would wait for in vain; nil if there is none.
    private func withoutCreator(_ blockers: Set<QueueEntry.Blocker>, tenant: String) -> EntityReference? {
        guard settings.createsAllEntities else { return nil }
        for case .reference(let reference) in blockers
        where creators[TenantReference(tenant: tenant, reference: reference)] == nil {
            return reference
        }
        return nil
    }

    private func live(_ token: RequestToken) throws(QueueActError) -> QueueEntry {
        if let id = tokens[token], let entry = entries[id] { return entry }
        guard let ending = ended[token] else { throw .unknown }
        throw .finished(ending.state)
    }
}
