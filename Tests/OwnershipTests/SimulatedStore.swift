// The database of the simulator: it executes one operation at a time. Rows are those of 16 conversations in 8 shards, with a
// ratchet state each that is a random number: a step replaces it, and each has one successor.

import Ownership
import StorePort

/// What a fault of the program under test would be: each has to be noticed by the simulator.
enum Mutant: CaseIterable {
    case noEpochCheck, checkWithoutLock, stateKeptAfterLoss, answeredBeforeSettled, releasesOnlyWhatIsRemembered
    case noBarrier, tokenNotStored
}

/// What must never be, and what must be in the end.
enum Breach: Error, Equatable {
    /// A ratchet state has two successors, or a row was written over a newer one.
    case doubleStep(conversation: Int)
    case leftBeforeCommit(message: Int)
    case keyTwice(message: Int)
    case epochFell(shard: Int)
    /// A client was told that its message was not sent, and it was.
    case falseNotSent(message: Int)
    case plaintextAfterRise(node: Int)
    case seenTwice(message: Int)
    // In the end.
    case notOwned(shard: Int)
    case notDone(message: Int)
    case notAnswered(node: Int)
    case rollbackNotNoticed
}

/// A job of the simulated vault.
struct SimulatedJob: Sendable {
    /// `resume` asks for what its sender has to send again, `recover` for what its recipient may not have seen.
    enum Kind: Sendable { case seal, open, mark, resume, recover }

    var kind: Kind
    var conversation: Int
    /// The text; in `seal` only.
    var message = 0
    var line = Line(key: 0, era: 0)
}

/// An envelope: the key of its text, which counts the seals of the conversation, and the ratchets that it belongs to.
struct Line: Equatable, Sendable {
    var key: Int
    var era: Int
}

struct StoredRequest: Equatable, Sendable {
    var token: UInt64
    var message: Int
    var key: Int
}

enum SimulatedReply: Sendable {
    case sealed(Line)
    case opened(message: Int, isMarked: Bool)
    case unreadable
    case marked
    case pending([StoredRequest], era: Int, opened: UInt64)
}

struct Conversation: Sendable {
    var state: UInt64
    /// Rises if the ratchets are made anew.
    var era = 0
    var seals = 0
    var requests: [StoredRequest] = []
    /// By key.
    var opened: UInt64 = 0
    var marked: UInt64 = 0
    /// The rise of its first latch; 0 if it has none.
    var latch: UInt64 = 0

    func request(_ key: Int) -> StoredRequest? { requests.first { $0.key == key } }
}

struct RowWrite: Sendable {
    var conversation: Int
    var from: UInt64
    var row: Conversation
    var isRise: Bool
}

struct SimulatedStore {
    static let shards = 8
    static let conversations = 16
    /// Rises that one reading holds.
    static let risesRead: UInt64 = 4

    static func shard(_ conversation: Int) -> Int { conversation % shards }

    struct State {
        /// By id.
        var members: [Member] = []
        var shards: [ShardRow]
        var conversations: [Conversation] = []
        /// The conversation of each rise, from 1 on.
        var rises: [Int] = []
        /// The number before the first of `rises`.
        var firstRise: UInt64 = 0
        var generation: UInt64 = 0
        var isRolledBack = false

        var version: UInt64 { firstRise + UInt64(rises.count) }
    }

    var state: State
    var breach: Breach?
    /// The states before the last operations, if the seed rolls back.
    var past: [State] = []
    var keepsPast = false
    private let mutant: Mutant?

    init(mutant: Mutant?, random: inout some RandomNumberGenerator) {
        self.mutant = mutant
        let row = ShardRow(owner: nil, mark: ShardMark(epoch: 1, commits: 0))
        state = State(shards: Array(repeating: row, count: Self.shards))
        for _ in 0..<Self.conversations { state.conversations.append(Conversation(state: random.next())) }
    }

    mutating func willChange() {
        guard keepsPast else { return }
        past.append(state)
        if past.count > 12 { past.removeFirst() }
    }

