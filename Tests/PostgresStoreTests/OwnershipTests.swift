import Foundation
import RequestQueue
import StoreConformance
import StorePort
import TestKit
import TestThreads
import Testing

@testable import PostgresStore
@testable import StoreBase

/// One gateway, and what is refused.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct OwnershipTests {
    private static let session = StoreConformance.session(1, 2, fence: 1)

    @Test func oneGateway() throws {
        let database = try Database()
        let (first, second) = (try Place(), try Place())
        try FileManager.default.createDirectory(atPath: second.data, withIntermediateDirectories: true)
        let store = try first.open(database.address())
        try FileManager.default.copyItem(atPath: first.key, toPath: second.key)
        // While its beat rises nobody else gets in.
        let refusal = second.refusal(try database.address())
        guard case .locked(let text) = refusal else {
            Issue.record("\(String(describing: refusal))")
            return
        }
        #expect(text.contains("Another gateway"))
        // Its beat ends, as if it were stopped: another one takes over, and what this one sends is refused.
        let group = ChangeGroup([.putSession(Self.session)], in: .shard(.only))
        let epochs = try store.load().epochs
        #expect(try store.commit([group], by: epochs) == [nil])
        store.membership.freeze()
        let heir = try second.open(database.address())
        // The heir has ended its connections.
        store.writer.close()
        #expect(try database.number("SELECT count(*)::int8 FROM pawl.gateway") == 1)
        let later = ChangeGroup([.putSession(StoreConformance.session(1, 2, fence: 2))], in: .shard(.only))
        #expect(throws: StoreError.epochLost(.only)) { try store.commit([later], by: [epochs[0]]) }
        #expect(throws: StoreError.self) {
            try store.commit([ChangeGroup([.putDevice(StoreConformance.device(1, "a"))], in: .unsharded)], by: [])
        }
        #expect(try heir.session(Self.session.id) == Self.session)
        #expect(try heir.load().devices.isEmpty)
        #expect(try heir.load().epochs.map(\.epoch) == epochs.map { $0.epoch + 1 })
        #expect(try heir.commit([later], by: heir.load().epochs) == [nil])
    }

    /// Rows of no shard are committed, and counted by the gateway's row.
    @Test func refusals() throws {
        let database = try Database()
        let place = try Place()
        for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
            try database.set(setting, "off")
            let refusal = place.refusal(try database.address())
            #expect(refusal?.message.contains("\(setting)=off") == true, "\(String(describing: refusal))")
            try database.set(setting, "on")
        }
        try autoreleased {
            let store = try place.open(database.address())
            let device = ChangeGroup([.putDevice(StoreConformance.device(1, "a"))], in: .unsharded)
            #expect(try store.commit([device], by: []) == [nil])
            // A setting that changes while the gateway runs is noticed by the next commit.
            try database.set("synchronous_commit", "off")
            store.writer.close()
            #expect(throws: StoreError.self) { try store.commit([device], by: []) }
            try database.set("synchronous_commit", "on")
            store.writer.close()
            #expect(try store.commit([device], by: []) == [nil])
        }
        // A row that another program has changed.
        try database.execute("UPDATE pawl.device SET created_at = created_at + 1")
        try autoreleased {
            let store = try place.open(database.address())
            #expect(throws: StoreError.self) { try store.load() }
        }
        // Another key, no key, no tables, newer tables.
        let other = try Place()
        try FileManager.default.createDirectory(atPath: other.data, withIntermediateDirectories: true)
        #expect(other.refusal(try database.address())?.code == "store-missing")
        try StorageKey.random().create(other.key)
        #expect(other.refusal(try database.address())?.code == "store-wrong-key")
        try database.execute("UPDATE pawl.cluster SET version = 99")
        #expect(place.refusal(try database.address())?.code == "store-too-new")
        try database.removeTables()
        #expect(place.refusal(try database.address())?.code == "store-missing")
        // A directory with a store of its own.
        try Data().write(to: URL(fileURLWithPath: other.data + "/pawl.sqlite"))
        #expect(other.refusal(try database.address())?.message.contains("pawl.sqlite") == true)
    }

    private func autoreleased(_ body: () throws -> Void) rethrows { try body() }

    /// Each host is tried alone, with its own address and port.
    @Test func hosts() throws {
        func hosts(_ text: String) throws -> [String] {
            try StoreAddress("postgresql://pawl@\(text)").hosts(name: "a test").map { host in
                host.settings.map { "\($0.0)=\($0.1)" }.joined(separator: " ")
            }
        }
        let checked = "sslmode=verify-full"
        #expect(try hosts("db1,db2:6000/x?\(checked)") == ["host=db1 port=5432", "host=db2 port=6000"])
        #expect(
            try hosts("db1,db2/x?\(checked)&port=7000&hostaddr=192.0.2.1,192.0.2.2")
                == ["host=db1 hostaddr=192.0.2.1 port=7000", "host=db2 hostaddr=192.0.2.2 port=7000"])
        #expect(try hosts("/x?hostaddr=127.0.0.1,127.0.0.2").count == 2)
        // One host, and lists that libpq reads in its own way or refuses.
        for text in ["db1/x?\(checked)", "/x", "/x?host=,/tmp", "db1,db2/x?\(checked)&port=1,2,3"] {
            #expect(try hosts(text) == [""], "\(text)")
        }
        // The second one is checked although the first one could be used.
        #expect(throws: StoreError.self) { try hosts("127.0.0.1,db2/x") }
    }

    /// What is refused before anything is sent.
    @Test func addresses() throws {
        for text in [
            "postgresql://pawl:secret@127.0.0.1/x", "postgresql://127.0.0.1/x?password=secret",
            "postgresql://127.0.0.1/x?sslpassword=secret", "host=127.0.0.1", "mysql://127.0.0.1/x",
            "postgresql://127.0.0.1/x?nonsense=1",
        ] {
            #expect(
                performing: { try StoreAddress(text) },
                throws: { error in
                    (error as? StoreError)?.message.contains("secret") == false
                })
        }
        let place = try Place()
        for text in [
            "postgresql://pawl@192.0.2.1/x", "postgresql://pawl@192.0.2.1/x?sslmode=require",
            "postgresql://pawl@/x?host=/tmp,192.0.2.1&sslmode=verify-ca",
        ] {
            let refusal = place.refusal(try StoreAddress(text))
            #expect(refusal?.message.contains("verify-full") == true, "\(text): \(String(describing: refusal))")
        }
        #expect(StoreAddress.isLoopback("127.9.9.9") && StoreAddress.isLoopback("::1"))
        #expect(!StoreAddress.isLoopback("128.0.0.1") && !StoreAddress.isLoopback("localhost"))
    }

    /// No name is the key of another one, and keys keep the order of names.
    @Test func nameKeys() {
        let long = String(repeating: "x", count: 600)
        #expect(NameKey.of(long).count == 512)
        #expect(NameKey.of(String(repeating: "x", count: 511)).count == 511)
        #expect(NameKey.of(NameKey.of(long)) != NameKey.of(long))
        #expect(NameKey.of(long) != NameKey.of(long + "y"))
    }

    /// What the statements use, so that an engine with the same protocol can be judged by its documentation.
    @Test func onlyWhatOtherEnginesHave() throws {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "Sources/PostgresStore")
        let files = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }
        #expect(files.count > 8)
        for name in files {
            let lines = try String(contentsOf: folder.appending(path: name), encoding: .utf8).split(separator: "\n")
            let code = lines.filter { !$0.drop { $0 == " " }.hasPrefix("//") }.joined(separator: "\n")
            for word in [
                "advisory", "LISTEN ", "NOTIFY ", "LOCK TABLE", "DEFERRABLE", "ctid", "TEMPORARY", "TRIGGER", "SERIAL",
                "nextval", "CREATE FUNCTION", "SKIP LOCKED", "SAVEPOINT",
            ] {
                #expect(!code.contains(word), "\(name) uses \(word)")
            }
            // Ends the statements of a gateway that does not run; without it they end by themselves.
            #expect(!code.contains("pg_stat_activity") || name == "ClusterStatements.swift")
        }
    }
}
