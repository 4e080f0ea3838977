// The statements by which a gateway takes part among the gateways of a database. Each is its own transaction.
//
// The 256 shards change their owner together, so the machine of the gateway knows one shard: its epoch is the sum of the
// 256 epochs, and its number of commits the sum of theirs. Both sums rise with each change, and fall if the database is
// rolled back.

import Ownership
import StorePort

/// What one beat reads.
struct ClusterReading: Sendable {
    struct Gateway: Sendable {
        var id: Int64
        var name: String
        var beat: Int64
        var isDraining: Bool
        /// Whether an operator has asked it to drain.
        var isAsked: Bool
        var program: String
        var connections: Int64
    }

    struct ShardEntry: Sendable {
        var owner: Int64
        var epoch: Int64
        var commits: Int64
    }

    var generation: Int64 = 0
    var isRolledBack = false
    /// Whether the row of the gateway that reads was there.
    var isMember = false
    var gateways: [Gateway] = []
    var shards: [ShardEntry] = []

    /// The owner of all shards; nil if there is none.
    var owner: Int64? { shards.first.flatMap { $0.owner == 0 ? nil : $0.owner } }
    var mark: ShardMark { .sum(shards.map { ($0.epoch, $0.commits) }) }

    /// Notes that a gateway has taken the shards, before the next beat reads it.
    mutating func note(_ marks: [(epoch: Int64, commits: Int64)], of gateway: Int64, from suspect: Int64?) {
        shards = marks.map { ShardEntry(owner: gateway, epoch: $0.epoch, commits: $0.commits) }
        gateways.removeAll { $0.id == suspect }
    }

    func gateway(_ id: Int64?) -> Gateway? { gateways.first { $0.id == id } }
}

extension ShardMark {
    /// That of all shards together.
    static func sum(_ shards: [(epoch: Int64, commits: Int64)]) -> ShardMark {
        ShardMark(
            epoch: shards.reduce(0) { $0 &+ UInt64(bitPattern: $1.epoch) },
            commits: shards.reduce(0) { $0 &+ UInt64(bitPattern: $1.commits) })
    }
}

extension Suspect {
    /// No row has it.
    fileprivate static let noBeat: Int64 = -1

    fileprivate var storedBeat: Int64 { beat.map { Int64(bitPattern: $0) } ?? Self.noBeat }
}

extension GatewayID {
    init(row: Int64) { self.init(UInt64(bitPattern: row)) }

    var row: Int64 { Int64(bitPattern: number) }
}

/// Statements about gateways and owners.
struct ClusterStatements: Sendable {
    /// Ours: how long a beat, and a connection for it, may take, in milliseconds. After that another one is sent.
    static let beatTimeout = Int(OwnershipLimits.beatTimeout)
    static let connectTimeout = 2000

    let control: Link
    /// The id of this gateway.
    let gateway: Int64

    /// Adds the row of this gateway.
    func join(name: String, program: String) throws(StoreError) {
        let sql = """
            INSERT INTO pawl.gateway (id, name, beat, commits, knows, program)
            VALUES ($1::int8, $2::bytea, 0, 0, \(Schema.version), $3::bytea)
            """
        let parameters: [Parameter] = [.number(gateway), .bytes(Array(name.utf8)), .bytes(Array(program.utf8))]
        switch control.commit(sql, parameters) {
        case .success: return
        case .failure(let failure): throw StoreError(failure)
        }
    }

    /// Raises the beat, writes the two values into the row, and reads all rows of gateways and shards, as of one moment.
    func beat(isDraining: Bool, connections: Int) -> Result<ClusterReading, StatementFailure> {
        let sql = """
            WITH raised AS (UPDATE pawl.gateway SET beat = beat + 1, draining = $2::int8, connections = $3::int8
                WHERE id = $1::int8 RETURNING id)
            \(Self.allRows)
            """
        let draining: Int64 = isDraining ? 1 : 0
        let parameters: [Parameter] = [.number(gateway), .number(draining), .number(Int64(connections))]
        let gateway = gateway
        return control.exchange(
            sql, parameters, timeout: Self.beatTimeout, connectTimeout: Self.connectTimeout
        ) { rows throws(StoreError) in try Self.reading(rows, by: gateway, isDraining: isDraining) }
    }

