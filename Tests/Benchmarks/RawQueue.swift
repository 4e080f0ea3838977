import ArgumentParser
import Glibc
import NIOCore

/// A queue's row changes by SQLite and nothing else, so many in a transaction: what the disk and SQLite allow.
struct RawQueue: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "raw-queue", abstract: "Prints requests a second and CPU µs a request of SQLite alone.")

    @Option(help: "The database file; it must not exist.") var path: String
    @Option(help: "append, or cycle: inserted, marked as under way, marked as done.")
    var work: QueueWork
    @Option(help: "Transactions of a cycle: 3, or 2 where a request is inserted as one that is under way.")
    var commits = 3
    @Option(help: "Changes in a transaction.") var batch = 256
    @Option(help: "How long to go on.") var seconds = 3

    func run() throws {
        let database = try RawDatabase(self.path)
        try database.execute(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = FULL;
            PRAGMA cache_size = -8192;
            PRAGMA wal_autocheckpoint = 4096;
            CREATE TABLE request (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, token BLOB NOT NULL, tenant TEXT NOT NULL,
              accepted_at INTEGER NOT NULL, lease INTEGER, finished_at INTEGER, form BLOB NOT NULL);
            """)
        let insert = try database.prepare(
            self.work == .cycle && self.commits == 2
                ? "INSERT INTO request VALUES (?1, 3, randomblob(16), 'tenant', 1790000000000, ?1, NULL, ?2)"
                : "INSERT INTO request VALUES (?1, 0, randomblob(16), 'tenant', 1790000000000, NULL, NULL, ?2)")
        let lease = try database.prepare("UPDATE request SET state = 3, lease = ?1 WHERE id = ?1")
        let finish = try database.prepare("UPDATE request SET state = 1, lease = NULL, finished_at = 5 WHERE id = ?1")
        let form = [UInt8](repeating: 0x78, count: 330)
        let begin = NIODeadline.now()
        let cpu = clock()
        let end = begin + .seconds(Int64(self.seconds))
        var count = 0
        while NIODeadline.now() < end {
            let ids = (count + 1)...(count + self.batch)
            try database.transaction { for id in ids { try insert.run(id: id, blob: form[...]) } }
            if self.work == .cycle {
                if self.commits > 2 { try database.transaction { for id in ids { try lease.run(id: id) } } }
                try database.transaction { for id in ids { try finish.run(id: id) } }
            }
            count += self.batch
        }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        let processor = Double(clock() - cpu) * 1e6 / Double(CLOCKS_PER_SEC)
        Swift.print(Double(count) / elapsed, processor / Double(count))
    }
}
