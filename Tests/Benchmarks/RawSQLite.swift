import ArgumentParser
import GRDBSQLite
import Glibc
import NIOCore

/// The row changes of hosted messages, done by SQLite and nothing else: what a gateway that keeps its promises can be
/// compared with.
struct RawSQLite: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "raw-sqlite",
        abstract: "Prints messages a second, CPU µs and bytes written per message, of SQLite alone.")

    private static let messagesPerTransaction = 256
    private static let sessionBytes = 700
    private static let requestBytes = 420
    private static let deliveryBytes = 200

    @Option(help: "The database file; it must not exist.") var path: String
    @Option(help: "How long to go on.") var seconds = 5
    @Option(help: "How many session rows there are.") var sessions = 100

    func run() throws {
        let database = try RawDatabase(self.path)
        try database.execute(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = FULL;
            CREATE TABLE session (key BLOB PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID;
            CREATE TABLE request (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, line BLOB NOT NULL);
            CREATE TABLE delivery (id INTEGER PRIMARY KEY, line BLOB NOT NULL);
            """)
        let changes = try Changes(database)
        let written = try Self.bytesWritten()
        let begin = NIODeadline.now()
        let cpu = clock()
        let end = begin + .seconds(Int64(self.seconds))
        var messages = 0
        while NIODeadline.now() < end {
            try database.transaction {
                for _ in 0..<Self.messagesPerTransaction {
                    try self.commit(messages, changes)
                    messages += 1
                }
            }
        }
        let elapsed = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        let processor = Double(clock() - cpu) * 1e6 / Double(CLOCKS_PER_SEC)
        let bytes = try Self.bytesWritten() - written
        print(Double(messages) / elapsed, processor / Double(messages), bytes / Double(messages))
    }

    private func commit(_ message: Int, _ changes: Changes) throws {
        // The two ends of a conversation, taking turns.
        let sender = message % self.sessions
        try changes.upsertSession.run(key: sender, blob: changes.blob(Self.sessionBytes))
        try changes.insertRequest.run(id: message, blob: changes.blob(Self.requestBytes))
        try changes.upsertSession.run(key: sender ^ 1, blob: changes.blob(Self.sessionBytes))
        try changes.insertDelivery.run(id: message, blob: changes.blob(Self.deliveryBytes))
        try changes.finishRequest.run(id: message)
        try changes.deleteDelivery.run(id: message)
    }

    private static func bytesWritten() throws -> Double {
        let lines = try readText("/proc/self/io").split(separator: "\n")
        return lines.first { $0.hasPrefix("write_bytes:") }?.split(separator: " ").last.flatMap { Double($0) } ?? .nan
    }
}

/// The statements, prepared once, and bytes that do not repeat to fill rows with.
private struct Changes {
    let upsertSession: RawStatement
    let insertRequest: RawStatement
    let finishRequest: RawStatement
    let insertDelivery: RawStatement
    let deleteDelivery: RawStatement
    private let noise = (0..<65_536).map { _ in UInt8.random(in: .min ... .max) }

    init(_ database: RawDatabase) throws {
        self.upsertSession = try database.prepare(
            "INSERT INTO session (key, state) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET state = excluded.state")
        self.insertRequest = try database.prepare("INSERT INTO request (id, state, line) VALUES (?1, 0, ?2)")
        self.finishRequest = try database.prepare("UPDATE request SET state = 1 WHERE id = ?1")
        self.insertDelivery = try database.prepare("INSERT INTO delivery (id, line) VALUES (?1, ?2)")
        self.deleteDelivery = try database.prepare("DELETE FROM delivery WHERE id = ?1")
    }

    func blob(_ count: Int) -> ArraySlice<UInt8> {
        let start = Int.random(in: 0..<self.noise.count - count)
        return self.noise[start..<start + count]
    }
}
