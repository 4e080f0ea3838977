// Every limit of the drivers has a name and a reason.

/// The limits of a store.
package struct StoreLimits: Equatable, Sendable {
    /// Rows about the clients that people use, as configured. One account has a few; nicks without a login make the table
    /// grow.
    package var evidence: Int
    /// Ours: rows about senders of messages that a stricter policy would treat differently.
    package var observations: Int
    /// Ours: SQLite's page cache for writing, in bytes. The sessions of a few thousand active users fit.
    package var writerCache: Int
    /// Ours: the same for each of ``readers``, in bytes.
    package var readerCache: Int
    /// Ours: a store up to this size, in bytes, is checked whole when it is opened; of a larger one, only its smallest
    /// tables. 64 MiB take 0.1 s from memory and 0.4 s from a cold disk, and a start has a second.
    package var checkedWhole: Int

    /// Ours: readers beside the writer, for two reports and a backup.
    package static let readers = 3
    /// Ours: pages that the write-ahead log collects before they move into the store, 16 MiB. Sessions are overwritten
    /// often, so the more it collects, the fewer pages move.
    package static let checkpointPages = 4096
    /// Ours: the divisor of a limit that gives the rows evicted at a time, so that not each new row evicts one.
    package static let evictedShare = 16
    /// Ours: ids that are skipped when an older state of the store is accepted, because the ids after it may be in use
    /// elsewhere.
    package static let idGap: UInt64 = 1 << 32
    /// Ours: upper bound of ids and of the count of openings, so that adding to them cannot overflow. A larger value in
    /// a file is damage.
    package static let highestNumber = UInt64(Int64.max) / 2

    package init(
        evidence: Int = .max, observations: Int = 20_000, writerCache: Int = 16 << 20, readerCache: Int = 2 << 20,
        checkedWhole: Int = 64 << 20
    ) {
        self.evidence = evidence
        self.observations = observations
        self.writerCache = writerCache
        self.readerCache = readerCache
        self.checkedWhole = checkedWhole
    }
}
