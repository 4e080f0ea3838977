// The order of one connection: no entry overtakes one that waits for its commit.

import DequeModule

/// A queue of entries that are ready or wait for a ticket to be resolved; returns them in order.
///
/// It is in the target that uses it: every line passes through a lane, and a generic of another target is not specialised.
struct OrderedQueue<Ready> {
    /// Identifies an entry that is not ready yet.
    typealias Ticket = UInt64

    private enum Entry {
        case ready(Ready)
        case waiting(Ticket)
    }

    private var entries: Deque<Entry> = []
    private var nextTicket: Ticket = 1

    init() {}

    var isEmpty: Bool { entries.isEmpty }
    var count: Int { entries.count }

    mutating func append(_ ready: Ready) {
        entries.append(.ready(ready))
    }

    /// Reserves the next position for a later answer.
    mutating func reserve() -> Ticket {
        defer { nextTicket += 1 }
        entries.append(.waiting(nextTicket))
        return nextTicket
    }

    /// Puts the answers in the reserved position; an empty array removes it. An unknown ticket changes nothing.
    mutating func resolve(_ ticket: Ticket, with answers: [Ready]) {
        let place = entries.firstIndex { entry in
            if case .waiting(let waiting) = entry { return waiting == ticket }
            return false
        }
        guard let place else { return }
        if answers.count == 1 {
            entries[place] = .ready(answers[0])
        } else {
            entries.replaceSubrange(place...place, with: answers.map(Entry.ready))
        }
    }

    /// The front entry if it is ready, else nil.
    var first: Ready? {
        if case .ready(let ready) = entries.first { return ready }
        return nil
    }

    /// Removes and returns the front entry if it is ready, else returns nil.
    mutating func popFirst() -> Ready? {
        guard case .ready(let ready) = entries.first else { return nil }
        entries.removeFirst()
        return ready
    }

    /// Replaces the front entry if it is ready.
    mutating func replaceFirst(_ ready: Ready) {
        guard case .ready = entries.first else { return }
        entries[entries.startIndex] = .ready(ready)
    }

    /// Reserves the position in front of all entries.
    mutating func reserveFirst() -> Ticket {
        defer { nextTicket += 1 }
        entries.prepend(.waiting(nextTicket))
        return nextTicket
    }

    /// Inserts entries at the front, or behind a ready front entry that has to stay in front.
    mutating func insertFirst(_ ready: [Ready], unlessFront staysInFront: (Ready) -> Bool) {
        let place = first.map(staysInFront) == true ? 1 : 0
        entries.insert(contentsOf: ready.map(Entry.ready), at: entries.startIndex + place)
    }

    /// Removes and returns the ready entries that match, in order.
    mutating func removeReady(where fits: (Ready) -> Bool) -> [Ready] {
        var taken: [Ready] = []
        entries.removeAll { entry in
            guard case .ready(let ready) = entry, fits(ready) else { return false }
            taken.append(ready)
            return true
        }
        return taken
    }
}
