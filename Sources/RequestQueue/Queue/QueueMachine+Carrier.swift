// Hooks for connection-oriented senders, as in chat protocols, which assign ids themselves: return unsent requests,
// complete a request that another connection has seen arrive.

extension QueueMachine {
    /// The highest id that was used.
    public var highestID: UInt64 { nextID - 1 }

    /// Ends a request whose outcome is known, by an answer or otherwise, whether it waits or is in flight. One that has
    /// ended already stays as it ended.
    ///
    /// - Parameters:
    ///   - token: the request.
    ///   - outcome: how it ended.
    ///   - identifiers: identifiers of entities. One that conflicts is not merged.
    ///   - now: the time.
    /// - Returns: the request, as it ended; nil if it had ended before.
    @discardableResult
    public mutating func conclude(
        _ token: RequestToken, _ outcome: RequestOutcome, identifiers: [EntityIdentifier] = [], now: QueueTime
    ) -> QueuedRequest? {
        guard let id = tokens[token], let entry = entries[id] else { return nil }
        if entry.request.state == .inFlight { entry.host.breaker.withdrew(now: now.uptime) }
        let ended = end(entry, outcome, now: now)
        for identifier in identifiers { try? merge(identifier, tenant: ended.tenant, now: now) }
        return ended
    }

    /// Takes back a request that was appended since the last turn, as if it was never appended, also if it has ended.
    public mutating func retract(_ token: RequestToken) {
        guard let id = id(of: token), steps.contains(where: { $0.insertion == id }) else { return }
        fresh[id] = nil
        steps.removeAll { $0.request == id }
        _ = disown(id)
        counts.appended -= 1
    }

    /// Removes a request whose insertion was not committed although its batch was, as if it was never appended, also if
    /// it has ended. Requests that depend on it fail.
    public mutating func discard(_ token: RequestToken, now: QueueTime) {
        guard let id = id(of: token) else { return }
        let entry = entries[id]
        if let entry, entry.request.state == .inFlight { entry.host.breaker.withdrew(now: now.uptime) }
        steps.removeAll { $0.request == id }
        _ = disown(id)
        counts.appended -= 1
        counts.refused += 1
        if let entry { failDependants(of: entry.request, "It could not be stored.", now: now) }
    }

    /// Number of requests of a tenant that wait or are in flight.
    public func depth(of tenant: String) -> Int { tenants[tenant]?.requests ?? 0 }

    /// The requests of a tenant that wait or are in flight, in the order in which they were accepted.
    public func requests(of tenant: String) -> [QueuedRequest] {
        live(of: tenant).map(\.request).sorted { $0.id < $1.id }
    }

    /// Returns a request that its sender will not send.
    ///
    /// It waits again, at its place, until its tenant asks for it. Changes nothing for a request that waits already.
    ///
    /// - Parameters:
    ///   - token: the request.
    ///   - isBegun: whether some of it may have been sent; if false, the attempt is not counted, however often the
    ///     connection fails. Of attempts that are counted, a process makes ``QueueLimits/attempts`` at most.
    ///   - cause: why it was not sent, in words.
    ///   - now: the time.
    public mutating func giveBack(_ token: RequestToken, isBegun: Bool, cause: String, now: QueueTime) {
        guard let id = tokens[token], let entry = entries[id], entry.request.state == .inFlight else { return }
        if isBegun { entry.verdicts += 1 }
        guard entry.verdicts < limits.attempts else {
            let words = "\(cause) It was tried \(entry.request.attempts) times. The backend may have done it."
            end(entry, RequestOutcome(.failure(status: nil), cause: words), now: now)
            return
        }
        entry.host.breaker.withdrew(now: now.uptime)
        requeue(entry, isBegun: isBegun, cause: cause)
        entry.isParked = true
    }

    /// Hands out the waiting requests of a tenant from now on: those given back, revived, or left by the previous
    /// process.
    public mutating func unpark(_ tenant: String) {
        for entry in live(of: tenant) where entry.isParked {
            entry.isParked = false
            wake(entry.lane)
        }
    }

    /// Stops handing out the waiting requests of a tenant.
    public mutating func park(_ tenant: String) {
        for entry in live(of: tenant) where entry.request.state == .pending { entry.isParked = true }
    }

    func live(of tenant: String) -> [QueueEntry] {
        guard let state = tenants[tenant], state.requests > 0 else { return [] }
        return entries.values.filter { $0.lane.tenant === state }
    }

    /// Makes a request in flight wait again.
    mutating func requeue(_ entry: QueueEntry, isBegun: Bool, cause: String) {
        goBack(entry)
        let request = entry.request
        let wait = QueueChange.Wait(
            notBefore: 0, attempts: request.attempts - (isBegun ? 0 : 1), crashes: request.crashes,
            doubts: request.doubts + (isBegun ? 1 : 0), cause: isBegun ? cause : request.cause)
        entry.request.apply(wait)
        entry.notBefore = 0
        steps.append(.change(.requeue(id: request.id, lease: request.lease ?? 0, wait), nil))
    }
}
