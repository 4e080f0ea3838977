// The tables, in a schema `pawl` of their own. All names are byte strings: PostgreSQL's texts cannot hold U+0000.
//
// Only what other engines with this protocol have as well: no triggers, sequences, functions of our own, advisory locks,
// `LISTEN`, deferrable constraints or temporary tables. So the audit log is not protected against other programs here.
//
// Where an id tells its shard (`id % 256`), the row has no column for it, except those that a new owner of a shard loads.

/// The schema of the database.
enum Schema {
    /// The number of the tables' version. A program refuses a database with a higher one.
    static let version = 2
    /// The first version whose rows of gateways have names and states for operators.
    static let versionWithGateways = 2
    /// Of the division into shards and ids; another one is another kind of database.
    static let format = 1
    static let shards = 256
    /// The beginning of the name of a schema whose store was moved into a file.
    static let movedPrefix = "pawl_moved_"

    /// Makes the tables. One command string is one transaction.
    ///
    /// - Parameter keyCheck: see ``KeyCheck``.
    static func create(keyCheck: [UInt8]) -> String {
        let digits = keyCheck.map { $0 < 16 ? "0" + String($0, radix: 16) : String($0, radix: 16) }.joined()
        return """
            \(tables)
            \(columns)
            INSERT INTO pawl.shard (id, owner, epoch, commits, highest_request, highest_message, highest_delivery)
                SELECT id, 0, 0, 0, 0, 0, 0 FROM generate_series(0, \(shards - 1)) AS id;
            INSERT INTO pawl.cluster (id, format, version, shards, key_check)
                VALUES (1, \(format), \(version), \(shards), decode('\(digits)', 'hex'));
            """
    }

    /// Makes the tables of version 1 those of version 2.
    static let upgrade = """
        \(columns)
        UPDATE pawl.cluster SET version = \(version) WHERE version < \(version);
        """

    /// What version 2 has added, for several gateways. A program of version 1 does not name these columns.
    private static let columns = """
        -- Draining: it hands its shards over, to end. Asked: an operator has asked for that.
        ALTER TABLE pawl.gateway
            ADD COLUMN IF NOT EXISTS draining bigint NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS asked bigint NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS connections bigint NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS program bytea NOT NULL DEFAULT '';

        -- The generation rises when the operator accepts that the database was rolled back.
        ALTER TABLE pawl.cluster
            ADD COLUMN IF NOT EXISTS generation bigint NOT NULL DEFAULT 0,
            ADD COLUMN IF NOT EXISTS rolled_back bigint NOT NULL DEFAULT 0;
        """

