// The tables of the queue, in a database of their own, or beside other tables in a larger one.

/// The schema of the queue's tables.
package enum QueueTables {
    /// Each migrates the tables from the version of its index to the next. A released one never changes.
    package static let migrations = [version1, version2, version3]

    /// The newest version of ``RequestForm`` that each schema may contain. A newer form needs a new schema: a program
    /// that cannot read a form would take its requests for damaged, so it has to refuse the file.
    static let newestForms: [UInt8] = [2, 2, 4]

    /// Ours: low bits of an id that the index of tokens leaves out.
    ///
    /// Tokens are random, so in one index over all of them each would dirty a page of its own. With 12 bits, 4096
    /// requests that were accepted one after the other share a part of the index, and a lookup of a token searches each
    /// part.
    static let tokenPart = 12

    // The result of an outcome is 4 higher if part of the answer is missing, see `OutcomeColumns`. What was accepted is
    // separate from its progress, which changes three times and more, and is a fraction of the size. No foreign keys:
    // each change names its rows by id.
    private static let version1 = """
        -- What was accepted, with its stored form. It never changes.
        CREATE TABLE queue_request (
            id INTEGER PRIMARY KEY,
            token_high INTEGER NOT NULL,
            token_low INTEGER NOT NULL,
            tenant TEXT NOT NULL,
            lane TEXT,
            idempotency_key TEXT NOT NULL,
            size INTEGER NOT NULL,
            form BLOB NOT NULL
        ) STRICT;
        CREATE INDEX queue_token ON queue_request (id >> \(tokenPart), token_low);

        -- What became of it. State: 0 waiting, or under way where it has a lease; 1 done, 2 dead, 4 cancelled. The result is
        -- that of the outcome: 0 success, 1 failure, 2 aborted. Undelivered: how often handlers were given the outcome again,
        -- until they have had it.
        CREATE TABLE queue_progress (
            id INTEGER PRIMARY KEY,
            state INTEGER NOT NULL,
            accepted_at INTEGER NOT NULL,
            attempts INTEGER NOT NULL,
            crashes INTEGER NOT NULL,
            doubts INTEGER NOT NULL,
            not_before INTEGER NOT NULL,
            is_held INTEGER NOT NULL,
            lease INTEGER,
            finished_at INTEGER,
            result INTEGER,
            status INTEGER,
            undelivered INTEGER,
            cause TEXT
        ) STRICT;
        CREATE INDEX queue_state ON queue_progress (state);
        CREATE INDEX queue_finished ON queue_progress (finished_at) WHERE finished_at IS NOT NULL;

        -- What the backend answered, where it is kept and there is anything of it.
        CREATE TABLE queue_response (id INTEGER PRIMARY KEY, headers BLOB NOT NULL, body BLOB NOT NULL) STRICT;

        -- What the backend calls entities, in the order in which it was learnt. Of two rows on one entity the later counts.
        CREATE TABLE queue_mapping (
            id INTEGER PRIMARY KEY,
            tenant TEXT NOT NULL,
            type TEXT NOT NULL,
            local TEXT NOT NULL,
            remote TEXT NOT NULL,
            learnt_at INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX queue_mapping_age ON queue_mapping (learnt_at);

        -- Session keys that outlive the process, sealed by whoever stores them.
        CREATE TABLE queue_session (tenant TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT, WITHOUT ROWID;

        -- One row. The highest id of the requests that were removed, and how often a commit failed so late that its place in
        -- the log had to be taken by another.
        CREATE TABLE queue_meta (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            highest INTEGER NOT NULL,
            superseded INTEGER NOT NULL
        ) STRICT;
        INSERT INTO queue_meta VALUES (1, 0, 0);
        """

    // Each request changed its place in these indexes three times until it was done, a third of the cost of its
    // changes. Queries by state or by time read all rows: at the start, which reads them anyway, and for a report.
    // Pruning works by id.
    private static let version2 = """
        DROP INDEX queue_state;
        DROP INDEX queue_finished;
        """

    // The same tables, with stored forms 3 (metadata) and 4 (messages). The statement changes nothing.
    private static let version3 = "UPDATE queue_meta SET superseded = superseded;"
}
