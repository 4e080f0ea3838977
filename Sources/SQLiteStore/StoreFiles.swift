// Which files a store has, and the lock that keeps a second process out.

import Foundation
import GatewayCore

/// The files of one store, by its directory.
struct StoreFiles: Sendable {
    let directory: String

    init(_ directory: String) {
        var path = Substring(directory)
        while path.count > 1, path.last == "/" { path.removeLast() }
        self.directory = String(path)
    }

    var store: String { directory + "/pawl.sqlite" }
    /// A store that is being made. Nothing has ever been kept in it.
    var unfinishedStore: String { directory + "/pawl.sqlite.new" }
    /// A store that is being brought back from a backup.
    var unfinishedRestore: String { directory + "/restore.partial" }
    var lock: String { directory + "/pawl.lock" }
    var generation: String { directory + "/generation" }
    var deliveryJournal: String { directory + "/deliveries.journal" }

    /// A database with the two files that SQLite keeps beside it.
    static func database(_ path: String) -> [String] { [path, path + "-wal", path + "-shm"] }

    /// The restore command for people to copy.
    var restoreCommand: String { "pawl restore FILE --data \(directory)" }
    var acceptRollbackCommand: String { "pawl restore --accept-rollback --data \(directory)" }
}

/// The lock on a store's directory. Held until the value goes away or the process dies, however it dies.
final class DirectoryLock: Sendable {
    private let number: Int32

    /// - Throws: ``StoreError/locked(_:)`` where another store, in this process or another, holds it.
    init(_ files: StoreFiles) throws(StoreError) {
        number = open(files.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw FileSystem.failure("open", files.lock) }
        guard flock(number, LOCK_EX | LOCK_NB) == 0 else {
            // What is thrown from here on goes through deinit, which closes.
            guard errno == EWOULDBLOCK else { throw FileSystem.failure("lock", files.lock) }
            let holder = Self.holder(number)
            throw .locked(
                """
                The store in \(files.directory) is in use by another pawl\(holder.map { " (process \($0))" } ?? ""). \
                Stop that one first\(holder.map { ": kill \($0)" } ?? ""), or give this one a directory of its own \
                with --data.
                """)
        }
        let text = Array("\(getpid())\n".utf8)
        _ = ftruncate(number, 0)
        _ = text.withUnsafeBytes { pwrite(number, $0.baseAddress!, $0.count, 0) }
    }

    /// Unlocks, and not only closes: a child that is being started may hold a copy of the descriptor for a moment.
    deinit {
        guard number >= 0 else { return }
        flock(number, LOCK_UN)
        _ = close(number)
    }

    private static func holder(_ number: Int32) -> Int32? {
        var bytes = [UInt8](repeating: 0, count: 16)
        let count = bytes.withUnsafeMutableBytes { pread(number, $0.baseAddress!, $0.count, 0) }
        guard count > 0 else { return nil }
        return Int32(String(decoding: bytes.prefix(count).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self))
    }
}
