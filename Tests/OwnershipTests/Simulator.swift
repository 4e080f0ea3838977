// Several gateways on one database in one process: one seed makes all of a run, its clocks, delays and faults. The gateways
// are real machines; database, links, vaults, people and a chat backend are simulated. Times are microseconds of no clock.

import Ownership
import StorePort
import TestKit

/// One run.
final class Simulation {
    typealias Machine = OwnershipMachine<SimulatedJob, SimulatedReply>
    typealias Event = Machine.Event

    /// An operation on its way to the database.
    private enum Request {
        case beat(seen: UInt64, isDraining: Bool)
        case take(Int, seen: UInt64, from: Suspect?)
        case load(Int)
        case release(Int, ShardMark)
        case commit([Fence], [RowWrite], known: [Bool])
        case raise(Int)
        case report(generation: UInt64)
    }

    private enum Frame {
        case job(SentJob<SimulatedJob>)
        case reply(SentReply<SimulatedReply>)
        case rise(UInt64, conversation: Int)
        case acknowledged(UInt64)
    }

    /// An answer as the runner of a gateway gets it.
    private enum Answer {
        case event(Event)
        case view(Operation, ClusterView, rises: UInt64)
        case loaded(Operation, Int, epoch: UInt64, rows: [Conversation])
        case committed(Operation, [(conversation: Int, latch: UInt64)])
        case line(Int, Line)
        case frame(from: Int, Frame)
        case raised(UInt64, Int)
        case resubmit(SimulatedJob)
    }

    private enum Step {
        case tick(Int, life: Int)
        case arrive(Int, server: Int, Operation, GatewayID, Request, Way)
        case apply(Int, life: Int, Operation, [Fence], [RowWrite], answers: Int, delay: Int64)
        case answer(Int, life: Int, Answer)
        case sent(Int, life: Int, from: Int, fromLife: Int, Frame)
        case start(Int)
        case resume(Int, life: Int)
        case join(Int, life: Int, Int, otherLife: Int)
        case attach(Int, isSender: Bool)
        case text, raise, fault, calm, accept, check
    }

    /// A commit that a vault has prepared.
    private struct Prepared {
        var operation: Operation
        var writes: [(write: RowWrite, load: Operation?)]
        var results: [(reply: SimulatedReply, conversation: Int, isSeal: Bool)]
    }

    private final class Node {
        var machine: Machine?
        var id = GatewayID(0)
        /// Counts its processes; what was on its way to another one is dropped.
        var life = 0
        var isPaused = false
        var isDraining = false
        var inbox: [Answer] = []
        /// 1024 is the speed of the simulation.
        var speed: Int64 = 1024
        var offset: Int64 = 0
        /// The rows of each shard in memory, and the load that they came with.
        var memory: [[Conversation]?] = Array(repeating: nil, count: SimulatedStore.shards)
        var loads: [Operation?] = Array(repeating: nil, count: SimulatedStore.shards)
        var prepared: Prepared?
        /// The conversations that it knows to be latched.
        var filter: UInt64 = 0
        var riseOf: [UInt64: Int] = [:]
        var jobs: [JobToken: SimulatedJob] = [:]
        /// Texts shown by this process, by conversation and key.
        var shown: [UInt64] = Array(repeating: 0, count: SimulatedStore.conversations)
        var shownTexts: [(conversation: Int, key: Int, message: Int)] = []
        var held: [(message: Int, conversation: Int, line: Line)] = []
        var witness: Witness?
        var savedAt: Int64 = 0
        var cutUntil: Int64 = 0

        func own(_ now: Int64) -> Int64 { offset + now * speed / 1_024_000 }
    }

    private struct Text {
        var conversation: Int
        /// The line that was committed first.
        var committed: Line?
        var isNotSent = false
        var seen = 0
        var allowed = 0
        /// Whether a rollback may have taken any of it.
        var isLost = false
    }

    private let mutant: Mutant?
    private let hasRollback: Bool
    /// In some runs shards stay where they are.
    private let placement: ShardPlacement
    private var random: SeededGenerator
    private var store: SimulatedStore
    private var nodes: [Node]
    private var queue = StepQueue<Step>()
    private var now: Int64 = 0
    private var linked: [[Bool]]
    private var lastFrame: [[Int64]]
    private var texts: [Text] = []
    /// By conversation: the gateways of both people, the lines that left, and the text of each key.
    private var senders: [Int]
    private var recipients: [Int]
    private var lines: [[Line]]
    private var textOfKey: [[Int: Int]]
    /// The conversations whose first latch has returned.
    private var returned: UInt64 = 0
    private var isCalm = false
    private var calmFrom: Int64 = 0
    /// What the seed does.
    private let storeFaults: Int
    private let faults: [Fault]
    private var storeDownUntil: Int64 = 0
    private var rolledBackAt: Int64?
    private var server = 0
    /// Between a rollback and its acceptance.
    private var isInDoubt = false
    private(set) var steps = 0
    private(set) var counts = Counts()

    /// What runs have gone through, to see that faults happen.
    struct Counts {
        var takes = 0
        var unknown = 0
        var fenced = 0
        var remote = 0
        var texts = 0
        var rises = 0
        var rollbacks = 0
        var kills = 0
        var pauses = 0
        var notSent = 0
        /// Texts that were shown again after their gateway had died.
        var shownAgain = 0

