// Counts of requests and their outcomes since the process started. Requests that waited at the start count as accepted,
// and so do dead ones that are retried, so that the sum always holds:
//
//     accepted = done + dead + waiting

package import RequestQueue
import Synchronization

/// Counts of requests that add up at every moment.
package struct RequestCounts: Sendable, Equatable {
    package var accepted = 0
    package var done = 0
    package var dead = 0
    /// Committed, and neither done nor dead; held ones included.
    package var waiting = 0

    package init() {}

    /// Converts the counts of a queue.
    ///
    /// - Parameter waiting: how many requests are in the queue.
    package init(_ counts: QueueMachine.Counts, waiting: Int) {
        accepted = counts.restored + counts.appended + counts.revived
        done = counts.done
        dead = counts.dead + counts.cancelled
        self.waiting = waiting
    }
}

/// The counts of requests, for reports. The participants publish them after each commit.
package final class RequestCounters: Sendable {
    private let state = Mutex(RequestCounts())

    package init() {}

    package var counts: RequestCounts { state.withLock { $0 } }

    package func publish(_ counts: RequestCounts) { state.withLock { $0 = counts } }
}
