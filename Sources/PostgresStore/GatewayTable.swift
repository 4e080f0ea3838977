// What operators see of the gateways of a database, and what they can do with them: through a gateway that has joined, or
// directly.

import Foundation
import Ownership
package import StorePort

/// The gateways of a database.
package protocol GatewayTable: Sendable {
    /// What each gateway does.
    func gateways() -> [GatewayEntry]
    func shardEntries() -> [ShardRowEntry]
    /// Asks a gateway to drain.
    ///
    /// - Returns: whether it has a row.
    func ask(_ id: UInt64) throws(StoreError) -> Bool
    /// Removes the row of a gateway whose beat does not rise.
    ///
    /// - Returns: nil if it does; else whether it was there.
    func forget(_ id: UInt64) throws(StoreError) -> Bool?
}

/// A gateway of the database, as another one sees it.
package struct GatewayEntry: Sendable {
    package enum State: String, Sendable, CaseIterable {
        case serving
        case standingBy = "standing-by"
        case draining
        /// Its beat does not change.
        case silent
    }

    package var id: UInt64
    package var name: String
    package var state: State
    package var isSelf: Bool
    /// Successful reads since its beat has changed.
    package var unchangedReads: Int
    /// The time since then, in milliseconds of the reader's clock.
    package var beatAge: Int64
    package var shards: Int
    package var program: String
    package var connections: Int
}

/// The row of a shard, for operators.
package struct ShardRowEntry: Sendable {
    package var shard: Int
    package var owner: UInt64?
    package var name: String?
    package var epoch: UInt64
    package var commits: Int64
}

extension ClusterReading {
    /// What operators see.
    ///
    /// - Parameters:
    ///   - own: the gateway that reads; its own beat is not judged.
    ///   - silence: the readings in which a beat has not changed, and for how long.
    func entries(own: Int64?, _ silence: (Int64) -> (reads: Int, age: Int64)) -> [GatewayEntry] {
        gateways.map { row in
            let silence = silence(row.id)
            let state: GatewayEntry.State =
                if row.id != own, silence.reads >= OwnershipLimits.suspectReads {
                    .silent
                } else if row.isDraining || row.isAsked {
                    .draining
                } else {
                    owner == row.id ? .serving : .standingBy
                }
            return GatewayEntry(
                id: UInt64(bitPattern: row.id), name: row.name, state: state, isSelf: row.id == own,
                unchangedReads: silence.reads, beatAge: silence.age, shards: owner == row.id ? Schema.shards : 0,
                program: row.program, connections: Int(clamping: row.connections))
        }.sorted { ($0.name, $0.id) < ($1.name, $1.id) }
    }

    var shardEntries: [ShardRowEntry] {
        shards.enumerated().map { number, row in
            ShardRowEntry(
                shard: number, owner: row.owner == 0 ? nil : UInt64(bitPattern: row.owner),
                name: gateway(row.owner)?.name, epoch: UInt64(bitPattern: row.epoch), commits: row.commits)
        }
    }
}

extension Result where Failure == StatementFailure {
    func known() throws(StoreError) -> Success {
        switch self {
        case .success(let value): return value
        case .failure(let failure): throw StoreError(failure)
        }
    }
}

/// The gateways of a database, read by a command that has no gateway.
package final class GatewayObserver: GatewayTable {
    private let statements: ClusterStatements
    private let reading: ClusterReading
    /// For each gateway the readings in which its beat has not changed, and for how long, in milliseconds.
    private let silences: [Int64: (reads: Int, age: Int64)]

    /// Reads the rows for as long as a suspicion takes.
    ///
    /// - Throws: ``StoreError``; `missing` if the database has no store of a version with gateways.
    package init(_ address: StoreAddress) throws(StoreError) {
        let link = Link(address, name: "pawl gateways", check: PostgresStore.demandSafe(_:within:))
        guard let version = try Joining.keyCheck(link)?.version, version >= Schema.versionWithGateways else {
            throw .noGateways()
        }
        let statements = ClusterStatements(control: link, gateway: 0)
        var reading = try statements.read()
        var silences: [Int64: (reads: Int, age: Int64)] = [:]
        var since: [Int64: Int64] = [:]
        for _ in 0..<OwnershipLimits.suspectReads {
            Thread.sleep(forTimeInterval: Double(OwnershipLimits.beatInterval) / 1000)
            let next = try statements.read()
            let now = Membership.now()
            for row in next.gateways {
                let isSame = reading.gateway(row.id)?.beat == row.beat
                let first = since[row.id] ?? now - OwnershipLimits.beatInterval
                silences[row.id] = isSame ? ((silences[row.id]?.reads ?? 0) + 1, now - first) : (0, 0)
                since[row.id] = isSame ? first : now
            }
            reading = next
        }
        (self.statements, self.reading, self.silences) = (statements, reading, silences)
    }

    package func gateways() -> [GatewayEntry] { reading.entries(own: nil) { silences[$0] ?? (0, 0) } }
    package func shardEntries() -> [ShardRowEntry] { reading.shardEntries }

    package func ask(_ id: UInt64) throws(StoreError) -> Bool { try statements.ask(Int64(bitPattern: id)).known() }

    package func forget(_ id: UInt64) throws(StoreError) -> Bool? {
        let row = Int64(bitPattern: id)
        guard let found = reading.gateway(row), silences[row]?.reads ?? 0 >= OwnershipLimits.suspectReads else {
            return nil
        }
        return try statements.remove(row, beat: found.beat).known()
    }
}
