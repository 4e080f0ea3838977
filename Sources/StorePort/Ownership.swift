// Ownership of shards. A shard has one owner at a time, and an epoch that rises with each new owner. Each commit names the
// epochs by which its owner holds the shards of its rows, and the store refuses a commit that names another one. So a
// process that was stopped while its shards were taken over cannot write when it runs again. No clock is compared.

/// The epoch by which an owner holds a shard.
package struct ShardEpoch: Hashable, Sendable {
    package let shard: Shard
    package let epoch: UInt64

    package init(_ shard: Shard, _ epoch: UInt64) { (self.shard, self.epoch) = (shard, epoch) }

    /// That of a store that is not divided: the lock of its directory makes the owner.
    package static let only = ShardEpoch(.only, 1)
}

/// Groups of changes and the epochs of their shards, for one commit.
package struct PreparedCommit: Sendable {
    package let groups: [ChangeGroup]
    package let epochs: [ShardEpoch]

    package init(_ groups: [ChangeGroup], by epochs: [ShardEpoch]) { (self.groups, self.epochs) = (groups, epochs) }
}

/// The shards that a process owns.
package struct OwnedShards: Sendable {
    private let sharding: Sharding
    /// By shard, so that all owners lock the rows of epochs in one order.
    private var epochs: [ShardEpoch]
    private var shards: Set<Shard>

    package init(_ epochs: [ShardEpoch], in sharding: Sharding) {
        self.sharding = sharding
        self.epochs = epochs.sorted { $0.shard < $1.shard }
        shards = Set(epochs.map(\.shard))
    }

    package func owns(_ shard: Shard) -> Bool { shards.contains(shard) }

    /// Ends the ownership of a shard.
    package mutating func lose(_ shard: Shard) {
        shards.remove(shard)
        epochs.removeAll { $0.shard == shard }
    }

    /// Whether every job may be prepared, as far as its placement tells.
    package var ownsAll: Bool { epochs.count == sharding.shards.count }

    /// The shard of a placement if this process does not own it; else nil.
    ///
    /// Of rows in several shards only the store knows, which refuses them with their group.
    package func foreign(_ placement: Placement) -> Shard? {
        if !ownsAll, case .shard(let shard) = placement, !owns(shard) { shard } else { nil }
    }

    /// A commit of groups, with the epochs of the shards that they touch and this process owns.
    package func commit(of groups: [ChangeGroup]) -> PreparedCommit {
        guard !sharding.isSingle else { return PreparedCommit(groups, by: epochs) }
        var touched = Set<Shard>()
        for group in groups {
            switch group.touchedShards(in: sharding) {
            case .all: return PreparedCommit(groups, by: epochs)
            case .some(let shards): touched.formUnion(shards)
            }
        }
        return PreparedCommit(groups, by: epochs.filter { touched.contains($0.shard) })
    }
}

/// The shards that a group of changes touches.
package enum TouchedShards: Equatable {
    case some(Set<Shard>)
    /// A change concerns rows in all shards, such as the removal of an account.
    case all
}

extension ChangeGroup {
    /// The shards that the group touches, by its placement or by the keys of its rows. A row whose key does not tell its
    /// shard counts only if the group is in one shard.
    package func touchedShards(in sharding: Sharding) -> TouchedShards {
        guard !sharding.isSingle else { return .all }
        switch placement {
        case .shard(let shard): return .some([shard])
        case .unsharded: return .some([])
        case .several:
            var shards = Set<Shard>()
            for change in changes {
                switch change.placement(in: sharding) {
                case .shard(let shard): shards.insert(shard)
                case .several: return .all
                case .unsharded, nil: break
                }
            }
            return .some(shards)
        }
    }

    /// The lowest shard that the group touches and that a commit does not name; nil if there is none.
    package func unnamedShard(in sharding: Sharding, named: Set<Shard>) -> Shard? {
        switch touchedShards(in: sharding) {
        case .some(let shards): shards.filter { !named.contains($0) }.min()
        case .all: sharding.shards.first { !named.contains($0) }
        }
    }
}