    /// Reads the same rows without a beat, for a command that has no gateway.
    func read() throws(StoreError) -> ClusterReading {
        try control.read("WITH raised AS (SELECT 1)\n\(Self.allRows)") { rows throws(StoreError) in
            try Self.reading(rows, by: 0, isDraining: false)
        }
    }

    private static let allRows = """
        SELECT 0::int8, c.generation, c.rolled_back, (SELECT count(*)::int8 FROM raised), 0::int8, 0::int8,
            ''::bytea, ''::bytea FROM pawl.cluster AS c WHERE c.id = 1
        UNION ALL SELECT 1::int8, g.id, g.beat, g.draining, g.asked, g.connections, g.name, g.program
            FROM pawl.gateway AS g
        UNION ALL SELECT 2::int8, s.id, s.owner, s.epoch, s.commits, 0::int8, ''::bytea, ''::bytea
            FROM pawl.shard AS s
        """

    private static func reading(
        _ rows: Rows, by gateway: Int64, isDraining: Bool
    ) throws(StoreError) -> ClusterReading {
        var reading = ClusterReading()
        reading.shards = Array(
            repeating: ClusterReading.ShardEntry(owner: -1, epoch: 0, commits: 0), count: Schema.shards)
        for row in 0..<rows.count {
            let id = rows.number(row, 1)
            switch rows.number(row, 0) {
            case 0:
                reading.generation = id
                reading.isRolledBack = rows.number(row, 2) != 0
                reading.isMember = rows.number(row, 3) == 1
            case 1:
                // The row as it was before this statement.
                let isOwn = id == gateway
                reading.gateways.append(
                    ClusterReading.Gateway(
                        id: id, name: rows.text(row, 6), beat: rows.number(row, 2) + (isOwn ? 1 : 0),
                        isDraining: isOwn ? isDraining : rows.number(row, 3) != 0, isAsked: rows.number(row, 4) != 0,
                        program: rows.text(row, 7), connections: rows.number(row, 5)))
            default:
                guard reading.shards.indices.contains(Int(clamping: id)) else { throw .unreadableRow("shard") }
                reading.shards[Int(id)] = ClusterReading.ShardEntry(
                    owner: rows.number(row, 2), epoch: rows.number(row, 3), commits: rows.number(row, 4))
            }
        }
        guard let owner = reading.shards.first?.owner, owner >= 0, reading.shards.allSatisfy({ $0.owner == owner })
        else {
            throw .unreadableRow("shard")
        }
        return reading
    }

    /// Takes all shards in the epochs that were read, and removes the row of the gateway that they are taken from: that row
    /// fences its commits of no shard. If its beat is another one by now, nothing is changed: either the beat waits for
    /// this statement and finds no row, or this statement waits for the beat and compares again.
    ///
    /// - Returns: the new epochs, and the numbers of the last commits.
    func take(
        _ seen: [Int64], from suspect: Suspect?
    ) -> Result<[(epoch: Int64, commits: Int64)], StatementFailure> {
        if let suspect { endBackends(of: suspect) }
        let sql = """
            WITH taken AS (UPDATE pawl.shard AS s SET owner = $1::int8, epoch = s.epoch + 1
                FROM unnest($2::int8[], $3::int8[]) AS n(id, epoch) WHERE s.id = n.id AND s.epoch = n.epoch
                RETURNING s.id, s.epoch, s.commits),
            gone AS (DELETE FROM pawl.gateway WHERE id = $4::int8 AND beat = $5::int8 RETURNING id)
            SELECT t.epoch, t.commits, 1 / (CASE WHEN (SELECT count(*) FROM taken) = \(Schema.shards)
                AND (SELECT count(*) FROM gone) = $6::int8
                AND NOT EXISTS (SELECT 1 FROM pawl.gateway WHERE id = $4::int8 AND beat <> $5::int8)
                AND EXISTS (SELECT 1 FROM pawl.gateway WHERE id = $1::int8) THEN 1 ELSE 0 END)::int8
            FROM generate_series(0, \(Schema.shards - 1)) AS n(id) LEFT JOIN taken AS t ON t.id = n.id ORDER BY n.id
            """
        let parameters: [Parameter] = [
            .number(gateway), .numbers((0..<Int64(seen.count)).map { $0 }), .numbers(seen),
            .number(suspect?.id.row ?? 0), .number(suspect?.storedBeat ?? Suspect.noBeat),
            .number(Int64(suspect?.beat == nil ? 0 : 1)),
        ]
        return control.exchange(
            sql, parameters, timeout: Link.statementTimeout, connectTimeout: Self.connectTimeout, isCommit: true
        ) { rows in rows.map { ($0.number(0), $0.number(1)) } }
    }

