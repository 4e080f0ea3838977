import Ownership
import StorePort

/// One machine, its clock, and views of a cluster that a test makes.
struct Bench {
    typealias Machine = OwnershipMachine<String, String>

    static let (own, other, third) = (GatewayID(1), GatewayID(2), GatewayID(3))
    var machine: Machine
    var now: Int64 = 1_000_000
    var members: [Member]
    var rows: [ShardRow]
    var version: UInt64 = 0
    var generation: UInt64 = 0
    var isRolledBack = false
    /// What the machine has asked for since the last look.
    private(set) var log: [Machine.Action] = []
    /// The last beat that was sent.
    private var lastBeat: Operation?

    init(
        shards: Int = 1, others: [GatewayID] = [], placement: ShardPlacement = .balanced, witness: Witness? = nil
    ) {
        machine = Machine(Self.own, shards: shards, placement: placement, witness: witness)
        members = ([Self.own] + others).map {
            Member(id: $0, address: "", beat: 0, isDraining: false, seen: 0)
        }
        rows = Array(repeating: ShardRow(owner: nil, mark: ShardMark(epoch: 1, commits: 0)), count: shards)
    }

    mutating func give(_ event: Machine.Event) {
        for action in machine.receive(event, now: now) {
            if case .beat(let operation, _, _) = action { lastBeat = operation }
            log.append(action)
        }
    }

    /// The actions since the last look, and forgets them.
    mutating func take() -> [Machine.Action] {
        defer { log = [] }
        return log
    }

    var view: ClusterView {
        ClusterView(
            members: members, shards: rows, version: version, isWhole: true, generation: generation,
            isRolledBack: isRolledBack)
    }

    /// Lets time pass to the next beat.
    ///
    /// - Returns: its operation.
    mutating func beat(after time: Int64 = OwnershipLimits.beatInterval) -> Operation? {
        now += time
        give(.tick)
        return lastBeat
    }

    /// One beat and its answer. The beats of the named gateways have changed.
    mutating func read(alive: [GatewayID] = [own, other, third]) {
        guard let operation = beat() else { return }
        for place in members.indices where alive.contains(members[place].id) { members[place].beat += 1 }
        log.removeAll { if case .beat = $0 { true } else { false } }
        give(.view(operation, view))
    }

    /// Answers all takes, loads and releases, as a database that has nobody else.
    mutating func settle() {
        while let place = log.firstIndex(where: { $0.isOfShard }) {
            switch log.remove(at: place) {
            case .take(let operation, let shard, let seen, _):
                let index = Int(shard.number)
                guard rows[index].mark.epoch == seen else {
                    give(.refused(operation))
                    continue
                }
                rows[index].owner = Self.own
                rows[index].mark.epoch += 1
                give(.taken(operation, rows[index].mark))
            case .load(let operation, let shard, _):
                give(.loaded(operation, epoch: rows[Int(shard.number)].mark.epoch))
            case .release(let operation, let shard, _):
                rows[Int(shard.number)].owner = nil
                give(.released(operation))
            default: break
            }
        }
    }

    /// A machine that owns all shards.
    static func owner(shards: Int = 1, others: [GatewayID] = []) -> Bench {
        var bench = Bench(shards: shards)
        bench.read()
        bench.settle()
        // The others come later, and find shards that this one owns.
        for id in others { bench.members.append(Member(id: id, address: "", beat: 0, isDraining: true, seen: 0)) }
        bench.read()
        _ = bench.take()
        return bench
    }
}

extension OwnershipAction {
    var isOfShard: Bool {
        switch self {
        case .take, .load, .release: true
        default: false
        }
    }
}

extension OwnershipAction<String, String> {
    /// The action in words, without its operation.
    var words: String? {
        switch self {
        case .beat: nil
        case .take(_, let shard, let seen, let from):
            "take \(shard.number) seen \(seen)" + (from.map { " from \($0.id.number)" } ?? "")
        case .load(_, let shard, let epoch): "load \(shard.number) in \(epoch)"
        case .release(_, let shard, let mark): "release \(shard.number) in \(mark.epoch) after \(mark.commits)"
        case .drop(let shard): "drop \(shard.number)"
        case .commit(_, let fences, let jobs):
            "commit \(fences.map { "\($0.shard.number)/\($0.epoch)/\($0.number)" }) \(jobs.map(\.job))"
        case .send(let gateway, let job): "send \(job.job) in \(job.epoch) to \(gateway.number)"
        case .reply(let gateway, let reply): "reply \(reply.outcome) in \(reply.epoch) to \(gateway.number)"
        case .answer(_, let answer): "answer \(answer)"
        case .announce(let version): "announce \(version)"
        case .inEffect(let ticket): "in effect \(ticket)"
        case .remove(let gateway, let beat): "remove \(gateway.number) at \(beat)"
        case .reportRollback: "rolled back"
        case .end: "end"
        }
    }

    var operation: Operation? {
        switch self {
        case .beat(let operation, _, _), .take(let operation, _, _, _), .load(let operation, _, _),
            .release(let operation, _, _), .commit(let operation, _, _):
            operation
        default: nil
        }
    }
}

extension Bench {
    /// What the machine has asked for since the last look, in words, without beats.
    mutating func words() -> [String] { take().compactMap(\.words) }

    /// The operation of the last action that has one and is no beat.
    var operation: Operation? {
        log.last {
            if case .beat = $0 { false } else { $0.operation != nil }
        }?.operation
    }
}

func token(_ number: UInt64) -> JobToken { JobToken(high: 0, low: number) }
