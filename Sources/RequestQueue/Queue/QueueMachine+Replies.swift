// What happens to a request after an answer, or after an attempt without one.

import DequeModule

/// How an attempt ended.
public enum AttemptReply: Sendable, Equatable {
    /// The backend has done the request.
    /// - Parameter isCut: whether the answer was larger than the client keeps.
    case success(
        status: Int, headers: [ResolvedRequest.Header], body: [UInt8], identifiers: [EntityIdentifier],
        isCut: Bool = false)
    /// `retryAfter` is the pause that the host asked for, in milliseconds.
    case failure(AttemptFailure, retryAfter: Int64?, headers: [ResolvedRequest.Header], body: [UInt8])
}

extension QueueMachine {
    /// Processes the end of an attempt. It is ignored if its lease has ended.
    ///
    /// - Parameters:
    ///   - id: the request.
    ///   - lease: the lease of the attempt.
    ///   - reply: how the attempt ended.
    ///   - waitsForLogin: whether the request waits for a login if its session key is refused; if false, that is a
    ///     failure like others.
    ///   - now: the time.
    ///   - random: 64 random bits, for the pause before the next attempt.
    public mutating func reply(
        _ id: UInt64, lease: UInt64, _ reply: AttemptReply, waitsForLogin: Bool = true, now: QueueTime, random: UInt64
    ) {
        guard let entry = entry(id, under: lease) else { return }
        notifyHost(entry, reply, now: now)
        if !isReachable, case .failure(let failure, _, _, _) = reply, failure.kind == .unreachable {
            // Nothing was sent, and the cause is known: no attempt, whatever the request's policy is.
            requeue(entry, isBegun: false, cause: "")
            entry.waitsForNetwork = true
            return
        }
        switch reply {
        case .failure(.network(.noFreeConnection), _, _, _):
            let pause = settings.backoff.pause(attempts: 1, retryAfter: nil, random: random)
            requeue(entry, isBegun: false, cause: "")
            entry.notBefore = now.uptime.adding(pause)
            wake(entry.lane)
        case .success(let status, let headers, let body, let identifiers, let isCut):
            let outcome = RequestOutcome(.success(status: status), headers: headers, body: body, isCut: isCut)
            succeed(entry, bounded(outcome), identifiers, now: now)
        case .failure(let failure, let retryAfter, let headers, let body):
            if failure.isUnexpected { counts.unexpected += 1 }
            if waitsForLogin, failure.kind == .unauthorized, entry.needsSession {
                entry.lane.tenant.hasSession = false
                goBack(entry, failure, pause: 0, now: now)
            } else if entry.strategy.retries(after: failure) {
                let pause = settings.backoff.pause(
                    attempts: entry.request.attempts, retryAfter: retryAfter, random: random)
                goBack(entry, failure, pause: pause, now: now)
            } else {
                fail(entry, failure, headers, body, now: now)
            }
        }
    }

    /// Takes back an attempt that its sender has not begun, because the tenant had no session key. It is not counted.
    ///
    /// - Parameters:
    ///   - id: the request.
    ///   - lease: the lease of the attempt.
    ///   - hasSession: whether the tenant has one now; if false, its requests wait for the next login.
    ///   - now: the time.
    public mutating func withhold(_ id: UInt64, lease: UInt64, hasSession: Bool, now: QueueTime) {
        guard let entry = entry(id, under: lease) else { return }
        entry.host.breaker.withdrew(now: now.uptime)
        requeue(entry, isBegun: false, cause: "")
        setSession(entry.request.tenant, present: hasSession)
        wake(entry.lane)
        wakeWaiting(for: entry.host)
    }

    /// The request in flight under a lease; nil if the lease has ended.
    private mutating func entry(_ id: UInt64, under lease: UInt64) -> QueueEntry? {
        guard let entry = entries[id], entry.request.state == .inFlight, entry.request.lease == lease else {
            counts.late += 1
            return nil
        }
        return entry
    }

    private func bounded(_ outcome: RequestOutcome) -> RequestOutcome {
        guard outcome.body.count > limits.responseSize else { return outcome }
        var outcome = outcome
        outcome.body = Array(outcome.body.prefix(limits.responseSize))
        outcome.isCut = true
        return outcome
    }