        mutating func add(_ other: Counts) {
            takes += other.takes
            unknown += other.unknown
            fenced += other.fenced
            remote += other.remote
            texts += other.texts
            rises += other.rises
            rollbacks += other.rollbacks
            kills += other.kills
            pauses += other.pauses
            notSent += other.notSent
            shownAgain += other.shownAgain
        }
    }

    private enum Fault: CaseIterable { case pause, kill, link, cut, isolate, storeDown, drain, raise }

    private static let faultTime: Int64 = 10_000_000
    /// Three leases of the slowest clock.
    private static let ownedTime: Int64 = 15_000_000
    private static let endTime: Int64 = 45_000_000

    init(seed: UInt64, mutant: Mutant? = nil) {
        self.mutant = mutant
        placement = mutant == nil && seed % 4 == 3 ? .kept : .balanced
        random = SeededGenerator(seed: seed)
        store = SimulatedStore(mutant: mutant, random: &random)
        let count = 2 + random.below(4)
        nodes = (0..<count).map { _ in Node() }
        linked = Array(repeating: Array(repeating: false, count: count), count: count)
        lastFrame = Array(repeating: Array(repeating: 0, count: count), count: count)
        let conversations = SimulatedStore.conversations
        senders = Array(repeating: 0, count: conversations)
        recipients = senders
        lines = Array(repeating: [], count: conversations)
        textOfKey = Array(repeating: [:], count: conversations)
        let isEighth = random.below(8) == 0
        hasRollback = mutant == nil && isEighth
        storeFaults = [0, 1, 3, 10][random.below(4)]
        // Some seeds have one kind of fault, some all.
        let only = random.below(16)
        let kinds: [Fault] = only < Fault.allCases.count ? [Fault.allCases[only]] : Fault.allCases
        faults = kinds
        store.keepsPast = hasRollback
        for conversation in 0..<conversations {
            senders[conversation] = random.below(count)
            recipients[conversation] = random.below(count)
        }
        for node in nodes.indices {
            // A gateway that is suspected only because a beat was rolled back does not notice in time.
            nodes[node].speed = Int64(hasRollback ? 768 + random.below(769) : 512 + random.below(1537))
            nodes[node].offset = Int64(random.below(1_000_000))
            at(Int64(random.below(100_000)), .start(node))
        }
        at(300_000, .text)
        at(1_500_000, .fault)
        at(Self.faultTime, .calm)
    }

    /// Runs until all is done, or the time is over.
    func run() -> Breach? {
        while let next = queue.removeFirst() {
            now = next.time
            steps += 1
            if perform(next.step) { return breach }
            if let breach = breach ?? store.breach { return breach }
        }
        return breach
    }

    private var breach: Breach?

    private func fail(_ breach: Breach) { self.breach = self.breach ?? breach }

    private func at(_ time: Int64, _ step: Step) { queue.insert(time, step) }

    private func after(_ least: Int, _ most: Int, _ step: Step) {
        at(now + Int64(least + random.below(most - least + 1)), step)
    }

    // MARK: Steps

    /// - Returns: whether the run has ended.
    private func perform(_ step: Step) -> Bool {
        switch step {
        case .tick(let node, let life):
            guard nodes[node].life == life else { return false }
            tick(node)
            at(now + 200_000 * 1024 / nodes[node].speed, .tick(node, life: life))
        case .arrive(let node, let server, let operation, let id, let request, let way):
            // A database that has gone back is another server: no statement from before reaches it.
            if server == self.server {
                execute(request, operation, id, way)
            } else {
                timeOut(request, operation, node, life: way.life)
            }
        case .apply(let node, let life, let operation, let fences, let writes, let answers, let delay):
            apply(fences, writes, operation, Way(node: node, life: life, answers: answers, delay: delay))
        case .answer(let node, let life, let answer):
            guard nodes[node].life == life, nodes[node].machine != nil else { return false }
            guard !nodes[node].isPaused else {
                nodes[node].inbox.append(answer)
                return false
            }
            take(answer, node)
        case .sent(let node, let life, let from, let fromLife, let frame):
            // Some of what was under way is received after a link has ended.
            guard nodes[node].life == life, linked[from][node] && nodes[from].life == fromLife || random.below(2) == 0
            else { return false }
            _ = perform(.answer(node, life: life, .frame(from: from, frame)))
        case .start(let node): start(node)
        case .resume(let node, let life):
            if nodes[node].life == life { resume(node) }
        case .join(let one, let oneLife, let other, let otherLife): join(one, oneLife, other, otherLife)
        case .attach(let conversation, let isSender): attach(conversation, isSender: isSender)
        case .text: sendText()
        case .raise: raise()
        case .fault: causeFault()
        case .calm: calm()
        case .accept:
            acceptRollback()
        case .check: return check()
        }
        return false
    }

    private func tick(_ node: Int) {
        guard !nodes[node].isPaused else { return }
        if now - nodes[node].savedAt >= 1_000_000 {
            (nodes[node].witness, nodes[node].savedAt) = (nodes[node].machine?.witness, now)
        }
        give(.tick, to: node)
        showHeld(node)
        if nodes[node].isDraining, nodes[node].machine?.isDrained == true { leave(node) }
    }

