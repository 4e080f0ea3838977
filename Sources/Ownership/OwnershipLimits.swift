// Times and bounds of ownership. All are ours. Times are milliseconds of a gateway's own monotonic clock; no time of another
// machine is ever compared.

/// The times and bounds of ``OwnershipMachine``.
package enum OwnershipLimits {
    /// How often a gateway raises its beat and reads the cluster.
    package static let beatInterval: Int64 = 500
    /// When a beat without an answer is given up and another one is sent.
    package static let beatTimeout: Int64 = 1000
    /// How long a gateway trusts what it read last, from the moment at which it *sent* that beat.
    package static let freshTime: Int64 = 1250
    /// Successful reads in which a beat has not changed until its gateway is suspected: 2.5 s.
    package static let suspectReads = 5
    /// How much faster one clock may run than another one.
    package static let clockRatio: Int64 = 4
    /// After this time a gateway that has not read a rise is stale: its clock may be slow, and this one fast.
    package static let barrierTime = freshTime * clockRatio
    /// Reads after which the row of a silent gateway is removed: two minutes.
    package static let removeReads = 240
    /// Shards that are taken or loaded at once. Loading reads all waiting requests of a shard.
    package static let takesAtOnce = 8
    /// Jobs of one commit; a longer one would let the first wait for the last.
    package static let batchJobs = 2048
    /// Jobs that wait here for a commit, of all gateways.
    package static let queuedJobs = 16_384
    /// Jobs of own clients without an answer.
    package static let ownJobs = 16_384
    /// How long a job that was sent nowhere waits for an owner, before its client is told that it was not sent.
    package static let routeTime: Int64 = 10_000
}