    /// Updates the breaker and the pauses of the host.
    ///
    /// An answer of the backend shows that the host works, unless its status is 502, 503 or 504. A host that was
    /// reached and did not answer is not counted as failing: it may be only this conversation that hangs.
    private mutating func notifyHost(_ entry: QueueEntry, _ reply: AttemptReply, now: QueueTime) {
        let host = entry.host
        switch reply {
        case .success: host.breaker.succeeded()
        case .failure(.status(let status), let retryAfter, _, _):
            // `Retry-After` applies to all that the tenant sends to this host.
            if let retryAfter, retryAfter > 0, status == 429 || status == 503 {
                let pause = min(retryAfter, settings.breaker.longestPause, settings.backoff.retryAfterCap)
                host.pause(entry.lane.tenant, until: now.uptime.adding(pause), now: now.uptime)
            }
            switch status {
            case 502, 503: host.breaker.refused(entry.lane.id, retryAfter: retryAfter, now: now.uptime)
            case 504: host.breaker.withdrew(now: now.uptime)
            default: host.breaker.succeeded()
            }
        // An intermediary answered, or nothing was sent: whether the backend works is not known.
        case .failure(.unexpected, _, _, _), .failure(.network(.noFreeConnection), _, _, _):
            host.breaker.withdrew(now: now.uptime)
        case .failure(.network(let failure), _, _, _):
            // Without a network no host can be reached, which says nothing about this one.
            let isHere = failure == .notConnectedToInternet || failure == .noOpenConnection
            if failure.kind == .unreachable, isReachable, !isHere {
                host.breaker.failed(now: now.uptime)
            } else {
                host.breaker.withdrew(now: now.uptime)
            }
        }
        wakeWaiting(for: host)
    }

    private mutating func succeed(
        _ entry: QueueEntry, _ outcome: RequestOutcome, _ identifiers: [EntityIdentifier], now: QueueTime
    ) {
        do throws(MergeConflict) {
            // Either all identifiers are merged or none.
            try map.check(identifiers, tenant: entry.request.tenant)
        } catch {
            var outcome = outcome
            let cause = "The backend has done it, but its identifier of an entity was rejected: \(error)"
            outcome.cause = cause
            let request = end(entry, outcome, now: now)
            fail(dependentsOnNames(of: request, cause), on: request, cause, now: now)
            return
        }
        let request = end(entry, outcome, now: now)
        for identifier in identifiers { _ = try? merge(identifier, tenant: request.tenant, now: now) }
        // Otherwise a handler may merge the identifier.
        guard settings.namesComeWithAnswers else { return }
        fail(dependentsOnNames(of: request, Self.unnamed), on: request, Self.unnamed, now: now)
    }

    /// Upper bound of the stored end of a pause, in milliseconds since 1970.
    private static let latest: Int64 = 1 << 53

    /// Makes a request wait for its next attempt, at its place in the lane.
    private mutating func goBack(_ entry: QueueEntry, _ failure: AttemptFailure, pause: Int64, now: QueueTime) {
        let request = entry.request
        if failure.isVerdict { entry.verdicts += 1 }
        guard entry.verdicts < limits.attempts else { return fail(entry, failure, [], [], now: now) }
        goBack(entry)
        entry.waitsForNetwork = failure.kind == .unreachable
        let pause = entry.waitsForNetwork && entry.wasConnected ? 0 : pause
        // The process has survived this attempt. Without a connection that proves nothing.
        let crashes = failure.kind == .unreachable ? request.crashes : 0
        let wait = QueueChange.Wait(
            notBefore: min(now.wall.adding(pause), Self.latest), attempts: request.attempts, crashes: crashes,
            doubts: request.doubts + (failure.isAmbiguous(for: entry.method) ? 1 : 0),
            cause: "Attempt \(request.attempts): \(failure.text).")
        entry.request.apply(wait)
        entry.notBefore = now.uptime.adding(pause)
        steps.append(.change(.requeue(id: request.id, lease: request.lease ?? 0, wait), nil))
        counts.retried += 1
        wake(entry.lane)
    }

    private mutating func fail(
        _ entry: QueueEntry, _ failure: AttemptFailure, _ headers: [ResolvedRequest.Header], _ body: [UInt8],
        now: QueueTime
    ) {
        var status: Int?
        switch failure {
        case .status(let code), .unexpected(let code): status = code
        case .network: break
        }
        let attempts = entry.request.attempts
        var cause = "\(failure.text.prefix(1).uppercased())\(failure.text.dropFirst())"
        cause += attempts > 1 ? ", after \(attempts) attempts." : "."
        if failure.isAmbiguous(for: entry.method) || entry.request.doubts > 0 {
            cause += " The backend may have done it."
        }
        end(
            entry, bounded(RequestOutcome(.failure(status: status), cause: cause, headers: headers, body: body)),
            now: now)
    }

