// A gateway among those of its database: runs an `OwnershipMachine` over the control connection, on a thread of its own, so
// that neither a report nor a slow commit stops the beat.
//
// One gateway owns all shards and serves; the others stand by. So the machine has one shard, the whole store, and places it
// where it is. No job goes through the machine: `PostgresStore` commits under the epochs that the machine took.
//
// What the owner of a `Membership` is told: that the shards are its own (`owned`), that an operator has asked it to drain,
// and that it is at its end. It closes the store with `leave()`, and only then are the shards given back.

import Foundation
import Ownership
package import StoreBase
package import StorePort
import Synchronization

/// A gateway that has joined a database.
package final class Membership: GatewayTable, @unchecked Sendable {
    // `@unchecked`: the condition guards all variables.

    typealias Machine = OwnershipMachine<Never, Never>

    /// Why a gateway has to stop.
    package enum Ending: Sendable {
        /// Another gateway owns the shards, or has removed the row of this one.
        case takenOver
        case failed(StoreError)

        package var error: StoreError {
            switch self {
            case .takenOver: .takenOver()
            case .failed(let error): error
            }
        }
    }

    /// How the shards were taken.
    package struct Takeover: Sendable {
        /// The gateway that was suspected; nil if nobody owned the shards.
        package var from: String?
        /// Since when its beat had not changed, in milliseconds of ``now()``.
        package var since: Int64
    }

    /// Ours: milliseconds between two ticks of the machine.
    private static let tick = 100
    /// Ours: how long the database may give no answer until an opening fails, in milliseconds.
    private static let patience: Int64 = 10_000
    /// All shards together.
    private static let store = Shard(0)

    let joining: Joining
    /// The name of this gateway.
    package let name: String
    package let id: UInt64
    private let statements: ClusterStatements
    /// Until when this gateway is fresh, by ``now()``; read at each act.
    private let freshUntil = Atomic<Int64>(.min)
    private let condition = NSCondition()
    private let stop = Stop()

    private var machine: Machine
    private var inbox: [Machine.Event] = []
    private var reading: ClusterReading?
    private var readAt: Int64?
    /// The beats of the first reading.
    private var firstBeats: [Int64: Int64] = [:]
    /// The last failure, and since when there is no answer.
    private var silence: (error: StoreError, since: Int64)?
    private var taken: [(epoch: Int64, commits: Int64)] = []
    private var takeover: Takeover?
    private var owned: PostgresStore.State?
    /// Whether the outcome of a commit is unknown: views count for nothing until the epochs are raised.
    private var isInDoubt = false
    /// A release that waits for the end of the store.
    private var heldRelease: (operation: Ownership.Operation, mark: ShardMark)?
    private var isLeaving = false
    private var leaveBy: Int64 = .max
    private var ending: Ending?
    /// Whether ``Watch/ended`` is still to be called.
    private var isEndingUntold = false
    private var isAsked = false
    private var watch = Watch()
    private var connections: @Sendable () -> Int = { 0 }

    /// What is called, each on any thread. The beat may wait for the end of a call, so none of them may wait.
    package struct Watch: Sendable {
        /// After each change of ``standing``, and when shards are owned.
        package var changed: @Sendable () -> Void = {}
        /// After each answer that makes the gateway fresh.
        package var fresh: @Sendable () -> Void = {}
        /// Once, if an operator has asked this gateway to drain.
        package var asked: @Sendable () -> Void = {}
        /// Once, at the end.
        package var ended: @Sendable (Ending) -> Void = { _ in }

        package init() {}
    }

    /// A clock that no sleep of this machine stops; a virtual machine's clock may stand still.
    ///
    /// - Returns: milliseconds.
    package static func now() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
    }

    /// Checks a database, makes its tables if there are none, and joins its gateways.
    ///
    /// - Parameters:
    ///   - directory: of the key, the journal and the lock. It must not hold a store of its own.
    ///   - name: for people; nil for the name of the host.
    ///   - program: the version of the program.
    /// - Throws: ``StoreError``, with the remedy.
    package static func join(
        _ address: StoreAddress, directory: String, key: StorageKey.Source, name: String? = nil, program: String = ""
    ) throws(StoreError) -> Membership {
        try Membership(Joining(address, directory: directory, key: key), name: name, program: program)
    }

    init(_ joining: Joining, name: String? = nil, program: String = "") throws(StoreError) {
        self.joining = joining
        self.name = name ?? ProcessInfo.processInfo.hostName
        id = UInt64(bitPattern: joining.gateway)
        statements = ClusterStatements(control: joining.control, gateway: joining.gateway)
        machine = Machine(GatewayID(row: joining.gateway), shards: 1, placement: .kept)
        try statements.join(name: self.name, program: program)
        joining.witness.start()
        let (thread, stop) = (Running(self), stop)
        Thread.detachNewThread {
            thread.run()
            stop.confirm()
        }
    }

    /// What the thread holds until it has ended: the directory's lock is released with the last reference to the membership,
    /// and that is to be its user's.
    private final class Running: @unchecked Sendable {
        // `@unchecked`: one thread uses it.
        private var membership: Membership?

        init(_ membership: Membership) { self.membership = membership }

        func run() {
            membership?.run()
            membership = nil
        }
    }

    // MARK: Questions

    /// Whether this gateway may show and send what it knows. To be asked at the moment of the act.
    package var isFresh: Bool { Self.now() < freshUntil.load(ordering: .sequentiallyConsistent) }

    /// Since when no beat was answered, in milliseconds; nil before the first answer.
    package var beatAge: Int64? { condition.withLock { readAt.map { Self.now() - $0 } } }

    /// How the shards were taken; nil if they are not owned.
    package var takenHow: Takeover? { condition.withLock { owned == nil ? nil : takeover } }

    /// The name of the gateway that serves, as far as the last reading tells; nil if none does.
    package var serving: String? {
        condition.withLock {
            guard let reading, let owner = reading.gateway(reading.owner) else { return nil }
            return isSilent(owner.id) ? nil : owner.name
        }
    }

    /// What each gateway of the last reading does.
    package func gateways() -> [GatewayEntry] {
        condition.withLock {
            guard let reading else { return [] }
            let now = Self.now()
            let neighbours = Dictionary(machine.neighbours.map { ($0.member.id.row, $0) }) { $1 }
            return reading.entries(own: joining.gateway) { id in
                if id == joining.gateway { return (0, now - (readAt ?? now)) }
                let neighbour = neighbours[id]
                return (neighbour?.unchangedReads ?? 0, now - (neighbour?.since ?? now))
            }
        }
    }

    /// The rows of the shards in the last reading.
    package func shardEntries() -> [ShardRowEntry] { condition.withLock { reading?.shardEntries ?? [] } }

    private func isSilent(_ gateway: Int64) -> Bool {
        gateway != joining.gateway
            && machine.neighbours.contains { $0.member.id.row == gateway && $0.isSuspect }
    }

    // MARK: Acts

    /// Sets what is called, and calls what is due.
    package func follow(_ watch: Watch) {
        let (ending, isAsked) = condition.withLock {
            self.watch = watch
            isEndingUntold = false
            return (self.ending, self.isAsked)
        }
        if let ending { watch.ended(ending) }
        if isAsked { watch.asked() }
    }

    /// Sets what counts the connections of this gateway, for its row.
    package func count(_ connections: @escaping @Sendable () -> Int) {
        condition.withLock { self.connections = connections }
    }

    /// Asks a gateway to drain.
    ///
    /// - Returns: whether it has a row.
    package func ask(_ id: UInt64) throws(StoreError) -> Bool { try statements.ask(Int64(bitPattern: id)).known() }

    /// Removes the row of a gateway whose beat does not rise.
    ///
    /// - Returns: nil if it does; else whether it was there.
    package func forget(_ id: UInt64) throws(StoreError) -> Bool? {
        let row = Int64(bitPattern: id)
        let beat: Int64? = condition.withLock { isSilent(row) ? reading?.gateway(row)?.beat : nil }
        guard let beat else { return nil }
        return try statements.remove(row, beat: beat).known()
    }

    /// Begins to hand the shards over: others see that this gateway drains. They stay its own until ``leave()``.
    ///
    /// From then on the store tries for a short time only to connect to its database: the process has a time to end in.
    package func drain() {
        for link in [joining.writer, joining.reader] { link.hasten() }
        give(.drain)
    }

    /// Gives the shards back and leaves the gateways of the database. Nothing is committed afterwards. Waits for that, for
    /// some seconds at most: the database may be away.
    package func leave() {
        condition.withLock {
            guard !isLeaving else { return }
            isLeaving = true
            leaveBy = Self.now() + Int64(Stop.limit * 1000)
            inbox.append(.drain)
            condition.broadcast()
        }
        stop.request()
    }

    /// Ends the beat as if this process were stopped. For tests.
    func freeze() {
        condition.withLock {
            isLeaving = true
            leaveBy = .min
            condition.broadcast()
        }
        stop.request()
    }

    private func give(_ event: Machine.Event) {
        condition.withLock {
            inbox.append(event)
            condition.broadcast()
        }
    }

    /// Whether the shards are owned.
    package var isOwner: Bool { condition.withLock { owned != nil && ending == nil } }

    /// Waits for the shards.
    ///
    /// - Returns: what the take has told. The counters are still to be read.
    /// - Throws: ``StoreError/locked(_:)`` if another gateway owns them, and runs.
    func own() throws(StoreError) -> PostgresStore.State {
        let result: Result<PostgresStore.State, StoreError> = condition.withLock {
            while true {
                if let ending { return .failure(ending.error) }
                if let owned { return .success(owned) }
                if let name = otherOwner { return .failure(.otherGateway(name)) }
                if let silence, Self.now() - silence.since > Self.patience { return .failure(silence.error) }
                _ = condition.wait(until: Date(timeIntervalSinceNow: 1))
            }
        }
        return try result.get()
    }

    /// Waits until the shards are owned.
    ///
    /// - Throws: ``StoreError/locked(_:)`` if another gateway owns them, and runs. This one has left then.
    package func refuseOthers() throws(StoreError) {
        do throws(StoreError) { _ = try own() } catch {
            leave()
            throw error
        }
    }

    /// The name of another gateway that owns the shards, and whose beat has changed since this one has joined.
    package var runningOwner: String? { condition.withLock { otherOwner } }

    private var otherOwner: String? {
        guard let reading, let owner = reading.gateway(reading.owner), owner.id != joining.gateway else { return nil }
        return firstBeats[owner.id] == owner.beat ? nil : owner.name
    }

    /// Raises the epochs, after a commit of unknown outcome.
    func raise(in sharding: Sharding) throws(StoreError) -> Raised {
        condition.withLock { isInDoubt = true }
        let raised: Raised
        do throws(StoreError) {
            raised = try Raised(over: joining.control, by: joining.gateway, in: sharding)
        } catch {
            // Then the next view says so.
            if case .locked = error { condition.withLock { isInDoubt = false } }
            throw error
        }
        give(.settled(Self.store, raised.mark))
        return raised
    }

    // MARK: The thread

    private func run() {
        while true {
            let (actions, isOver): ([Machine.Action], Bool) = condition.withLock {
                if inbox.isEmpty, !isLeaving {
                    _ = condition.wait(until: Date(timeIntervalSinceNow: Double(Self.tick) / 1000))
                } else if inbox.isEmpty {
                    // A release that waits for an answer is not asked for more often.
                    _ = condition.wait(until: Date(timeIntervalSinceNow: 0.01))
                }
                var actions: [Machine.Action] = []
                let now = Self.now()
                for event in inbox {
                    if case .settled = event { isInDoubt = false }
                    actions += receive(event, now)
                }
                inbox = []
                actions += receive(.tick, now)
                if isLeaving, let held = heldRelease {
                    heldRelease = nil
                    actions.insert(.release(held.operation, Self.store, held.mark), at: 0)
                }
                return (actions, isLeaving && (machine.isDrained && actions.isEmpty || now >= leaveBy || ending != nil))
            }
            if isOver { break }
            perform(actions)
        }
        if condition.withLock({ leaveBy != .min }) { statements.leave() }
        joining.control.close()
        joining.witness.end()
    }

    /// Gives an event to the machine. The condition is locked.
    ///
    /// If the event ends this gateway, it may not act from here on, not only when the actions are performed.
    private func receive(_ event: Machine.Event, _ now: Int64) -> [Machine.Action] {
        let actions = machine.receive(event, now: now)
        if machine.isRolledBack {
            if !joining.acceptsRollback { setEnding(.failed(.rolledBackElsewhere())) }
        } else if isTakenOver(actions) {
            setEnding(.takenOver)
        }
        freshUntil.store(ending == nil ? machine.freshUntil ?? .min : .min, ordering: .sequentiallyConsistent)
        return actions
    }

    /// Whether actions end this gateway: it drops shards that it owns and does not release them. The condition is locked.
    private func isTakenOver(_ actions: [Machine.Action]) -> Bool {
        actions.indices.contains { place in
            switch actions[place] {
            case .end: true
            case .drop: owned != nil && !Self.isHandedOver(actions[place...])
            default: false
            }
        }
    }

    /// Whether the first of these actions drops shards, and the second one releases them.
    private static func isHandedOver(_ actions: ArraySlice<Machine.Action>) -> Bool {
        guard case .drop? = actions.first, case .release? = actions.dropFirst().first else { return false }
        return true
    }

    /// Performs actions in their order, with those that their answers bring.
    private func perform(_ first: [Machine.Action]) {
        tellEnding()
        var actions = first[...]
        while let action = actions.first {
            let isHandedOver = Self.isHandedOver(actions)
            actions.removeFirst()
            guard let event = answer(action, isHandedOver: isHandedOver) else { continue }
            let (more, calls) = condition.withLock {
                let more = receive(event, Self.now())
                condition.broadcast()
                return (more, due(after: event))
            }
            actions += more
            for call in calls { call() }
            tellEnding()
        }
    }

    /// Performs an action.
    ///
    /// - Parameter isHandedOver: whether a drop is followed by the release.
    /// - Returns: the answer; nil if there is none.
    private func answer(_ action: Machine.Action, isHandedOver: Bool) -> Machine.Event? {
        switch action {
        case .beat(let operation, _, let isDraining): return beat(operation, isDraining)
        case .take(let operation, _, let seen, let suspect): return take(operation, seen, suspect)
        case .load(let operation, _, let epoch): return load(operation, epoch)
        case .release(let operation, _, let mark): return release(operation, mark)
        case .drop:
            if !isHandedOver, condition.withLock({ owned != nil }) { end(.takenOver) }
            return nil
        case .remove(let gateway, let beat):
            _ = statements.remove(gateway.row, beat: Int64(bitPattern: beat))
            return nil
        case .reportRollback(let generation):
            if !joining.acceptsRollback {
                statements.reportRollback(generation: generation)
                end(.failed(.rolledBackElsewhere()))
            }
            return nil
        case .end:
            end(.takenOver)
            return nil
        // No job and no rise goes through this machine, and it has no links.
        case .commit, .send, .reply, .answer, .announce, .inEffect: return nil
        }
    }

    private func beat(_ operation: Ownership.Operation, _ isDraining: Bool) -> Machine.Event {
        let counted = condition.withLock { connections }
        let sent = Self.now()
        switch statements.beat(isDraining: isDraining, connections: counted()) {
        case .success(let reading):
            return condition.withLock {
                silence = nil
                guard !isInDoubt else { return .unanswered(operation) }
                guard reading.isMember else { return .rowMissing(operation) }
                if self.reading == nil {
                    firstBeats = Dictionary(reading.gateways.map { ($0.id, $0.beat) }) { $1 }
                }
                (self.reading, readAt) = (reading, sent)
                if owned == nil, !joining.acceptsRollback { joining.witness.note(reading.shards) }
                return .view(operation, reading.view(ignoringRollback: joining.acceptsRollback))
            }
        case .failure(let failure):
            switch failure {
            case .own(let error): end(.failed(error))
            // The store was moved elsewhere.
            case .refused(.noTable, _), .refused(.noSchema, _): end(.failed(StoreError(failure)))
            case .refused, .lost, .unreachable: break
            }
            condition.withLock {
                silence = (StoreError(failure), silence?.since ?? sent)
                condition.broadcast()
            }
            return .unanswered(operation)
        }
    }

    private func take(_ operation: Ownership.Operation, _ seen: UInt64, _ suspect: Suspect?) -> Machine.Event {
        let (epochs, how): ([Int64]?, Takeover) = condition.withLock {
            let from = suspect.flatMap { reading?.gateway($0.id.row)?.name }
            let since = suspect.flatMap { suspect in
                machine.neighbours.first { $0.member.id == suspect.id }?.since
            }
            let epochs = reading?.mark.epoch == seen ? reading?.shards.map(\.epoch) : nil
            return (epochs, Takeover(from: from, since: since ?? Self.now()))
        }
        guard let epochs else { return .refused(operation) }
        switch statements.take(epochs, from: suspect) {
        case .success(let marks):
            condition.withLock {
                (taken, takeover) = (marks, how)
                reading?.note(marks, of: joining.gateway, from: suspect?.id.row)
            }
            return .taken(operation, .sum(marks))
        case .failure(.refused(.divisionByZero, _)): return .refused(operation)
        case .failure(let failure):
            if case .own(let error) = failure { end(.failed(error)) }
            return .unanswered(operation)
        }
    }

    private func load(_ operation: Ownership.Operation, _ epoch: UInt64) -> Machine.Event {
        let marks = condition.withLock { taken }
        guard ShardMark.sum(marks).epoch == epoch else { return .unanswered(operation) }
        let shards = (0..<Schema.shards).map { Shard(UInt8($0)) }
        let state = PostgresStore.State(
            gateway: joining.gateway,
            epochs: zip(shards, marks).map { ShardEpoch($0, UInt64(bitPattern: $1.epoch)) },
            commits: Dictionary(zip(shards, marks.map(\.commits))) { $1 }, counters: Counters())
        // A command that accepts a rollback keeps what is known until it has done so.
        if !joining.acceptsRollback { joining.witness.note(state) }
        condition.withLock { if owned == nil { owned = state } }
        return .loaded(operation, epoch: epoch)
    }

    private func release(_ operation: Ownership.Operation, _ mark: ShardMark) -> Machine.Event? {
        let isHeld = condition.withLock {
            guard owned != nil, !isLeaving else { return false }
            heldRelease = (operation, mark)
            return true
        }
        guard !isHeld else { return nil }
        return switch statements.release(mark.epoch) {
        case .success: .released(operation)
        case .failure: .unanswered(operation)
        }
    }

    // MARK: Calls

    private func end(_ ending: Ending) {
        condition.withLock {
            setEnding(ending)
            condition.broadcast()
        }
        tellEnding()
    }

    private func tellEnding() {
        let (call, ending) = condition.withLock {
            defer { isEndingUntold = false }
            return (watch.ended, isEndingUntold ? self.ending : nil)
        }
        if let ending { call(ending) }
    }

    /// The condition is locked.
    private func setEnding(_ ending: Ending) {
        if self.ending == nil { (self.ending, isEndingUntold) = (ending, true) }
        freshUntil.store(.min, ordering: .sequentiallyConsistent)
    }

    /// What is to be called after an event. The condition is locked.
    private func due(after event: Machine.Event) -> [() -> Void] {
        switch event {
        case .view:
            guard ending == nil else { return [watch.changed] }
            var calls: [() -> Void] = [watch.changed, watch.fresh]
            if !isAsked, reading?.gateway(joining.gateway)?.isAsked == true {
                isAsked = true
                inbox.append(.drain)
                calls.append(watch.asked)
            }
            return calls
        case .loaded: return [watch.changed]
        default: return []
        }
    }
}

extension ClusterReading {
    /// - Parameter ignoringRollback: for the command that accepts one.
    func view(ignoringRollback: Bool) -> ClusterView {
        ClusterView(
            members: gateways.map {
                Member(
                    id: GatewayID(row: $0.id), address: "", beat: UInt64(bitPattern: $0.beat),
                    // One that was asked to drain takes nothing, although its next beat is the first to say so.
                    isDraining: $0.isDraining || $0.isAsked, seen: 0)
            },
            shards: [ShardRow(owner: owner.map { GatewayID(row: $0) }, mark: mark)], version: 0, isWhole: true,
            generation: UInt64(bitPattern: generation), isRolledBack: isRolledBack && !ignoringRollback)
    }
}