    private func start(_ node: Int) {
        guard nodes[node].machine == nil else { return }
        let fresh = Node()
        fresh.life = nodes[node].life + 1
        fresh.id = GatewayID(random.next())
        (fresh.speed, fresh.offset, fresh.witness) = (nodes[node].speed, nodes[node].offset, nodes[node].witness)
        fresh.machine = Machine(
            fresh.id, shards: SimulatedStore.shards, placement: placement, witness: fresh.witness)
        nodes[node] = fresh
        store.willChange()
        let member = Member(id: fresh.id, address: "", beat: 0, isDraining: false, seen: 0)
        store.state.members.append(member)
        store.state.members.sort { $0.id < $1.id }
        at(now, .tick(node, life: fresh.life))
        for other in nodes.indices where other != node && nodes[other].machine != nil { connect(node, other) }
    }

    private func connect(_ one: Int, _ other: Int) {
        // A link is noticed to have ended before there is a new one.
        after(600_000, 700_000, .join(one, life: nodes[one].life, other, otherLife: nodes[other].life))
    }

    private func join(_ one: Int, _ oneLife: Int, _ other: Int, _ otherLife: Int) {
        guard nodes[one].life == oneLife, nodes[other].life == otherLife, !linked[one][other] else { return }
        (linked[one][other], linked[other][one]) = (true, true)
        at(now, .answer(one, life: oneLife, .event(.connected(nodes[other].id))))
        at(now, .answer(other, life: otherLife, .event(.connected(nodes[one].id))))
    }

    private func disconnect(_ one: Int, _ other: Int) {
        guard linked[one][other] else { return }
        (linked[one][other], linked[other][one]) = (false, false)
        after(1000, 500_000, .answer(one, life: nodes[one].life, .event(.disconnected(nodes[other].id))))
        after(1000, 500_000, .answer(other, life: nodes[other].life, .event(.disconnected(nodes[one].id))))
    }

    /// Ends a process.
    private func stop(_ node: Int) {
        guard nodes[node].machine != nil else { return }
        for other in nodes.indices { disconnect(node, other) }
        nodes[node].machine = nil
        nodes[node].life += 1
        // What was shown and is not marked is shown again by the next gateway of that person.
        for shown in nodes[node].shownTexts {
            let row = store.state.conversations[shown.conversation]
            if row.marked >> UInt64(shown.key) & 1 == 0 { texts[shown.message].allowed += 1 }
        }
        for conversation in senders.indices {
            if senders[conversation] == node { after(50_000, 500_000, .attach(conversation, isSender: true)) }
            if recipients[conversation] == node { after(50_000, 500_000, .attach(conversation, isSender: false)) }
        }
    }

    private func leave(_ node: Int) {
        let id = nodes[node].id
        stop(node)
        store.willChange()
        store.state.members.removeAll { $0.id == id }
        after(100_000, 2_000_000, .start(node))
    }

    private func resume(_ node: Int) {
        guard nodes[node].isPaused else { return }
        nodes[node].isPaused = false
        judge(node)
        let life = nodes[node].life
        for answer in nodes[node].inbox { at(now, .answer(node, life: life, answer)) }
        nodes[node].inbox = []
    }

    private var running: [Int] { nodes.indices.filter { nodes[$0].machine != nil && !nodes[$0].isDraining } }

    /// Connects a person to a gateway that runs.
    private func attach(_ conversation: Int, isSender: Bool) {
        let running = running.filter { !nodes[$0].isPaused }
        guard !running.isEmpty else { return after(200_000, 200_000, .attach(conversation, isSender: isSender)) }
        let current = isSender ? senders[conversation] : recipients[conversation]
        if nodes[current].machine != nil, !isCalm { return }
        let node = nodes[current].machine != nil ? current : running[random.below(running.count)]
        if isSender { senders[conversation] = node } else { recipients[conversation] = node }
        submit(SimulatedJob(kind: isSender ? .resume : .recover, conversation: conversation), at: node)
        guard !isSender else { return }
        for line in lines[conversation] { deliver(line, conversation) }
    }

    private func sendText() {
        let conversation = random.below(SimulatedStore.conversations)
        let node = senders[conversation]
        // Keys are places in a mask of 64.
        if nodes[node].machine != nil, !nodes[node].isPaused, !nodes[node].isDraining,
            store.state.conversations[conversation].seals < 40
        {
            texts.append(Text(conversation: conversation))
            counts.texts += 1
            submit(SimulatedJob(kind: .seal, conversation: conversation, message: texts.count - 1), at: node)
        }
        if !isCalm { after(20_000, 250_000, .text) }
    }

    // MARK: Faults

