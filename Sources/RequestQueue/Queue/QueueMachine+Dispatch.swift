// Chooses what is sent next: lanes keep their order, tenants take turns, hosts and sessions may block.

import DequeModule
import HeapModule

extension QueueMachine {
    /// Begins all attempts that may begin now.
    mutating func dispatch(now: QueueTime) {
        guard !isClosed, !isPaused, isReachable else { return }
        while let timer = timers.min, timer.at <= now.uptime {
            timers.removeMin()
            if timer.lane.timer == timer.at { timer.lane.timer = nil }
            wake(timer.lane)
        }
        guard !dispatchSuspect(now: now) else { return }
        while inFlight < limits.inFlight, let tenant = ring.popFirst() {
            tenant.leaveRing()
            guard tenant.inFlight < limits.inFlightPerTenant, let lane = tenant.nextLane() else { continue }
            switch candidate(in: lane, now: now) {
            case .send(let entry, let place): begin(entry, at: place, now: now)
            case .wait(let until): setTimer(lane, until)
            case .nothing: if lane.isQuiet { dissolve(lane) }
            }
            joinRing(tenant)
        }
    }

    /// Milliseconds for which nothing else begins after a request that was in flight at a crash.
    static let trialTime: Int64 = 1_000

    /// Begins the next request that was in flight when the last process ended, alone: if the process ends again, this
    /// request is the cause.
    ///
    /// - Returns: whether the others have to wait.
    private mutating func dispatchSuspect(now: QueueTime) -> Bool {
        if let trial {
            let request = entries[trial.dispatch]?.request
            if request?.lease == trial.lease, request?.state == .inFlight, now.uptime < trial.until { return true }
            self.trial = nil
        }
        suspects.removeAll { entries[$0]?.request.state != .pending }
        for (index, id) in suspects.enumerated() {
            // A suspect that waits for something else does not delay the others.
            guard let entry = entries[id], case .send(let next, let place) = candidate(in: entry.lane, now: now),
                next === entry
            else { continue }
            suspects.remove(at: index)
            begin(entry, at: place, now: now)
            trial = (id, entry.request.lease ?? 0, now.uptime + Self.trialTime)
            return true
        }
        return false
    }

    /// Sets the timer of a lane, unless an earlier one is set.
    private mutating func setTimer(_ lane: LaneState, _ at: Int64) {
        if let timer = lane.timer, timer <= at { return }
        lane.timer = at
        timers.insert(Timer(at: at, lane: lane))
    }

    /// Notes that a lane may have something to send.
    mutating func wake(_ lane: LaneState) {
        guard !lane.isReady else { return }
        guard let head = lane.order.first, let entry = entries[head] else {
            if lane.isQuiet { dissolve(lane) }
            return
        }
        lane.tenant.add(lane, isBackground: entry.isBackground)
        joinRing(lane.tenant)
    }

    /// Removes an empty lane, and its tenant if that has nothing left.
    private mutating func dissolve(_ lane: LaneState) {
        guard !lane.isGone else { return }
        lane.isGone = true
        lanes[lane.id] = nil
        if lane.tenant.isQuiet { tenants.remove(lane.tenant) }
    }

    /// Removes a host without requests and without failures.
    mutating func dissolve(_ host: HostState) {
        guard host.isQuiet, !host.isGone else { return }
        host.isGone = true
        hosts[host.name] = nil
    }

    mutating func joinRing(_ tenant: TenantState) {
        if tenant.joinRing(limits.inFlightPerTenant) { ring.append(tenant) }
    }

    private enum Candidate {
        /// - Parameter place: its place in the lane.
        case send(QueueEntry, place: Int)
        /// Nothing to send before this time, unless an event wakes the lane.
        case wait(Int64)
        /// Nothing to send until an event wakes the lane.
        case nothing
    }

    /// The first request of a lane that may be sent: a barrier only at the head, others up to the first barrier.
    ///
    /// Later ones may be in flight before a request at the head: one that was dead has come back to its place.
    private func candidate(in lane: LaneState, now: QueueTime) -> Candidate {
        guard lane.inFlight < limits.inFlightPerLane, !lane.hasBarrier else { return .nothing }
        var earliest: Int64?
        for place in lane.begun..<lane.begun + min(lane.order.count - lane.begun, limits.lookahead) {
            guard let entry = entries[lane.order[place]] else { continue }
            if entry.isBarrier, place > 0 || lane.inFlight > 0 { break }
            if entry.request.state == .pending {
                switch obstacle(entry, now: now) {
                case .none: return .send(entry, place: place)
                case .until(let time): earliest = min(earliest ?? time, time)
                case .event: break
                }
            }
            if entry.isBarrier { break }
        }
        return earliest.map(Candidate.wait) ?? .nothing
    }

