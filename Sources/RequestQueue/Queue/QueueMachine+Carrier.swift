// For whoever sends over a connection that others use as well, as chat protocols do: numbers are needed before there are bytes, what
// was handed out may come back unsent, and that it has arrived may be learnt from others than who sent it.

extension QueueMachine {
    /// A number that no request has had, for one that is to be appended with it, or for nobody.
    ///
    /// - Parameter least: where numbers mean something, such as a time, the least that it may be.
    public mutating func reserveID(atLeast least: UInt64 = 0) -> UInt64 {
        let id = max(nextID, least)
        nextID = id + 1
        return id
    }

    /// The highest number that a request has, or had, or may be given by who reserved it.
    public var highestID: UInt64 { nextID - 1 }

    /// What has become of a request is known, by an answer or from elsewhere: it ends so, whether it waits or is under way. One
    /// that has ended already stays as it ended.
    ///
    /// - Parameter identifiers: what the backend calls entities. One that cannot be is not learnt.
    /// - Returns: it, as it ended; nothing where it had ended before.
    @discardableResult
    public mutating func conclude(
        _ token: RequestToken, _ outcome: RequestOutcome, identifiers: [EntityIdentifier] = [], now: QueueTime
    ) -> QueuedRequest? {
        guard let id = tokens[token], let entry = entries[id] else { return nil }
        settle(entry)
        if entry.request.state == .inFlight { entry.host.breaker.withdrew(now: now.uptime) }
        let ended = end(entry, outcome, now: now)
        for identifier in identifiers { try? merge(identifier, tenant: ended.tenant, now: now) }
        return ended
    }

    /// Takes back what was appended since the last turn, as if it had never been.
    public mutating func retract(_ token: RequestToken) {
        guard let id = tokens[token], fresh.removeValue(forKey: id) != nil else { return }
        steps.removeAll { step in
            if case .insert(id) = step { true } else { false }
        }
        _ = remove(id)
        counts.appended -= 1
    }

    /// Requests of a tenant that wait or are under way.
    public func depth(of tenant: String) -> Int { tenants[tenant]?.requests ?? 0 }

    /// The same, in the order in which they were accepted.
    public func requests(of tenant: String) -> [QueuedRequest] {
        live(of: tenant).map(\.request).sorted { $0.id < $1.id }
    }

    /// Who was to send a request will not. It waits again, at its place, until its tenant asks for it; nothing happens to one that
    /// waits.
    ///
    /// - Parameter isBegun: whether some of it may have left; else the attempt is not counted.
    public mutating func giveBack(_ token: RequestToken, isBegun: Bool, cause: String, now: QueueTime) {
        guard let id = tokens[token], let entry = entries[id], entry.request.state == .inFlight else { return }
        guard !isBegun || entry.request.attempts < limits.attempts else {
            let words = "\(cause) It was tried \(entry.request.attempts) times. The backend may have done it."
            end(entry, RequestOutcome(.failure(status: nil), cause: words), now: now)
            return
        }
        entry.host.breaker.withdrew(now: now.uptime)
        requeue(entry, isBegun: isBegun, cause: cause)
        entry.isParked = true
    }

    /// A tenant asks for what waits: what was given back, revived, or left by the process before is handed out from now on.
    public mutating func unpark(_ tenant: String) {
        for entry in live(of: tenant) where entry.isParked {
            entry.isParked = false
            wake(entry.lane)
        }
    }

    /// Whoever has asked is gone: what waits goes on waiting.
    public mutating func park(_ tenant: String) {
        for entry in live(of: tenant) where entry.request.state == .pending { entry.isParked = true }
    }

    func live(of tenant: String) -> [QueueEntry] {
        guard let state = tenants[tenant], state.requests > 0 else { return [] }
        return entries.values.filter { $0.lane.tenant === state }
    }

    /// Takes a request out of its flight.
    mutating func requeue(_ entry: QueueEntry, isBegun: Bool, cause: String) {
        settle(entry)
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
