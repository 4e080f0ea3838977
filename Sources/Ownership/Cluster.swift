// What the gateways of one database know of each other: its rows as values.

package import StorePort

/// The id of a gateway: random, and new at each start, so that a restarted process is never taken for the one before.
package struct GatewayID: Hashable, Comparable, Sendable {
    package let number: UInt64

    package init(_ number: UInt64) { self.number = number }

    package static func < (one: GatewayID, other: GatewayID) -> Bool { one.number < other.number }
}

/// The row of a gateway.
package struct Member: Sendable {
    package var id: GatewayID
    /// Where other gateways reach it.
    package var address: String
    /// Only whether it changes is ever asked.
    package var beat: UInt64
    /// Whether it hands its shards over, to end.
    package var isDraining: Bool
    /// The last rise that it has in effect.
    package var seen: UInt64

    package init(id: GatewayID, address: String, beat: UInt64, isDraining: Bool, seen: UInt64) {
        (self.id, self.address, self.beat) = (id, address, beat)
        (self.isDraining, self.seen) = (isDraining, seen)
    }
}

/// What a gateway knows of another one, or of itself.
package struct Neighbour: Sendable {
    package var member: Member
    /// Successful reads since its beat has changed.
    package var unchangedReads: Int
    /// When its beat was read for the first time, by the clock of the reader.
    package var since: Int64
    /// Whether its shards may be taken. The own beat is not judged.
    package var isSuspect: Bool
}

/// A gateway from which shards may be taken, as long as it does not beat again.
package struct Suspect: Equatable, Sendable {
    package var id: GatewayID
    /// The beat that has not changed; nil if the gateway has no row.
    package var beat: UInt64?

    package init(id: GatewayID, beat: UInt64?) { (self.id, self.beat) = (id, beat) }
}

/// How far a shard has come. Neither number ever falls, but in a database that was rolled back.
package struct ShardMark: Equatable, Sendable {
    package var epoch: UInt64
    /// The number of its last commit.
    package var commits: UInt64

    package init(epoch: UInt64, commits: UInt64) { (self.epoch, self.commits) = (epoch, commits) }

    /// Whether one of the numbers is lower than in another mark.
    package func isBehind(_ other: ShardMark) -> Bool { epoch < other.epoch || commits < other.commits }
}

/// The row of a shard.
package struct ShardRow: Sendable {
    package var owner: GatewayID?
    package var mark: ShardMark

    package init(owner: GatewayID?, mark: ShardMark) { (self.owner, self.mark) = (owner, mark) }
}

/// What one beat reads, in one snapshot, after it has raised the beat.
package struct ClusterView: Sendable {
    package var members: [Member]
    /// By number.
    package var shards: [ShardRow]
    /// The number of the last rise in this reading: a stricter policy or the first latch of a conversation. Its receiver
    /// puts all of them into effect before the machine gets the view.
    package var version: UInt64
    /// Whether no rise was left out because of a bound.
    package var isWhole: Bool
    /// Rises if the operator accepts that the database was rolled back.
    package var generation: UInt64
    /// Whether a gateway has found that the database was rolled back.
    package var isRolledBack: Bool

    package init(
        members: [Member], shards: [ShardRow], version: UInt64, isWhole: Bool, generation: UInt64, isRolledBack: Bool
    ) {
        (self.members, self.shards, self.version) = (members, shards, version)
        (self.isWhole, self.generation, self.isRolledBack) = (isWhole, generation, isRolledBack)
    }
}

/// What a gateway knows of the database, to notice one that knows less. It outlives the process in a file.
package struct Witness: Sendable {
    package internal(set) var generation: UInt64
    /// By shard.
    package internal(set) var marks: [ShardMark]
    package internal(set) var version: UInt64

    /// That of a gateway that has seen nothing.
    package init(shards: Int) {
        (generation, version) = (0, 0)
        marks = Array(repeating: ShardMark(epoch: 0, commits: 0), count: shards)
    }
}

/// The condition of a commit for one shard: it is in this epoch, and the commit before has the number before.
package struct Fence: Equatable, Sendable {
    package var shard: Shard
    package var epoch: UInt64
    /// The number of the commit itself.
    package var number: UInt64

    package init(shard: Shard, epoch: UInt64, number: UInt64) {
        (self.shard, self.epoch, self.number) = (shard, epoch, number)
    }
}
