// Accepts or refuses new requests, and maintains the indexes of the live ones.

import DequeModule
import HeapModule

extension QueueMachine {
    /// The result of appending a request.
    public enum Appended: Sendable, Equatable {
        /// Accepted when the next batch is committed.
        case accepted(RequestToken)
        /// The same request was accepted before, under the same idempotency key.
        case existing(RequestToken)
    }

    /// Appends a request.
    ///
    /// - Parameters:
    ///   - new: the request.
    ///   - token: names the request: sixteen random bytes. Also its idempotency key if it has none of its own.
    ///   - id: assigned by the caller, who uses none twice; nil for the next id.
    ///   - now: the time.
    /// - Throws: ``QueueError``; nothing has changed then.
    public mutating func append(
        _ new: NewRequest, token: RequestToken, id: UInt64? = nil, now: QueueTime
    ) throws(QueueError) -> Appended {
        do throws(QueueError) {
            let appended = try admit(new, token: token, id: id, now: now)
            if case .accepted = appended { counts.appended += 1 }
            return appended
        } catch {
            counts.refused += 1
            throw error
        }
    }

    private mutating func admit(
        _ new: NewRequest, token: RequestToken, id: UInt64?, now: QueueTime
    ) throws(QueueError) -> Appended {
        guard !isClosed else { throw .closed }
        if case .message = new.payload, !settings.isCarried {
            throw .malformed("it is a message, and this queue sends HTTP requests only")
        }
        let references = new.config.references
        if let flaw = RequestFlaw.first(in: new, references, limits) { throw .malformed(flaw) }
        let dependsOn = try dependencies(of: new)
        var request = QueuedRequest(id: id ?? nextID, token: token, new, dependsOn: dependsOn, timestamp: now.wall)
        let form = RequestForm.encode(request)
        request.size = form.count + RequestFlaw.rowSize
        let key = KeyName(request)
        let digest = RequestDigest(of: request, form: form)
        if let known = keys[key] {
            guard known.digest == digest else { throw .keyReused }
            return .existing(known.token)
        }
        guard request.size <= limits.requestSize else { throw .tooLarge(size: request.size, limit: limits.requestSize) }
        let replaced = replaceable(new)
        try checkBounds(request, replacing: replaced)
        let blockers = try blockers(of: new, references, dependsOn, replacing: replaced)
        try checkCycle(new, blockers)

        nextID = max(nextID, request.id + 1)
        keys[key] = KeyRecord(token: token, digest: digest)
        if let replaced, let entry = entries[replaced] {
            settle(entry)
            take(replaced)
            counts.cancelled += 1
            var ended = entry.request
            (ended.state, ended.cause) = (.cancelled, QueueStep.replaced)
            remember(ended, at: now.wall)
            steps.append(.replace(entry, at: now.wall))
        }
        let entry = entry(request, deadline: now.uptime.adding(limits.age), blockers: blockers)
        fresh[request.id] = form
        steps.append(.insert(request.id))
        enter(entry)
        return .accepted(token)
    }

    /// Ids of the requests that it depends on and that have not ended.
    private func dependencies(of new: NewRequest) throws(QueueError) -> [UInt64] {
        var ids: [UInt64] = []
        for token in new.dependsOn {
            if let id = tokens[token] {
                ids.append(id)
            } else if let ending = ended[token] {
                guard ending.state == .done else { throw .failedDependency(ending.cause) }
            } else {
                throw .unknownDependency
            }
        }
        return ids
    }

    private func blockers(
        of new: NewRequest, _ references: [EntityReference], _ dependsOn: [UInt64], replacing replaced: UInt64?
    ) throws(QueueError) -> Set<QueueEntry.Blocker> {
        var blockers = Set(dependsOn.map(QueueEntry.Blocker.request))
        for reference in references where map[new.tenant, reference] == nil {
            let name = TenantReference(tenant: new.tenant, reference: reference)
            if creators[name] == nil {
                if let cause = failedCreators[name] { throw .failedDependency(cause) }
                if settings.createsAllEntities { throw .unknownDependency }
            }
            blockers.insert(.reference(reference))
        }
        for reference in new.creates {
            let name = TenantReference(tenant: new.tenant, reference: reference)
            let other = creators[name]
            guard map[new.tenant, reference] == nil, other == nil || other == replaced else {
                throw .malformed("\(reference) is created by another request")
            }
        }
        return blockers
    }

