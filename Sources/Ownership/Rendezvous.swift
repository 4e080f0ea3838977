// Rendezvous hashing: each gateway computes from the list of gateways alone who should own a shard. If a gateway comes or
// goes, only its own shards move. Two gateways with different lists may both want a shard; the epoch decides.
//
// The hash is the same in all versions. A version with another one would take shards from the others without end.

package import StorePort

/// Which gateway should own a shard, if several could.
package enum ShardPlacement: Sendable {
    /// That with the highest hash, so that each gateway has its part.
    case balanced
    /// That which owns it, until it drains or is suspected; then that with the highest hash. For gateways of which one serves
    /// and the others stand by: one that comes takes nothing from the one that serves.
    case kept
}

/// Where shards should be.
package enum Rendezvous {
    /// The gateway that should own a shard; nil if there is no candidate.
    package static func owner(of shard: Shard, among candidates: [GatewayID]) -> GatewayID? {
        var best: (score: UInt64, id: GatewayID)?
        for id in candidates {
            let score = score(shard, id)
            if let best, (best.score, best.id) > (score, id) { continue }
            best = (score, id)
        }
        return best?.id
    }

    /// The finaliser of SplitMix64 over both numbers.
    static func score(_ shard: Shard, _ gateway: GatewayID) -> UInt64 {
        var mixed = gateway.number ^ ((UInt64(shard.number) + 1) &* 0x9E37_79B9_7F4A_7C15)
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
