import Crypto
import Envelope
import Glibc
import Protection
import RequestQueue
import SQLiteQueue
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

@Suite struct SchemaTests {
    private let scratch = Scratch()

    /// A store as version 1 of the schema has left it, written by hand: key of 32 times 0x11, one row of each kind.
    private static let golden = """
        PRAGMA application_id = 1346459468;
        PRAGMA user_version = 1;
        CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), key_check BLOB NOT NULL CHECK (length(key_check) = 32),
            generation INTEGER NOT NULL, highest_request INTEGER NOT NULL DEFAULT 0,
            highest_delivery INTEGER NOT NULL DEFAULT 0) STRICT;
        CREATE TABLE policy (account TEXT PRIMARY KEY, policy INTEGER NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE device (id INTEGER PRIMARY KEY, account TEXT NOT NULL, sealed_identity BLOB NOT NULL,
            created_at INTEGER NOT NULL) STRICT;
        CREATE INDEX device_account ON device (account);
        CREATE TABLE session (owner INTEGER NOT NULL, peer INTEGER NOT NULL, fence INTEGER NOT NULL,
            sealed_state BLOB NOT NULL, PRIMARY KEY (owner, peer)) STRICT, WITHOUT ROWID;
        CREATE INDEX session_peer ON session (peer);
        CREATE TABLE request (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, finished_at INTEGER,
            accepted_at INTEGER NOT NULL, attempts INTEGER NOT NULL, account TEXT NOT NULL, peer TEXT NOT NULL,
            target TEXT NOT NULL, verb TEXT NOT NULL, remote_id TEXT, reason TEXT, bodies BLOB NOT NULL) STRICT;
        CREATE INDEX request_waiting ON request (account) WHERE state = 0;
        CREATE INDEX request_dead ON request (state) WHERE state = 2;
        CREATE INDEX request_finished ON request (finished_at) WHERE finished_at IS NOT NULL;
        CREATE TABLE delivery (sequence INTEGER PRIMARY KEY, account TEXT NOT NULL, sealed_line BLOB NOT NULL) STRICT;
        CREATE INDEX delivery_account ON delivery (account);
        CREATE TABLE conversation (first TEXT NOT NULL, second TEXT NOT NULL, latch INTEGER NOT NULL,
            since INTEGER NOT NULL, peer_name_for_first TEXT NOT NULL, peer_name_for_second TEXT NOT NULL,
            PRIMARY KEY (first, second)) STRICT, WITHOUT ROWID;
        CREATE INDEX conversation_second ON conversation (second);
        CREATE TABLE evidence (id INTEGER PRIMARY KEY, verified INTEGER NOT NULL, name TEXT NOT NULL,
            software TEXT NOT NULL, asked INTEGER NOT NULL, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL,
            registrations INTEGER NOT NULL, UNIQUE (verified, name, software)) STRICT;
        CREATE INDEX evidence_age ON evidence (verified, last_seen);
        CREATE TABLE observation (id INTEGER PRIMARY KEY, sender TEXT NOT NULL, target TEXT NOT NULL,
            recipient TEXT NOT NULL, messages INTEGER NOT NULL, last_seen INTEGER NOT NULL,
            UNIQUE (sender, target, recipient)) STRICT;
        CREATE INDEX observation_age ON observation (last_seen);
        CREATE TABLE tally (hour INTEGER NOT NULL, kind TEXT NOT NULL, count INTEGER NOT NULL,
            PRIMARY KEY (hour, kind)) STRICT, WITHOUT ROWID;
        CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, actor TEXT NOT NULL,
            action TEXT NOT NULL, detail TEXT NOT NULL) STRICT;
        CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit
            BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
        CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit
            BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
        CREATE TRIGGER audit_keeps_order BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
            BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
        INSERT INTO meta VALUES (1, x'KEYCHECK', 4, 12, 7);
        INSERT INTO policy VALUES ('', 3), ('alice', 4);
        INSERT INTO device VALUES (1, 'alice', x'010203', 5);
        INSERT INTO session VALUES (1, 2, 9, x'0907');
        INSERT INTO request VALUES (11, 0, NULL, 1011, 2, 'alice', 'bob', 'Bob', 'PRIVMSG', NULL, NULL, x'00020102');
        INSERT INTO request VALUES (12, 2, 99, 1012, 0, 'alice', 'bob', 'Bob', 'NOTICE', 'r', 'gone', x'');
        INSERT INTO delivery VALUES (7, 'bob', x'07');
        INSERT INTO conversation VALUES ('alice', 'bob', 1, 3, 'bob', 'alice');
        INSERT INTO evidence VALUES (1, 1, 'alice', 'irssi', 1, 1, 2, 3);
        INSERT INTO observation VALUES (1, 'alice', 'x', 'outsider', 4, 5);
        INSERT INTO tally VALUES (6, 'sent', 7);
        INSERT INTO audit VALUES (1, 8, 'root', 'policy.set', 'hosted');
        """
    /// HMAC-SHA-256 of `pawl storage key check 1` under that key; made with openssl.
    private static let keyCheck = "c9d4b99b66e29388cf6cb7a034a55f2c0ce9f40db7f7005e360054691e4adce2"

