import Foundation
import Glibc
import Synchronization
import TestKit

/// PostgreSQL as Debian builds it, with a data directory of its own, on loopback. It takes no root, so as root it runs as
/// `nobody`.
package final class PostgreSQL: Sendable {
    /// Why there can be no server here; nil if there can.
    package static let obstacle: String? = {
        guard programs != nil else { return "PostgreSQL is not installed" }
        guard geteuid() == 0 else { return nil }
        return access("/usr/bin/setpriv", X_OK) == 0 && getpwnam("nobody") != nil ? nil : "no right to be another user"
    }()

    /// The directory of the server's programs, which Debian keeps out of `PATH`, the newest first.
    private static let programs: String? = {
        let root = "/usr/lib/postgresql"
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        let debian = versions.sorted { $0.compare($1, options: .numeric) == .orderedDescending }
            .map { "\(root)/\($0)/bin" }
        return (debian + ["/usr/bin", "/usr/local/bin"]).first { access($0 + "/initdb", X_OK) == 0 }
    }()

    package let port: UInt16
    private let reservation: FreePort
    private let scratch: ScratchDirectory
    private let server = Mutex<ChildProcess?>(nil)

    /// Makes a database cluster and starts it.
    ///
    /// - Parameter log: a directory elsewhere for its write-ahead log, which then has small segments.
    package convenience init(log: String? = nil) throws {
        try self.init { data, programs in
            try Self.run(
                programs + "/initdb",
                ["-D", data, "-U", "pawl", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
                    + (log.map { ["-X", $0, "--wal-segsize", "1"] } ?? []))
        }
    }

    /// A copy of another server as it is now.
    ///
    /// - Parameter isStandby: whether it follows the other one, until it is promoted.
    package convenience init(copyOf other: PostgreSQL, isStandby: Bool = false) throws {
        try self.init { data, programs in
            var words = [
                "-D", data, "-h", "127.0.0.1", "-p", "\(other.port)", "-U", "pawl", "-X", "stream", "-c", "fast", "-N",
            ]
            if isStandby { words.append("-R") }
            return try Self.run(programs + "/pg_basebackup", words)
        }
    }

    /// - Parameter make: fills the data directory.
    private init(_ make: (String, String) throws -> ChildProcess.Output) throws {
        guard let programs = Self.programs else { throw PeerError("PostgreSQL is not installed") }
        reservation = try FreePort()
        port = reservation.number
        scratch = try ScratchDirectory()
        let data = try scratch.directory("data")
        chmod(data, 0o700)
        if geteuid() == 0 { try scratch.give(to: "nobody") }
        let made = try make(data, programs)
        guard made.succeeded else { throw PeerError("no data directory: \(made.stderr)") }
        try start()
    }

    deinit { stop() }

    package var url: String { "postgresql://pawl@127.0.0.1:\(port)/postgres" }

    package var isRunning: Bool { server.withLock { $0?.isRunning ?? false } }

    /// Starts it, and waits until it answers.
    package func start() throws {
        guard let programs = Self.programs else { throw PeerError("PostgreSQL is not installed") }
        let settings = [
            "port=\(port)", "listen_addresses=127.0.0.1", "unix_socket_directories=\(scratch.path)",
            "shared_buffers=16MB", "max_connections=40", "autovacuum=off",
        ]
        let words = Self.words(
            programs + "/postgres", ["-D", scratch.file("data")] + settings.flatMap { ["-c", $0] })
        let process = try ChildProcess(words[0], Array(words.dropFirst()), workingDirectory: scratch.path)
        server.withLock { $0 = process }
        do {
            try process.waitUntilListening(port)
            try eventually("answers of PostgreSQL") {
                try ChildProcess.run(programs + "/pg_isready", ["-q", "-h", "127.0.0.1", "-p", "\(port)"]).succeeded
            }
        } catch {
            stop()
            throw error
        }
    }

    /// Ends it at once, as `pg_ctl stop -m immediate` does: what is not on the disk is lost.
    package func stop() {
        let process = server.withLock { server in
            defer { server = nil }
            return server
        }
        process?.kill(SIGQUIT)
        _ = try? process?.waitForExit()
    }

    /// What a statement returns, in lines, with `|` between columns.
    package func query(_ sql: String) throws -> String {
        guard let programs = Self.programs else { throw PeerError("PostgreSQL is not installed") }
        let output = try ChildProcess.run(
            programs + "/psql", ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, url])
        guard output.succeeded else { throw PeerError("\(sql): \(output.stderr)") }
        return output.stdout.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Locks a table until the lock is released.
    package func lock(_ table: String, _ mode: String) throws -> TableLock {
        guard let programs = Self.programs else { throw PeerError("PostgreSQL is not installed") }
        let statements = "BEGIN; LOCK TABLE \(table) IN \(mode) MODE; SELECT pg_sleep(3600)"
        let process = try ChildProcess(
            programs + "/psql", ["-X", "-q", "-c", statements, url + "?application_name=\(TableLock.name)"])
        try eventually("the lock of \(table)") {
            try query(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = '\(TableLock.name)' "
                    + "AND wait_event = 'PgSleep'") != "0"
        }
        return TableLock(process: process, server: self)
    }

    /// A lock of a table, held by a session of its own.
    package struct TableLock {
        fileprivate static let name = "table-lock"
        fileprivate let process: ChildProcess
        fileprivate let server: PostgreSQL

        /// Waits until a statement of another session waits for a lock.
        package func waitForOthers() throws {
            try eventually("a statement that waits for a lock") {
                try server.query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != "0"
            }
        }

        package func release() throws {
            _ = try server.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '\(Self.name)'")
            _ = try process.waitForExit()
        }
    }

    private static func words(_ program: String, _ arguments: [String]) -> [String] {
        guard geteuid() == 0 else { return [program] + arguments }
        let user = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        return ["/usr/bin/setpriv"] + user + [program] + arguments
    }

    private static func run(_ program: String, _ arguments: [String]) throws -> ChildProcess.Output {
        let words = words(program, arguments)
        return try ChildProcess.run(words[0], Array(words.dropFirst()))
    }
}
