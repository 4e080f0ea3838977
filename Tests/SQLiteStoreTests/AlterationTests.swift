import Envelope
import GRDB
import Glibc
import Protection
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

/// Rows that another program has written, without the storage key.
@Suite struct AlterationTests {
    private let scratch = Scratch()
    private typealias Rows = StoreConformance

    init() throws {
        try scratch.with { store in
            try Rows.commit(
                store, [.setPolicy(nil, .hosted), .setPolicy(AccountID(text: "alice"), .required)],
                [.putDevice(Rows.device(1, "alice")), .putDevice(Rows.device(2, "bob"))],
                [.putConversation(Rows.conversation("alice", "bob"))],
                [
                    .putRecord(RecordRow(kind: .peer, name: "bob", value: [1, 2])),
                    .putRecord(RecordRow(kind: .peer, name: "carol", value: [3])),
                    .putRecord(RecordRow(kind: .directoryAccount, name: "dave", value: [])),
                ])
        }
    }

    /// Reads all rows that have codes.
    private func read() throws {
        try scratch.with { store in
            _ = try store.load()
            for kind in RecordKind.allCases { _ = try store.records(kind) }
        }
    }

    private func refusal() -> StoreError? {
        do {
            try read()
            return nil
        } catch {
            return error as? StoreError
        }
    }

    @Test func rowsOfThisProgramAreRead() throws {
        try read()
    }

    @Test(arguments: [
        ("UPDATE policy SET policy = 0 WHERE account = ''", "policy"),
        ("UPDATE policy SET mac = NULL", "policy"),
        ("INSERT INTO policy (account, policy) VALUES ('mallory', 0)", "policy"),
        ("INSERT INTO policy SELECT 'mallory', policy, mac FROM policy WHERE account = 'alice'", "policy"),
        ("UPDATE device SET account = 'bob' WHERE id = 1", "device"),
        ("UPDATE device SET created_at = created_at + 1", "device"),
        ("UPDATE device SET sealed_identity = x'00' WHERE id = 2", "device"),
        ("UPDATE conversation SET latch = 0", "conversation"),
        ("UPDATE conversation SET since = since + 1", "conversation"),
        ("UPDATE conversation SET peer_name_for_first = peer_name_for_first || 'x'", "conversation"),
        ("UPDATE conversation SET first = second, second = first", "conversation"),
        ("UPDATE record SET value = x'0103' WHERE name = 'bob'", "record (peer)"),
        ("UPDATE record SET value = x'00' WHERE kind = 5", "record (directoryAccount)"),
        ("UPDATE record SET kind = 3 WHERE kind = 5", "record (peer)"),
        ("UPDATE record SET name = 'bo' WHERE name = 'bob'", "record (peer)"),
        ("UPDATE record SET mac = substr(mac, 1, 15) WHERE name = 'carol'", "record (peer)"),
        (
            "UPDATE record SET mac = (SELECT mac FROM record WHERE name = 'bob') WHERE name = 'carol'", "record (peer)"
        ),
    ])
    func aRowOfAnotherProgramIsRefused(_ sql: String, _ row: String) throws {
        scratch.edit(sql)
        let before = try scratch.open().dump()
        #expect(refusal() == .alteredRow(row))
        #expect(try scratch.open().dump() == before, "nothing is changed")
    }