    /// Earlier versions ordered the accounts of a conversation by Unicode comparison. It is stored once all the same.
    @Test(arguments: [false, true]) func aConversationUnderTheOtherOrderIsReplaced(isReset: Bool) throws {
        let store = try scratch.open()
        let row = StoreConformance.conversation("zoz", "zoe\u{308}")
        #expect(row.id.first.text > row.id.second.text, "by Unicode it is the other order")
        try StoreConformance.commit(store, [.putConversation(row)])
        try store.execute(
            """
            UPDATE conversation SET first = second, second = first;
            UPDATE conversation SET mac = row_code('conversation', CAST(first AS BLOB), CAST(second AS BLOB), latch, since,
                CAST(peer_name_for_first AS BLOB), CAST(peer_name_for_second AS BLOB));
            """)
        #expect(try store.conversations(limit: 9) == [row])
        try StoreConformance.commit(store, [isReset ? .removeConversation(row.id) : .putConversation(row)])
        #expect(try store.count(of: "conversation") == (isReset ? 0 : 1))
    }

    @Test func versionOneOpensAndWorks() throws {
        run("mkdir", "-p", "-m", "700", scratch.data)
        write([UInt8](repeating: 0x11, count: 32), scratch.keyPath)
        scratch.edit(Self.golden.replacing("KEYCHECK", with: Self.keyCheck))
        let store = try scratch.open()
        #expect(store.generation == 5)
        let contents = try store.load()
        #expect(try (store.queueContents().highest, contents.highestMessage, contents.highestDelivery) == (12, 12, 7))
        #expect(contents.policies.map(\.policy) == [.hosted, .required])
        #expect(contents.devices == [StoreConformance.device(1, "alice")])
        #expect(contents.conversations == [StoreConformance.conversation("alice", "bob", since: 3)])
        // The ratchet of version 3 of the schema goes on with no session of before.
        #expect(try store.session(StoreConformance.session(1, 2, fence: 9, [9, 7]).id) == nil)
        #expect(try store.waitingRequests(of: AccountID(text: "alice")).isEmpty)
        #expect(try store.request(11)?.reason?.contains("earlier version") == true)
        #expect(try store.request(12)?.reason == "gone")
        #expect(try store.deliveries(of: AccountID(text: "bob")).map(\.sealedLine) == [[7]])
        #expect(try store.evidence(limit: 9).map(\.registrations) == [3])
        #expect(try store.observations(limit: 9).map(\.messages) == [4])
        #expect(try store.tallies(sinceHour: 0).map(\.count) == [7])
        #expect(
            try store.auditLog(limit: 9).map(\.detail).sorted() == [
                "4 rows have authentication codes from now on", "hosted",
                "sessions are set up anew; 1 waiting requests were given up",
            ])
        #expect(store.hasAddedCodes)
        try StoreConformance.commit(store, [.putSession(StoreConformance.session(1, 2, fence: 10))])
        #expect(try store.commit([[.putSession(StoreConformance.session(1, 2, fence: 10))]]) == [.fenced])
    }

    /// What version 2 added.
    private static let second = """
        PRAGMA user_version = 2;
        CREATE TABLE record (kind INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
            PRIMARY KEY (kind, name)) STRICT, WITHOUT ROWID;
        """

    /// What version 4 added; version 3 changed rows only.
    private static let fourth = """
        PRAGMA user_version = 4;
        CREATE TABLE content_key (message INTEGER NOT NULL, digest BLOB NOT NULL CHECK (length(digest) = 16),
            expires_at INTEGER NOT NULL, sealed_key BLOB NOT NULL, PRIMARY KEY (message, digest)) STRICT, WITHOUT ROWID;
        CREATE INDEX content_key_expiry ON content_key (expires_at);
        """

    /// What version 5 added instead of the table of requests: the queue's tables, as their version 2 has them. Versions 6 and 7
    /// have the same tables; see `QueueTakeoverTests.anOlderProgramRefusesTheStore`.
    private static let fifth = """
        PRAGMA user_version = 5;
        DROP TABLE request;
        CREATE TABLE queue_request (id INTEGER PRIMARY KEY, token_high INTEGER NOT NULL, token_low INTEGER NOT NULL,
            tenant TEXT NOT NULL, lane TEXT, idempotency_key TEXT NOT NULL, size INTEGER NOT NULL,
            form BLOB NOT NULL) STRICT;
        CREATE INDEX queue_token ON queue_request (id >> 12, token_low);
        CREATE TABLE queue_progress (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, accepted_at INTEGER NOT NULL,
            attempts INTEGER NOT NULL, crashes INTEGER NOT NULL, doubts INTEGER NOT NULL, not_before INTEGER NOT NULL,
            is_held INTEGER NOT NULL, lease INTEGER, finished_at INTEGER, result INTEGER, status INTEGER,
            undelivered INTEGER, cause TEXT) STRICT;
        CREATE TABLE queue_response (id INTEGER PRIMARY KEY, headers BLOB NOT NULL, body BLOB NOT NULL) STRICT;
        CREATE TABLE queue_mapping (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, type TEXT NOT NULL,
            local TEXT NOT NULL, remote TEXT NOT NULL, learnt_at INTEGER NOT NULL) STRICT;
        CREATE INDEX queue_mapping_age ON queue_mapping (learnt_at);
        CREATE TABLE queue_session (tenant TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE queue_meta (id INTEGER PRIMARY KEY CHECK (id = 1), highest INTEGER NOT NULL,
            superseded INTEGER NOT NULL) STRICT;
        INSERT INTO queue_meta VALUES (1, 0, 0);
        """

    /// A store of the version before the codes: its rows are read after the upgrade, and what another program changes then is
    /// refused. The upgrade is in the audit log, once.
    @Test func rowsOfVersionSevenGetTheirCodes() throws {
        run("mkdir", "-p", "-m", "700", scratch.data)
        write([UInt8](repeating: 0x11, count: 32), scratch.keyPath)
        scratch.edit(
            Self.golden.replacing("KEYCHECK", with: Self.keyCheck) + Self.second + Self.fourth + Self.fifth + """
                PRAGMA user_version = 7;
                INSERT INTO record VALUES (3, 'bob', x'0102'), (13, 'network', x''), (99, 'of a later version', x'00'),
                    (3, 'zo' || char(0) || 'e\u{308}', x'03');
                """)
        let before = bytes(scratch.store)
        // Under another key nothing happens.
        write([UInt8](repeating: 0x12, count: 32), scratch.keyPath)
        guard case .wrongKey = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(bytes(scratch.store) == before)
        write([UInt8](repeating: 0x11, count: 32), scratch.keyPath)
        for isFirst in [true, false] {
            try scratch.with { store in
                #expect(store.hasAddedCodes == isFirst)
                let contents = try store.load()
                #expect(contents.policies.count == 2 && contents.devices.count == 1)
                #expect(contents.conversations.map(\.latch) == [.gateway])
                #expect(try store.records(.peer).map(\.value) == [[1, 2], [3]])
                #expect(try store.record(.peer, name: "zo\0e\u{308}")?.value == [3])
                #expect(try store.record(.network, name: "network")?.value == [])
                let upgrades = try store.auditLog(limit: 9).filter { $0.action == "store.upgraded" }
                #expect(
                    upgrades.map(\.detail) == [
                        "8 rows have authentication codes from now on", "sessions may have padded headers from now on",
                    ])
            }
        }
        scratch.edit("UPDATE conversation SET latch = 0")
        #expect(throws: StoreError.alteredRow("conversation")) { try scratch.with { _ = try $0.load() } }
    }

    /// A store of something else is not upgraded: an earlier version could not open it any more.
    @Test func aRefusedStoreIsNotUpgraded() throws {
        run("mkdir", "-p", "-m", "700", scratch.data)
        write([UInt8](repeating: 0x11, count: 32), scratch.keyPath)
        struct Refused: Error {}
        func open(refuses: Bool, _ look: @escaping (StoredPurpose) -> Void) throws {
            _ = try SQLiteStore.open(directory: scratch.data, key: scratch.key, limits: StoreLimits()) { purpose in
                look(purpose)
                if refuses { throw Refused() }
            }
        }
        scratch.edit(Self.golden.replacing("KEYCHECK", with: Self.keyCheck))
        #expect(throws: Refused.self) { try open(refuses: true) { #expect($0 == StoredPurpose()) } }
        scratch.edit(
            Self.second + Self.fourth + Self.fifth + """
                PRAGMA user_version = 7;
                INSERT INTO record VALUES (3, 'bob', x'01'), (13, 'network', x'6C6162'), (13, 'protocol', x'69'),
                    (2, 'network', x'61'), (2, 'other', x'62');
                """)
        let before = bytes(scratch.store)
        var expected = StoredPurpose()
        expected.gateway = ["network": Array("lab".utf8), "protocol": Array("i".utf8)]
        (expected.sidecar, expected.hasPeers) = (Array("a".utf8), true)
        #expect(throws: Refused.self) { try open(refuses: true) { #expect($0 == expected) } }
        #expect(bytes(scratch.store) == before)
        try open(refuses: false) { _ in }
        #expect(throws: Refused.self) { try open(refuses: true) { #expect($0 == expected) } }
    }

    /// The tables of version 8 are those of version 9: its rows stay, and programs that know version 8 only refuse the store.
    @Test(arguments: [false, true]) func aStoreOfVersionEightIsRefusedByItsProgram(hasSession: Bool) throws {
        let session = StoreConformance.session(1, 2, fence: 3)
        try scratch.with { try StoreConformance.commit($0, hasSession ? [.putSession(session)] : []) }
        scratch.edit("PRAGMA user_version = 8")
        for isFirst in [true, false] {
            try scratch.with { store in
                #expect(try store.pragma("user_version") == 9)
                #expect(store.isUpgraded == isFirst && !store.hasAddedCodes)
                #expect(try store.session(session.id) == (hasSession ? session : nil))
                let details = try store.auditLog(limit: 9).map(\.detail)
                #expect(details == (hasSession ? ["sessions may have padded headers from now on"] : []))
            }
        }
    }

    /// What waits in a store of version 4 goes on in the queue, and what has ended is still known.
    @Test func requestsOfVersionFourStandInTheQueue() throws {
        run("mkdir", "-p", "-m", "700", scratch.data)
        write([UInt8](repeating: 0x11, count: 32), scratch.keyPath)
        scratch.edit(
            Self.golden.replacing("KEYCHECK", with: Self.keyCheck) + Self.second + Self.fourth + """
                INSERT INTO request VALUES (13, 1, 98, 1013, 1, 'alice', '', '', 'PRIVMSG', NULL, NULL, x'00020102');
                """)
        let store = try scratch.open()
        var waiting = StoreConformance.request(11)
        (waiting.bodies, waiting.attempts) = ([[1, 2]], 2)
        #expect(try store.waitingRequests(of: AccountID(text: "alice")) == [waiting])
        #expect(try store.queueContents().requests.map(\.token) == [Request.token(11)])
        var dead = StoreConformance.request(12)
        (dead.verb, dead.bodies, dead.state) = ("NOTICE", [], .dead)
        (dead.remoteID, dead.reason, dead.finishedAt) = ("r", "gone", 99)
        #expect(try store.request(12) == dead)
        var done = StoreConformance.request(13, peer: "")
        (done.target, done.bodies, done.state, done.finishedAt, done.attempts) = ("", [[1, 2]], .done, 98, 1)
        #expect(try store.request(13) == done)
        #expect(try store.requestCounts() == [.pending: 1, .dead: 1, .done: 1])
        #expect(try store.queueContents().highest == 13)
    }

    /// A new version needs a digest, and the digest of a released one never changes.
    @Test func versionsAreWhatTheyWere() {
        let digests = Schema.migrations.map { text in
            let even = text.split { " \n".contains($0) }.joined(separator: " ")
            return SHA256.hash(data: Array(even.utf8)).prefix(8).map {
                String($0 >> 4, radix: 16) + String($0 & 15, radix: 16)
            }
            .joined()
        }
        #expect(Schema.digests == digests)
    }

    /// The texts above are what this program makes.
    @Test func olderVersionsBecomeTheNewest() throws {
        try scratch.with { _ in }
        let other = Scratch()
        run("mkdir", "-p", "-m", "700", other.data)
        write([UInt8](repeating: 0x11, count: 32), other.keyPath)
        other.edit(Self.golden.replacing("KEYCHECK", with: Self.keyCheck) + Self.second + Self.fourth + Self.fifth)
        try other.with { _ in }
        #expect(schema(scratch.store) == schema(other.store))
        #expect(schema(scratch.store).count > 20)
    }

    /// `QueueTakeover` copies rows between the two, and a program that cannot read them has to refuse both.
    @Test func theStoreHasTheNewestVersionOfTheQueue() {
        #expect(Schema.queueTables == QueueTables.migrations.count, "a new version of the store's schema is needed")
        #expect(Schema.known == 9, "if the queue's tables have changed as well: Schema.queueTables")
    }

    /// So that each has a decision about its rows after a rollback, and a conformance check.
    @Test func everyTableHasAName() throws {
        let tables = try scratch.open().tables().filter { !$0.hasPrefix("queue_") }
        #expect(Set(tables) == Set(StoreTable.allCases.map(\.rawValue)))
    }

    @Test(arguments: [
        "UPDATE audit SET detail = 'x'", "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit VALUES (1, 1, 'a', 'b', 'c')",
        "UPDATE OR REPLACE audit SET id = 2",
        "REPLACE INTO audit (id, at, actor, action, detail) VALUES (1, 1, 'a', 'b', 'c')",
    ])
    func theAuditLogIsAppendOnly(_ sql: String) throws {
        let store = try scratch.open()
        let row = AuditRow(at: 1, actor: "root", action: "policy.set", detail: "hosted")
        try StoreConformance.commit(store, [.audit(row)], [.audit(row)])
        #expect(throws: (any Error).self) { try store.execute(sql) }
        #expect(try store.auditLog(limit: 9) == [row, row])
    }
}