    /// Ends the statements of a gateway that does not run, so that none of them keeps a lock, unless it beats again. Without
    /// the right to do so the shards are taken all the same, when those statements end.
    private func endBackends(of suspect: Suspect) {
        _ = control.exchange(
            """
            SELECT count(pg_terminate_backend(pid))::int8 FROM pg_stat_activity
            WHERE application_name = convert_from($1::bytea, 'UTF8') AND pid <> pg_backend_pid()
            AND NOT EXISTS (SELECT 1 FROM pawl.gateway WHERE id = $2::int8 AND beat <> $3::int8)
            """,
            [
                .bytes(Array(Joining.name(of: suspect.id.row).utf8)), .number(suspect.id.row),
                .number(suspect.storedBeat),
            ], timeout: Self.beatTimeout, connectTimeout: Self.connectTimeout
        ) { _ in }
    }

    /// Makes nobody the owner of all shards, if this gateway is and the sum of the epochs fits.
    func release(_ epochs: UInt64) -> Result<Bool, StatementFailure> {
        let sql = """
            UPDATE pawl.shard SET owner = 0 WHERE owner = $1::int8
            AND (SELECT sum(epoch) FROM pawl.shard) = $2::int8 RETURNING id
            """
        return control.exchange(
            sql, [.number(gateway), .number(Int64(bitPattern: epochs))], timeout: Link.statementTimeout,
            connectTimeout: Self.connectTimeout, isCommit: true
        ) { rows in rows.count > 0 }
    }

    /// Removes the row of a gateway, if its beat is still this one. The connection is that of the beat, so what acts for an
    /// operator may not take longer than one.
    ///
    /// - Returns: whether it was there.
    func remove(_ id: Int64, beat: Int64) -> Result<Bool, StatementFailure> {
        control.exchange(
            "DELETE FROM pawl.gateway WHERE id = $1::int8 AND beat = $2::int8 RETURNING id",
            [.number(id), .number(beat)], timeout: Self.beatTimeout, connectTimeout: Self.connectTimeout
        ) { rows in rows.count > 0 }
    }

    /// Removes the row of this gateway.
    func leave() {
        _ = control.exchange(
            "DELETE FROM pawl.gateway WHERE id = $1::int8", [.number(gateway)], timeout: Self.beatTimeout,
            connectTimeout: Self.connectTimeout
        ) { _ in }
    }

    /// Asks a gateway to drain. It reads that with its next beat.
    ///
    /// - Returns: whether it has a row.
    func ask(_ id: Int64) -> Result<Bool, StatementFailure> {
        control.exchange(
            "UPDATE pawl.gateway SET asked = 1 WHERE id = $1::int8 RETURNING id", [.number(id)],
            timeout: Self.beatTimeout, connectTimeout: Self.connectTimeout
        ) { rows in rows.count > 0 }
    }

    /// Notes that the database was rolled back, so that no gateway goes on, until the operator accepts it.
    func reportRollback(generation: UInt64) {
        _ = control.exchange(
            "UPDATE pawl.cluster SET rolled_back = 1 WHERE generation = $1::int8",
            [.number(Int64(bitPattern: generation))], timeout: Link.statementTimeout,
            connectTimeout: Self.connectTimeout
        ) { _ in }
    }
}
