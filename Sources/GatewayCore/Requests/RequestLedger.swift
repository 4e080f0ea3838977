// How many requests there were and what became of them, since the process started. What was found waiting at the start
// counts as accepted, and so does a dead one that is sent again, so that the sum always holds:
//
//     accepted = done + dead + waiting

import Synchronization

/// Counts of requests that add up at every moment.
package struct RequestCounts: Sendable, Equatable {
    package var accepted = 0
    package var done = 0
    package var dead = 0
    /// Committed, and neither done nor dead; those that are held are among them.
    package var waiting = 0

    package init() {}
}

/// The counts, for whoever reports them. The vault says what is committed, and nothing before.
package final class RequestLedger: Sendable {
    private let state = Mutex(RequestCounts())

    package init() {}

    package var counts: RequestCounts { state.withLock { $0 } }

    func publish(_ counts: RequestCounts) { state.withLock { $0 = counts } }
}