    private static let tables = """
        CREATE SCHEMA IF NOT EXISTS pawl;

        -- One row. What is said once of the whole database.
        CREATE TABLE pawl.cluster (
            id bigint PRIMARY KEY, format bigint NOT NULL, version bigint NOT NULL, shards bigint NOT NULL,
            key_check bytea NOT NULL
        );

        -- A row for each gateway that runs. Its beat rises while it does; its commits count those that touch no shard.
        CREATE TABLE pawl.gateway (
            id bigint PRIMARY KEY, name bytea NOT NULL, beat bigint NOT NULL, commits bigint NOT NULL, knows bigint NOT NULL
        ) WITH (fillfactor = 10);

        -- Owner and epoch, the number of the last commit, and the highest ids that were ever used.
        CREATE TABLE pawl.shard (
            id bigint PRIMARY KEY, owner bigint NOT NULL, epoch bigint NOT NULL, commits bigint NOT NULL,
            highest_request bigint NOT NULL, highest_message bigint NOT NULL, highest_delivery bigint NOT NULL
        ) WITH (fillfactor = 10);

        -- The empty account is everyone.
        CREATE TABLE pawl.policy (account_key bytea PRIMARY KEY, account bytea NOT NULL, policy bigint NOT NULL,
            mac bytea NOT NULL);

        CREATE TABLE pawl.device (
            id bigint PRIMARY KEY, account_key bytea NOT NULL, account bytea NOT NULL, sealed_identity bytea NOT NULL,
            created_at bigint NOT NULL, mac bytea NOT NULL
        );
        CREATE INDEX device_account ON pawl.device (account_key);

        CREATE TABLE pawl.session (
            shard int NOT NULL, owner bigint NOT NULL, peer bigint NOT NULL, fence bigint NOT NULL,
            sealed_state bytea NOT NULL, PRIMARY KEY (owner, peer, shard)
        ) WITH (fillfactor = 60);
        CREATE INDEX session_peer ON pawl.session (peer);

        CREATE TABLE pawl.delivery (
            sequence bigint PRIMARY KEY, shard int NOT NULL, account_key bytea NOT NULL, account bytea NOT NULL,
            sealed_line bytea NOT NULL
        );
        CREATE INDEX delivery_account ON pawl.delivery (account_key);

        CREATE TABLE pawl.conversation (
            first_key bytea NOT NULL, second_key bytea NOT NULL, shard int NOT NULL, first bytea NOT NULL,
            second bytea NOT NULL, latch bigint NOT NULL, since bigint NOT NULL, peer_name_for_first bytea NOT NULL,
            peer_name_for_second bytea NOT NULL, mac bytea NOT NULL, PRIMARY KEY (first_key, second_key)
        );
        CREATE INDEX conversation_second ON pawl.conversation (second_key);

        CREATE TABLE pawl.content_key (
            message bigint NOT NULL, digest bytea NOT NULL, expires_at bigint NOT NULL, sealed_key bytea NOT NULL,
            PRIMARY KEY (message, digest)
        );
        CREATE INDEX content_key_expiry ON pawl.content_key (expires_at);

        -- Prekeys, pins, device lists and sender keys: see RecordKind.
        CREATE TABLE pawl.record (
            kind bigint NOT NULL, name_key bytea NOT NULL, name bytea NOT NULL, value bytea NOT NULL,
            mac bytea NOT NULL, PRIMARY KEY (kind, name_key)
        );

        CREATE TABLE pawl.evidence (
            verified bigint NOT NULL, name_key bytea NOT NULL, software_key bytea NOT NULL, name bytea NOT NULL,
            software bytea NOT NULL, asked bigint NOT NULL, first_seen bigint NOT NULL, last_seen bigint NOT NULL,
            registrations bigint NOT NULL, PRIMARY KEY (verified, name_key, software_key)
        );
        CREATE INDEX evidence_age ON pawl.evidence (verified, last_seen);

        CREATE TABLE pawl.observation (
            sender_key bytea NOT NULL, target_key bytea NOT NULL, recipient_key bytea NOT NULL, sender bytea NOT NULL,
            target bytea NOT NULL, recipient bytea NOT NULL, messages bigint NOT NULL, last_seen bigint NOT NULL,
            PRIMARY KEY (sender_key, target_key, recipient_key)
        );
        CREATE INDEX observation_age ON pawl.observation (last_seen);

        CREATE TABLE pawl.tally (hour bigint NOT NULL, kind bytea NOT NULL, count bigint NOT NULL,
            PRIMARY KEY (hour, kind));

        CREATE TABLE pawl.audit (
            n bigint NOT NULL, gateway bigint NOT NULL, at bigint NOT NULL, actor bytea NOT NULL, action bytea NOT NULL,
            detail bytea NOT NULL, PRIMARY KEY (n, gateway)
        );

        -- What was accepted, with its stored form.
        CREATE TABLE pawl.queue_request (
            id bigint PRIMARY KEY, token_high bigint NOT NULL, token_low bigint NOT NULL, tenant bytea NOT NULL,
            lane bytea, idempotency_key bytea NOT NULL, size bigint NOT NULL, form bytea NOT NULL
        );
        CREATE INDEX queue_token ON pawl.queue_request (token_low, token_high);

        -- What became of it. State: 0 waiting, or under way where it has a lease; 1 done, 2 dead, 4 cancelled. The result
        -- is that of the outcome: 0 success, 1 failure, 2 aborted, and 4 more if part of the answer is missing.
        -- Undelivered: how often handlers were given the outcome again, until they have had it.
        CREATE TABLE pawl.queue_progress (
            id bigint PRIMARY KEY, shard int NOT NULL, state bigint NOT NULL, accepted_at bigint NOT NULL,
            attempts bigint NOT NULL, crashes bigint NOT NULL, doubts bigint NOT NULL, not_before bigint NOT NULL,
            is_held bigint NOT NULL, lease bigint, finished_at bigint, result bigint, status bigint, undelivered bigint,
            cause bytea
        ) WITH (fillfactor = 60);

        -- What the backend answered, where it is kept and there is anything of it.
        CREATE TABLE pawl.queue_response (id bigint PRIMARY KEY, headers bytea NOT NULL, body bytea NOT NULL);

        -- What the backend calls entities. The place rises in the order in which that was learnt.
        CREATE TABLE pawl.queue_mapping (
            tenant_key bytea NOT NULL, type_key bytea NOT NULL, local_key bytea NOT NULL, tenant bytea NOT NULL,
            type bytea NOT NULL, local bytea NOT NULL, remote bytea NOT NULL, learnt_at bigint NOT NULL,
            place bigint NOT NULL, PRIMARY KEY (type_key, local_key, tenant_key)
        );
        CREATE INDEX queue_mapping_age ON pawl.queue_mapping (learnt_at);

        -- Session keys that outlive the process, sealed by whoever stores them.
        CREATE TABLE pawl.queue_session (tenant_key bytea PRIMARY KEY, tenant bytea NOT NULL, sealed bytea NOT NULL);
        """
}