    private func causeFault() {
        guard !isCalm else { return }
        after(100_000, 1_500_000, .fault)
        let running = running
        guard !running.isEmpty else { return }
        if hasRollback {
            if rolledBackAt == nil, now > 4_000_000 { return rollBack() }
            // The gateways that knew more must run on until they have noticed.
            if now > 2_000_000, rolledBackAt == nil || now < rolledBackAt! + 6_000_000 { return }
        }
        let node = running[random.below(running.count)]
        switch faults[random.below(faults.count)] {
        case .pause:
            guard !nodes[node].isPaused else { return }
            counts.pauses += 1
            nodes[node].isPaused = true
            after(50_000, random.below(2) == 0 ? 1_500_000 : 7_000_000, .resume(node, life: nodes[node].life))
        case .kill:
            counts.kills += 1
            stop(node)
            after(200_000, 4_000_000, .start(node))
        case .link:
            let other = random.below(nodes.count)
            guard other != node, linked[node][other] else { return }
            disconnect(node, other)
            at(
                now + Int64(600_000 + random.below(4_000_000)),
                .join(node, life: nodes[node].life, other, otherLife: nodes[other].life))
        case .cut: nodes[node].cutUntil = now + Int64(100_000 + random.below(5_000_000))
        case .isolate:
            // Off the network, while others make things stricter.
            let time = Int64(1_000_000 + random.below(6_000_000))
            nodes[node].cutUntil = now + time
            for other in nodes.indices where linked[node][other] {
                disconnect(node, other)
                at(
                    now + time + 600_000,
                    .join(node, life: nodes[node].life, other, otherLife: nodes[other].life))
            }
            for _ in 0..<3 { after(0, 3_000_000, .raise) }
        case .storeDown: storeDownUntil = now + Int64(100_000 + random.below(4_000_000))
        case .drain:
            guard running.count > 1 else { return }
            nodes[node].isDraining = true
            at(now, .answer(node, life: nodes[node].life, .event(.drain)))
        case .raise: raise()
        }
    }

    /// An operator makes a policy stricter, at any gateway.
    private func raise() {
        let running = running
        guard !running.isEmpty else { return }
        let node = running[random.below(running.count)]
        ask(node, Operation(0), .raise(random.below(SimulatedStore.conversations)))
    }

    private func rollBack() {
        for node in nodes.indices where nodes[node].machine == nil || nodes[node].isPaused { return }
        guard storeDownUntil < now, nodes.allSatisfy({ $0.cutUntil < now }) else { return }
        let lost = store.rollBack(by: 1 + random.below(12))
        counts.rollbacks += 1
        (rolledBackAt, isInDoubt) = (now, true)
        server += 1
        for conversation in lost {
            for text in texts.indices where texts[text].conversation == conversation { texts[text].isLost = true }
        }
        // Latches that are not stored any more are only in the memory of gateways.
        for conversation in lost where store.state.conversations[conversation].latch == 0 {
            returned &= ~(1 << UInt64(conversation))
        }
        after(2_500_000, 4_000_000, .accept)
    }

    private func acceptRollback() {
        isInDoubt = false
        // A gateway that still knows more than the database has to have found that.
        let isKnown = nodes.contains { node in
            guard let marks = node.machine?.witness.marks else { return false }
            return zip(store.state.shards, marks).contains { $0.mark.isBehind($1) }
        }
        if !store.state.isRolledBack, isKnown { fail(.rollbackNotNoticed) }
        guard store.state.isRolledBack else { return }
        for node in nodes.indices {
            for shown in nodes[node].shownTexts { texts[shown.message].allowed += 1 }
            nodes[node].shownTexts = []
            nodes[node].shown = Array(repeating: 0, count: SimulatedStore.conversations)
            nodes[node].held = []
        }
        store.accept(random: &random)
        for conversation in lines.indices {
            (lines[conversation], textOfKey[conversation]) = ([], [:])
            after(1_000_000, 2_000_000, .attach(conversation, isSender: true))
        }
        for text in texts.indices { texts[text].committed = nil }
        for (place, row) in store.state.conversations.enumerated() {
            for request in row.requests { texts[request.message].committed = Line(key: request.key, era: row.era) }
            if row.latch == 0 { returned &= ~(1 << UInt64(place)) }
        }
    }

    private func calm() {
        isCalm = true
        calmFrom = now
        storeDownUntil = 0
        for node in nodes.indices {
            nodes[node].cutUntil = 0
            resume(node)
            if nodes[node].machine == nil { start(node) }
            for other in 0..<node where !linked[node][other] { connect(node, other) }
        }
        // What was late is executed within five seconds.
        at(now + 6_000_000, .check)
    }

    // MARK: The end

    private var isSearching = false

    /// - Returns: whether all is well, or the time is over.
    private func check() -> Bool {
        // People log in again when the gateways have settled.
        if !isSearching {
            isSearching = true
            for node in nodes.indices where nodes[node].machine == nil { start(node) }
            for node in nodes.indices {
                for other in 0..<node where !linked[node][other] { connect(node, other) }
            }
            for conversation in senders.indices {
                after(4_000_000, 6_000_000, .attach(conversation, isSender: true))
                after(4_000_000, 6_000_000, .attach(conversation, isSender: false))
            }
            at(now + 6_100_000, .check)
            return false
        }
        let missing = missing()
        guard let missing else { return true }
        let hasTime: Bool
        if case .notOwned = missing {
            hasTime = now < calmFrom + 6_000_000 + Self.ownedTime
        } else {
            hasTime = now < Self.endTime
        }
        guard hasTime else {
            fail(missing)
            return true
        }
        at(now + 500_000, .check)
        return false
    }