    /// Refuses a request that would wait for itself: it creates an entity that a request waits for which must be sent
    /// before it. Only the creator of an entity can close such a cycle, because a request depends on no later one.
    private func checkCycle(_ new: NewRequest, _ blockers: Set<QueueEntry.Blocker>) throws(QueueError) {
        var waiting: Set<UInt64> = []
        for reference in new.creates {
            let name = TenantReference(tenant: new.tenant, reference: reference)
            waiting.formUnion(waitingForReference[name] ?? [])
        }
        guard !waiting.isEmpty else { return }
        let strategy = new.config.queueingStrategy.synchronization
        let lane = lanes[LaneID(tenant: new.tenant, lane: new.lane)]
        var left = lane.map { before($0.order.count, in: $0, isBarrier: strategy == .barrier) } ?? []
        left += blockers.compactMap { blocking($0, tenant: new.tenant) }
        var seen: Set<UInt64> = []
        while let id = left.popLast() {
            guard seen.insert(id).inserted, let entry = entries[id] else { continue }
            if waiting.contains(id) { throw .malformed("it and request \(id) would wait for each other") }
            left += entry.blockers.compactMap { blocking($0, tenant: entry.request.tenant) }
            left += before(entry.lane.place(of: id), in: entry.lane, isBarrier: entry.isBarrier)
        }
        try checkLookahead(of: lane, blockers.compactMap { blocking($0, tenant: new.tenant) }, waiting)
    }

    /// Refuses a request that waits behind requests that wait for it: so many that the machine does not look behind them.
    ///
    /// - Parameters:
    ///   - lane: that of the new request.
    ///   - needed: the requests that the new one waits for.
    ///   - waiting: the requests that wait for an entity that the new one creates.
    private func checkLookahead(
        of lane: LaneState?, _ needed: [UInt64], _ waiting: Set<UInt64>
    ) throws(QueueError) {
        guard limits.lookahead < .max else { return }
        var stuck = waiting
        var left = Array(waiting)
        var counts: [LaneID: Int] = [:]
        while let id = left.popLast() {
            guard let entry = entries[id] else { continue }
            var next = waitingForRequest[id] ?? []
            for reference in entry.request.creates {
                next += waitingForReference[TenantReference(tenant: entry.request.tenant, reference: reference)] ?? []
            }
            next += behind(entry)
            counts[entry.lane.id, default: 0] += 1
            if counts[entry.lane.id] == limits.lookahead {
                if entry.lane === lane { throw .malformed("it and request \(id) would wait for each other") }
                var seen = 0
                for other in entry.lane.order {
                    if seen >= limits.lookahead { next.append(other) }
                    if stuck.contains(other) { seen += 1 }
                }
            }
            for other in next where entries[other]?.request.state == .pending && stuck.insert(other).inserted {
                left.append(other)
            }
        }
        if let id = needed.first(where: stuck.contains) {
            throw .malformed("it and request \(id) would wait for each other")
        }
    }

    /// The requests of its lane that wait for one because of barriers: for a barrier, all up to the next barrier and that
    /// one; for others, that barrier only.
    private func behind(_ entry: QueueEntry) -> [UInt64] {
        var ids: [UInt64] = []
        for id in entry.lane.order[entry.lane.place(of: entry.id)...].dropFirst() {
            let ends = entries[id]?.isBarrier == true
            if entry.isBarrier || ends { ids.append(id) }
            if ends { break }
        }
        return ids
    }

    private func blocking(_ blocker: QueueEntry.Blocker, tenant: String) -> UInt64? {
        switch blocker {
        case .request(let id): id
        case .reference(let reference): creators[TenantReference(tenant: tenant, reference: reference)]
        }
    }

    /// The requests of a lane that must end before the one at a place: for a barrier, all back to the previous barrier
    /// and that one; for others, that barrier only.
    private func before(_ place: Int, in lane: LaneState, isBarrier: Bool) -> [UInt64] {
        var ids: [UInt64] = []
        for id in lane.order[..<min(place, lane.order.count)].reversed() {
            let ends = entries[id]?.isBarrier == true
            if isBarrier || ends { ids.append(id) }
            if ends { break }
        }
        return ids
    }

    func checkBounds(_ request: QueuedRequest, replacing replaced: UInt64? = nil) throws(QueueError) {
        let tenant = tenants[request.tenant]
        let (count, freed) = replaced.flatMap { entries[$0] }.map { (1, $0.request.size) } ?? (0, 0)
        guard entries.count - count < limits.requests else { throw .full(limit: .requests(limits.requests)) }
        guard size - freed + request.size <= limits.bytes else { throw .full(limit: .bytes(limits.bytes)) }
        guard (tenant?.requests ?? 0) - count < limits.requestsPerTenant else {
            throw .tenantFull(limit: .requests(limits.requestsPerTenant))
        }
        guard (tenant?.size ?? 0) - freed + request.size <= limits.bytesPerTenant else {
            throw .tenantFull(limit: .bytes(limits.bytesPerTenant))
        }
    }

    /// The request that this one replaces: one that waits and was never in flight.
    private func replaceable(_ new: NewRequest) -> UInt64? {
        guard let key = new.coalescingKey, let id = coalescing[TenantKey(tenant: new.tenant, key: key)],
            let entry = entries[id], entry.request.state == .pending, entry.request.attempts == 0
        else { return nil }
        // Requests that depend on it would never be sent.
        guard waitingForRequest[id] == nil else { return nil }
        for reference in entry.request.creates where !new.creates.contains(reference) {
            let name = TenantReference(tenant: new.tenant, reference: reference)
            guard waitingForReference[name] == nil else { return nil }
        }
        return id
    }