    /// Nil if the row is not there.
    mutating func beat(_ id: GatewayID, seen: UInt64, isDraining: Bool) -> (ClusterView, rises: UInt64)? {
        guard let place = state.members.firstIndex(where: { $0.id == id }) else { return nil }
        willChange()
        state.members[place].beat += 1
        state.members[place].seen = seen
        state.members[place].isDraining = isDraining
        var mask: UInt64 = 0
        // A gateway that knows more than the database reads nothing.
        let last = min(state.version, max(seen, state.firstRise) + Self.risesRead)
        var next = max(seen, state.firstRise)
        while next < last {
            mask |= 1 << UInt64(state.rises[Int(next - state.firstRise)])
            next += 1
        }
        let view = ClusterView(
            members: state.members, shards: state.shards, version: last, isWhole: last == state.version,
            generation: state.generation, isRolledBack: state.isRolledBack)
        return (view, mask)
    }

    mutating func take(_ id: GatewayID, _ shard: Int, seen: UInt64, from suspect: Suspect?) -> ShardMark? {
        guard state.shards[shard].mark.epoch == seen else { return nil }
        if let suspect, state.members.first(where: { $0.id == suspect.id })?.beat != suspect.beat { return nil }
        willChange()
        state.shards[shard].owner = id
        state.shards[shard].mark.epoch += 1
        return state.shards[shard].mark
    }

    mutating func release(_ id: GatewayID, _ shard: Int, _ mark: ShardMark) -> Bool {
        guard state.shards[shard].owner == id, state.shards[shard].mark == mark else { return false }
        willChange()
        state.shards[shard].owner = nil
        return true
    }

    func load(_ shard: Int) -> (epoch: UInt64, rows: [Conversation]) {
        let rows = stride(from: shard, to: Self.conversations, by: Self.shards).map { state.conversations[$0] }
        return (state.shards[shard].mark.epoch, rows)
    }

    /// The first shard whose fence does not fit.
    func unfit(_ fences: [Fence]) -> Shard? {
        if mutant == .noEpochCheck { return nil }
        return fences.first { fence in
            let mark = state.shards[Int(fence.shard.number)].mark
            return mark.epoch != fence.epoch || mark.commits + 1 != fence.number
        }?.shard
    }

    mutating func apply(_ fences: [Fence], _ writes: [RowWrite]) {
        willChange()
        for fence in fences {
            let shard = Int(fence.shard.number)
            state.shards[shard].mark.commits = max(fence.number, state.shards[shard].mark.commits)
        }
        for write in writes {
            let place = write.conversation
            if state.conversations[place].state != write.from { breach = breach ?? .doubleStep(conversation: place) }
            state.conversations[place] = write.row
            if write.isRise {
                state.rises.append(place)
                state.conversations[place].latch = state.version
            }
        }
    }

    mutating func raise(_ conversation: Int) -> UInt64 {
        willChange()
        state.rises.append(conversation)
        return state.version
    }

    /// Puts the database back by some operations.
    ///
    /// - Returns: the conversations that have lost something.
    mutating func rollBack(by count: Int) -> [Int] {
        guard let old = past.dropLast(max(count - 1, 0)).last else { return [] }
        let before = state.conversations
        state = old
        past = []
        return before.indices.filter { place in
            let (was, row) = (before[place], state.conversations[place])
            return was.state != row.state || was.marked != row.marked || was.latch != row.latch
        }
    }

    /// What the operator's acceptance of a rollback does: all ratchets begin anew, above all numbers that anybody has seen.
    mutating func accept(random: inout some RandomNumberGenerator) {
        (state.isRolledBack, past) = (false, [])
        state.generation += 1
        for shard in state.shards.indices {
            state.shards[shard].owner = nil
            state.shards[shard].mark.epoch += 1000
            state.shards[shard].mark.commits += 1000
        }
        let last = state.version
        (state.firstRise, state.rises) = (last + 1000, [])
        for place in state.conversations.indices {
            state.conversations[place].state = random.next()
            // Requests that wait are sealed again in the new era; their tokens stay.
            var row = state.conversations[place]
            let waiting = row.requests.filter { row.marked >> UInt64($0.key) & 1 == 0 }
            row.era += 1
            (row.seals, row.opened, row.marked) = (waiting.count, 0, 0)
            row.requests = waiting.enumerated().map {
                StoredRequest(token: $0.element.token, message: $0.element.message, key: $0.offset + 1)
            }
            if row.latch != 0 {
                state.rises.append(place)
                row.latch = state.version
            }
            state.conversations[place] = row
        }
    }
}