    private func missing() -> Breach? {
        for shard in 0..<SimulatedStore.shards {
            let row = store.state.shards[shard]
            let isOwned = nodes.contains { node in
                node.id == row.owner
                    && node.machine?.ownedShards.contains(ShardEpoch(Shard(UInt8(shard)), row.mark.epoch)) ?? false
            }
            if !isOwned { return .notOwned(shard: shard) }
        }
        for row in store.state.conversations {
            for request in row.requests {
                let text = texts[request.message]
                if text.isLost { continue }
                if row.marked >> UInt64(request.key) & 1 == 0 || text.seen == 0 {
                    return .notDone(message: request.message)
                }
            }
        }
        for node in nodes.indices where nodes[node].machine != nil && !nodes[node].jobs.isEmpty {
            return .notAnswered(node: node)
        }
        return nil
    }

    /// What must hold of a gateway at every moment at which it may act.
    private func judge(_ node: Int) {
        // A database that was rolled back shows beats that are too low, so barriers may end early until it is noticed.
        guard returned & ~nodes[node].filter != 0, !isInDoubt, let machine = nodes[node].machine else { return }
        if machine.isFresh(now: nodes[node].own(now)) { fail(.plaintextAfterRise(node: node)) }
    }

    // MARK: Gateways

    private func submit(_ job: SimulatedJob, at node: Int) {
        let token = JobToken(high: 0, low: random.next())
        nodes[node].jobs[token] = job
        give(.submit(token, Shard(UInt8(SimulatedStore.shard(job.conversation))), job), to: node)
    }

    private func give(_ event: Event, to node: Int) {
        guard nodes[node].machine != nil else { return }
        let own = nodes[node].own(now)
        let actions = nodes[node].machine!.receive(event, now: own)
        judge(node)
        for action in actions { run(action, node) }
    }

    private func run(_ action: Machine.Action, _ node: Int) {
        guard nodes[node].machine != nil else { return }
        switch action {
        case .beat(let operation, let seen, let isDraining):
            ask(node, operation, .beat(seen: seen, isDraining: isDraining))
        case .take(let operation, let shard, let seen, let suspect):
            counts.takes += 1
            ask(node, operation, .take(Int(shard.number), seen: seen, from: suspect))
        case .load(let operation, let shard, _):
            nodes[node].loads[Int(shard.number)] = operation
            ask(node, operation, .load(Int(shard.number)))
        case .release(let operation, let shard, let mark):
            let remembers = nodes[node].loads[Int(shard.number)] != nil
            if !remembers, mutant == .releasesOnlyWhatIsRemembered {
                return at(now, .answer(node, life: nodes[node].life, .event(.unanswered(operation))))
            }
            nodes[node].loads[Int(shard.number)] = nil
            ask(node, operation, .release(Int(shard.number), mark))
        case .drop(let shard):
            if mutant == .stateKeptAfterLoss { return }
            nodes[node].memory[Int(shard.number)] = nil
            if mutant != .releasesOnlyWhatIsRemembered { nodes[node].loads[Int(shard.number)] = nil }
        case .commit(let operation, let fences, let jobs): commit(operation, fences, jobs, node)
        case .send(let gateway, let job):
            counts.remote += 1
            send(.job(job), from: node, to: gateway)
        case .reply(let gateway, let reply): send(.reply(reply), from: node, to: gateway)
        case .answer(let token, let answer): finish(token, answer, node)
        case .announce(let version):
            guard let conversation = nodes[node].riseOf[version] else { return }
            for other in nodes.indices where other != node {
                send(.rise(version, conversation: conversation), from: node, to: nodes[other].id)
            }
        case .inEffect(let ticket): returned |= 1 << ticket
        case .remove(let id, let beat):
            store.state.members.removeAll { $0.id == id && $0.beat == beat }
        case .reportRollback(let generation): ask(node, Operation(0), .report(generation: generation))
        case .end:
            stop(node)
            after(200_000, 1_000_000, .start(node))
        }
        if returned != 0 { for other in nodes.indices where !nodes[other].isPaused { judge(other) } }
    }

    private func send(_ frame: Frame, from node: Int, to gateway: GatewayID) {
        guard let other = nodes.firstIndex(where: { $0.id == gateway && $0.machine != nil }), linked[node][other] else {
            return
        }
        // In order.
        let time = max(now + Int64(100 + random.below(2000)), lastFrame[node][other] + 1)
        lastFrame[node][other] = time
        at(time, .sent(other, life: nodes[other].life, from: node, fromLife: nodes[node].life, frame))
    }

