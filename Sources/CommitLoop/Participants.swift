// The commit loop: jobs are prepared, the batch is committed in one transaction, and each unit of work is completed or
// rolled back. It uses the store's port and does not know messages, protocols, threads or sockets.
//
// What handles one job after the other is inlinable, and a requirement of the protocol: so the compiler makes a copy of it
// for each chat protocol, in the protocol's target. Code that is generic at run time took a quarter of the commit thread.
// Types that inlinable code names have to be `@usableFromInline`, all others it reaches through functions.

public import Protection
import RequestQueue
public import StorePort

/// The state behind one store, shared by the participants of its transactions. One thread at a time uses it.
///
/// A chat protocol defines its own jobs and replies, so that no protocol sees those of another.
@usableFromInline
package protocol Participants: SendableMetatype {
    /// A request of a connection. Jobs take effect in their order.
    associatedtype Job: Sendable
    /// A message to a connection, always sent after the commit.
    associatedtype Reply: Sendable
    /// The name of a row that several units of a batch may change, such as a ratchet state.
    associatedtype SharedRow: Hashable, Sendable
    /// The work that ends a batch besides its units, such as the queue's turn.
    associatedtype Closing

    /// The store that the participants read, and that holds their commits.
    var store: OrderedStore { get }

    /// Where the rows of a job are. The store refuses others.
    func placement(of job: Job) -> Placement

    /// How a job may be prepared while an earlier batch is being committed.
    func lookahead(of job: Job) -> Lookahead

    /// Answers a job in a shard that this gateway does not own. The job is not prepared.
    mutating func refuse(_ job: Job, now: Timestamp) -> [AddressedReply<Reply>]

    /// Changes the state in memory and adds the rows, the reply and the rollback to the unit.
    mutating func prepare(_ job: Job, _ unit: inout UnitOfWork<Self>, now: Timestamp)

    /// Ends a batch after its last job, such as with the queue's turn.
    ///
    /// - Parameter units: may get further changes, such as the row of a request that a unit has queued.
    mutating func close(_ units: inout [UnitOfWork<Self>], now: Timestamp) -> (closing: Closing, group: ChangeGroup)

    /// The rows of the batch that units share, each as a group of its own.
    ///
    /// - Throws: an error if a row cannot be made; then nothing of the batch is committed.
    mutating func sharedChanges() throws -> [(row: SharedRow, group: ChangeGroup)]

    /// Handles the outcome of ``close(_:now:)``, before any unit is completed or rolled back.
    mutating func closed(_ closing: Closing, isCommitted: Bool, now: Timestamp)

    /// Returns the replies to the end of a batch, after all its units are completed or rolled back.
    mutating func settled(_ closing: Closing, isCommitted: Bool, now: Timestamp) -> [AddressedReply<Reply>]

    /// Drops uncommitted shared rows from memory, so that they are read from the store again.
    mutating func drop(_ rows: some Sequence<SharedRow>)

    /// Reloads one record after a unit that changed it was not committed.
    mutating func restore(_ kind: RecordKind, name: String)

    // MARK: For each job of a batch

    /// How many of these jobs can be prepared ahead, from the first one on.
    func countAhead(_ jobs: ArraySlice<Job>) -> Int

    /// Prepares jobs in their order, and adds the unit of each.
    mutating func prepare(_ jobs: [Job], into units: inout [UnitOfWork<Self>], now: Timestamp)

    /// Ends a batch after its last job.
    mutating func batch(of units: consuming [UnitOfWork<Self>], now: Timestamp) -> CommitBatch<Self>

    /// Completes or rolls back each unit, and returns the replies.
    ///
    /// - Parameter committed: what ``Store/commit(_:)`` returned; nil if it threw.
    mutating func complete(
        _ batch: consuming CommitBatch<Self>, committed: [StoreError?]?, now: Timestamp
    ) -> [AddressedReply<Reply>]

    /// The replies of each connection, in the order of their first ones.
    static func byConnection(
        _ replies: consuming [AddressedReply<Reply>]
    ) -> [(connection: ConnectionID, replies: [Reply])]
}

/// How a job may be prepared while an earlier batch is being committed.
@usableFromInline
package enum Lookahead: Sendable {
    /// Not at all. The job depends on completions of earlier ones, or its rollback tells somebody that it has failed.
    case none
    /// If the earlier batch is not committed entirely, the job is rolled back with ``RollbackCause/ahead`` and prepared
    /// again. Both times together leave what one time leaves.
    case repeated
    /// The job depends on nothing that a rollback undoes, and what it changes in memory stays: its rows are committed with
    /// a later batch if the earlier one fails.
    case lasting
}

