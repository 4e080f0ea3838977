// Restores what the previous process left.

extension QueueMachine {
    /// Maximum number of redeliveries of an outcome whose handlers end the process.
    public static let deliveries = 3

    /// Restores the contents of the store, before any request is appended. Outcomes that handlers have not confirmed
    /// come with the next batch.
    public mutating func restore(_ contents: QueueContents, now: QueueTime) {
        nextID = contents.highest + 1
        for known in contents.learnt {
            let mapping = known.mapping
            let identifier = EntityIdentifier.both(
                type: mapping.reference.type, local: mapping.reference.local, remote: mapping.remote)
            if (try? map.merge(identifier, tenant: mapping.tenant)) != nil {
                learnt.append(known)
            }
        }
        for record in contents.finished { restoreFinished(record) }
        var quarantined: [UInt64: String] = [:]
        for row in contents.unreadable { quarantined[row.id] = "It cannot be read: \(row.reason)." }
        let isAlone = contents.requests.count { $0.state == .inFlight } == 1
        for request in contents.requests.sorted(by: { $0.id < $1.id }) {
            if let flaw = flaw(of: request) {
                quarantined[request.id] = flaw
                for reference in request.creates where map[request.tenant, reference] == nil {
                    noteFailure(of: TenantReference(tenant: request.tenant, reference: reference), flaw)
                }
            } else {
                recover(request, wasAlone: isAlone, now: now)
            }
        }
        for (id, cause) in quarantined.sorted(by: { $0.key < $1.key }) {
            steps.append(.change(.quarantine(id: id, cause: cause, at: now.wall), nil))
        }
        failDependants(on: quarantined, now: now)
        failOrphans(now: now)
        for undelivered in contents.undelivered { deliverAgain(undelivered) }
    }

    /// Why a stored request cannot wait again, in words; nil if it can.
    private func flaw(of request: QueuedRequest) -> String? {
        guard request.isPlausible else { return "It cannot be read: one of its numbers is out of range." }
        if case .message = request.payload, !settings.isCarried {
            return "It is a message, and this queue sends HTTP requests only."
        }
        return nil
    }

    private mutating func restoreFinished(_ record: QueueContents.Finished) {
        let request = record.request
        remember(request, at: record.at)
        rememberKey(of: request)
        keepResponse(of: request.id, size: record.responseSize)
        let isDone = request.state == .done
        guard !isDone || settings.namesComeWithAnswers else { return }
        let cause = request.cause ?? (isDone ? Self.unnamed : Self.cancelled)
        for reference in request.creates where map[request.tenant, reference] == nil {
            noteFailure(of: TenantReference(tenant: request.tenant, reference: reference), cause)
        }
    }

    private mutating func rememberKey(of request: QueuedRequest) {
        keys[KeyName(request)] = KeyRecord(
            token: request.token, digest: RequestDigest(of: request, form: RequestForm.encode(request)))
    }

    /// Restores an unfinished request. One that was in flight when the process ended has had an attempt, and may be the
    /// cause: it is sent again alone.
    ///
    /// - Parameter wasAlone: whether only one request was in flight then. A crash is counted only against that one.
    private mutating func recover(_ stored: QueuedRequest, wasAlone: Bool, now: QueueTime) {
        counts.restored += 1
        var request = stored
        rememberKey(of: request)
        let wasInFlight = request.state == .inFlight
        if wasInFlight {
            let lease = request.lease ?? 0
            let crashes = request.crashes + (wasAlone ? 1 : 0)
            let isHeld = !settings.isCarried && crashes >= limits.crashes
            let cause =
                isHeld
                ? "The process ended \(crashes) times in a row while only this request was under way, so it is held. The backend "
                    + "may have done it."
                : "Attempt \(request.attempts): the process ended before the answer came."
            let wait = QueueChange.Wait(
                notBefore: 0, attempts: request.attempts, crashes: crashes, doubts: request.doubts + 1, cause: cause)
            request.apply(wait)
            steps.append(.change(.requeue(id: request.id, lease: lease, wait), nil))
        }
        // The wall clock may have been set since then: no pause is longer than the longest that is ever set.
        let (wait, isEndless) = request.notBefore.subtractingReportingOverflow(now.wall)
        let pause = min(max(isEndless ? 0 : wait, 0), max(settings.backoff.cap, settings.backoff.retryAfterCap))
        let since = max(request.timestamp, request.releasedAt ?? request.timestamp)
        let (waited, isOdd) = now.wall.subtractingReportingOverflow(since)
        let age = min(max(isOdd ? 0 : waited, 0), limits.age)
        let entry = entry(
            request, deadline: now.uptime.adding(limits.age - age), blockers: liveBlockers(of: request))
        entry.notBefore = now.uptime.adding(pause)
        entry.isParked = settings.isCarried
        enter(entry)
        guard wasInFlight, !settings.isCarried else { return }
        guard request.crashes >= limits.crashes else { return suspects.append(request.id) }
        entry.request.isHeld = true
        steps.append(.change(.hold(id: request.id, true, at: now.wall), nil))
    }

    /// Whether it is held because of ``QueueLimits/crashes``.
    func isHeldAfterCrashes(_ request: QueuedRequest) -> Bool { request.isHeld && request.crashes >= limits.crashes }

    /// Fails the requests that depend on quarantined ones, which will never be done.
    private mutating func failDependants(on quarantined: [UInt64: String], now: QueueTime) {
        guard !quarantined.isEmpty else { return }
        for id in entries.keys.sorted() {
            // One that failed with another request is no longer there.
            guard let entry = entries[id], let root = entry.request.dependsOn.first(where: { quarantined[$0] != nil })
            else { continue }
            let cause = "It depends on request \(root), which failed: \(quarantined[root] ?? Self.cancelled)"
            end(entry, RequestOutcome(.failure(status: nil), cause: cause), now: now)
        }
    }

    /// Fails the requests that wait for an entity whose creator failed in an earlier process, or ended there without the
    /// entity's identifier.
    private mutating func failOrphans(now: QueueTime) {
        let forgotten = settings.namesComeWithAnswers ? "The request that created it has ended." : nil
        for (name, ids) in waitingForReference where creators[name] == nil {
            guard let cause = failedCreators[name] ?? forgotten.map({ "\(name.reference) has no identifier: \($0)" })
            else { continue }
            for id in ids.sorted() {
                guard let entry = entries[id] else { continue }
                end(entry, RequestOutcome(.failure(status: nil), cause: cause), now: now)
            }
        }
    }

    private mutating func deliverAgain(_ undelivered: QueueContents.Undelivered) {
        let id = undelivered.request.id
        let times = min(max(undelivered.times, 0), Self.deliveries)
        guard times < Self.deliveries else {
            counts.undelivered += 1
            return steps.append(.change(.handled(id: id), nil))
        }
        // The count is stored at delivery: only the outcome that is being delivered can end the process.
        steps.append(
            .result(
                QueueBatch.Result(
                    request: undelivered.request, outcome: undelivered.outcome, deliveries: times)))
    }
}

extension QueuedRequest {
    /// Whether its times and counts are in the range that this program writes, so that sums of them cannot overflow.
    fileprivate var isPlausible: Bool {
        let time = -(Int64(1) << 53)...(Int64(1) << 53)
        let count = 0...(1 << 40)
        return [timestamp, notBefore, releasedAt ?? 0].allSatisfy { time.contains($0) } && count.contains(size)
            && [attempts, crashes, doubts].allSatisfy { count.contains($0) }
    }
}