    private func take(_ answer: Answer, _ node: Int) {
        switch answer {
        case .event(let event): give(event, to: node)
        case .view(let operation, let view, let rises):
            nodes[node].filter |= rises
            give(.view(operation, view), to: node)
        case .loaded(let operation, let shard, let epoch, let rows):
            // An answer that comes twice must not undo the steps since.
            if nodes[node].loads[shard] == operation, nodes[node].memory[shard] == nil {
                nodes[node].memory[shard] = rows
            }
            give(.loaded(operation, epoch: epoch), to: node)
        case .committed(let operation, let latches): committed(operation, latches, node)
        case .line(let conversation, let line):
            guard recipients[conversation] == node else { return }
            submit(SimulatedJob(kind: .open, conversation: conversation, line: line), at: node)
        case .frame(let from, let frame):
            switch frame {
            case .job(let job): give(.job(nodes[from].id, job), to: node)
            case .reply(let reply): give(.reply(nodes[from].id, reply), to: node)
            case .rise(let version, let conversation):
                nodes[node].filter |= 1 << UInt64(conversation)
                send(.acknowledged(version), from: node, to: nodes[from].id)
            case .acknowledged(let version):
                give(.acknowledged(nodes[from].id, version: version), to: node)
            }
        case .raised(let version, let conversation):
            counts.rises += 1
            nodes[node].filter |= 1 << UInt64(conversation)
            nodes[node].riseOf[version] = conversation
            if mutant == .noBarrier { return returned |= 1 << UInt64(conversation) }
            give(.raised(version: version, ticket: UInt64(conversation)), to: node)
        case .resubmit(let job): submit(job, at: node)
        }
    }

    // MARK: The vault

    /// Prepares a batch on copies of the rows in memory, and sends it to the database.
    private func commit(
        _ operation: Operation, _ fences: [Fence], _ jobs: [BatchJob<SimulatedJob>], _ node: Int
    ) {
        var rows: [Int: Conversation] = [:]
        var order: [Int] = []
        var prepared = Prepared(operation: operation, writes: [], results: [])
        var known: [Bool] = []
        for job in jobs {
            let place = job.job.conversation
            let shard = SimulatedStore.shard(place)
            guard let stored = nodes[node].memory[shard]?[place / SimulatedStore.shards] else {
                preconditionFailure("a job of a shard that is not loaded")
            }
            var row = rows[place] ?? stored
            let isChanged = perform(job.job, job.token.low, &row, &prepared)
            known.append(!isChanged)
            guard isChanged else { continue }
            if rows.updateValue(row, forKey: place) == nil { order.append(place) }
        }
        var writes: [RowWrite] = []
        for place in order {
            let shard = SimulatedStore.shard(place)
            guard let row = rows[place], let before = nodes[node].memory[shard]?[place / SimulatedStore.shards] else {
                continue
            }
            let isRise = before.latch == 0 && row.seals > before.seals
            writes.append(RowWrite(conversation: place, from: before.state, row: row, isRise: isRise))
            prepared.writes.append((writes[writes.count - 1], nodes[node].loads[shard]))
        }
        nodes[node].prepared = prepared
        ask(node, operation, .commit(fences, writes, known: known))
    }

    /// - Returns: whether the row is changed.
    private func perform(_ job: SimulatedJob, _ token: UInt64, _ row: inout Conversation, _ prepared: inout Prepared)
        -> Bool
    {
        var reply = SimulatedReply.marked
        var isChanged = false
        switch job.kind {
        case .seal:
            if mutant != .tokenNotStored, let stored = row.requests.first(where: { $0.token == token }) {
                reply = .sealed(Line(key: stored.key, era: row.era))
                break
            }
            isChanged = true
            row.state = random.next()
            row.seals += 1
            row.requests.append(StoredRequest(token: token, message: job.message, key: row.seals))
            reply = .sealed(Line(key: row.seals, era: row.era))
        case .open:
            guard job.line.era == row.era, let stored = row.request(job.line.key) else {
                reply = .unreadable
                break
            }
            let bit: UInt64 = 1 << UInt64(stored.key)
            reply = .opened(message: stored.message, isMarked: row.marked & bit != 0)
            guard row.opened & bit == 0 else { break }
            isChanged = true
            row.state = random.next()
            row.opened |= bit
        case .mark:
            let bit: UInt64 = 1 << UInt64(job.line.key)
            guard job.line.era == row.era, row.marked & bit == 0 else { break }
            isChanged = true
            row.marked |= bit
        case .resume, .recover:
            let waiting = row.requests.filter { row.marked >> UInt64($0.key) & 1 == 0 }
            reply = .pending(waiting, era: row.era, opened: row.opened & ~row.marked)
        }
        let isSeal = job.kind == .seal || job.kind == .resume
        prepared.results.append((reply, job.conversation, isSeal))
        return isChanged
    }

    private func committed(_ operation: Operation, _ latches: [(conversation: Int, latch: UInt64)], _ node: Int) {
        guard let prepared = nodes[node].prepared, prepared.operation == operation else {
            return give(.committed(operation, []), to: node)
        }
        nodes[node].prepared = nil
        for (write, load) in prepared.writes {
            let shard = SimulatedStore.shard(write.conversation)
            guard load == nodes[node].loads[shard] || mutant == .stateKeptAfterLoss, nodes[node].memory[shard] != nil
            else {
                continue
            }
            var row = write.row
            if let latch = latches.first(where: { $0.conversation == write.conversation })?.latch { row.latch = latch }
            nodes[node].memory[shard]![write.conversation / SimulatedStore.shards] = row
        }
        let results = prepared.results.map { result in
            let shard = SimulatedStore.shard(result.conversation)
            let latch =
                latches.first { $0.conversation == result.conversation }?.latch
                ?? nodes[node].memory[shard]?[result.conversation / SimulatedStore.shards].latch ?? 0
            if latch != 0 {
                nodes[node].filter |= 1 << UInt64(result.conversation)
                nodes[node].riseOf[latch] = result.conversation
            }
            return JobResult(result.reply, after: mutant == .noBarrier || !result.isSeal ? 0 : latch)
        }
        give(.committed(operation, results), to: node)
    }

