import Envelope
import Foundation
import PeerKit
import Protection
import RequestQueue
import SQLiteStore
import StoreConformance
import StorePort
import TestKit
import TestThreads
import Testing

@testable import PostgresStore
@testable import StoreBase

/// `pawl store copy`, between a file and a database: all rows as they are, and one of the two marked as moved.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct CopyTests {
    /// A directory with rows in every table of a store in a file.
    private static func fill(_ place: Place) throws {
        let store = try SQLiteStore.open(directory: place.data, key: .file(place.key))
        func session(_ owner: UInt64, _ peer: UInt64, _ fence: UInt64) -> StoreChange {
            .putSession(StoreConformance.session(owner, peer, fence: fence, Array("state \(owner) \(peer)".utf8)))
        }
        let long = String(repeating: "n", count: 9000)
        let digest = try #require(EnvelopeDigest([UInt8](repeating: 3, count: 16)))
        let groups: [[StoreChange]] = [
            [
                .setPolicy(nil, .hosted), .setPolicy(AccountID(text: "alice"), .required),
                .putDevice(StoreConformance.device(2, "alice")), .putDevice(StoreConformance.device(4, "bob")),
                .putDevice(StoreConformance.device(6, AccountID.room("#den").text)),
            ],
            // Two accounts, an account with itself, a room, and a device outside the vault.
            [
                session(2, 4, 9), session(4, 2, 8), session(2, 3, 1), session(3, 2, 1), session(2, 6, 5),
                session(6, 2, 5),
            ],
            [session(2, 100, 7), session(100, 2, 7)],
            [.insertDelivery(StoreConformance.delivery(700)), .spendMessageID(9_000)],
            [.putConversation(StoreConformance.conversation("alice", "bob", since: 3))],
            [
                .putContentKey(
                    ContentKeyRow(message: MessageID(40), digest: digest, expiresAt: 50, sealedKey: [1, 0, 2]))
            ],
            [
                .putRecord(RecordRow(kind: .directoryAccount, name: "a\u{0}b", value: [])),
                .putRecord(RecordRow(kind: .peer, name: long, value: Array(long.utf8))),
            ],
            [
                .addEvidence(
                    EvidenceRow(
                        name: "alice", verified: true, software: "irssi", asked: true, firstSeen: 1, lastSeen: 2,
                        registrations: 3)),
                .addObservation(
                    ObservationRow(sender: "alice", target: "x", recipient: "outsider", messages: 4, lastSeen: 5)),
                .addTally(TallyRow(hour: 6, kind: "sent", count: 7)),
            ],
            [.audit(AuditRow(at: 8, actor: "root", action: "policy.set", detail: "hosted"))],
            [.audit(AuditRow(at: 7, actor: "root", action: "policy.set", detail: "later, with an earlier time"))],
            [
                .insert(StoreConformance.request(11)), .insert(StoreConformance.request(300)),
                .insert(StoreConformance.request(13)),
            ],
            [.done(11, at: 99), .dead(13, "gone", at: 98)],
            [.named(11, of: "alice", "first"), .named(11, of: "alice", "second"), .named(13, of: "alice", "third")],
            [.queue(.session(tenant: "alice", sealed: [5, 5]))],
        ]
        #expect(try store.commit(groups).allSatisfy { $0 == nil })
    }

    /// What both stores say, in words.
    private static func contents(_ store: any Store) throws -> [String] {
        let loaded = try store.load()
        var words = [
            "\(loaded.policies.map { "\($0)" }.sorted())", "\(loaded.conversations)",
            "\(loaded.devices.sorted { $0.id.value < $1.id.value })",
            "\(loaded.highestMessage) \(loaded.highestDelivery)",
            "\(try store.deliveries(of: AccountID(text: "bob")))", "\(try store.evidence(limit: 9))",
            "\(try store.observations(limit: 9))", "\(try store.tallies(sinceHour: 0))",
            "\(try store.contentKeys(of: [MessageID(40)]))",
            "\(try store.requests(states: RequestState.allCases, limit: 9))",
            "\(try store.requestCounts().map { "\($0): \($1)" }.sorted())",
        ]
        for kind in RecordKind.allCases { words.append("\(try store.records(kind).map { "\($0)".count })") }
        let queue = try store.queueContents()
        // Of two names of one entity the later counts; a copy has that alone.
        let names = Dictionary(queue.learnt.map { ("\($0.mapping.tenant) \($0.mapping.reference)", $0.mapping.remote) })
        { $1 }
        words.append("\(queue.highest) \(queue.sessions) \(names.sorted { $0.key < $1.key })")
        return words
    }

    private static func session(_ store: any Store, _ owner: UInt64, _ peer: UInt64, _ shard: Shard) throws -> UInt64? {
        try store.session(SessionID(owner: DeviceID(owner), peer: DeviceID(peer), in: shard))?.fence
    }

    private static func run(_ words: [String], _ place: Place) throws -> ChildProcess.Output {
        try PawlProcess.run(["store", "copy"] + words + ["--data", place.data], timeout: .seconds(300))
    }

    @Test func thereAndBack() throws {
        let database = try Database()
        let place = try Place()
        try Self.fill(place)
        let before = try Self.contents(SQLiteStore.open(directory: place.data, key: .file(place.key)))
        let there = try Self.run(["--to", database.url, "--json"], place)
        #expect(there.succeeded, "\(there)")
        #expect(there.stdout.contains("\"sessionsSetUpAnew\" : 2"), "\(there.stdout)")

        // The file is refused, and so is a second copy over the first.
        #expect(throws: StoreError.self) { try SQLiteStore.open(directory: place.data, key: .file(place.key)) }
        let again = try PawlProcess.run([
            "serve", "--listen", "irc://127.0.0.1:\(FreePort().number)", "--data", place.data,
        ])
        #expect(!again.succeeded && again.stderr.contains("store-moved"), "\(again)")
        let other = try Place()
        try Self.fill(other)
        let second = try Self.run(["--to", database.url], other)
        #expect(!second.succeeded && second.stderr.contains("store-wrong-key"), "\(second)")
        #expect(try Self.contents(SQLiteStore.open(directory: other.data, key: .file(other.key))).count == before.count)

        var store: PostgresStore? = try place.open(database.address())
        var after = try Self.contents(try #require(store))
        #expect(after == before)
        let (alice, bob) = (AccountID(text: "alice"), AccountID(text: "bob"))
        let shard = Sharding.shared.shard(from: alice, to: bob)
        #expect(try Self.session(store!, 2, 4, shard) == 9 && Self.session(store!, 4, 2, shard) == 8)
        #expect(try Self.session(store!, 3, 2, Sharding.shared.shard(from: alice, to: alice)) == 1)
        #expect(try Self.session(store!, 6, 2, Sharding.shared.shard(from: alice, to: .room("#den"))) == 5)
        #expect(try database.number("SELECT count(*)::int8 FROM pawl.session") == 6)
        #expect(try store?.auditLog(limit: 9).map(\.at).prefix(2) == [8, 7])
        #expect(try store?.auditLog(limit: 9).last?.action == "store.copied_from_file")
        store = nil

        let back = try Self.run(["--from", database.url], place)
        #expect(back.succeeded, "\(back)")
        #expect(place.refusal(try database.address())?.message.contains("pawl.sqlite") == true)
        let file = try SQLiteStore.open(directory: place.data, key: .file(place.key))
        after = try Self.contents(file)
        #expect(after == before)
        #expect(try Self.session(file, 2, 4, .only) == 9 && Self.session(file, 6, 2, .only) == 5)
        #expect(
            try file.auditLog(limit: 9).map(\.action).suffix(2) == [
                "store.copied_from_file", "store.copied_from_database",
            ])
        // A gateway of another directory finds the database marked.
        #expect(try Place().refusal(database.address())?.code == "store-moved")
    }

    /// A crash after the file was set aside and before the database has committed, and one after that.
    @Test func aCopyThatWasCutShort() throws {
        let database = try Database()
        let place = try Place()
        try Self.fill(place)
        let path = place.data + "/pawl.sqlite"
        try FileManager.default.moveItem(atPath: path, toPath: path + ".moved")
        let whole = try Self.run(["--to", database.url], place)
        #expect(whole.succeeded && whole.stdout.contains("compared"), "\(whole)")
        let generation = try String(contentsOfFile: place.data + "/generation", encoding: .utf8)
        try "1\n".write(toFile: place.data + "/generation", atomically: true, encoding: .utf8)
        let ended = try Self.run(["--to", database.url], place)
        #expect(ended.succeeded && ended.stdout.contains("was whole"), "\(ended)")
        #expect(try String(contentsOfFile: place.data + "/generation", encoding: .utf8) == generation)
        // Somebody gives the old file its name back.
        try FileManager.default.moveItem(atPath: path + ".moved", toPath: path)
        #expect(
            performing: { try SQLiteStore.open(directory: place.data, key: .file(place.key)) },
            throws: { ($0 as? StoreError)?.code == "store-rolled-back" })
        try FileManager.default.removeItem(atPath: path)

        // Back: the file was whole, and the database was marked.
        #expect(try Self.run(["--from", database.url], place).succeeded)
        try FileManager.default.moveItem(atPath: path, toPath: path + ".copied")
        #expect(
            performing: { try SQLiteStore.open(directory: place.data, key: .file(place.key)) },
            throws: { ($0 as? StoreError)?.code == "store-moved" })
        let last = try Self.run(["--from", database.url, "--json"], place)
        #expect(last.succeeded && last.stdout.contains("\"wasInterrupted\" : true"), "\(last)")
        #expect(try SQLiteStore.open(directory: place.data, key: .file(place.key)).requestCounts().count == 3)
    }

    /// A gateway that runs, rows of another program, and wrong words.
    @Test func refusals() throws {
        let database = try Database()
        let place = try Place()
        for words in [[], ["--to", database.url, "--from", database.url]] {
            #expect(try Self.run(words, place).status == .exited(64))
        }
        let none = try Self.run(["--to", database.url], place)
        #expect(none.status == .exited(1) && none.stderr.contains("store-missing"), "\(none)")
        let secret = try Self.run(["--to", "postgresql://pawl:secret@127.0.0.1/x"], place)
        #expect(secret.status == .exited(1) && !secret.stderr.contains("secret"), "\(secret)")
        try Self.fill(place)
        do {
            let running = try SQLiteStore.open(directory: place.data, key: .file(place.key))
            let locked = try Self.run(["--to", database.url], place)
            #expect(locked.stderr.contains("store-locked"), "\(locked)")
            _ = running
        }
        #expect(try Self.run(["--to", database.url], place).succeeded)
        // A row that another program has changed is not carried on.
        try database.execute("UPDATE pawl.device SET created_at = created_at + 1")
        let altered = try Self.run(["--from", database.url], place)
        #expect(altered.stderr.contains("store-altered"), "\(altered)")
        #expect(try database.number("SELECT count(*)::int8 FROM pg_tables WHERE schemaname = 'pawl'") > 0)
        try database.execute("UPDATE pawl.device SET created_at = created_at - 1")
        let store = try place.open(database.address())
        let used = try Self.run(["--from", database.url], place)
        #expect(used.stderr.contains("store-locked"), "\(used)")
        _ = store
    }
}
