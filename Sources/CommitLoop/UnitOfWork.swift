// A unit of work: what one job changes, and what follows from the outcome of its commit. The participants add to it while
// they prepare the job; nothing that it promises happens before the store has the changes.

package import Protection
package import StorePort

/// A reply and the connection that it is for.
package struct AddressedReply<Reply: Sendable>: Sendable {
    package var connection: ConnectionID
    package var reply: Reply

    package init(connection: ConnectionID, reply: Reply) { (self.connection, self.reply) = (connection, reply) }
}

/// Why a unit of work is rolled back.
package enum RollbackCause: Sendable {
    /// The job itself failed while it was prepared; later jobs of the batch go on.
    case cancelled
    /// The transaction of the whole batch failed.
    case batch
    /// The store refused this unit alone; the rest of its batch is committed.
    case unit
}

/// The changes of one job, with what happens after their commit or after its failure.
package struct UnitOfWork<State: Participants> {
    package typealias Replies = [AddressedReply<State.Reply>]
    /// Runs after the commit. Everything that others see of the job begins here.
    package typealias Completion = (inout State, inout Replies, Moment) -> Void
    /// Takes back what ``Participants/prepare(_:_:now:)`` has changed in memory.
    package typealias Rollback = (inout State, RollbackCause, inout Replies, Moment) -> Void

    /// The rows that the job writes. They are committed together or not at all.
    package var changes: [StoreChange] = []
    /// Rows shared with other units, such as ratchet states; the unit is refused if the store refuses one of them.
    package var shared: [State.SharedRow] = []
    /// The reply after the commit; nil if there is none, or if a completion sends it.
    package var reply: (connection: ConnectionID, reply: State.Reply)?
    /// The reply if the unit is not committed.
    package var failure: (connection: ConnectionID, reply: State.Reply)?
    private var completions: [Completion] = []
    private var rollbacks: [Rollback] = []

    package init() {}

    /// Adds something to do after the commit. Completions run in the order in which they were added.
    package mutating func onCommit(_ completion: @escaping Completion) { completions.append(completion) }

    /// Adds something to do if the unit is not committed. Rollbacks run in the reverse order.
    package mutating func onRollback(_ rollback: @escaping Rollback) { rollbacks.append(rollback) }

    /// Takes the job back while it is prepared: its rows, its completions, and what it changed in memory.
    ///
    /// Rows in ``shared`` stay: an earlier job of the batch may have changed them, and ratchets never go back.
    package mutating func cancel(in state: inout State, now: Moment) {
        var none: Replies = []
        rollBack(&state, .cancelled, &none, now)
        changes.removeAll()
    }

    /// Runs the rollbacks, each once.
    mutating func rollBack(_ state: inout State, _ cause: RollbackCause, _ replies: inout Replies, _ now: Moment) {
        let rollbacks = rollbacks
        (self.rollbacks, completions) = ([], [])
        for rollback in rollbacks.reversed() { rollback(&state, cause, &replies, now) }
    }

    func complete(_ state: inout State, _ replies: inout Replies, _ now: Moment) {
        for completion in completions { completion(&state, &replies, now) }
        if let reply { replies.append(.init(connection: reply.connection, reply: reply.reply)) }
    }
}
