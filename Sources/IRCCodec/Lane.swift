// Order per connection: nothing overtakes an entry that waits for its commit.

package import DequeModule

/// A queue whose entries are either ready or waiting for a ticket to be answered, and which gives them out in order.
///
/// Its members may be inlined: a lane stands on the path of every line, and a generic that is not specialised costs more
/// than the rest of that path.
package struct Lane<Ready> {
    /// What stands for an entry that is not ready yet.
    package typealias Ticket = UInt64

    @usableFromInline
    package enum Entry {
        case ready(Ready)
        case waiting(Ticket)
    }

    @usableFromInline
    package var entries: Deque<Entry> = []
    @usableFromInline
    package var nextTicket: Ticket = 1

    @inlinable
    package init() {}

    @inlinable
    package var isEmpty: Bool { entries.isEmpty }
    @inlinable
    package var count: Int { entries.count }

    @inlinable
    package mutating func append(_ ready: Ready) {
        entries.append(.ready(ready))
    }

    /// Reserves the next place for an answer that will come.
    @inlinable
    package mutating func reserve() -> Ticket {
        defer { nextTicket += 1 }
        entries.append(.waiting(nextTicket))
        return nextTicket
    }

    /// Puts the answers in the reserved place; none removes it. An unknown ticket changes nothing.
    @inlinable
    package mutating func resolve(_ ticket: Ticket, with answers: [Ready]) {
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

    /// The front entry if it is ready.
    @inlinable
    package var first: Ready? {
        if case .ready(let ready) = entries.first { return ready }
        return nil
    }

    /// Takes the front entry if it is ready.
    @inlinable
    package mutating func popFirst() -> Ready? {
        guard case .ready(let ready) = entries.first else { return nil }
        entries.removeFirst()
        return ready
    }

    /// Changes the front entry in place if it is ready.
    @inlinable
    package mutating func replaceFirst(_ ready: Ready) {
        guard case .ready = entries.first else { return }
        entries[entries.startIndex] = .ready(ready)
    }

    /// Reserves the place before everything else.
    @inlinable
    package mutating func reserveFirst() -> Ticket {
        defer { nextTicket += 1 }
        entries.prepend(.waiting(nextTicket))
        return nextTicket
    }

    /// Puts what is ready before everything else, but behind the front entry where that is ready and has to stay there.
    package mutating func insertFirst(_ ready: [Ready], unlessFront staysInFront: (Ready) -> Bool) {
        let place = first.map(staysInFront) == true ? 1 : 0
        entries.insert(contentsOf: ready.map(Entry.ready), at: entries.startIndex + place)
    }

    /// Takes out what is ready and fits, in order.
    @inlinable
    package mutating func removeReady(where fits: (Ready) -> Bool) -> [Ready] {
        var taken: [Ready] = []
        entries.removeAll { entry in
            guard case .ready(let ready) = entry, fits(ready) else { return false }
            taken.append(ready)
            return true
        }
        return taken
    }
}
