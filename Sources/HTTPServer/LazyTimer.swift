// One scheduled task for a deadline that moves with almost every event of a connection.

package import NIOCore

/// Calls back at or before the deadline that was set last. A later deadline does not reschedule the task: a connection
/// that is called early sets its deadline again.
package struct LazyTimer {
    private var pending: (at: NIODeadline, task: Scheduled<Void>)?

    package init() {}

    /// Reschedules the task only if it would call too late. Called on the event loop.
    package mutating func arm(
        _ deadline: NIODeadline, on eventLoop: any EventLoop, _ fired: @escaping () -> Void
    ) {
        if let pending, pending.at <= deadline { return }
        pending?.task.cancel()
        pending = (deadline, eventLoop.assumeIsolated().scheduleTask(deadline: deadline, fired))
    }

    package mutating func cancel() {
        pending?.task.cancel()
        pending = nil
    }

    /// The task has run. To be called first in what it calls.
    package mutating func hasFired() { pending = nil }
}