    // MARK: The end

    /// Finishes a request and removes it from the queue.
    ///
    /// - Parameter failsDependants: whether the requests that depend on it fail as well if it is not done.
    /// - Returns: the request, as it ended.
    @discardableResult
    mutating func end(
        _ entry: QueueEntry, _ outcome: RequestOutcome, failsDependants: Bool = true, now: QueueTime
    ) -> QueuedRequest {
        let lease = entry.request.state == .inFlight ? entry.request.lease : nil
        settle(entry)
        take(entry.id)
        var request = entry.request
        request.state = outcome.state
        request.cause = outcome.cause
        request.lease = nil
        remember(request, at: now.wall)
        steps.append(
            .change(
                finish(request, lease: lease, outcome, at: now.wall),
                result(request, outcome)))
        if settings.keepsOutcomes { keepResponse(of: request.id, size: outcome.responseSize) }
        switch outcome.result {
        case .success:
            counts.done += 1
            if request.doubts > 0 { counts.doubtful += 1 }
            unblock(.request(entry.id), waitingForRequest.removeValue(forKey: entry.id) ?? [])
        case .failure, .aborted:
            if case .aborted = outcome.result { counts.cancelled += 1 } else { counts.dead += 1 }
            if failsDependants { failDependants(of: request, outcome.cause ?? Self.cancelled, now: now) }
        }
        return request
    }

    /// Fails all requests that depend, directly or through others, on one that will never be done. Each names the
    /// request that failed first.
    mutating func failDependants(of request: QueuedRequest, _ cause: String, now: QueueTime) {
        fail(dependants(of: request, cause), on: request, cause, now: now)
    }

    private mutating func fail(_ ids: [UInt64], on root: QueuedRequest, _ cause: String, now: QueueTime) {
        let words = "It depends on request \(root.id), which failed: \(cause)"
        var left = Deque(ids.sorted())
        while let id = left.popFirst() {
            guard let entry = entries[id] else { continue }
            let request = end(
                entry, RequestOutcome(.failure(status: nil), cause: words), failsDependants: false, now: now)
            left.append(contentsOf: dependants(of: request, words).sorted())
        }
    }

    private mutating func dependants(of request: QueuedRequest, _ cause: String) -> [UInt64] {
        (waitingForRequest.removeValue(forKey: request.id) ?? []) + dependentsOnNames(of: request, cause)
    }

    /// Requests that wait for the identifier of an entity that this request was to create.
    private mutating func dependentsOnNames(of request: QueuedRequest, _ cause: String) -> [UInt64] {
        var dependants: [UInt64] = []
        for reference in request.creates where map[request.tenant, reference] == nil {
            let name = TenantReference(tenant: request.tenant, reference: reference)
            guard creators[name] == nil else { continue }
            noteFailure(of: name, cause)
            dependants += waitingForReference.removeValue(forKey: name) ?? []
        }
        return dependants
    }

    mutating func unblock(_ blocker: QueueEntry.Blocker, _ ids: [UInt64]) {
        for id in ids {
            guard let entry = entries[id] else { continue }
            entry.blockers.remove(blocker)
            if entry.blockers.isEmpty { wake(entry.lane) }
        }
    }

    /// Learns the remote identifier of an entity, and releases the requests that wait for it.
    ///
    /// - Throws: ``MergeConflict``; nothing has changed then.
    public mutating func merge(
        _ identifier: EntityIdentifier, tenant: String, now: QueueTime
    ) throws(MergeConflict) {
        guard let mapping = try map.merge(identifier, tenant: tenant) else { return }
        steps.append(.change(.map(mapping, at: now.wall), nil))
        learnt.append(QueueContents.Learnt(mapping: mapping, at: now.wall))
        let name = TenantReference(tenant: tenant, reference: mapping.reference)
        failedCreators[name] = nil
        unblock(.reference(mapping.reference), waitingForReference.removeValue(forKey: name) ?? [])
    }
}

extension QueuedRequest {
    mutating func apply(_ wait: QueueChange.Wait) {
        state = .pending
        lease = nil
        notBefore = wait.notBefore
        attempts = wait.attempts
        crashes = wait.crashes
        doubts = wait.doubts
        cause = wait.cause
    }
}
