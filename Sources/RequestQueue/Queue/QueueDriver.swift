// Who owns the machine of a queue: a thread with a store of its own, or the commit loop of a larger program, whose
// transactions hold the changes of the queue beside others.

/// An event for a queue's machine. Its answer is given when the changes that it caused are committed, or have failed.
package typealias MachineEvent = @Sendable (inout QueueMachine, QueueTime) -> QueueAnswer?

/// Owns the machine of a queue: passes events to it one after the other, commits its changes, and then lets the queue do
/// what the commit allows.
package protocol QueueDriver: Sendable {
    /// Begins to deliver batches.
    ///
    /// - Parameter act: called with each committed batch that has attempts, answers or outcomes to deliver, in the order of
    ///   the commits, on any thread. It may give some of the answers; the driver gives the others after it.
    func start(_ act: @escaping @Sendable (QueueBatch, QueueAnswers) -> Void)

    /// Adds an event.
    ///
    /// - Returns: whether it will be processed; false if the driver has ended.
    @discardableResult
    func post(_ event: @escaping MachineEvent) -> Bool

    /// Ends once the changes of all posted events are committed. Blocks its thread.
    func stop()

    /// Runs the tasks of attempts; nil for Swift's thread pool. If it is that of the thread on which batches are
    /// delivered, an attempt stays on it from its beginning to its end.
    var taskExecutor: (any TaskExecutor)? { get }
}

extension QueueDriver {
    package var taskExecutor: (any TaskExecutor)? { nil }
}
