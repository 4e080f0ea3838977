// The queue in a file of its own: SQLite in WAL mode, each commit synced, one writer and a few readers.
//
//     PATH (-wal, -shm)   the tables
//     PATH.lock           held while a process has it open

import GRDB
public import RequestQueue
package import SQLiteKit

/// A queue store in a file. It is closed when the last reference is released.
public final class SQLiteQueueStore: QueueStore {
    /// SQLite's application_id of such files: `PAWQ`.
    static let application = 0x5041_5751
    /// Ours: SQLite's page cache for writing and for each reader, in bytes. The requests in flight fit.
    private static let (writerCache, readerCache) = (8 << 20, 2 << 20)
    /// Ours: readers beside the writer: a report and one more.
    private static let readers = 2
    /// Ours: pages that the write-ahead log collects before they move into the file, 16 MiB, so that a row that changes
    /// three times moves once.
    private static let checkpointPages = 4096
    /// Ours: a file up to this size, in bytes, is checked whole when it is opened; of a larger one, only its smallest
    /// table.
    private static let checkedWhole = 64 << 20

    /// Whether commits succeed, and whether the file is still there.
    package let health: StoreHealth
    let path: String
    let pool: DatabasePool
    private let lock: FileLock

    /// Opens the store at a path; makes it, and the directory, if there is none. Never overwrites a file, and never
    /// repairs by wiping.
    ///
    /// - Throws: ``QueueStoreError``, with the remedy: it is in use, damaged, written by a newer program, or the file
    ///   system fails.
    public convenience init(path: String) throws(QueueStoreError) { try self.init(path: path, migrates: true) }

    /// - Parameter migrates: whether an older schema becomes the newest. If not, the store may only be read.
    package init(path: String, migrates: Bool) throws(QueueStoreError) {
        self.path = path
        let parent = Disk<QueueStoreError>.parent(of: path)
        if !Disk<QueueStoreError>.exists(parent) { try Disk<QueueStoreError>.makeDirectory(parent) }
        lock = try FileLock(queue: path)
        if !Disk<QueueStoreError>.exists(path) { try Self.make(path) }
        try Self.examine(path)
        pool = try QueueStoreError.translating(path) {
            try Connections.open(
                path, Self.configuration, readers: Self.readers, checkpointPages: Self.checkpointPages
            ) { database in if migrates { try Connections.migrate(database, QueueTables.migrations) } }
        }
        health = StoreHealth(path)
        try? Connections.compact(pool)
    }

    /// Moves the log into the database, so that the file alone is the whole queue. If that fails, the next opening does it.
    package func moveLog() { Connections.moveLog(pool) }

    deinit { Connections.close(pool) }

    static var configuration: Configuration {
        Connections.configuration(label: "pawl.queue", writerCache: writerCache, readerCache: readerCache)
    }

    static func make(_ path: String) throws(QueueStoreError) {
        guard !Disk<QueueStoreError>.exists(path + "-wal") else {
            throw .logWithoutQueue(path)
        }
        guard !Disk<QueueStoreError>.exists(path + ".damaged") else {
            throw .unfinishedRepair(path)
        }
        let new = try NewDatabase<QueueStoreError>(path + ".new")
        try new.fill(configuration, begin)
        try new.publish(at: path)
    }

    /// Makes an empty database one of ours.
    static func begin(_ database: Database) throws {
        try database.execute(sql: "PRAGMA application_id = \(application)")
        try Connections.migrate(database, QueueTables.migrations)
    }

    static func examine(_ path: String, checkedWhole: Int = checkedWhole) throws(QueueStoreError) {
        try Examination<QueueStoreError>.examine(
            path, application: application, known: QueueTables.migrations.count, checkedWhole: checkedWhole,
            tables: ["queue_meta"], configuration
        ) { _, _ in }
    }

    // MARK: The port

    /// A commit that fails has changed nothing for this process, and almost certainly nothing for the next; see
    /// `QueueWriter.supersede(_:)`.
    public func commit(_ changes: [QueueChange]) throws(QueueStoreError) {
        guard !changes.isEmpty else { return }
        try health.committing { () throws(QueueStoreError) in try transact(changes) }
    }

    /// Commits a change without effect, to find out whether the disk accepts it.
    package func probe() {
        try? health.committing { () throws(QueueStoreError) in
            try QueueStoreError.translating(path) {
                try pool.writeWithoutTransaction { try QueueWriter.touch($0) }
            }
        }
    }

