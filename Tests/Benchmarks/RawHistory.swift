import ArgumentParser
import Glibc

/// The rows of history by SQLite and nothing else: what the disk and SQLite allow.
struct RawHistory: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "raw-history", abstract: "Prints messages or pages a second of SQLite alone, and bytes a message.")

    @Option(help: "The database file; it must not exist.") var path: String
    @Option(help: "write or read.") var work: HistoryWork
    @Option(help: "Messages in a transaction.") var batch = 256
    @Option(help: "How long to go on.") var seconds = 3
    @Option(help: "Bytes of the state of a session.") var state = 1000
    @Option(help: "Messages that are written before they are read.") var messages = 50_000

    func run() throws {
        let database = try RawDatabase(self.path)
        try database.execute(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = FULL;
            PRAGMA wal_autocheckpoint = 4096;
            CREATE TABLE session (owner INTEGER NOT NULL, peer INTEGER NOT NULL, fence INTEGER NOT NULL,
              sealed_state BLOB NOT NULL, PRIMARY KEY (owner, peer)) WITHOUT ROWID;
            CREATE INDEX session_peer ON session (peer);
            CREATE TABLE content_key (message INTEGER NOT NULL, digest BLOB NOT NULL, expires_at INTEGER NOT NULL,
              sealed_key BLOB NOT NULL, PRIMARY KEY (message, digest)) WITHOUT ROWID;
            CREATE INDEX content_key_expiry ON content_key (expires_at);
            """)
        let insert = try database.prepare(
            "INSERT INTO content_key VALUES (1840000000000000 + ?1, randomblob(16), 1790000000000 + ?1 / 8, ?2)")
        let session = try database.prepare(
            """
            INSERT INTO session VALUES (?1, ?1, 1, ?2)
            ON CONFLICT DO UPDATE SET fence = fence + 1, sealed_state = excluded.sealed_state
            """)
        let key = [UInt8](repeating: 0x78, count: 60)
        let state = [UInt8](repeating: 0x78, count: self.state)
        var count = 0
        // Both ends of each conversation that is spoken in.
        let sessions = 2 * min(self.batch, HistoryLoad.conversations)
        func write(_ number: Int) throws -> Int {
            try database.transaction {
                for id in count..<(count + number) { try insert.run(id: id, blob: key[...]) }
                for id in 0..<sessions { try session.run(id: id, blob: state[...]) }
            }
            count += number
            return number
        }
        switch self.work {
        case .write:
            let measured = try HistoryLoad.measure(self.seconds) { try write(self.batch) }
            Swift.print(measured.perSecond, measured.processor)
        case .read:
            while count < self.messages { _ = try write(1000) }
            let page = try database.prepare(
                """
                SELECT message, digest, expires_at, sealed_key FROM content_key
                WHERE message BETWEEN 1840000000000000 + ?1 AND 1840000000000000 + ?1 + 99
                """)
            var start = count
            let measured = try HistoryLoad.measure(self.seconds) {
                start = start >= 2 * HistoryLoad.page ? start - HistoryLoad.page : count - HistoryLoad.page
                return try page.count(id: start) / HistoryLoad.page
            }
            Swift.print(measured.perSecond, measured.processor)
        }
    }
}
