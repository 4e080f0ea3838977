// `pawl backup` and `pawl restore`: the store with its key, in one file.

import ArgumentParser
import Foundation
import PawlConfiguration
import PostgresStore
import Protection
import SQLiteStore
import StoreBase
import StorePort

/// `pawl backup`
struct BackupCommand: AdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup",
        abstract: "Write the store and its key into one file, while the gateway runs.",
        discussion: "Anyone with the file can decrypt the store. Protect it like the storage key.")
    @Argument(help: "The file to write; it must not exist.") var file: String
    @OptionGroup var common: CommonOptions

    func validate() throws {
        guard !file.hasPrefix("-"), !file.isEmpty else { throw ValidationError("Name the file for the backup.") }
    }

    /// In a shell: sends the absolute path, because the gateway may have another working directory.
    func run() async throws {
        let path = URL(fileURLWithPath: file).path
        var words = ["backup", path]
        if common.json { words.append("--json") }
        try await AdminClient(common).perform(words)
    }

    struct Report: Codable {
        var file: String
        var bytes: Int
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        guard file.hasPrefix("/") else { throw AdminFailure(.relativePath, "Name the file by its absolute path.") }
        try gateway.writeBackup(file)
        try gateway.commit([gateway.audit("backup", file)])
        let bytes = (try? FileManager.default.attributesOfItem(atPath: file)[.size] as? Int) ?? 0
        if common.json { return try .json(Report(file: file, bytes: bytes)) }
        return .text(
            "The store and its key are in \(file) (\(bytes) bytes). Anyone with this file can read them.")
    }
}

/// `pawl restore`
struct RestoreCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore", abstract: "Restore a backup. The gateway must not run.",
        discussion: """
            Latches, policies, devices and the audit log return to their state at the time of the backup. Sessions do \
            not: their keys may have been used since, so the vault sets them up anew. Messages that were waiting are \
            given up, because they may have been sent since.

            --accept-rollback does the same for a store that was copied back by other means, and with --database for a \
            database that was rolled back.
            """)
    @Argument(help: "The backup.") var file: String?
    @OptionGroup var place: StorePlace
    @Flag(help: "Move existing files in the directory aside first.") var force = false
    @Flag(name: .customLong("accept-rollback"), help: "Accept the older state that is already in the directory.")
    var acceptRollback = false
    @Option(help: "With --accept-rollback: the URI of the database of the store, if it is not a file.")
    var database: String?
    @Flag(help: "Print JSON for scripts.") var json = false

    struct Report: Codable {
        var data: String
        /// Whether the older state in the directory was accepted; else a backup was restored.
        var acceptedRollback: Bool
        /// The paths that existing files were moved to.
        var movedAside: [String]
    }

    func validate() throws {
        guard (file != nil) != acceptRollback else {
            throw ValidationError("Name the backup, or use --accept-rollback for the state already in the directory.")
        }
        guard database == nil || acceptRollback else {
            throw ValidationError("A backup of a database is restored with the tools of the database.")
        }
    }

    func run() async throws {
        let (data, key) = (place.data, place.key)
        let now = SystemClock.now().wall
        do {
            if acceptRollback, let database {
                try DatabaseRollback.accept(
                    StoreAddress(database), directory: data, key: key, actor: "operator", now: now)
                try print(Report(data: data, acceptedRollback: true, movedAside: []))
            } else if acceptRollback {
                try Rollback.accept(directory: data, key: key, actor: "operator", now: now)
                try print(Report(data: data, acceptedRollback: true, movedAside: []))
            } else if let file {
                let result = try Restore.run(
                    file: file, directory: data, key: key, force: force, actor: "operator", now: now)
                try print(Report(data: data, acceptedRollback: false, movedAside: result.aside))
            }
        } catch {
            throw Failures.write(error)
        }
    }

    private func print(_ report: Report) throws {
        guard !json else { return Swift.print(try AdminAnswer.json(report).out) }
        for path in report.movedAside { Swift.print("moved aside: \(path)") }
        let what =
            report.acceptedRollback
            ? "The older state \(database == nil ? "in \(report.data)" : "of the database") is accepted."
            : "The backup is in \(report.data)."
        Swift.print("\(what) Sessions are set up anew at the next message.")
    }
}
