// Every limit of the driver has a name and a reason.

/// What a store may use.
package struct StoreLimits: Equatable, Sendable {
    /// Ours: rows on what clients people use. One account has a few; nicks without a login are what grows.
    package var evidence: Int
    /// Ours: rows on who said something that a stricter policy would treat differently.
    package var observations: Int
    /// Ours: SQLite's page cache for writing, in bytes. The sessions of a few thousand busy people fit.
    package var writerCache: Int
    /// Ours: the same for each of ``readers``, in bytes.
    package var readerCache: Int
    /// Ours: a store up to this size is checked whole when it is opened, a larger one in its smallest tables. In
    /// bytes; 64 MiB take 0.1 s from memory and 0.4 s from a cold disk, and a start has a second.
    package var checkedWhole: Int

    /// Ours: readers beside the writer: a report, a backup, and one more report.
    static let readers = 3
    /// Ours: pages that the write-ahead log gathers before they move into the store. Sessions are written over and over;
    /// the more gather, the fewer pages move. 16 MiB.
    static let checkpointPages = 4096
    /// Ours: what is evicted at a time, as a share of the limit, so that not each new row evicts one.
    static let evictedShare = 16
    /// Ours: ids that are skipped when an older state of the store comes back, because the ids after it may be in use
    /// out there.
    static let idGap: UInt64 = 1 << 32
    /// Ours: what ids and the count of openings stay below, so that adding to them cannot overflow. A larger one in a file is
    /// damage.
    static let highestNumber = UInt64(Int64.max) / 2

    package init(
        evidence: Int = 20_000, observations: Int = 20_000, writerCache: Int = 16 << 20, readerCache: Int = 2 << 20,
        checkedWhole: Int = 64 << 20
    ) {
        self.evidence = evidence
        self.observations = observations
        self.writerCache = writerCache
        self.readerCache = readerCache
        self.checkedWhole = checkedWhole
    }
}