/// The units of a batch of jobs, ready for one transaction.
@usableFromInline
package struct CommitBatch<State: Participants> {
    /// Groups of changes for ``Store/commit(_:)``: the shared rows, then the units, then the end of the batch.
    @usableFromInline
    package internal(set) var groups: [ChangeGroup] = []
    @usableFromInline
    var shared: [State.SharedRow] = []
    @usableFromInline
    var units: [UnitOfWork<State>]
    @usableFromInline
    let closing: State.Closing
    /// Why the shared rows could not be made; then the batch must not be committed. Usually nil.
    @usableFromInline
    package internal(set) var failure: StoreError?

    @inlinable
    init(_ units: consuming [UnitOfWork<State>], closing: State.Closing) {
        (self.units, self.closing) = (units, closing)
    }

    /// Whether there is nothing to commit.
    package var isEmpty: Bool { groups.allSatisfy(\.changes.isEmpty) }

    /// The result of ``Store/commit(_:)`` if no group fails.
    package var allCommitted: [StoreError?] { groups.map { _ in nil } }
}

extension Participants {
    package typealias Unit = UnitOfWork<Self>
    package typealias Replies = [AddressedReply<Reply>]

    /// Prepares jobs in their order. They take effect in ``complete(_:committed:now:)``.
    package mutating func prepare(_ jobs: [Job], now: Timestamp) -> CommitBatch<Self> {
        var units: [Unit] = []
        prepare(jobs, into: &units, now: now)
        return batch(of: consume units, now: now)
    }

    @inlinable
    package func countAhead(_ jobs: ArraySlice<Job>) -> Int {
        for index in jobs.indices where lookahead(of: jobs[index]) == .none { return index - jobs.startIndex }
        return jobs.count
    }

    @inlinable
    package mutating func prepare(_ jobs: [Job], into units: inout [UnitOfWork<Self>], now: Timestamp) {
        if units.isEmpty { units.reserveCapacity(jobs.count) }
        for job in jobs { units.append(unit(of: job, now: now)) }
    }

    /// Prepares one job.
    @inlinable
    mutating func unit(of job: Job, now: Timestamp) -> UnitOfWork<Self> {
        var unit = UnitOfWork<Self>(in: placement(of: job))
        prepare(job, &unit, now: now)
        return unit
    }

    @inlinable
    package mutating func batch(of units: consuming [UnitOfWork<Self>], now: Timestamp) -> CommitBatch<Self> {
        let (closing, end) = close(&units, now: now)
        var batch = CommitBatch<Self>(units, closing: closing)
        do {
            let shared = try sharedChanges()
            batch.groups.reserveCapacity(shared.count + batch.units.count + 1)
            var places: [SharedRow: Int] = [:]
            places.reserveCapacity(shared.count)
            for index in shared.indices {
                batch.shared.append(shared[index].row)
                batch.groups.append(shared[index].group)
                places[shared[index].row] = index
            }
            for index in batch.units.indices {
                var required: [Int] = []
                for row in batch.units[index].shared {
                    if let place = places[row] { required.append(place) }
                }
                batch.groups.append(
                    batch.units[index].rows.group(in: batch.units[index].placement, requires: required))
            }
            batch.groups.append(end)
        } catch {
            // Sealing under a key in memory does not fail. If it did, nothing of this batch could be committed.
            batch.groups = []
            batch.failure = StoreError(sealing: error)
        }
        return batch
    }

    @inlinable
    package mutating func complete(
        _ batch: consuming CommitBatch<Self>, committed: [StoreError?]?, now: Timestamp
    ) -> [AddressedReply<Reply>] {
        let isCommitted = batch.failure == nil && committed?.last == .some(nil)
        closed(batch.closing, isCommitted: isCommitted, now: now)
        var replies: [AddressedReply<Reply>] = []
        if isCommitted, let committed, committed.allSatisfy({ $0 == nil }) {
            replies.reserveCapacity(batch.units.count)
            for index in batch.units.indices { complete(batch.units, index, &replies, now) }
        } else {
            replies = endPartly(batch, committed, now)
        }
        return replies + settled(batch.closing, isCommitted: isCommitted, now: now)
    }