    // MARK: Entering and leaving

    mutating func entry(
        _ request: QueuedRequest, deadline: Int64, blockers: Set<QueueEntry.Blocker>
    ) -> QueueEntry {
        QueueEntry(
            request: request, lane: lane(of: request), host: host(of: request), deadline: deadline, blockers: blockers)
    }

    private mutating func lane(of request: QueuedRequest) -> LaneState {
        let id = LaneID(tenant: request.tenant, lane: request.lane)
        if let lane = lanes[id] { return lane }
        let lane = LaneState(id, tenants.add(request.tenant))
        lanes[id] = lane
        return lane
    }

    private mutating func host(of request: QueuedRequest) -> HostState {
        let name = request.config.host ?? settings.host
        if let host = hosts[name] { return host }
        let host = HostState(name, CircuitBreaker(settings.breaker))
        hosts[name] = host
        return host
    }

    /// Adds an entry to all indexes, and to its lane in the order of ids.
    mutating func enter(_ entry: QueueEntry) {
        let request = entry.request
        let id = request.id
        entries[id] = entry
        tokens[request.token] = id
        for reference in request.creates {
            creators[TenantReference(tenant: request.tenant, reference: reference)] = id
            failedCreators[TenantReference(tenant: request.tenant, reference: reference)] = nil
        }
        if let key = request.coalescingKey { coalescing[TenantKey(tenant: request.tenant, key: key)] = id }
        for blocker in entry.blockers {
            switch blocker {
            case .request(let other): waitingForRequest[other, default: []].append(id)
            case .reference(let reference):
                waitingForReference[TenantReference(tenant: request.tenant, reference: reference), default: []].append(
                    id)
            }
        }
        // Its lane or host may have been removed, and made anew, while the entry was taken out.
        if entry.lane.isGone { entry.lane = lane(of: request) }
        if entry.host.isGone { entry.host = host(of: request) }
        size += request.size
        entry.lane.tenant.requests += 1
        entry.lane.tenant.size += request.size
        entry.host.requests += 1
        insertInOrder(id, &entry.lane.order)
        if entry.lane.order.last != id { entry.lane.begun = 0 }
        deadlines.insert(Deadline(at: entry.deadline, id: id))
        wake(entry.lane)
    }

    /// Removes an entry from all indexes and counts. Requests that wait for it continue to wait.
    @discardableResult
    mutating func take(_ id: UInt64) -> QueueEntry? {
        guard let entry = entries.removeValue(forKey: id) else { return nil }
        let request = entry.request
        if request.state == .inFlight { leaveFlight(entry) }
        tokens[request.token] = nil
        for reference in request.creates {
            let name = TenantReference(tenant: request.tenant, reference: reference)
            if creators[name] == id { creators[name] = nil }
        }
        if let key = request.coalescingKey {
            let name = TenantKey(tenant: request.tenant, key: key)
            if coalescing[name] == id { coalescing[name] = nil }
        }
        for blocker in entry.blockers {
            switch blocker {
            case .request(let other): forget(id, &waitingForRequest[other])
            case .reference(let reference):
                forget(id, &waitingForReference[TenantReference(tenant: request.tenant, reference: reference)])
            }
        }
        size -= request.size
        let lane = entry.lane
        lane.tenant.requests -= 1
        lane.tenant.size -= request.size
        entry.host.requests -= 1
        dissolve(entry.host)
        if let place = lane.order.first == id ? 0 : lane.order.firstIndex(of: id) {
            lane.order.remove(at: place)
            if place < lane.begun { lane.begun -= 1 }
        }
        trimDeadlines()
        wake(lane)
        return entry
    }

    /// Removes a request that is not committed as if it was never appended, whether it is live or has ended.
    ///
    /// - Returns: its token; nil if the id is unknown.
    mutating func disown(_ id: UInt64) -> RequestToken? {
        guard let entry = take(id) else { return forgetFinished(id) }
        forgetKey(KeyName(entry.request))
        return entry.request.token
    }

    /// Puts back an entry that a failed batch replaced.
    mutating func reinstate(_ entry: QueueEntry) {
        counts.cancelled -= 1
        ended[entry.request.token] = nil
        if let place = finished.lastIndex(where: { $0.id == entry.id }) { finished.remove(at: place) }
        enter(entry)
    }

    private func forget(_ id: UInt64, _ list: inout [UInt64]?) {
        list?.removeAll { $0 == id }
        if list?.isEmpty == true { list = nil }
    }

    private func insertInOrder(_ id: UInt64, _ order: inout Deque<UInt64>) {
        // Almost always its place is the last one.
        var place = order.count
        while place > 0, order[place - 1] > id { place -= 1 }
        order.insert(id, at: place)
    }
}