    /// The remote identifiers of the entities that a request names. All are known, or it would still have blockers.
    private func names(_ entry: QueueEntry) -> [EntityReference: String] {
        var names: [EntityReference: String] = [:]
        for reference in entry.references { names[reference] = map[entry.request.tenant, reference] }
        return names
    }

    private enum Obstacle {
        case none
        case until(Int64)
        case event
    }

    private func obstacle(_ entry: QueueEntry, now: QueueTime) -> Obstacle {
        guard !entry.isParked, settings.isCarried || !isHeld(entry), entry.blockers.isEmpty else { return .event }
        guard entry.notBefore <= now.uptime else { return .until(entry.notBefore) }
        let (lane, host) = (entry.lane, entry.host)
        if entry.needsSession, !lane.tenant.hasSession {
            lane.tenant.waitingForSession.insert(lane)
            return .event
        }
        guard host.breaker.allows(now: now.uptime) else {
            // Waits until that time, or until an answer shows that the host works.
            host.waiting.insert(lane)
            return .until(host.breaker.opens ?? now.uptime)
        }
        if let until = host.pause(of: lane.tenant, now: now.uptime) { return .until(until) }
        // If others use the host, a tenant has no more requests in flight than it leaves slots free, so that requests
        // of some tenants that hang leave room for the others.
        let share = host.requests > lane.tenant.requests ? lane.tenant.inFlight : 0
        guard host.inFlight + share < limits.inFlightPerHost else {
            host.waiting.insert(lane)
            return .event
        }
        return .none
    }

    // MARK: Flight

    private mutating func begin(_ entry: QueueEntry, at place: Int, now: QueueTime) {
        let lane = entry.lane
        begin(entry, now: now)
        if place == lane.begun, !entry.isBarrier { lane.begun += 1 }
        wake(lane)
    }

    private mutating func begin(_ entry: QueueEntry, now: QueueTime) {
        let lease = nextLease
        nextLease &+= 1
        entry.request.state = .inFlight
        entry.waitsForNetwork = false
        entry.wasConnected = false
        entry.request.attempts += 1
        entry.request.lease = lease
        inFlight += 1
        entry.lane.inFlight += 1
        if entry.isBarrier { entry.lane.hasBarrier = true }
        entry.lane.tenant.inFlight += 1
        entry.host.inFlight += 1
        entry.host.breaker.began(now: now.uptime)
        startLease(of: entry, lease, now: now)
        steps.append(
            .lease(QueueBatch.Dispatch(id: entry.id, lease: lease, request: entry.request, names: names(entry))))
    }

    /// Reverses the counts of `begin` for an entry in flight.
    mutating func leaveFlight(_ entry: QueueEntry) {
        inFlight -= 1
        entry.lane.inFlight -= 1
        if entry.isBarrier { entry.lane.hasBarrier = false }
        entry.lane.tenant.inFlight -= 1
        joinRing(entry.lane.tenant)
        entry.host.inFlight -= 1
        wakeWaiting(for: entry.host)
        trimLeases()
    }

    /// Like ``leaveFlight(_:)``, for an entry that waits again at its place.
    mutating func goBack(_ entry: QueueEntry) {
        leaveFlight(entry)
        entry.lane.begun = 0
    }

    /// Undoes a dispatch whose lease could not be committed. Nothing has been sent.
    mutating func undo(_ dispatch: QueueBatch.Dispatch) {
        guard let entry = entries[dispatch.id], entry.request.lease == dispatch.lease else { return }
        goBack(entry)
        entry.request.state = .pending
        entry.request.attempts -= 1
        entry.request.lease = nil
        entry.host.breaker.withdrew(now: 0)
        if trial?.lease == dispatch.lease {
            trial = nil
            suspects.insert(dispatch.id, at: 0)
        }
        wake(entry.lane)
    }

    mutating func wakeWaiting(for host: HostState) {
        for lane in host.waiting.take() { wake(lane) }
    }
}