    // MARK: People

    private func finish(_ token: JobToken, _ answer: JobAnswer<SimulatedReply>, _ node: Int) {
        guard let job = nodes[node].jobs.removeValue(forKey: token) else { return }
        switch answer {
        case .notSent where job.kind == .seal:
            counts.notSent += 1
            texts[job.message].isNotSent = true
            if texts[job.message].committed != nil, !texts[job.message].isLost {
                fail(.falseNotSent(message: job.message))
            }
        case .notSent: after(200_000, 400_000, .answer(node, life: nodes[node].life, .resubmit(job)))
        case .done(.sealed(let line)): send(line, of: job.message, job.conversation)
        case .done(.opened(let message, let isMarked)):
            guard !isMarked else { return }
            nodes[node].held.append((message, job.conversation, job.line))
            showHeld(node)
        case .done(.pending(let requests, let era, let opened)):
            for request in requests {
                let line = Line(key: request.key, era: era)
                if job.kind == .resume, senders[job.conversation] == node {
                    send(line, of: request.message, job.conversation)
                }
                guard job.kind == .recover, opened >> UInt64(request.key) & 1 == 1 else { continue }
                nodes[node].held.append((request.message, job.conversation, line))
            }
            showHeld(node)
        case .done(.unreadable), .done(.marked): break
        }
    }

    /// An envelope leaves for the backend.
    private func send(_ line: Line, of message: Int, _ conversation: Int) {
        let row = store.state.conversations[conversation]
        guard row.era == line.era else { return }
        if !texts[message].isLost {
            if texts[message].committed == nil { fail(.leftBeforeCommit(message: message)) }
            // A key of a commit that a rollback has lost may be used again until that is noticed.
            if let other = textOfKey[conversation][line.key], other != message, !texts[other].isLost {
                fail(.keyTwice(message: message))
            }
            if texts[message].isNotSent { fail(.falseNotSent(message: message)) }
        }
        textOfKey[conversation][line.key] = message
        if texts[message].isLost == false || row.latch != 0 { returned |= 1 << UInt64(conversation) }
        if !lines[conversation].contains(line) { lines[conversation].append(line) }
        deliver(line, conversation)
    }

    private func deliver(_ line: Line, _ conversation: Int) {
        let node = recipients[conversation]
        guard nodes[node].machine != nil else { return }
        after(1000, 20_000, .answer(node, life: nodes[node].life, .line(conversation, line)))
    }

    /// Shows texts to their recipients, if the gateway may.
    private func showHeld(_ node: Int) {
        guard !nodes[node].held.isEmpty, nodes[node].machine?.isFresh(now: nodes[node].own(now)) == true else { return }
        let held = nodes[node].held
        nodes[node].held = []
        for (message, conversation, line) in held {
            let bit: UInt64 = 1 << UInt64(line.key)
            guard recipients[conversation] == node, nodes[node].shown[conversation] & bit == 0 else { continue }
            nodes[node].shown[conversation] |= bit
            nodes[node].shownTexts.append((conversation, line.key, message))
            texts[message].seen += 1
            if texts[message].seen > 1 { counts.shownAgain += 1 }
            if texts[message].seen > 1 + texts[message].allowed, !texts[message].isLost {
                fail(.seenTwice(message: message))
            }
            submit(SimulatedJob(kind: .mark, conversation: conversation, line: line), at: node)
        }
    }

    // MARK: The way to the database

    /// Where answers go.
    private struct Way {
        var node: Int
        var life: Int
        /// How often the answer comes.
        var answers: Int
        var delay: Int64
    }

    private func ask(_ node: Int, _ operation: Operation, _ request: Request) {
        let (life, id) = (nodes[node].life, nodes[node].id)
        func arrive(after delay: Int64, answers: Int, back: Int64) {
            let way = Way(node: node, life: life, answers: answers, delay: back)
            at(now + delay, .arrive(node, server: server, operation, id, request, way))
        }
        func timeOut() { self.timeOut(request, operation, node, life: life) }
        let there = Int64(100 + random.below(2000))
        let back = Int64(100 + random.below(2000))
        if now < storeDownUntil || now < nodes[node].cutUntil {
            // A cut may come in between.
            if now < nodes[node].cutUntil, random.below(4) == 0 { arrive(after: there, answers: 0, back: back) }
            return timeOut()
        }
        guard !isCalm, random.below(100) < storeFaults else { return arrive(after: there, answers: 1, back: back) }
        switch random.below(6) {
        case 0: timeOut()
        case 1:
            arrive(after: there, answers: 0, back: back)
            timeOut()
        case 2, 3:
            // Executed after it was given up. Beats wait less.
            let isBeat = if case .beat = request { true } else { false }
            arrive(after: there + Int64(random.below(isBeat ? 1_500_000 : 5_000_000)), answers: 1, back: back)
            timeOut()
        case 4: arrive(after: there, answers: 2, back: back)
        default:
            arrive(after: there + Int64(random.below(300_000)), answers: 1, back: back + Int64(random.below(300_000)))
        }
    }

