import Foundation
import Glibc
import PeerKit
import StorePort
import TestKit

@testable import PostgresStore
@testable import StoreBase

/// A database server of its own for a test, and the stores on it.
final class Database: Sendable {
    /// Why there can be no server here; nil if there can.
    static let obstacle = PostgreSQL.obstacle
    static let hasPooler = ["/usr/sbin", "/usr/bin"].contains { access("\($0)/pgbouncer", X_OK) == 0 }

    private let server: PostgreSQL
    private let key = StorageKey.random()

    init() throws { server = try PostgreSQL() }

    /// With its write-ahead log in a directory elsewhere, in small segments.
    init(log: String) throws { server = try PostgreSQL(log: log) }

    /// A copy of another server as it is now.
    ///
    /// - Parameter isStandby: whether it follows the other one, until it is promoted.
    init(copyOf other: Database, isStandby: Bool = false) throws {
        server = try PostgreSQL(copyOf: other.server, isStandby: isStandby)
    }

    var port: UInt16 { server.port }
    var isRunning: Bool { server.isRunning }

    /// Starts it, and waits until it answers.
    func start() throws { try server.start() }

    /// Ends it at once, as `pg_ctl stop -m immediate` does: what is not on the disk is lost.
    func stop() { server.stop() }

    /// Makes a standby the primary.
    func promote() throws {
        _ = try number("SELECT CASE WHEN pg_promote(true, 60) THEN 1 ELSE 0 END::int8", anyServer: true)
        try eventually("writes of the new primary") { (try? execute("SELECT 1")) != nil }
    }

    var url: String { server.url }

    func address(port: UInt16? = nil, isPooled: Bool = false) throws -> StoreAddress {
        try StoreAddress("postgresql://pawl@127.0.0.1:\(port ?? self.port)/postgres", isPooled: isPooled)
    }

    /// Runs statements over a connection of their own.
    func execute(_ sql: String) throws {
        let connection = try Connection.open(address(), name: "a test", timeout: 60_000)
        try connection.runAll(sql, timeout: 60_000)
    }

    /// The number that a statement returns.
    ///
    /// - Parameter anyServer: also from a standby.
    func number(_ sql: String, anyServer: Bool = false) throws -> Int64 {
        let connection = try Connection.open(
            StoreAddress(url, isAnyServer: anyServer), name: "a test", timeout: 60_000)
        let rows = try connection.run(sql, [], isPrepared: false, timeout: 60_000)
        return rows.count == 0 ? 0 : rows.number(0, 0)
    }

    /// Locks tables until the transaction of the connection ends.
    func lock(_ tables: String, _ mode: String) throws -> Connection {
        let connection = try Connection.open(address(), name: "a lock", timeout: 60_000)
        try connection.begin(timeout: 60_000)
        try connection.runAll("LOCK TABLE \(tables) IN \(mode) MODE", timeout: 60_000)
        return connection
    }

    /// Sets a parameter of the server, and waits until new connections have it; nil resets it.
    func set(_ name: String, _ value: String?) throws {
        try execute(value.map { "ALTER SYSTEM SET \(name) = '\($0)'" } ?? "ALTER SYSTEM RESET \(name)")
        try execute("SELECT pg_reload_conf()")
        guard let value else { return }
        try eventually("\(name) is \(value)") {
            try number("SELECT CASE WHEN current_setting('\(name)') = '\(value)' THEN 1 ELSE 0 END::int8") == 1
        }
    }

    /// The address of this server and of the one that takes its place.
    func address(or other: Database) throws -> StoreAddress {
        try StoreAddress("postgresql://pawl@127.0.0.1:\(port),127.0.0.1:\(other.port)/postgres")
    }

    /// Statements that make all tables as they were made.
    private static let removeRows = """
        DELETE FROM pawl.gateway; DELETE FROM pawl.policy; DELETE FROM pawl.device; DELETE FROM pawl.session;
        DELETE FROM pawl.delivery; DELETE FROM pawl.conversation; DELETE FROM pawl.content_key;
        DELETE FROM pawl.record; DELETE FROM pawl.evidence; DELETE FROM pawl.observation; DELETE FROM pawl.tally;
        DELETE FROM pawl.audit; DELETE FROM pawl.queue_request; DELETE FROM pawl.queue_progress;
        DELETE FROM pawl.queue_response; DELETE FROM pawl.queue_mapping; DELETE FROM pawl.queue_session;
        UPDATE pawl.shard SET owner = 0, epoch = 0, commits = 0, highest_request = 0, highest_message = 0,
            highest_delivery = 0;
        """

    /// Opens a store without rows, under the same key each time. Rows are removed faster than tables.
    func openEmpty(_ address: StoreAddress) throws -> PostgresStore {
        if try number("SELECT count(*)::int8 FROM pg_tables WHERE schemaname = 'pawl'") > 0 {
            try execute(Self.removeRows)
        }
        return try open(address)
    }

    func open(_ address: StoreAddress) throws -> PostgresStore {
        try PostgresStore.open(address, directory: Place().data, key: .derived(key))
    }

    func removeTables() throws { try execute("DROP SCHEMA IF EXISTS pawl CASCADE") }
}

/// PgBouncer in transaction mode, with two connections to the server.
final class Pooler: Sendable {
    let port: UInt16
    private let reservation: FreePort
    private let scratch: ScratchDirectory
    private let process: ChildProcess

    init(_ database: Database) throws {
        reservation = try FreePort()
        port = reservation.number
        scratch = try ScratchDirectory()
        let file = try scratch.write(
            "pgbouncer.ini",
            """
            [databases]
            * = host=127.0.0.1 port=\(database.port) user=pawl
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = \(port)
            unix_socket_dir =
            auth_type = any
            pool_mode = transaction
            default_pool_size = 2
            server_reset_query =
            """)
        var words = ["pgbouncer", file]
        if geteuid() == 0 {
            words = ["/usr/bin/setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"] + words
        }
        process = try ChildProcess(words[0], Array(words.dropFirst()), workingDirectory: scratch.path)
        try process.waitUntilListening(port)
    }

    deinit { process.stop() }
}

/// A server whose kernel accepts connections and that never answers, as one that is stopped by a signal.
final class SilentServer {
    let port: UInt16
    private let reservation: FreePort
    private let listener: Int32
    private var count = 0

    init() throws {
        reservation = try FreePort()
        port = reservation.number
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        listener = socket(AF_INET, type, 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let isBound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        guard isBound, listen(listener, 64) == 0 else { throw PeerError("no listener") }
    }

    deinit { close(listener) }

    /// How many connections were made to it.
    func connections() -> Int {
        while true {
            let client = accept(listener, nil, nil)
            guard client >= 0 else { return count }
            close(client)
            count += 1
        }
    }

    /// The address of this server and of one that answers.
    func address(or database: Database) throws -> StoreAddress {
        try StoreAddress("postgresql://pawl@127.0.0.1:\(port),127.0.0.1:\(database.port)/postgres")
    }
}

/// A gateway's directory.
final class Place: Sendable {
    private let scratch: ScratchDirectory

    init() throws { scratch = try ScratchDirectory() }

    var data: String { scratch.file("data") }
    var key: String { data + "/storage.key" }

    func open(_ address: StoreAddress) throws -> PostgresStore {
        try PostgresStore.open(address, directory: data, key: .file(key))
    }

    /// What opening is refused with.
    func refusal(_ address: StoreAddress) -> StoreError? {
        do {
            _ = try PostgresStore.open(address, directory: data, key: .file(key))
            return nil
        } catch {
            return error
        }
    }
}
