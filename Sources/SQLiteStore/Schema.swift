// The tables, and the migrations from older ones. The number of applied migrations is SQLite's user_version.

import Foundation
import GRDB
import RequestQueue
import SQLiteKit
import SQLiteQueue
import StoreBase
import StorePort

/// The tables of the store, besides the queue's.
enum StoreTable: String, CaseIterable {
    case meta, policy, device, session, delivery, conversation, evidence, observation, tally, audit, record
    case contentKey = "content_key"

    /// What becomes of its rows when an older state of the store is accepted.
    var afterRollback: AfterRollback {
        switch self {
        // The ratchets have advanced further than the rows know.
        case .session: .removed
        // The generation and the highest ids; prekeys and sender keys.
        case .meta, .record: .adjusted
        case .policy, .device, .delivery, .conversation, .evidence, .observation, .tally, .audit, .contentKey: .kept
        }
    }
}

enum Schema {
    /// SQLite's application_id of our stores: `PAWL`.
    static let applicationID = 0x5041_574C

    /// Each migrates a store from the version of its index to the next. A released one never changes.
    static let migrations = [
        version1, version2, version3, version4, version5, version6, version7, version8, version9,
    ]

    /// The beginning of the SHA-256 of each migration, so that one that was released does not change; see SchemaTests.
    static let digests = [
        "6fc75a3369f7da6a", "774ee9774102aaf4", "cf69058ee7243961", "f867a6f1fd78ee88", "c541b3bce9690df6",
        "5f02e44d19069687", "5f02e44d19069687", "f775b5ca1c230e52", "e1a85279dda60302",
    ]

    /// The first version whose rows have authentication codes.
    static let authenticated = 8

    /// The version of the queue's tables in the newest version.
    static let queueTables = 3

    /// The version that this program writes.
    static var known: Int { migrations.count }

    /// Migrates an older store, or an empty one, to the known version. One transaction a step.
    static func migrate(_ database: Database, _ key: StorageKey) throws {
        let check = Data(key.check(schema: authenticated))
        let functions = [
            requestForm, RowAuthenticator(key).function,
            DatabaseFunction("key_check", argumentCount: 0, pure: true) { _ in check },
        ]
        for function in functions { database.add(function: function) }
        defer { for function in functions { database.remove(function: function) } }
        try Connections.migrate(database, migrations)
    }

    /// `request_form(target, verb, bodies)`: the form in the queue of a request from before version 5.
    private static let requestForm = DatabaseFunction("request_form", argumentCount: 3, pure: true) { values in
        let bodies = Data.fromDatabaseValue(values[2]) ?? Data()
        let config = Request.config(
            target: String.fromDatabaseValue(values[0]) ?? "", verb: String.fromDatabaseValue(values[1]) ?? "",
            encodedBodies: Array(bodies))
        let request = QueuedRequest(
            id: 0, token: RequestToken(number: 0), tenant: "", lane: nil, payload: .http(config), creates: [],
            dependsOn: [],
            identifiers: nil, idempotencyKey: "", coalescingKey: nil, timestamp: 0)
        return Data(RequestForm.encode(request))
    }