    /// Lets a gateway give an operation up.
    private func timeOut(_ request: Request, _ operation: Operation, _ node: Int, life: Int) {
        guard operation.number > 0 else { return }
        var event = Event.unanswered(operation)
        if case .commit = request {
            counts.unknown += 1
            event =
                mutant == .answeredBeforeSettled
                ? .failed(operation, isKnown: isKnown(request)) : .unknown(operation)
        }
        at(now + 800_000, .answer(node, life: life, .event(event)))
    }

    private func isKnown(_ request: Request) -> [Bool] {
        if case .commit(_, _, let known) = request { known } else { [] }
    }

    private func answer(_ answer: Answer, _ way: Way) {
        for copy in 0..<way.answers {
            at(now + way.delay + Int64(copy) * 50_000, .answer(way.node, life: way.life, answer))
        }
    }

    private func execute(_ request: Request, _ operation: Operation, _ id: GatewayID, _ way: Way) {
        switch request {
        case .beat(let seen, let isDraining):
            if let (view, rises) = store.beat(id, seen: seen, isDraining: isDraining) {
                answer(.view(operation, view, rises: rises), way)
            } else {
                answer(.event(.rowMissing(operation)), way)
            }
        case .take(let shard, let seen, let suspect):
            let before = store.state.shards[shard].mark.epoch
            if let mark = store.take(id, shard, seen: seen, from: suspect) {
                if mark.epoch <= before { fail(.epochFell(shard: shard)) }
                answer(.event(.taken(operation, mark)), way)
            } else {
                answer(.event(.refused(operation)), way)
            }
        case .load(let shard):
            let (epoch, rows) = store.load(shard)
            answer(.loaded(operation, shard, epoch: epoch, rows: rows), way)
        case .release(let shard, let mark):
            answer(.event(store.release(id, shard, mark) ? .released(operation) : .refused(operation)), way)
        case .commit(let fences, let writes, let known):
            if let shard = store.unfit(fences) {
                counts.fenced += 1
                answer(.event(.fenced(operation, shard)), way)
            } else if !isCalm, random.below(100) == 0 {
                answer(.event(.failed(operation, isKnown: known)), way)
            } else if mutant == .checkWithoutLock {
                after(
                    100, random.below(8) == 0 ? 3_000_000 : 20_000,
                    .apply(
                        way.node, life: way.life, operation, fences, writes, answers: way.answers, delay: way.delay))
            } else {
                apply(fences, writes, operation, way)
            }
        case .raise(let conversation): answer(.raised(store.raise(conversation), conversation), way)
        case .report(let generation):
            if store.state.generation == generation { store.state.isRolledBack = true }
        }
    }

    private func apply(_ fences: [Fence], _ writes: [RowWrite], _ operation: Operation, _ way: Way) {
        store.apply(fences, writes)
        for write in writes {
            for request in write.row.requests where texts[request.message].committed == nil {
                texts[request.message].committed = Line(key: request.key, era: write.row.era)
                if texts[request.message].isNotSent, !texts[request.message].isLost {
                    fail(.falseNotSent(message: request.message))
                }
            }
        }
        let latches = writes.map { ($0.conversation, store.state.conversations[$0.conversation].latch) }
        answer(.committed(operation, latches), way)
    }
}

/// Steps by time; those of one time in the order in which they were inserted.
private struct StepQueue<Step> {
    private struct Entry {
        let time: Int64
        let number: Int
        let slot: Int

        func isBefore(_ other: Entry) -> Bool { time != other.time ? time < other.time : number < other.number }
    }

    private var entries: [Entry] = []
    private var slots: [Step?] = []
    private var free: [Int] = []
    private var count = 0

    mutating func insert(_ time: Int64, _ step: Step) {
        count += 1
        let slot: Int
        if let old = free.popLast() {
            slot = old
            slots[old] = step
        } else {
            slot = slots.count
            slots.append(step)
        }
        let entry = Entry(time: time, number: count, slot: slot)
        entries.append(entry)
        var place = entries.count - 1
        while place > 0 {
            let parent = (place - 1) / 2
            guard entry.isBefore(entries[parent]) else { break }
            entries[place] = entries[parent]
            place = parent
        }
        entries[place] = entry
    }

    mutating func removeFirst() -> (time: Int64, step: Step)? {
        guard let first = entries.first, let last = entries.popLast() else { return nil }
        var place = 0
        while 2 * place + 1 < entries.count {
            var child = 2 * place + 1
            if child + 1 < entries.count, entries[child + 1].isBefore(entries[child]) { child += 1 }
            guard entries[child].isBefore(last) else { break }
            entries[place] = entries[child]
            place = child
        }
        if place < entries.count { entries[place] = last }
        guard let step = slots[first.slot] else { return nil }
        slots[first.slot] = nil
        free.append(first.slot)
        return (first.time, step)
    }
}
