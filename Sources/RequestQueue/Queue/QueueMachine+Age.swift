// The maximum age of requests, and the timeouts of attempts.

import HeapModule

extension QueueMachine {
    /// Milliseconds after which a request that is over its age, but in flight or held, is checked again.
    static let grace: Int64 = 10_000

    /// Milliseconds from the timeout of an attempt to the end of its lease. The client's own timeout comes first.
    static let leaseGrace: Int64 = 5_000

    /// Fails attempts that had no answer in time, whatever delays them.
    mutating func endLeases(now: QueueTime) {
        while let due = leaseEnds.min, due.at <= now.uptime {
            leaseEnds.removeMin()
            guard let entry = entries[due.id], entry.request.lease == due.lease, entry.request.state == .inFlight else {
                continue
            }
            steps.append(.withdraw(due.lease))
            // Spreads the pauses as random bits do: leases are counted from a random number.
            let random = due.lease &* 0x9E37_79B9_7F4A_7C15
            reply(
                due.id, lease: due.lease,
                .failure(.network(.timedOut), retryAfter: nil, headers: [], body: []), now: now, random: random)
        }
    }

    /// Sets the time at which the attempt that begins now times out.
    mutating func startLease(of entry: QueueEntry, _ lease: UInt64, now: QueueTime) {
        guard let standard = settings.attemptTimeout else { return }
        let timeout = max(entry.timeoutInterval ?? standard, 0)
        leaseEnds.insert(
            LeaseEnd(at: now.uptime.adding(timeout).adding(Self.leaseGrace), id: entry.id, lease: lease))
    }

    /// Removes leases that have ended.
    mutating func trimLeases() {
        while let first = leaseEnds.min, entries[first.id]?.request.lease != first.lease { leaseEnds.removeMin() }
        guard leaseEnds.count > 2 * inFlight + 1024 else { return }
        leaseEnds = Heap(leaseEnds.unordered.filter { entries[$0.id]?.request.lease == $0.lease })
    }

    /// Ends requests that are too old, and forgets finished ones after their time.
    mutating func expire(now: QueueTime) {
        while let due = deadlines.min, due.at <= now.uptime {
            deadlines.removeMin()
            guard let entry = entries[due.id], entry.deadline == due.at else { continue }
            guard entry.request.state == .pending, !isHeld(entry) else {
                // An attempt in flight may still succeed, and a held request does not age.
                setDeadline(of: entry, now.uptime.adding(Self.grace))
                continue
            }
            let days = limits.age / 86_400_000
            var cause = "It could not be sent for \(days > 0 ? "\(days) days" : "\(limits.age / 1000) seconds")."
            if let last = entry.request.cause { cause += " \(last)" }
            expired.append(end(entry, RequestOutcome(.failure(status: nil), cause: cause), now: now))
        }
        prune(now: now)
    }

    /// Counts the age of a request from now.
    mutating func renew(_ entry: QueueEntry, now: QueueTime) {
        setDeadline(of: entry, now.uptime.adding(limits.age))
    }

    private mutating func setDeadline(of entry: QueueEntry, _ at: Int64) {
        entry.deadline = at
        deadlines.insert(Deadline(at: at, id: entry.id))
    }

    /// Removes deadlines that no longer apply.
    mutating func trimDeadlines() {
        while let first = deadlines.min, entries[first.id]?.deadline != first.at { deadlines.removeMin() }
        guard deadlines.count > 2 * entries.count + 1024 else { return }
        deadlines = Heap(entries.values.lazy.map { Deadline(at: $0.deadline, id: $0.id) })
    }
}
