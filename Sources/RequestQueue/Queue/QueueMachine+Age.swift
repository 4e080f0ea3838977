// How long requests may wait, and how long what has ended is remembered.

import HeapModule

extension QueueMachine {
    /// Milliseconds after which a request that is over its age, and under way or held, is looked at again.
    static let grace: Int64 = 10_000

    /// What is older than it may be is dead, and what has been finished for long is forgotten.
    mutating func expire(now: QueueTime) {
        while let due = deadlines.min, due.at <= now.uptime {
            deadlines.removeMin()
            guard let entry = entries[due.id], entry.deadline == due.at else { continue }
            guard entry.request.state == .pending, !isHeld(entry) else {
                // An attempt that is under way may still end well, and what is held does not age.
                setDeadline(of: entry, now.uptime + Self.grace)
                continue
            }
            let days = limits.age / 86_400_000
            var cause = "It could not be sent for \(days > 0 ? "\(days) days" : "\(limits.age / 1000) seconds")."
            if let last = entry.request.cause { cause += " \(last)" }
            expired.append(end(entry, RequestOutcome(.failure(status: nil), cause: cause), now: now))
        }
        prune(now: now)
    }

    /// The age of a request counts from now.
    mutating func renew(_ entry: QueueEntry, now: QueueTime) { setDeadline(of: entry, now.uptime + limits.age) }

    private mutating func setDeadline(of entry: QueueEntry, _ at: Int64) {
        entry.deadline = at
        deadlines.insert(Deadline(at: at, id: entry.id))
    }

    /// Lets go of deadlines that count no more.
    mutating func trimDeadlines() {
        while let first = deadlines.min, entries[first.id]?.deadline != first.at { deadlines.removeMin() }
        guard deadlines.count > 2 * entries.count + 1024 else { return }
        deadlines = Heap(entries.values.lazy.map { Deadline(at: $0.deadline, id: $0.id) })
    }
}