    /// Runs the completions of a unit and adds its reply.
    ///
    /// It reads members of the unit where the unit is. A method of the unit would copy it, and retain all that it has.
    @inlinable
    mutating func complete(
        _ units: [UnitOfWork<Self>], _ index: Int, _ replies: inout [AddressedReply<Reply>], _ now: Timestamp
    ) {
        units[index].completions.first?.action(&self, &replies, now)
        for place in units[index].completions.rest.indices {
            units[index].completions.rest[place].action(&self, &replies, now)
        }
        guard let reply = units[index].reply else { return }
        replies.append(AddressedReply(connection: reply.connection, reply: reply.reply))
    }

    @inlinable
    package static func byConnection(
        _ replies: consuming [AddressedReply<Reply>]
    ) -> [(connection: ConnectionID, replies: [Reply])] {
        var result: [(connection: ConnectionID, replies: [Reply])] = []
        var places: [ConnectionID: Int] = [:]
        for reply in replies {
            if let place = places[reply.connection] {
                result[place].replies.append(reply.reply)
            } else {
                places[reply.connection] = result.count
                result.append((reply.connection, [reply.reply]))
            }
        }
        return result
    }

    /// Completes or rolls back each unit of a batch that is not committed entirely, and returns the replies.
    @usableFromInline
    mutating func endPartly(
        _ batch: CommitBatch<Self>, _ committed: [StoreError?]?, _ now: Timestamp
    ) -> [AddressedReply<Reply>] {
        guard let committed, batch.failure == nil else {
            drop(batch.failure == nil ? batch.shared : batch.units.flatMap(\.shared))
            return finish(batch.units, batch.units.map { _ in false }, .batch, now)
        }
        drop(zip(batch.shared, committed).filter { $0.1 != nil }.map(\.0))
        // A unit that shares a rejected row was rejected with it.
        let isCommitted = committed.dropFirst(batch.shared.count).prefix(batch.units.count).map { $0 == nil }
        return finish(batch.units, isCommitted, .unit, now)
    }

    /// Rolls back the units that are not committed, then completes the others. The replies are in the order of the
    /// jobs.
    ///
    /// The last unit is rolled back first, because each has changed the state that earlier ones left.
    private mutating func finish(
        _ units: [Unit], _ isCommitted: [Bool], _ cause: RollbackCause, _ now: Timestamp
    ) -> Replies {
        var replies = [Replies](repeating: [], count: units.count)
        for index in units.indices.reversed() where !isCommitted[index] {
            if cause == .unit { drop(units[index].shared) }
            fail(units[index], cause, &replies[index], now)
        }
        for index in isCommitted.indices where isCommitted[index] {
            complete(units, index, &replies[index], now)
        }
        return replies.flatMap(\.self)
    }

    /// Rolls back units that were prepared ahead, the last one first.
    mutating func takeBack(_ units: some BidirectionalCollection<Unit>, _ now: Timestamp) {
        drop(units.flatMap(\.shared))
        for unit in units.reversed() {
            var unanswered: Replies = []
            undo(unit, .ahead, &unanswered, now)
        }
    }

    private mutating func fail(_ unit: Unit, _ cause: RollbackCause, _ replies: inout Replies, _ now: Timestamp) {
        if let failure = unit.failure { replies.append(.init(connection: failure.connection, reply: failure.reply)) }
        undo(unit, cause, &replies, now)
    }

    private mutating func undo(_ unit: Unit, _ cause: RollbackCause, _ replies: inout Replies, _ now: Timestamp) {
        var unit = unit
        unit.rollBack(&self, cause, &replies, now)
        var restored: Set<RecordName> = []
        for change in unit.changes {
            guard let record = RecordName(change), restored.insert(record).inserted else { continue }
            restore(record.kind, name: record.name.text)
        }
    }
}

extension StoreError {
    /// Rows of a batch could not be sealed.
    @usableFromInline
    init(sealing error: any Error) {
        self = error as? StoreError ?? .unavailable("The rows of a batch could not be sealed: \(error)")
    }
}

/// The name of a record that a change writes or removes.
private struct RecordName: Hashable {
    var kind: RecordKind
    var name: ExactText

    /// Nil if the change is not one of a record.
    init?(_ change: StoreChange) {
        guard case .rare(let change) = change, let record = change.record else { return nil }
        (kind, name) = (record.kind, ExactText(record.name))
    }
}
