// Who is next: lanes keep the order, tenants take turns, hosts and sessions hold back.

import DequeModule
import HeapModule

extension QueueMachine {
    /// Begins everything that may begin now.
    mutating func dispatch(now: QueueTime) {
        guard !isClosed, !isPaused else { return }
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

    /// Milliseconds for which nothing else begins beside a request that was under way at a crash.
    static let trialTime: Int64 = 1_000

    /// Begins the next request that was under way when the last process ended, alone: if the process ends again, that was it.
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
            // One that waits for something else holds up nobody.
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

    /// One timer a lane is enough, the earliest.
    private mutating func setTimer(_ lane: LaneState, _ at: Int64) {
        if let timer = lane.timer, timer <= at { return }
        lane.timer = at
        timers.insert(Timer(at: at, lane: lane))
    }

    /// A lane may have something to send.
    mutating func wake(_ lane: LaneState) {
        guard !lane.isReady else { return }
        guard let head = lane.order.first, let entry = entries[head] else {
            if lane.isQuiet { dissolve(lane) }
            return
        }
        lane.tenant.add(lane, isBackground: entry.isBackground)
        joinRing(lane.tenant)
    }

    /// Forgets a lane in which nothing is left, and a tenant without lanes.
    private mutating func dissolve(_ lane: LaneState) {
        guard !lane.isGone else { return }
        lane.isGone = true
        lanes[lane.id] = nil
        if lane.tenant.isQuiet { tenants.remove(lane.tenant) }
    }

    /// Forgets a host that nobody asks and that has done nothing wrong.
    mutating func dissolve(_ host: HostState) {
        guard host.isQuiet, !host.isGone else { return }
        host.isGone = true
        hosts[host.name] = nil
    }

    mutating func joinRing(_ tenant: TenantState) {
        if tenant.joinRing(limits.inFlightPerTenant) { ring.append(tenant) }
    }

    private enum Candidate {
        /// - Parameter place: where it stands in its lane.
        case send(QueueEntry, place: Int)
        /// Nothing before this time, if nothing happens.
        case wait(Int64)
        /// Nothing until something happens that wakes the lane.
        case nothing
    }

    /// The first request of a lane that may be sent: a barrier only at the head, others up to the first barrier.
    private func candidate(in lane: LaneState, now: QueueTime) -> Candidate {
        guard lane.inFlight < limits.inFlightPerLane else { return .nothing }
        var earliest: Int64?
        for place in lane.begun..<lane.begun + min(lane.order.count - lane.begun, limits.lookahead) {
            guard let entry = entries[lane.order[place]] else { continue }
            if entry.isBarrier, place > 0 { break }
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

    /// What the backend calls the entities of a request. All are known, or it would still have blockers.
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
            // Until then, or until an answer shows that the host works.
            host.waiting.insert(lane)
            return .until(host.breaker.opens ?? now.uptime)
        }
        if let until = host.pause(of: lane.tenant, now: now.uptime) { return .until(until) }
        // A tenant may take no more than is left for the others, so that some whose requests hang leave room for everybody else.
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
        entry.request.attempts += 1
        entry.request.lease = lease
        inFlight += 1
        entry.lane.inFlight += 1
        entry.lane.tenant.inFlight += 1
        entry.host.inFlight += 1
        entry.host.breaker.began(now: now.uptime)
        startLease(of: entry, lease, now: now)
        steps.append(
            .lease(QueueBatch.Dispatch(id: entry.id, lease: lease, request: entry.request, names: names(entry))))
    }

    /// The counterpart of ``begin(_:)``, for an entry as it was in flight.
    mutating func leaveFlight(_ entry: QueueEntry) {
        inFlight -= 1
        entry.lane.inFlight -= 1
        entry.lane.tenant.inFlight -= 1
        joinRing(entry.lane.tenant)
        entry.host.inFlight -= 1
        wakeWaiting(for: entry.host)
        trimLeases()
    }

    /// The same, for one that waits again at its place.
    mutating func goBack(_ entry: QueueEntry) {
        leaveFlight(entry)
        entry.lane.begun = 0
    }

    /// The lease of a dispatch could not be committed: nothing has been sent.
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
