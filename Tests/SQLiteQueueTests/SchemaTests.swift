import QueueConformance
import Testing

@testable import RequestQueue
@testable import SQLiteQueue

/// Files of every schema that was ever released open, and hold what they held.
@Suite struct SchemaTests {
    private let place: QueuePlace

    init() throws { place = try QueuePlace() }

    /// A queue as version 1 of the schema has it, written by hand, with one row of each kind.
    private static let golden = """
        PRAGMA application_id = 1346459473;
        PRAGMA user_version = 1;
        CREATE TABLE queue_request (id INTEGER PRIMARY KEY, token_high INTEGER NOT NULL, token_low INTEGER NOT NULL,
            tenant TEXT NOT NULL, lane TEXT, idempotency_key TEXT NOT NULL, size INTEGER NOT NULL,
            form BLOB NOT NULL) STRICT;
        CREATE INDEX queue_token ON queue_request (id >> 12, token_low);
        CREATE TABLE queue_progress (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, accepted_at INTEGER NOT NULL,
            attempts INTEGER NOT NULL, crashes INTEGER NOT NULL, doubts INTEGER NOT NULL, not_before INTEGER NOT NULL,
            is_held INTEGER NOT NULL, lease INTEGER, finished_at INTEGER, result INTEGER, status INTEGER,
            undelivered INTEGER, cause TEXT) STRICT;
        CREATE INDEX queue_state ON queue_progress (state);
        CREATE INDEX queue_finished ON queue_progress (finished_at) WHERE finished_at IS NOT NULL;
        CREATE TABLE queue_response (id INTEGER PRIMARY KEY, headers BLOB NOT NULL, body BLOB NOT NULL) STRICT;
        CREATE TABLE queue_mapping (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, type TEXT NOT NULL,
            local TEXT NOT NULL, remote TEXT NOT NULL, learnt_at INTEGER NOT NULL) STRICT;
        CREATE INDEX queue_mapping_age ON queue_mapping (learnt_at);
        CREATE TABLE queue_session (tenant TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE queue_meta (id INTEGER PRIMARY KEY CHECK (id = 1), highest INTEGER NOT NULL,
            superseded INTEGER NOT NULL) STRICT;
        INSERT INTO queue_session VALUES ('t', x'010203');
        INSERT INTO queue_meta VALUES (1, 40, 2);
        INSERT INTO queue_mapping VALUES (1, 't', 'message', 'l', 'r', 77);
        INSERT INTO queue_request VALUES (11, 1, -2, 't', 'lane', 'key', 234, x'\(form)');
        INSERT INTO queue_progress VALUES (11, 0, 1011, 3, 1, 2, 55, 1, NULL, NULL, NULL, NULL, NULL, 'refused');
        INSERT INTO queue_request VALUES (12, 1, 3, 't', NULL, 'key 2', 234, x'\(form)');
        INSERT INTO queue_progress VALUES (12, 0, 1012, 1, 0, 0, 0, 0, -1, NULL, NULL, NULL, NULL, NULL);
        INSERT INTO queue_request VALUES (13, 1, 4, '', NULL, 'key 3', 234, x'\(form)');
        INSERT INTO queue_progress VALUES (13, 2, 1013, 1, 0, 0, 0, 0, NULL, 99, 1, 404, 1, 'gone');
        INSERT INTO queue_response VALUES (13, x'0000000100000001610000000162', x'0708');
        """
    /// The same as version 2 has it.
    private static let golden2 = golden.split(separator: "\n")
        .filter { !$0.contains("INDEX queue_state") && !$0.contains("INDEX queue_finished") }
        .joined(separator: "\n").replacing("user_version = 1", with: "user_version = 2")
    /// Version 3 has the same tables, and newer forms.
    private static let golden3 = golden2.replacing("user_version = 2", with: "user_version = 3")
    /// In hexadecimal digits: version 1 of the stored form, of a POST to `/a` with nothing in it.
    private static let form =
        "01" + "02" + "00000001" + "00" + "000000022f61" + "00" + "00000000" + "00000000" + "00" + "00" + "00" + "00"
        + "00"
        + "01" + "00000000" + "00" + "00000000" + "00000000" + "00" + "00"

    /// Whoever changes the schema adds a migration, never edits one; then a golden file of the version before, as text like the one
    /// above, with a test like the one below; and says here how many there are.
    @Test func everyVersionHasItsGoldenFile() throws {
        #expect(QueueTables.migrations.count == 3, "a new version: add what the comment of this test says")
        let made = try place.open().objects()
        for (version, golden) in [Self.golden, Self.golden2, Self.golden3].enumerated() {
            let other = try QueuePlace()
            try other.make(golden)
            #expect(try other.open().objects() == made, "version \(version + 1) of the schema was edited")
        }
    }

    /// A program that does not know a form has to refuse the file, not to give its requests up as damaged.
    @Test func aNewFormNeedsANewSchema() {
        #expect(QueueTables.newestForms.count == QueueTables.migrations.count)
        #expect(QueueTables.newestForms.last == RequestForm.versions.upperBound)
    }

    @Test(arguments: [golden, golden2, golden3]) func everyVersionOpensAndWorks(_ golden: String) throws {
        try place.make(golden)
        let store = try place.open()
        let contents = try store.load()
        let config = APIRequestConfig(
            method: .post, path: "/a", includeSessionKey: false, deduplicate: false,
            queueingStrategy: .init(synchronization: .barrier, retryPolicy: []), background: false)
        func request(_ id: UInt64, _ low: UInt64, tenant: String = "t", lane: String? = nil, key: String)
            -> QueuedRequest
        {
            QueuedRequest(
                id: id, token: RequestToken(high: 1, low: low), tenant: tenant, lane: lane, payload: .http(config),
                creates: [],
                dependsOn: [], identifiers: nil, idempotencyKey: key, coalescingKey: nil, timestamp: 1000 + Int64(id))
        }
        var waiting = request(11, .max - 1, lane: "lane", key: "key")
        waiting.setProgress(
            state: .pending, attempts: 3, crashes: 1, doubts: 2, lease: nil, notBefore: 55, isHeld: true,
            cause: "refused", size: 234)
        var underWay = request(12, 3, key: "key 2")
        underWay.setProgress(
            state: .inFlight, attempts: 1, crashes: 0, doubts: 0, lease: .max, notBefore: 0, isHeld: false, cause: nil,
            size: 234)
        var dead = request(13, 4, tenant: "", key: "key 3")
        dead.setProgress(
            state: .dead, attempts: 1, crashes: 0, doubts: 0, lease: nil, notBefore: 0, isHeld: false, cause: "gone",
            size: 234)
        let outcome = RequestOutcome(.failure(status: 404), cause: "gone", headers: [.init("a", "b")], body: [7, 8])
        #expect(contents.requests == [waiting, underWay])
        #expect(contents.finished == [.init(request: dead, at: 99, responseSize: 16)])
        #expect(contents.undelivered == [.init(request: dead, outcome: outcome, times: 1)])
        #expect(contents.sessions == ["t": [1, 2, 3]])
        #expect(contents.highest == 40)
        #expect(
            contents.mappings == [
                .init(tenant: "t", reference: EntityReference(type: "message", local: "l"), remote: "r")
            ])
        #expect(try store.outcome(dead.token) == outcome)
        try store.commit([.lease(id: 11, lease: 5), QueueConformance.insert(41)])
        #expect(try store.load().requests.map(\.id) == [11, 12, 41])
    }
}