    /// One record is read by its name, and the last of a range.
    @Test func everyReadOfARecordChecks() throws {
        scratch.edit("UPDATE record SET value = x'09' WHERE name = 'bob'")
        let store = try scratch.open()
        #expect(throws: StoreError.alteredRow("record (peer)")) { try store.record(.peer, name: "bob") }
        #expect(throws: StoreError.alteredRow("record (peer)")) {
            try store.records(.peer, from: "a", to: "z", last: 9)
        }
        #expect(try store.record(.peer, name: "carol")?.value == [3])
        #expect(StoreError.alteredRow("record (peer)").code == "store-altered")
        // This program may replace the row.
        try Rows.commit(store, [.putRecord(RecordRow(kind: .peer, name: "bob", value: [7]))])
        #expect(try store.record(.peer, name: "bob")?.value == [7])
    }

    @Test func aLatchIsCheckedInReportsToo() throws {
        scratch.edit("UPDATE conversation SET latch = 0")
        let store = try scratch.open()
        #expect(throws: StoreError.alteredRow("conversation")) { try store.conversations(limit: 9) }
    }

    /// Otherwise a restart would give codes to what another program has written.
    @Test func aStoreCannotBePresentedAsOneWithoutCodes() throws {
        scratch.edit(
            """
            UPDATE record SET value = x'09';
            ALTER TABLE policy DROP COLUMN mac; ALTER TABLE device DROP COLUMN mac;
            ALTER TABLE conversation DROP COLUMN mac; ALTER TABLE record DROP COLUMN mac;
            PRAGMA user_version = 7;
            """)
        let before = bytes(scratch.store)
        #expect(scratch.refusal() == .alteredSchema(scratch.store, 7))
        #expect(bytes(scratch.store) == before)
    }

    /// The values of a directory's devices change with a rollback, and get new codes only if theirs are right.
    @Test func anAlteredRowIsNotMadeGoodByARollback() throws {
        try scratch.with { try Rows.commit($0, KeyRows.all()) }
        run("cp", scratch.store, scratch.path + "/old.sqlite")
        try scratch.with { _ in }
        run("rm", "-f", scratch.store + "-wal", scratch.store + "-shm")
        run("cp", scratch.path + "/old.sqlite", scratch.store)
        scratch.edit("UPDATE record SET value = x'0009' WHERE kind = 6 AND name = '8'")
        #expect(throws: StoreError.alteredRow("record (directoryDevice)")) {
            try Rollback.accept(directory: scratch.data, key: scratch.key, actor: "root", now: 7)
        }
    }

    /// Each code is for one row of one table: no two rows have the same input.
    @Test func codesAreBoundToTableAndColumns() throws {
        let authenticator = RowAuthenticator(StorageKey([UInt8](repeating: 1, count: 32)))
        func record(_ kind: RecordKind, _ name: String, _ value: [UInt8]) -> AuthenticatedRow {
            AuthenticatedRow(RecordRow(kind: kind, name: name, value: value))
        }
        var rows = [
            AuthenticatedRow(policy: "a", 1), AuthenticatedRow(policy: "", 1), AuthenticatedRow(policy: "a", 2),
            AuthenticatedRow(Rows.device(1, "a")), AuthenticatedRow(Rows.device(2, "a")),
            AuthenticatedRow(conversation: "a", "bc", latch: 1, since: 1, names: ("", "")),
            AuthenticatedRow(conversation: "ab", "c", latch: 1, since: 1, names: ("", "")),
            AuthenticatedRow(conversation: "ab", "", latch: 1, since: 1, names: ("c", "")),
            AuthenticatedRow(conversation: "ab", "", latch: 1, since: 1, names: ("", "c")),
        ]
        for kind in RecordKind.allCases {
            rows += [record(kind, "ab", [99]), record(kind, "a", [98, 99]), record(kind, "", [97, 98, 99])]
        }
        // Random columns, with the bytes of lengths and tags among them.
        var (random, seen): (RandomNumbers, Set<[UInt8]>) = (RandomNumbers(), [])
        for _ in 0..<2000 {
            let value = (0..<Int.random(in: 0..<6, using: &random)).map { _ in UInt8.random(in: 0...3, using: &random) }
            let name = (0..<Int.random(in: 0..<6, using: &random)).map { _ in
                Character(Unicode.Scalar(UInt8.random(in: 0...3, using: &random)))
            }
            if seen.insert(Array(String(name).utf8) + [255] + value).inserted {
                rows.append(record(.peer, String(name), value))
            }
        }
        let codes = rows.map { authenticator.code($0) }
        #expect(Set(codes).count == rows.count && codes.allSatisfy { $0.count == RowAuthenticator.length })
        let other = RowAuthenticator(StorageKey([UInt8](repeating: 2, count: 32)))
        #expect(rows.allSatisfy { other.code($0) != authenticator.code($0) })
    }

    /// HMAC-SHA-256 under a key from HKDF-SHA-256, of the bytes in the comment of `RowAuthenticator`; made with Python.
    @Test func theCodeIsWhatItWas() {
        let authenticator = RowAuthenticator(StorageKey([UInt8](repeating: 0x11, count: 32)))
        let code = authenticator.code(AuthenticatedRow(RecordRow(kind: .peer, name: "bob", value: [1, 2])))
        #expect(
            code == [
                0xAA, 0xD8, 0x2E, 0xFD, 0xFD, 0x33, 0xD9, 0x77,
                0x20, 0xC2, 0x1A, 0x0C, 0x78, 0x9E, 0xF9, 0x39,
            ])
    }
}

/// A seeded generator.
private struct RandomNumbers: RandomNumberGenerator {
    var state: UInt64 = 0x9E37_79B9_7F4A_7C15
    mutating func next() -> UInt64 {
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        return state
    }
}

extension SQLiteStore {
    /// The rows of the tables that have codes.
    fileprivate func dump() throws -> [String] {
        try pool.writeWithoutTransaction { database in
            try ["policy", "device", "conversation", "record"].flatMap { table in
                try Row.fetchAll(database, sql: "SELECT * FROM \(table)").map { "\($0)" }
            }
        }
    }
}
