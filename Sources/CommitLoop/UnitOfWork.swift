// A unit of work: the changes of one job, and the actions after its commit or its failure. The participants add to it
// while they prepare the job; its completions run after the store has committed the changes.

public import Protection
public import RequestQueue
public import StorePort

/// A reply and the connection that it is for.
@usableFromInline
package struct AddressedReply<Reply: Sendable>: Sendable {
    @usableFromInline
    package var connection: ConnectionID
    @usableFromInline
    package var reply: Reply

    @inlinable
    package init(connection: ConnectionID, reply: Reply) { (self.connection, self.reply) = (connection, reply) }
}

/// Why a unit of work is rolled back.
@usableFromInline
package enum RollbackCause: Sendable {
    /// The job itself failed while it was prepared; later jobs of the batch continue.
    case cancelled
    /// The transaction of the whole batch failed.
    case batch
    /// The store rejected this unit; the rest of its batch is committed.
    case unit
    /// The job was prepared ahead, on the state of a batch that was not committed entirely. It is prepared again at once
    /// and answered then: this rollback only undoes changes in memory, and nobody is told.
    case ahead
}

/// The rows of a unit. A type of its own, so that inlinable code can pass them on without their types.
@usableFromInline
struct UnitRows {
    var changes: [StoreChange] = []

    @usableFromInline
    init() {}

    /// The rows, as a group.
    ///
    /// - Parameter earlier: the groups of the batch that it requires, by index.
    @usableFromInline
    func group(in placement: Placement, requires earlier: [Int]) -> ChangeGroup {
        ChangeGroup(changes, in: placement, requires: earlier)
    }
}

/// The changes of one job, with the actions after its commit or its failure.
@usableFromInline
package struct UnitOfWork<State: Participants> {
    @usableFromInline
    package typealias Replies = [AddressedReply<State.Reply>]
    /// Runs after the commit. Effects of the job outside the participants begin here.
    @usableFromInline
    package typealias Completion = (inout State, inout Replies, Timestamp) -> Void
    /// Undoes the changes of ``Participants/prepare(_:_:now:)`` in memory.
    @usableFromInline
    package typealias Rollback = (inout State, RollbackCause, inout Replies, Timestamp) -> Void

    /// Where the rows of the job are.
    @usableFromInline
    package let placement: Placement
    @usableFromInline
    var rows = UnitRows()
    /// The rows that the job writes. They are committed together or not at all.
    package var changes: [StoreChange] {
        get { rows.changes }
        _modify { yield &rows.changes }
        set { rows.changes = newValue }
    }
    /// Rows shared with other units, such as ratchet states; the unit is rejected if the store rejects one of them.
    @usableFromInline
    package var shared: [State.SharedRow] = []
    /// The requests that the job appends to the queue. Their rows are in ``changes`` after ``Participants/close(_:now:)``.
    @usableFromInline
    package var requests: [UInt64] = []
    /// The reply after the commit; nil if there is none, or if a completion sends it.
    @usableFromInline
    package var reply: (connection: ConnectionID, reply: State.Reply)?
    /// The reply if the unit is not committed.
    package var failure: (connection: ConnectionID, reply: State.Reply)?
    @usableFromInline
    var completions = Few<OnCommit>()
    @usableFromInline
    var rollbacks = Few<OnRollback>()

    /// A structure around the closure: as an element of a generic type, a closure alone would get a second context.
    @usableFromInline
    struct OnCommit {
        @usableFromInline
        let action: Completion

        @inlinable
        init(_ action: @escaping Completion) { self.action = action }
    }

    /// As ``OnCommit``.
    @usableFromInline
    struct OnRollback {
        @usableFromInline
        let action: Rollback

        @inlinable
        init(_ action: @escaping Rollback) { self.action = action }
    }

    @inlinable
    package init(in placement: Placement) { self.placement = placement }

    /// Adds an action after the commit. Completions run in the order in which they were added.
    @inlinable
    package mutating func onCommit(_ completion: @escaping Completion) { completions.append(OnCommit(completion)) }

    /// Adds an action for a unit that is not committed. Rollbacks run in the reverse order.
    @inlinable
    package mutating func onRollback(_ rollback: @escaping Rollback) { rollbacks.append(OnRollback(rollback)) }

    /// Cancels the job while it is prepared: drops its rows and completions, and runs its rollbacks.
    ///
    /// Rows in ``shared`` stay: an earlier job of the batch may have changed them, and ratchets never go back.
    package mutating func cancel(in state: inout State, now: Timestamp) {
        var none: Replies = []
        rollBack(&state, .cancelled, &none, now)
        changes.removeAll()
    }

    /// Runs the rollbacks, each once.
    mutating func rollBack(_ state: inout State, _ cause: RollbackCause, _ replies: inout Replies, _ now: Timestamp) {
        let rollbacks = rollbacks
        (self.rollbacks, completions) = (Few(), Few())
        for rollback in rollbacks.rest.reversed() { rollback.action(&state, cause, &replies, now) }
        rollbacks.first?.action(&state, cause, &replies, now)
    }
}

extension ChangeGroup {
    /// The changes of a queue's turn, after those that insert requests of units have moved to these units: a request is
    /// not stored without the ratchet states that sealed it.
    @inlinable
    package init<State>(_ turn: QueueBatch, to units: inout [UnitOfWork<State>]) {
        var places: [UInt64: Int] = [:]
        for place in units.indices { for request in units[place].requests { places[request] = place } }
        self.init(turn, places) { place, change in units[place].append(change) }
    }

    /// - Parameter places: the places of units, by the requests that they have appended.
    @usableFromInline
    init(_ turn: QueueBatch, _ places: [UInt64: Int], move: (Int, QueueChange) -> Void) {
        self.init([], in: .several)
        changes.reserveCapacity(turn.changes.count)
        for change in turn.changes {
            if case .insert(let request, _) = change, let place = places[request.id] {
                move(place, change)
            } else {
                changes.append(.queue(change))
            }
        }
    }
}

extension UnitOfWork {
    @usableFromInline
    mutating func append(_ change: QueueChange) { changes.append(.queue(change)) }
}
