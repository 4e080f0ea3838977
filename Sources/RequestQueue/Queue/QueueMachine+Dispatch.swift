// Who is next: lanes keep the order, tenants take turns, hosts and sessions hold back.

import DequeModule
import HeapModule

extension QueueMachine {
    /// Begins everything that may begin now.
    mutating func dispatch(now: QueueTime) {
        guard !isClosed, !isPaused else { return }
        while let timer = timers.min, timer.at <= now.uptime {
            timers.removeMin()
            if lanes[timer.lane]?.timer == timer.at { lanes[timer.lane]?.timer = nil }
            wake(timer.lane)
        }
        while inFlight < limits.inFlight, let name = ring.popFirst() {
            tenants[name]?.isInRing = false
            // Only numbers are taken out of a tenant: who held its lanes would have them copied when they change.
            guard let running = tenants[name]?.inFlight, running < limits.inFlightPerTenant else { continue }
            guard let lane = nextLane(of: name) else { continue }
            switch candidate(in: lane, now: now) {
            case .send(let id):
                begin(id)
                wake(lane)
            case .wait(let until): setTimer(lane, until)
            case .nothing:
                if lanes[lane]?.order.isEmpty == true { dissolve(lane) }
            }
            joinRing(name)
        }
    }

    /// One timer a lane is enough, the earliest.
    private mutating func setTimer(_ lane: LaneID, _ at: Int64) {
        if let timer = lanes[lane]?.timer, timer <= at { return }
        lanes[lane]?.timer = at
        timers.insert(Timer(at: at, lane: lane))
    }

    /// A lane may have something to send.
    mutating func wake(_ lane: LaneID) {
        guard let isReady = lanes[lane]?.isReady else { return }
        guard let head = lanes[lane]?.order.first, let isBackground = entries[head]?.request.config.background else {
            if lanes[lane]?.isQuiet == true { dissolve(lane) }
            return
        }
        guard !isReady else { return }
        lanes[lane]?.isReady = true
        if isBackground {
            tenants[lane.tenant]?.background.append(lane)
        } else {
            tenants[lane.tenant]?.foreground.append(lane)
        }
        joinRing(lane.tenant)
    }

    /// Forgets a lane in which nothing is left, and a tenant without lanes.
    private mutating func dissolve(_ lane: LaneID) {
        lanes[lane] = nil
        if tenants[lane.tenant]?.isQuiet == true { tenants[lane.tenant] = nil }
    }

    mutating func joinRing(_ name: String) {
        let limit = limits.inFlightPerTenant
        guard tenants[name]?.joinRing(limit) == true else { return }
        ring.append(name)
    }

    private mutating func nextLane(of name: String) -> LaneID? {
        guard let lane = tenants[name]?.nextLane() else { return nil }
        lanes[lane]?.isReady = false
        return lane
    }

    private enum Candidate {
        case send(UInt64)
        /// Nothing before this time, if nothing happens.
        case wait(Int64)
        /// Nothing until something happens that wakes the lane.
        case nothing
    }

    /// The first request of a lane that may be sent: a barrier only at the head, others up to the first barrier.
    private mutating func candidate(in lane: LaneID, now: QueueTime) -> Candidate {
        guard let state = lanes[lane], state.inFlight < limits.inFlightPerLane else { return .nothing }
        var earliest: Int64?
        for (place, id) in state.order.prefix(limits.lookahead).enumerated() {
            guard let entry = entries[id] else { continue }
            if entry.isBarrier, place > 0 { break }
            if entry.request.state == .pending {
                switch obstacle(entry, lane, now: now) {
                case .none: return .send(id)
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
        for reference in entry.request.config.references { names[reference] = map[entry.request.tenant, reference] }
        return names
    }

    private enum Obstacle {
        case none
        case until(Int64)
        case event
    }

    private mutating func obstacle(_ entry: QueueEntry, _ lane: LaneID, now: QueueTime) -> Obstacle {
        guard !entry.request.isHeld, entry.blockers.isEmpty else { return .event }
        guard entry.notBefore <= now.uptime else { return .until(entry.notBefore) }
        if entry.request.config.includeSessionKey, tenants[lane.tenant]?.hasSession != true {
            tenants[lane.tenant]?.waitingForSession.insert(lane)
            return .event
        }
        let name = host(of: entry)
        guard let host = hosts[name] else { return .none }
        guard host.breaker.allows(now: now.uptime) else {
            if case .open(let until) = host.breaker.state { return .until(until) }
            hosts[name]?.waiting.insert(lane)
            return .event
        }
        guard host.inFlight < limits.inFlightPerHost else {
            hosts[name]?.waiting.insert(lane)
            return .event
        }
        return .none
    }

    // MARK: Flight

    private mutating func begin(_ id: UInt64) {
        guard let entry = entries[id] else { return }
        let lane = entry.lane
        let lease = nextLease
        nextLease &+= 1
        entry.request.state = .inFlight
        entry.request.attempts += 1
        entry.request.lease = lease
        inFlight += 1
        lanes[lane]?.inFlight += 1
        tenants[lane.tenant]?.inFlight += 1
        let name = host(of: entry)
        hosts[name, default: HostState(breaker: CircuitBreaker(settings.breaker))].inFlight += 1
        hosts[name]?.breaker.began()
        steps.append(.lease(QueueBatch.Dispatch(id: id, lease: lease, request: entry.request, names: names(entry))))
    }

    /// The counterpart of ``begin(_:)``, for an entry as it was in flight.
    mutating func leaveFlight(_ entry: QueueEntry) {
        inFlight -= 1
        lanes[entry.lane]?.inFlight -= 1
        tenants[entry.lane.tenant]?.inFlight -= 1
        joinRing(entry.lane.tenant)
        let name = host(of: entry)
        hosts[name]?.inFlight -= 1
        wakeHost(name)
        if let host = hosts[name], host.inFlight == 0, host.breaker.isQuiet { hosts[name] = nil }
    }

    /// The lease of a dispatch could not be committed: nothing has been sent.
    mutating func undo(_ dispatch: QueueBatch.Dispatch) {
        guard let entry = entries[dispatch.id], entry.request.lease == dispatch.lease else { return }
        leaveFlight(entry)
        entries[dispatch.id]?.request.state = .pending
        entries[dispatch.id]?.request.attempts -= 1
        entries[dispatch.id]?.request.lease = nil
        hosts[host(of: entry)]?.breaker.withdrew(now: 0)
        wake(entry.lane)
    }

    mutating func wakeHost(_ name: String) {
        guard let waiting = hosts[name]?.waiting, !waiting.isEmpty else { return }
        hosts[name]?.waiting = []
        for lane in waiting { wake(lane) }
    }
}