    // No foreign keys: a batch may contain a session before the device that owns it, and the vault decides what belongs
    // together.
    private static let version1 = """
        PRAGMA application_id = \(applicationID);

        -- One row. What is said once of the whole store.
        CREATE TABLE meta (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            key_check BLOB NOT NULL CHECK (length(key_check) = 32),
            generation INTEGER NOT NULL,
            highest_request INTEGER NOT NULL DEFAULT 0,
            highest_delivery INTEGER NOT NULL DEFAULT 0
        ) STRICT;

        -- The empty account is everyone.
        CREATE TABLE policy (account TEXT PRIMARY KEY, policy INTEGER NOT NULL) STRICT, WITHOUT ROWID;

        CREATE TABLE device (
            id INTEGER PRIMARY KEY,
            account TEXT NOT NULL,
            sealed_identity BLOB NOT NULL,
            created_at INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX device_account ON device (account);

        CREATE TABLE session (
            owner INTEGER NOT NULL,
            peer INTEGER NOT NULL,
            fence INTEGER NOT NULL,
            sealed_state BLOB NOT NULL,
            PRIMARY KEY (owner, peer)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX session_peer ON session (peer);

        -- State: 0 pending, 1 done, 2 dead. Ciphertext only.
        CREATE TABLE request (
            id INTEGER PRIMARY KEY,
            state INTEGER NOT NULL,
            finished_at INTEGER,
            accepted_at INTEGER NOT NULL,
            attempts INTEGER NOT NULL,
            account TEXT NOT NULL,
            peer TEXT NOT NULL,
            target TEXT NOT NULL,
            verb TEXT NOT NULL,
            remote_id TEXT,
            reason TEXT,
            bodies BLOB NOT NULL
        ) STRICT;
        CREATE INDEX request_waiting ON request (account) WHERE state = 0;
        CREATE INDEX request_dead ON request (state) WHERE state = 2;
        CREATE INDEX request_finished ON request (finished_at) WHERE finished_at IS NOT NULL;

        CREATE TABLE delivery (
            sequence INTEGER PRIMARY KEY,
            account TEXT NOT NULL,
            sealed_line BLOB NOT NULL
        ) STRICT;
        CREATE INDEX delivery_account ON delivery (account);

        CREATE TABLE conversation (
            first TEXT NOT NULL,
            second TEXT NOT NULL,
            latch INTEGER NOT NULL,
            since INTEGER NOT NULL,
            peer_name_for_first TEXT NOT NULL,
            peer_name_for_second TEXT NOT NULL,
            PRIMARY KEY (first, second)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX conversation_second ON conversation (second);

        CREATE TABLE evidence (
            id INTEGER PRIMARY KEY,
            verified INTEGER NOT NULL,
            name TEXT NOT NULL,
            software TEXT NOT NULL,
            asked INTEGER NOT NULL,
            first_seen INTEGER NOT NULL,
            last_seen INTEGER NOT NULL,
            registrations INTEGER NOT NULL,
            UNIQUE (verified, name, software)
        ) STRICT;
        CREATE INDEX evidence_age ON evidence (verified, last_seen);

        CREATE TABLE observation (
            id INTEGER PRIMARY KEY,
            sender TEXT NOT NULL,
            target TEXT NOT NULL,
            recipient TEXT NOT NULL,
            messages INTEGER NOT NULL,
            last_seen INTEGER NOT NULL,
            UNIQUE (sender, target, recipient)
        ) STRICT;
        CREATE INDEX observation_age ON observation (last_seen);

        CREATE TABLE tally (
            hour INTEGER NOT NULL,
            kind TEXT NOT NULL,
            count INTEGER NOT NULL,
            PRIMARY KEY (hour, kind)
        ) STRICT, WITHOUT ROWID;

        -- Append only: no row of it changes or goes, by whatever statement.
        CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at INTEGER NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            detail TEXT NOT NULL
        ) STRICT;
        CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit
            BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
        CREATE TRIGGER audit_keeps_text BEFORE UPDATE ON audit
            BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
        CREATE TRIGGER audit_keeps_order BEFORE INSERT ON audit
            WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
            BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
        """

    private static let version2 = """
        -- Prekeys, pins, device lists and sender keys: see RecordKind.
        CREATE TABLE record (
            kind INTEGER NOT NULL,
            name TEXT NOT NULL,
            value BLOB NOT NULL,
            PRIMARY KEY (kind, name)
        ) STRICT, WITHOUT ROWID;
        """

    // One side alone cannot continue the ratchet state of version 1, so sessions are set up anew. Devices, pins and
    // latches stay.
    private static let version3 = """
        INSERT INTO audit (at, actor, action, detail)
            SELECT unixepoch() * 1000, 'pawl', 'store.upgraded',
                'sessions are set up anew; ' || (SELECT count(*) FROM request WHERE state = 0)
                    || ' waiting requests were given up'
            WHERE EXISTS (SELECT 1 FROM session) OR EXISTS (SELECT 1 FROM request WHERE state = 0);
        DELETE FROM session;
        UPDATE request SET state = 2, finished_at = unixepoch() * 1000,
            reason = 'sealed by an earlier version of Pawl that was stopped before it was delivered'
            WHERE state = 0;
        """