    private func transact(_ changes: [QueueChange]) throws(QueueStoreError) {
        try QueueStoreError.translating(path) {
            try pool.writeWithoutTransaction { database in
                var isComplete = false
                do {
                    try database.inImmediateTransaction {
                        var writer = QueueWriter(database)
                        for change in changes { try writer.apply(change) }
                        isComplete = true
                    }
                } catch {
                    if isComplete { QueueWriter.supersede(database) }
                    throw error
                }
            }
        }
    }

    /// All that a process needs to start, from one snapshot. Unreadable forms are listed and do not prevent the start.
    public func load() throws(QueueStoreError) -> QueueContents { try reading { try $0.load() } }

    /// How a finished request ended; nil if it is not finished, or was pruned.
    public func outcome(_ token: RequestToken) throws(QueueStoreError) -> RequestOutcome? {
        try reading { try $0.outcome(token) }
    }

    /// A request, finished or not; nil if it is unknown or was pruned.
    public func request(_ token: RequestToken) throws(QueueStoreError) -> QueuedRequest? {
        try reading { try $0.request(token) }
    }

    /// When a request ended, in milliseconds since 1970; nil if it has not, or was pruned.
    public func finishedAt(_ id: UInt64) throws(QueueStoreError) -> Int64? { try reading { try $0.finishedAt(id) } }

    /// Requests in these states with an id above `after`, in the order of their ids; for reports. It does not block the
    /// writer.
    public func requests(
        states: [RequestState], after: UInt64, limit: Int
    ) throws(QueueStoreError) -> [QueuedRequest] {
        try reading { try $0.requests(states: states, after: after, limit: limit) }
    }

    /// Reads one snapshot of the store, concurrently with the writer.
    private func reading<Value>(_ body: (QueueReader) throws -> Value) throws(QueueStoreError) -> Value {
        try QueueStoreError.translating(path) {
            try pool.read { database in try body(QueueReader(database)) }
        }
    }
}

extension FileLock {
    /// - Throws: ``QueueStoreError`` if another store, in this process or another, has the lock.
    convenience init(queue path: String) throws(QueueStoreError) {
        try self.init(path + ".lock") { QueueStoreError.inUse(path, by: $0) }
    }
}

extension QueueStoreError: DiskFailure {
    package static func locked(_ words: String) -> QueueStoreError { QueueStoreError(words) }
    package static func corrupt(_ words: String) -> QueueStoreError { QueueStoreError(words, isDamage: true) }
    package static func unavailable(_ words: String) -> QueueStoreError { QueueStoreError(words) }

    package static func tooNew(found: Int, known: Int) -> QueueStoreError {
        QueueStoreError(
            """
            The queue has schema \(found); this program knows schemas up to \(known). Start the newer program that wrote it.
            """)
    }

    package static func damaged(_ path: String, _ damage: Damage) -> String {
        """
        The queue \(path) is damaged (\(damage.text)). Nothing was changed. Bring back a copy of it, or save what can still \
        be read: pawl queue repair, in a program of your own SQLiteQueueStore.repair(path:now:), makes a new queue of that \
        and keeps the damaged files aside.
        """
    }

    // MARK: Refusals, each with its remedy

    /// - Parameter holder: the process id; nil if unknown.
    package static func inUse(_ path: String, by holder: Int32?) -> QueueStoreError {
        .locked(
            """
            The queue \(path) is in use by another process\(holder.map { " (\($0))" } ?? ""). Stop that one \
            first\(holder.map { ": kill \($0)" } ?? ""), or give this one a file of its own.
            """)
    }

    package static func logWithoutQueue(_ path: String) -> QueueStoreError {
        .unavailable(
            "\(path) is missing, but its log \(path)-wal is there. Put it back; without it the log cannot be read.")
    }

    package static func unfinishedRepair(_ path: String) -> QueueStoreError {
        .unavailable(
            """
            \(path) is missing, but \(path).damaged is there: a repair was cut short. Move that one back, with its -wal \
            where there is one, and repair it again.
            """)
    }

    static func earlierRepair(kept: String) -> QueueStoreError {
        .unavailable("\(kept) is there from an earlier repair. Move it away first.")
    }

    static func copyExists(_ path: String) -> QueueStoreError { .unavailable("There is a file \(path) already.") }
}
