// Handles a store in an older state, after a restore or because an older copy was put in its place. The ratchets have
// advanced further than it knows, and continuing would use keys twice. So sessions are removed and set up anew inside
// the vault.

import DeviceDirectory
import Foundation
import GRDB
import SQLiteKit
import SQLiteQueue
package import StoreBase
package import StorePort

/// The operator's command to accept an older state.
package enum Rollback {
    /// The cause of requests that waited in an accepted state and are dead.
    static let cause = "An older state of the store was accepted. It may have been sent since."

    /// Accepts the state in a directory, and makes the two generations equal. The queue of an earlier version is taken
    /// over before, so that its waiting requests are ended too.
    ///
    /// - Parameter now: for the audit log, in milliseconds since 1970.
    /// - Throws: ``StoreError``, as for opening; `unavailable` if nothing was rolled back.
    package static func accept(
        directory: String, key source: StorageKey.Source, limits: StoreLimits = StoreLimits(), actor: String, now: Int64
    ) throws(StoreError) {
        let files = StoreFiles(directory)
        guard FileSystem.exists(files.store) else {
            _ = try FirstStart.isDue(files, source)
            throw .noStore(files)
        }
        let opening = try Opening(files, source, limits, ignoresBadGeneration: true)
        if let beside = opening.fileGeneration, opening.contents.generation >= beside {
            throw .nothingToAccept(files)
        }
        let next = max(opening.contents.generation, opening.fileGeneration ?? 0) + 1
        let (pool, _) = try opening.connect()
        defer { withExtendedLifetime(opening.lock) { Connections.close(pool) } }
        try translating(files.store) {
            try pool.writeWithoutTransaction { database in
                try settle(
                    database, RowAuthenticator(opening.key), cause: cause,
                    action: "store.rollback_accepted",
                    detail: "generation \(opening.contents.generation) came after \(opening.fileGeneration ?? 0)",
                    actor: actor, generation: next, now: now)
            }
        }
        try Generation.write(next, files)
    }

    /// Removes the one-time prekeys of users' devices, which the directory may have handed out since. The devices are
    /// asked for new ones; until then their last-resort prekey is used.
    private static func removeOneTimeKeys(_ database: Database, _ authenticator: RowAuthenticator) throws {
        let kind = RecordKind.directoryDevice
        let rows = try Row.fetchAll(
            database, sql: "SELECT name, value, mac FROM record WHERE kind = ?", arguments: [kind.rawValue])
        for row in rows {
            let (name, value, code): (String, Data, Data?) = (row["name"], row["value"], row["mac"])
            let stored = RecordRow(kind: kind, name: name, value: Array(value))
            try authenticator.demand(AuthenticatedRow(stored), has: Array(code ?? Data()))
            if let kept = stored.withoutOneTimeKeys {
                try database.execute(
                    sql: "UPDATE record SET value = ?, mac = ? WHERE kind = ? AND name = ?",
                    arguments: [
                        Data(kept.value), Data(authenticator.code(AuthenticatedRow(kept))), kind.rawValue, name,
                    ])
            } else {
                try database.execute(
                    sql: "DELETE FROM record WHERE kind = ? AND name = ?", arguments: [kind.rawValue, name])
            }
        }
    }

    /// Settles an older state in one transaction.
    ///
    /// Removes sessions, prekeys and sender keys, ends waiting requests, adds an audit entry, skips ids that may be in
    /// use, and sets the generation.
    static func settle(
        _ database: Database, _ authenticator: RowAuthenticator, cause: String, action: String, detail: String,
        actor: String, generation: UInt64, now: Int64
    ) throws {
        try database.inTransaction(.immediate) {
            for table in StoreTable.allCases where table.afterRollback == .removed {
                try database.execute(sql: "DELETE FROM \(table.rawValue)")
            }
            for kind in RecordKind.allCases where kind.afterRollback == .removed {
                try database.execute(sql: "DELETE FROM record WHERE kind = ?", arguments: [kind.rawValue])
            }
            try removeOneTimeKeys(database, authenticator)
            _ = try QueueTables.settle(database, cause: cause, now: now)
            try database.execute(
                sql: "INSERT INTO audit (at, actor, action, detail) VALUES (?, ?, ?, ?)",
                arguments: [now, actor, action, detail])
            try database.execute(
                sql: """
                    UPDATE meta SET generation = ?1,
                        highest_request = ?2 + max(
                            highest_request, (SELECT highest FROM queue_meta),
                            coalesce((SELECT max(id) FROM queue_request), 0)),
                        highest_delivery = highest_delivery + ?2
                    """,
                arguments: [Int64(generation), Int64(StoreLimits.idGap)])
            // Also the ids of requests, for a queue that counts them from the ones that it finds.
            try database.execute(
                sql: """
                    UPDATE queue_meta
                    SET highest = ?1 + max(highest, coalesce((SELECT max(id) FROM queue_request), 0))
                    """,
                arguments: [Int64(StoreLimits.idGap)])
            return .commit
        }
    }
}
