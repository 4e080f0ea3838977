// `pawl store copy`: moves a store from its file into a database, or back.

import ArgumentParser
import Foundation
import PostgresStore
import Protection
import SQLiteStore
import StoreBase
import StorePort

/// `pawl store copy`
struct StoreCopyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "copy",
        abstract: "Move a store from its file into a database, or back. The gateway must not run.",
        discussion: """
            All rows are copied in one transaction, read again and compared. Then the old store is marked as moved, so that \
            no gateway starts on it. The key stays where it is. If the command is interrupted, run it again: it ends the \
            copy, or begins a new one.

            Name a password of the database in PGPASSFILE, never in the URI.
            """)
    @Option(help: "Move the store in the directory into this database: a URI of PostgreSQL.") var to: String?
    @Option(help: "Move the store of this database into the directory: a URI of PostgreSQL.") var from: String?
    @OptionGroup var place: StorePlace
    @Flag(help: "Print JSON for scripts.") var json = false

    struct Report: Codable {
        struct Table: Codable {
            var name: String
            var rows: Int
            /// The sum of the rows' SHA-256, which both stores have.
            var digest: String
        }

        var data: String
        /// `database` or `file`.
        var target: String
        /// Empty if an earlier copy was whole, and was only ended.
        var tables: [Table] = []
        /// Sessions with devices outside the vault, which are set up anew at the next message.
        var sessionsSetUpAnew = 0
        /// Whether an earlier copy was ended, which had been interrupted.
        var wasInterrupted = false
        /// The old store.
        var old: String
    }

    func validate() throws {
        guard (to != nil) != (from != nil) else {
            throw ValidationError("Name the database with --to or with --from.")
        }
    }

    func run() async throws {
        do {
            let report = if let to { try moveToDatabase(to) } else { try moveToFile(from ?? "") }
            print(json ? try AdminAnswer.json(report).out : Printable.text(text(report)))
        } catch {
            throw Failures.write(error)
        }
    }

    private func line(_ action: String, _ address: StoreAddress) -> AuditRow {
        AuditRow(at: SystemClock.now().wall, actor: "operator", action: action, detail: address.text)
    }

    private func moveToDatabase(_ uri: String) throws(StoreError) -> Report {
        let address = try StoreAddress(uri)
        var report = Report(data: place.data, target: "database", old: place.data + "/pawl.sqlite.moved")
        if SetAsideStore.isThere(directory: place.data) {
            if try DatabaseCopy.holdsStore(address, key: StorageKey.read(place.key)) {
                try SetAsideStore.finish(directory: place.data)
                report.wasInterrupted = true
                return report
            }
            try SetAsideStore.putBack(directory: place.data)
        }
        let source = try MovingStore(directory: place.data, key: place.key)
        let line = line("store.copied_from_file", address)
        let result: StoreCopy
        var isAside = false
        do throws(StoreError) {
            result = try DatabaseCopy.receive(
                address, directory: place.data, key: source.key,
                copy: { (target) throws(StoreError) in
                    try StoreCopy(from: source, to: target, RowAuthenticator(source.key), audit: line)
                },
                whenWritten: { () throws(StoreError) in
                    isAside = true
                    try source.setAside()
                })
        } catch {
            // With an unknown outcome the file stays aside: the database may hold the store.
            if isAside, error.code != StoreError.unknown("").code, SetAsideStore.isThere(directory: place.data) {
                try source.putBack()
            }
            throw error
        }
        try source.finish()
        return report.of(result)
    }

    private func moveToFile(_ uri: String) throws(StoreError) -> Report {
        let address = try StoreAddress(uri)
        var report = Report(data: place.data, target: "file", old: "a schema of the database")
        if try MovingDatabase.isSetAside(address) {
            try ArrivingStore.finish(directory: place.data, key: place.key)
            report.wasInterrupted = true
            return report
        }
        let source = try MovingDatabase(address, directory: place.data, key: place.key)
        let file = ArrivingStore(directory: place.data, key: source.key)
        let line = line("store.copied_from_database", address)
        let result = try source.read { (rows) throws(StoreError) in
            try file.fill { (target) throws(StoreError) in
                try StoreCopy(from: rows, to: target, RowAuthenticator(source.key), audit: line)
            }
        }
        report.old = try source.setAside(now: line.at)
        try file.publish()
        return report.of(result)
    }

    private func text(_ report: Report) -> String {
        let place = report.target == "file" ? "the file \(report.data)/pawl.sqlite" : "the database"
        var lines: [String] = []
        if report.wasInterrupted {
            lines.append("An earlier copy was whole. The store is in \(place).")
        } else {
            let rows = report.tables.reduce(0) { $0 + $1.rows }
            lines.append("The store is in \(place): \(rows) rows in \(report.tables.count) tables, compared.")
        }
        if report.sessionsSetUpAnew > 0 {
            lines.append(
                "\(report.sessionsSetUpAnew) sessions with devices outside the vault are set up anew at the next message."
            )
        }
        lines.append(
            report.target == "file"
                ? "Remove store.url from the configuration before the gateway starts."
                : "Set store.url to the database before the gateway starts.")
        lines.append("The old store is \(report.old). It holds what the new one holds: remove it when all is well.")
        return lines.joined(separator: "\n")
    }
}

extension StoreCopyCommand.Report {
    fileprivate func of(_ copy: StoreCopy) -> Self {
        var report = self
        report.tables = copy.tables.map {
            Table(name: $0.table.rawValue, rows: $0.digest.rows, digest: $0.digest.text)
        }
        report.sessionsSetUpAnew = copy.setUpAnew
        return report
    }
}
