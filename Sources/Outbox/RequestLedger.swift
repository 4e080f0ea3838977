// How many requests there were and what became of them, since the process started. What was found waiting at the start
// counts as accepted, and so does a dead one that is sent again, so that the sum always holds:
//
//     accepted = done + dead + waiting

package import RequestQueue
import Synchronization

/// Counts of requests that add up at every moment.
package struct RequestCounts: Sendable, Equatable {
    package var accepted = 0
    package var done = 0
    package var dead = 0
    /// Committed, and neither done nor dead; those that are held are among them.
    package var waiting = 0

    package init() {}

    /// What a queue has counted.
    ///
    /// - Parameter waiting: the requests in it.
    package init(_ counts: QueueMachine.Counts, waiting: Int) {
        accepted = counts.restored + counts.appended + counts.revived
        done = counts.done
        dead = counts.dead + counts.cancelled
        self.waiting = waiting
    }
}

/// The counts of requests, for reports. The participants publish them after each commit.
package final class RequestLedger: Sendable {
    private let state = Mutex(RequestCounts())

    package init() {}

    package var counts: RequestCounts { state.withLock { $0 } }

    package func publish(_ counts: RequestCounts) { state.withLock { $0 = counts } }
}