    private static let version4 = """
        -- Keys of what was written to backends that keep it. Ids rise with time, so rows are written at the end, and
        -- what was said together lies together.
        CREATE TABLE content_key (
            message INTEGER NOT NULL,
            digest BLOB NOT NULL CHECK (length(digest) = 16),
            expires_at INTEGER NOT NULL,
            sealed_key BLOB NOT NULL,
            PRIMARY KEY (message, digest)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX content_key_expiry ON content_key (expires_at);
        """

    // The queue's tables as of this version. Each later change of them needs a version of this schema as well.
    private static let version5 =
        QueueTables.migrations[0] + QueueTables.migrations[1] + """
            INSERT INTO queue_request (id, token_high, token_low, tenant, lane, idempotency_key, size, form)
                SELECT id, 0, id, account, peer, '', length(bodies) + 256, request_form(target, verb, bodies) FROM request;
            INSERT INTO queue_progress (id, state, accepted_at, attempts, crashes, doubts, not_before, is_held, finished_at,
                    result, status, cause)
                SELECT id, state, accepted_at, attempts, 0, 0, 0, 0, finished_at,
                    CASE state WHEN 1 THEN 0 WHEN 2 THEN 1 END, CASE state WHEN 1 THEN 0 END, reason FROM request;
            INSERT INTO queue_mapping (tenant, type, local, remote, learnt_at)
                SELECT account, 'message', id, remote_id, coalesce(finished_at, accepted_at) FROM request
                WHERE remote_id IS NOT NULL ORDER BY id;
            DROP TABLE request;
            """

    // From this version on, the queue's tables hold the writes to a JSON backend too; the tables are the same. A program
    // that knows version 5 keeps those writes in `queue.sqlite`, which QueueTakeover has removed: it would begin an
    // empty queue there, and send nothing of this one. So it has to refuse the store. The statement changes nothing.
    private static let version6 = "UPDATE queue_meta SET superseded = superseded;"

    // The same tables, with requests in form 4, as in version 3 of the queue's schema. The statement changes nothing.
    private static let version7 = version6

    // Codes of the rows that are not sealed; see RowAuthenticator. The key-check value changes too: a program that
    // writes to the file and does not know the earlier value cannot present the store as one without codes.
    private static let version8 = """
        ALTER TABLE policy ADD COLUMN mac BLOB;
        ALTER TABLE device ADD COLUMN mac BLOB;
        ALTER TABLE conversation ADD COLUMN mac BLOB;
        ALTER TABLE record ADD COLUMN mac BLOB;
        UPDATE policy SET mac = row_code('policy', CAST(account AS BLOB), policy);
        UPDATE device SET mac = row_code('device', id, CAST(account AS BLOB), sealed_identity, created_at);
        UPDATE conversation SET mac = row_code('conversation', CAST(first AS BLOB), CAST(second AS BLOB), latch, since,
            CAST(peer_name_for_first AS BLOB), CAST(peer_name_for_second AS BLOB));
        UPDATE record SET mac = row_code('record', kind, CAST(name AS BLOB), value);
        UPDATE meta SET key_check = key_check();
        INSERT INTO audit (at, actor, action, detail)
            SELECT unixepoch() * 1000, 'pawl', 'store.upgraded', rows || ' rows have authentication codes from now on'
            FROM (SELECT (SELECT count(*) FROM policy) + (SELECT count(*) FROM device)
                + (SELECT count(*) FROM conversation) + (SELECT count(*) FROM record) AS rows)
            WHERE rows > 0;
        """

    // The same tables. Since version 8 was begun, sessions may be in version 3 of the ratchet message, whose headers are padded.
    // Programs of before that know version 8 and read none of these sessions: they would set them up anew, and lose what is
    // under way. So they have to refuse the store.
    private static let version9 = """
        INSERT INTO audit (at, actor, action, detail)
            SELECT unixepoch() * 1000, 'pawl', 'store.upgraded', 'sessions may have padded headers from now on'
            WHERE EXISTS (SELECT 1 FROM session);
        """
}
