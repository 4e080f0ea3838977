// The ownership of shards by one of several gateways on one database, as a machine: events go in, actions come out. It has
// no socket, thread, clock or random source; `OWNERSHIP.md` has the protocol and what it promises.
//
// What keeps writes safe is one rule alone: each commit checks the epochs of its shards and keeps their rows locked. All
// else (beats, suspicion, placement) only decides who tries. What keeps texts safe is the fresh time: a gateway that has
// not read the cluster for so long shows and sends nothing on what it knew.
//
// It does not know what jobs are, nor how rows are stored. The runner performs the actions in their order and passes each
// answer on; answers that come twice, or after they were given up, do nothing.

package import StorePort

/// One gateway among several.
package struct OwnershipMachine<Job: Sendable, Reply: Sendable>: Sendable {
    package typealias Event = OwnershipEvent<Job, Reply>
    package typealias Action = OwnershipAction<Job, Reply>

    private typealias Limits = OwnershipLimits

    private enum Phase: Sendable {
        /// Another gateway's, nobody's, or this gateway's without its knowing.
        case idle
        case taking(Operation)
        /// Owned and not loaded. Without an operation it is loaded again after the next view.
        case loading(Operation?, epoch: UInt64)
        case owned(epoch: UInt64)
        case releasing(Operation)
        /// The outcome of commit `number` is unknown until the epoch has risen from `seen`.
        case unsettled(Operation?, seen: UInt64, number: UInt64)
    }

    private struct Slot: Sendable {
        var phase = Phase.idle
        /// The number of the last commit.
        var commits: UInt64 = 0
        /// Jobs to perform as the owner.
        var queue: [BatchJob<Job>] = []
        /// Given up when the commit under way has ended.
        var isLeaving = false
        /// The row in the last view is known to be outdated.
        var waitsForView = false
    }

    /// A job of an own client.
    private struct OwnJob: Sendable {
        enum Place: Sendable {
            case waiting
            /// The owner that was asked is none: asked again after the next view.
            case refused
            case here
            case sent(GatewayID)
        }

        let token: JobToken
        let job: Job
        let since: Int64
        var place = Place.waiting
        /// Whether it has ever left this list.
        var wasRouted = false
        /// The epoch in which it was sent last, and how often in this one.
        var epoch: UInt64 = 0
        var copies = 0
    }

    private struct Batch: Sendable {
        let operation: Operation
        let fences: [Fence]
        let jobs: [BatchJob<Job>]
    }

    private enum Waiter: Sendable {
        case job(BatchJob<Job>, Reply)
        case act(ticket: UInt64)
    }

    private enum Condition: Sendable {
        case running
        /// The database knows less than a gateway has seen. Only the operator ends this.
        case rolledBack
        case ended
    }

    private let id: GatewayID
    private let placement: ShardPlacement
    private var condition = Condition.running
    private var actions: [Action] = []
    private var nextNumber: UInt64 = 1

    private var beat: (operation: Operation, sent: Int64)?
    private var nextBeat: Int64 = .min
    private var freshFrom: Int64?
    /// The operation of the last view.
    private var lastView: UInt64 = 0
    private var isDraining = false

    private var members = Members()
    private var connected: [GatewayID] = []
    private var rows: [ShardRow]
    private var candidates: [GatewayID] = []
    private var wanted: [GatewayID?]
    /// What a database must know, and from which operation on.
    package private(set) var witness: Witness
    private var learned: [UInt64]
    private var learnedVersion: UInt64 = 0
    /// The last rise that is in effect in this process, with all before it.
    private var seen: UInt64 = 0

    private var slots: [Slot]
    private var pending: [Operation: Int] = [:]
    private var batch: Batch?
    /// After a refused commit the next one waits for a tick.
    private var isPausing = false
    private var firstOfBatch = 0
    private var queued = 0
    /// The tokens of all queued jobs and of the batch: a job that comes twice is performed once.
    private var performing: Set<JobToken> = []

    private var ownJobs: [[OwnJob]]
    private var ownCount = 0
    private var barriers = Barriers<Waiter>()

    /// - Parameters:
    ///   - shards: how many there are, at most 256.
    ///   - witness: that of the process before on this machine, if there was one.
    package init(_ id: GatewayID, shards: Int, placement: ShardPlacement = .balanced, witness: Witness? = nil) {
        precondition((1...256).contains(shards) && (witness.map { $0.marks.count == shards } ?? true))
        (self.id, self.placement) = (id, placement)
        self.witness = witness ?? Witness(shards: shards)
        rows = Array(repeating: ShardRow(owner: nil, mark: ShardMark(epoch: 0, commits: 0)), count: shards)
        wanted = Array(repeating: nil, count: shards)
        learned = Array(repeating: 0, count: shards)
        slots = Array(repeating: Slot(), count: shards)
        ownJobs = Array(repeating: [], count: shards)
    }

    // MARK: Questions

    /// Whether this gateway may act on what it knows: show plaintext, trust that a conversation has no latch, send.
    ///
    /// To be asked at the moment of the act.
    package func isFresh(now: Int64) -> Bool { freshUntil.map { now < $0 } ?? false }

    /// When this gateway is not fresh any more, unless another beat is answered; nil if it is not fresh.
    package var freshUntil: Int64? {
        guard case .running = condition, let freshFrom else { return nil }
        return freshFrom + Limits.freshTime
    }

    /// Whether nothing is left to hand over.
    package var isDrained: Bool {
        isDraining && batch == nil && ownCount == 0
            && slots.allSatisfy { if case .idle = $0.phase { true } else { false } }
    }

    /// The gateways of the last view.
    package var neighbours: [Neighbour] {
        members.entries.map {
            Neighbour(member: $0.member, unchangedReads: $0.unchanged, since: $0.since, isSuspect: $0.isSuspect)
        }
    }

    /// Whether the database was found rolled back, and the operator has not accepted that.
    package var isRolledBack: Bool { if case .rolledBack = condition { true } else { false } }

    /// The shards that are owned and loaded.
    package var ownedShards: [ShardEpoch] {
        slots.indices.compactMap { shard in
            if case .owned(let epoch) = slots[shard].phase { ShardEpoch(Self.shard(shard), epoch) } else { nil }
        }
    }

    // MARK: Events

    /// Takes an event.
    ///
    /// - Returns: what has to be done, in this order.
    package mutating func receive(_ event: Event, now: Int64) -> [Action] {
        if case .ended = condition { return [] }
        switch event {
        case .tick:
            isPausing = false
            giveUp(now: now)
            endBarriers(now: now)
        case .view(let operation, let view): read(view, operation, now: now)
        case .rowMissing(let operation): if beat?.operation == operation { end() }
        case .taken(let operation, let mark): taken(operation, mark)
        case .loaded(let operation, let epoch): loaded(operation, epoch, now: now)
        case .released(let operation), .refused(let operation), .unanswered(let operation): ended(operation)
        case .committed(let operation, let results): committed(operation, results, now: now)
        case .failed(let operation, let isKnown): failed(operation, isKnown)
        case .fenced(let operation, let shard): fenced(operation, Int(shard.number))
        case .unknown(let operation): unknown(operation)
        case .submit(let token, let shard, let job): submit(token, shard, job, now: now)
        case .job(let gateway, let job): take(job, from: gateway)
        case .reply(let gateway, let reply): take(reply, from: gateway)
        case .connected(let gateway): connect(gateway)
        case .disconnected(let gateway): disconnect(gateway)
        case .acknowledged(let gateway, let version):
            barriers.acknowledge(gateway, version)
            endBarriers(only: version, now: now)
        case .raised(let version, let ticket): wait(.act(ticket: ticket), for: version, now: now)
        case .settled(let shard, let mark): settled(Int(shard.number), mark)
        case .drain:
            isDraining = true
            nextBeat = now
        }
        raiseBeat(now: now)
        startBatch(now: now)
        var done: [Action] = []
        swap(&done, &actions)
        return done
    }

    private static func shard(_ index: Int) -> Shard { Shard(UInt8(index)) }

    private mutating func operation() -> Operation {
        defer { nextNumber += 1 }
        return Operation(nextNumber)
    }

    // MARK: Beats and views

    private mutating func raiseBeat(now: Int64) {
        if case .ended = condition { return }
        if let beat, now - beat.sent < Limits.beatTimeout { return }
        guard beat != nil || now >= nextBeat else { return }
        let operation = operation()
        beat = (operation, now)
        nextBeat = now + Limits.beatInterval
        actions.append(.beat(operation, seen: seen, isDraining: isDraining))
    }

    private mutating func read(_ view: ClusterView, _ operation: Operation, now: Int64) {
        guard let beat, beat.operation == operation else { return }
        self.beat = nil
        guard view.shards.count == slots.count else { return }
        if view.generation > witness.generation { begin(view) }
        guard !view.isRolledBack else { return halt() }
        guard case .running = condition, view.generation == witness.generation, noteMarks(view, operation) else {
            return report()
        }
        if view.version > witness.version { (witness.version, learnedVersion) = (view.version, nextNumber) }
        seen = max(seen, view.version)
        // A reading that leaves rises out makes nobody fresh. The rest is read at once.
        if view.isWhole { freshFrom = beat.sent } else { nextBeat = now }
        lastView = operation.number
        members.read(view.members, now: now)
        for entry in members.entries where entry.unchanged == Limits.removeReads && entry.member.id != id {
            actions.append(.remove(entry.member.id, beat: entry.member.beat))
        }
        barriers.read(members, own: id, now: now)
        endBarriers(now: now)
        for shard in slots.indices { slots[shard].waitsForView = false }
        place()
        routeAfterView()
    }

    /// Notes how far shards and rises have come.
    ///
    /// - Returns: whether the database knows at least what this gateway knew when it sent the beat.
    private mutating func noteMarks(_ view: ClusterView, _ operation: Operation) -> Bool {
        if view.version < witness.version, view.isWhole, operation.number >= learnedVersion { return false }
        for shard in slots.indices {
            switch note(view.shards[shard].mark, of: shard, operation) {
            case .new: rows[shard] = view.shards[shard]
            case .outdated: break
            case .rolledBack: return false
            }
        }
        return true
    }

    private enum Note { case new, outdated, rolledBack }

    private mutating func note(_ mark: ShardMark, of shard: Int, _ operation: Operation) -> Note {
        if mark.isBehind(witness.marks[shard]) { return operation.number >= learned[shard] ? .rolledBack : .outdated }
        if mark != witness.marks[shard] { (witness.marks[shard], learned[shard]) = (mark, nextNumber) }
        return .new
    }

    /// Begins anew on a database whose rollback the operator has accepted.
    private mutating func begin(_ view: ClusterView) {
        halt()
        condition = .running
        // Rises of the time before may be in another order now.
        seen = 0
        witness.generation = view.generation
        (witness.marks, witness.version) = (view.shards.map(\.mark), view.version)
    }

    /// Stops on a database that was rolled back.
    private mutating func halt() {
        guard case .running = condition else { return }
        condition = .rolledBack
        freshFrom = nil
        batch = nil
        pending = [:]
        barriers.removeAll()
        for shard in slots.indices {
            if case .idle = slots[shard].phase {} else { actions.append(.drop(Self.shard(shard))) }
            giveBack(slots[shard].queue)
            slots[shard] = Slot()
            for place in ownJobs[shard].indices { ownJobs[shard][place].place = .refused }
        }
        (queued, performing) = (0, [])
    }

    private mutating func end() {
        halt()
        condition = .ended
        actions.append(.end)
    }

    // MARK: Placement

    /// Takes the shards that should be here, and releases those that should not.
    private mutating func place() {
        let now = members.candidates(own: id)
        if now != candidates || placement == .kept {
            candidates = now
            for shard in wanted.indices { wanted[shard] = home(of: shard) }
        }
        var takes = pending.count
        for shard in slots.indices {
            let row = rows[shard]
            switch slots[shard].phase {
            case .idle where slots[shard].waitsForView: break
            case .idle where wanted[shard] == id:
                guard takes < Limits.takesAtOnce, let suspect = takeable(row) else { continue }
                takes += 1
                slots[shard].phase = .taking(take(shard, seen: row.mark.epoch, from: suspect))
            case .idle: if row.owner == id { release(shard, row.mark) }
            case .loading(nil, let epoch): load(shard, epoch)
            case .loading(_, let epoch), .owned(let epoch):
                // A database that was rolled back may show this epoch as another gateway's.
                if row.mark.epoch > epoch || row.owner != id {
                    lose(shard)
                } else {
                    leave(shard, wanted[shard] != id)
                }
            case .unsettled(nil, let seen, let number):
                if row.mark.epoch == seen || row.owner == id {
                    let operation = take(shard, seen: row.mark.epoch, from: nil)
                    slots[shard].phase = .unsettled(operation, seen: row.mark.epoch, number: number)
                } else {
                    lose(shard)
                }
            case .taking, .releasing, .unsettled: break
            }
        }
    }

    /// The gateway that should own a shard.
    private func home(of shard: Int) -> GatewayID? {
        if placement == .kept, let owner = rows[shard].owner, candidates.contains(owner) { return owner }
        return Rendezvous.owner(of: Self.shard(shard), among: candidates)
    }

    /// Whether a shard's row lets it be taken: nil if a live gateway owns it; else the suspect, if there is one.
    private func takeable(_ row: ShardRow) -> Suspect?? {
        guard let owner = row.owner, owner != id else { return .some(nil) }
        return members.isLive(owner) ? nil : .some(Suspect(id: owner, beat: members.entry(owner)?.member.beat))
    }

    private mutating func take(_ shard: Int, seen: UInt64, from suspect: Suspect?) -> Operation {
        let operation = operation()
        pending[operation] = shard
        actions.append(.take(operation, Self.shard(shard), seen: seen, from: suspect))
        return operation
    }

    private mutating func load(_ shard: Int, _ epoch: UInt64) {
        let operation = operation()
        pending[operation] = shard
        slots[shard].phase = .loading(operation, epoch: epoch)
        actions.append(.load(operation, Self.shard(shard), epoch: epoch))
    }

    private mutating func release(_ shard: Int, _ mark: ShardMark) {
        let operation = operation()
        pending[operation] = shard
        slots[shard].phase = .releasing(operation)
        actions.append(.release(operation, Self.shard(shard), mark))
    }

    /// Releases an owned shard as soon as no commit of it is under way, or keeps it.
    private mutating func leave(_ shard: Int, _ isLeaving: Bool) {
        slots[shard].isLeaving = isLeaving
        guard isLeaving else { return }
        emptyQueue(shard)
        guard case .owned(let epoch) = slots[shard].phase, !isCommitting(shard) else { return }
        actions.append(.drop(Self.shard(shard)))
        slots[shard].isLeaving = false
        release(shard, ShardMark(epoch: epoch, commits: slots[shard].commits))
    }

    private func isCommitting(_ shard: Int) -> Bool {
        batch?.fences.contains { Int($0.shard.number) == shard } ?? false
    }

    /// Ends the ownership of a shard that another gateway has, or may have.
    private mutating func lose(_ shard: Int) {
        actions.append(.drop(Self.shard(shard)))
        emptyQueue(shard)
        slots[shard].phase = .idle
        (slots[shard].isLeaving, slots[shard].waitsForView) = (false, true)
    }

    private mutating func taken(_ operation: Operation, _ mark: ShardMark) {
        guard let shard = pending.removeValue(forKey: operation) else { return }
        var number: UInt64?
        switch slots[shard].phase {
        case .taking(operation): break
        case .unsettled(operation, _, let of): number = of
        default: return
        }
        switch note(mark, of: shard, operation) {
        case .new: break
        case .outdated: return lose(shard)
        case .rolledBack: return report()
        }
        // The epoch has risen, so the unknown commit happened before that or never will.
        if let number, mark.commits != number, mark.commits + 1 != number { return report() }
        rows[shard] = ShardRow(owner: id, mark: mark)
        slots[shard].commits = mark.commits
        load(shard, mark.epoch)
    }

    /// An owned shard has a higher epoch, which this gateway gave it.
    private mutating func settled(_ shard: Int, _ mark: ShardMark) {
        guard slots.indices.contains(shard), case .owned(let epoch) = slots[shard].phase, mark.epoch > epoch else {
            return
        }
        if mark.isBehind(witness.marks[shard]) { return report() }
        (witness.marks[shard], learned[shard]) = (mark, nextNumber)
        rows[shard] = ShardRow(owner: id, mark: mark)
        slots[shard].commits = mark.commits
        slots[shard].phase = .owned(epoch: mark.epoch)
    }

    private mutating func report() {
        actions.append(.reportRollback(generation: witness.generation))
        halt()
    }

    private mutating func loaded(_ operation: Operation, _ epoch: UInt64, now: Int64) {
        guard let shard = pending[operation], case .loading(operation, let own) = slots[shard].phase else { return }
        pending[operation] = nil
        guard epoch == own else { return lose(shard) }
        slots[shard].phase = .owned(epoch: own)
        if slots[shard].isLeaving { leave(shard, true) } else { route(shard) }
        place()
    }

    /// A release, or an operation that changed nothing as far as is known.
    private mutating func ended(_ operation: Operation) {
        if beat?.operation == operation { beat = nil }
        guard let shard = pending.removeValue(forKey: operation) else { return }
        slots[shard].waitsForView = true
        switch slots[shard].phase {
        case .taking, .releasing: slots[shard].phase = .idle
        case .loading(_, let epoch): slots[shard].phase = .loading(nil, epoch: epoch)
        case .unsettled(_, let seen, let number): slots[shard].phase = .unsettled(nil, seen: seen, number: number)
        case .idle, .owned: break
        }
    }

    // MARK: Commits

    private mutating func startBatch(now: Int64) {
        guard batch == nil, queued > 0, !isPausing, isFresh(now: now) else { return }
        var jobs: [BatchJob<Job>] = []
        var fences: [Fence] = []
        let start = firstOfBatch
        for place in slots.indices {
            let shard = (start + place) % slots.count
            guard case .owned(let epoch) = slots[shard].phase, !slots[shard].queue.isEmpty else { continue }
            let room = Limits.batchJobs - jobs.count
            // The next batch begins with the first shard that did not fit.
            guard room > 0 else {
                firstOfBatch = shard
                break
            }
            jobs += slots[shard].queue.prefix(room)
            slots[shard].queue.removeFirst(min(room, slots[shard].queue.count))
            fences.append(Fence(shard: Self.shard(shard), epoch: epoch, number: slots[shard].commits + 1))
        }
        guard !jobs.isEmpty else { return }
        queued -= jobs.count
        // All owners lock rows in one order.
        fences.sort { $0.shard < $1.shard }
        let operation = operation()
        batch = Batch(operation: operation, fences: fences, jobs: jobs)
        actions.append(.commit(operation, fences, jobs))
    }

    /// The batch, if an outcome is that of the commit under way.
    private mutating func endBatch(_ operation: Operation) -> Batch? {
        guard let ended = batch, ended.operation == operation else { return nil }
        batch = nil
        return ended
    }

    private mutating func committed(_ operation: Operation, _ results: [JobResult<Reply>], now: Int64) {
        guard let batch = endBatch(operation), results.count == batch.jobs.count else { return }
        for fence in batch.fences {
            let shard = Int(fence.shard.number)
            _ = note(ShardMark(epoch: fence.epoch, commits: fence.number), of: shard, operation)
            if case .owned(fence.epoch) = slots[shard].phase { slots[shard].commits = fence.number }
        }
        for (job, result) in zip(batch.jobs, results) {
            performing.remove(job.token)
            wait(.job(job, result.reply), for: result.version, now: now)
        }
        leaveAfter(batch)
    }

    private mutating func leaveAfter(_ batch: Batch) {
        for fence in batch.fences {
            let shard = Int(fence.shard.number)
            if slots[shard].isLeaving { leave(shard, true) }
        }
    }

    private mutating func failed(_ operation: Operation, _ isKnown: [Bool]) {
        guard let batch = endBatch(operation) else { return }
        isPausing = true
        var repeated: [BatchJob<Job>] = []
        for (place, job) in batch.jobs.enumerated() {
            // What an earlier commit has written cannot be said to be not sent.
            guard isKnown.count == batch.jobs.count, !isKnown[place] else {
                repeated.append(job)
                continue
            }
            performing.remove(job.token)
            answer(job, .failed)
        }
        requeue(repeated)
        leaveAfter(batch)
    }

    private mutating func fenced(_ operation: Operation, _ lost: Int) {
        guard let batch = endBatch(operation) else { return }
        requeue(batch.jobs)
        if let fence = batch.fences.first(where: { Int($0.shard.number) == lost }),
            case .owned(fence.epoch) = slots[lost].phase
        {
            lose(lost)
        }
        leaveAfter(batch)
    }

    private mutating func unknown(_ operation: Operation) {
        guard let batch = endBatch(operation) else { return }
        requeue(batch.jobs)
        for fence in batch.fences {
            let shard = Int(fence.shard.number)
            guard case .owned(fence.epoch) = slots[shard].phase else { continue }
            actions.append(.drop(fence.shard))
            let operation = take(shard, seen: fence.epoch, from: nil)
            slots[shard].phase = .unsettled(operation, seen: fence.epoch, number: fence.number)
        }
    }

    /// Puts jobs of a batch before the others of their shards, or gives them back if the shard was lost meanwhile.
    ///
    /// - Parameter jobs: those of one shard stand together.
    private mutating func requeue(_ jobs: [BatchJob<Job>]) {
        var rest = jobs[...]
        while let first = rest.first {
            let shard = Int(first.shard.number)
            let own = rest.prefix { $0.shard == first.shard }
            rest = rest.dropFirst(own.count)
            if case .owned = slots[shard].phase, !slots[shard].isLeaving {
                slots[shard].queue.insert(contentsOf: own, at: 0)
                queued += own.count
            } else {
                for job in own { performing.remove(job.token) }
                giveBack(Array(own))
            }
        }
    }

    // MARK: Jobs as owner

    private mutating func take(_ sent: SentJob<Job>, from gateway: GatewayID) {
        let shard = Int(sent.shard.number)
        guard slots.indices.contains(shard) else { return }
        let job = BatchJob(
            token: sent.token, shard: sent.shard, job: sent.job, origin: .gateway(gateway, epoch: sent.epoch))
        guard isTaking(shard, in: sent.epoch), queued < Limits.queuedJobs else { return answer(job, .notMine) }
        // The first copy is performed; its sender asks again, in case it does not know the answer by then.
        guard performing.insert(sent.token).inserted else { return answer(job, .notMine) }
        enqueue(job, shard)
    }

    /// Whether jobs of a shard are taken: it is owned in an epoch, or about to be.
    private func isTaking(_ shard: Int, in epoch: UInt64) -> Bool {
        guard !slots[shard].isLeaving else { return false }
        switch slots[shard].phase {
        case .loading(_, epoch), .owned(epoch): return true
        default: return false
        }
    }

    private mutating func enqueue(_ job: BatchJob<Job>, _ shard: Int) {
        slots[shard].queue.append(job)
        queued += 1
    }

    private mutating func emptyQueue(_ shard: Int) {
        var jobs: [BatchJob<Job>] = []
        swap(&jobs, &slots[shard].queue)
        queued -= jobs.count
        for job in jobs { performing.remove(job.token) }
        giveBack(jobs)
    }

    private mutating func giveBack(_ jobs: [BatchJob<Job>]) {
        for job in jobs { answer(job, .notMine) }
    }

    private mutating func answer(_ job: BatchJob<Job>, _ outcome: JobOutcome<Reply>) {
        switch job.origin {
        case .gateway(let gateway, let epoch):
            actions.append(
                .reply(gateway, SentReply(token: job.token, shard: job.shard, epoch: epoch, outcome: outcome)))
        case .own: answerOwn(job.token, job.shard, outcome)
        }
    }

    // MARK: Barriers

    private mutating func wait(_ waiter: Waiter, for version: UInt64, now: Int64) {
        // A rise of the time before a rollback was accepted has a number that says nothing afterwards.
        guard case .running = condition else { return }
        guard version > barriers.complete else { return release(waiter) }
        guard barriers.wait(waiter, for: version, next: nextNumber, now: now) else { return }
        actions.append(.announce(version: version))
        nextBeat = now
    }

    private mutating func release(_ waiter: Waiter) {
        switch waiter {
        case .job(let job, let reply): answer(job, .done(reply))
        case .act(let ticket): actions.append(.inEffect(ticket: ticket))
        }
    }

    /// - Parameter version: the only barrier that may have ended; nil for all.
    private mutating func endBarriers(only version: UInt64? = nil, now: Int64) {
        for waiter in barriers.end(only: version, members, view: lastView, own: id, now: now) { release(waiter) }
    }

    // MARK: Jobs of own clients

    private mutating func submit(_ token: JobToken, _ shard: Shard, _ job: Job, now: Int64) {
        let index = Int(shard.number)
        guard slots.indices.contains(index), ownCount < Limits.ownJobs, case .running = condition else {
            return actions.append(.answer(token, .notSent))
        }
        ownCount += 1
        ownJobs[index].append(OwnJob(token: token, job: job, since: now))
        route(index)
    }

    /// Brings the waiting jobs of a shard to its owner, as far as one is known.
    private mutating func route(_ shard: Int) {
        guard case .running = condition else { return }
        for place in ownJobs[shard].indices {
            guard case .waiting = ownJobs[shard][place].place else { continue }
            if case .owned(let epoch) = slots[shard].phase {
                guard !slots[shard].isLeaving, queued < Limits.queuedJobs else { return }
                note(place, of: shard, .here, epoch)
                let own = ownJobs[shard][place]
                guard performing.insert(own.token).inserted else { continue }
                enqueue(BatchJob(token: own.token, shard: Self.shard(shard), job: own.job, origin: .own), shard)
            } else if let owner = rows[shard].owner, owner != id, connected.contains(owner) {
                let epoch = rows[shard].mark.epoch
                note(place, of: shard, .sent(owner), epoch)
                let own = ownJobs[shard][place]
                actions.append(
                    .send(owner, SentJob(token: own.token, shard: Self.shard(shard), epoch: epoch, job: own.job)))
            } else {
                return
            }
        }
    }

    private mutating func note(_ place: Int, of shard: Int, _ to: OwnJob.Place, _ epoch: UInt64) {
        if ownJobs[shard][place].epoch != epoch { ownJobs[shard][place].copies = 0 }
        ownJobs[shard][place].epoch = epoch
        ownJobs[shard][place].copies += 1
        ownJobs[shard][place].place = to
        ownJobs[shard][place].wasRouted = true
    }

    /// Asks again what was refused, or was sent to an owner that is none any more.
    private mutating func routeAfterView() {
        guard ownCount > 0 else { return }
        for shard in ownJobs.indices where !ownJobs[shard].isEmpty {
            let row = rows[shard]
            for place in ownJobs[shard].indices {
                let own = ownJobs[shard][place]
                switch own.place {
                case .refused: ownJobs[shard][place].place = .waiting
                case .sent(let owner) where row.owner != owner || row.mark.epoch != own.epoch:
                    ownJobs[shard][place].place = .waiting
                case .waiting, .here, .sent: break
                }
            }
            route(shard)
        }
    }

    private mutating func take(_ reply: SentReply<Reply>, from gateway: GatewayID) {
        answerOwn(reply.token, reply.shard, reply.outcome, from: gateway, in: reply.epoch)
    }

    /// - Parameter gateway: nil if this one was the owner.
    private mutating func answerOwn(
        _ token: JobToken, _ shard: Shard, _ outcome: JobOutcome<Reply>, from gateway: GatewayID? = nil,
        in epoch: UInt64 = 0
    ) {
        let index = Int(shard.number)
        guard slots.indices.contains(index), let place = ownJobs[index].firstIndex(where: { $0.token == token })
        else { return }
        let own = ownJobs[index][place]
        let isExpected =
            switch own.place {
            case .sent(let asked): asked == gateway && own.epoch == epoch
            case .here: gateway == nil
            case .waiting, .refused: false
            }
        switch outcome {
        // What is committed is true, whichever copy of the job it was.
        case .done(let reply): finish(place, of: index, .done(reply))
        // A second copy in the same epoch may still be performed.
        case .failed where isExpected && own.copies == 1: finish(place, of: index, .notSent)
        case .failed where isExpected, .notMine where isExpected: ownJobs[index][place].place = .refused
        case .failed, .notMine: break
        }
    }

    private mutating func finish(_ place: Int, of shard: Int, _ answer: JobAnswer<Reply>) {
        let own = ownJobs[shard].remove(at: place)
        ownCount -= 1
        actions.append(.answer(own.token, answer))
    }

    /// Answers jobs that were sent nowhere for too long.
    private mutating func giveUp(now: Int64) {
        guard ownCount > 0 else { return }
        for shard in ownJobs.indices {
            while let place = ownJobs[shard].firstIndex(where: { !$0.wasRouted && now - $0.since >= Limits.routeTime })
            {
                finish(place, of: shard, .notSent)
            }
        }
    }

    // MARK: Links

    private mutating func connect(_ gateway: GatewayID) {
        guard !connected.contains(gateway) else { return }
        connected.append(gateway)
        for shard in ownJobs.indices where rows[shard].owner == gateway && !ownJobs[shard].isEmpty { route(shard) }
    }

    private mutating func disconnect(_ gateway: GatewayID) {
        connected.removeAll { $0 == gateway }
        for shard in ownJobs.indices {
            for place in ownJobs[shard].indices {
                if case .sent(gateway) = ownJobs[shard][place].place { ownJobs[shard][place].place = .waiting }
            }
        }
    }
}
