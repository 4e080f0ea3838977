// The lock that keeps a second process out of a store.

import Foundation

/// A lock on a file, held until the object is released or the process ends in any way.
package final class FileLock: Sendable {
    private let number: Int32

    /// - Parameter held: makes the error if another store, in this process or another, has the lock. Its argument is
    ///   the process id; nil if unknown.
    package init<Failure: DiskFailure>(_ path: String, held: (Int32?) -> Failure) throws(Failure) {
        number = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw Disk<Failure>.failure("open", path) }
        guard flock(number, LOCK_EX | LOCK_NB) == 0 else {
            // An error thrown from here on runs `deinit`, which closes the file.
            guard errno == EWOULDBLOCK else { throw Disk<Failure>.failure("lock", path) }
            throw held(Self.holder(number))
        }
        let text = Array("\(getpid())\n".utf8)
        _ = ftruncate(number, 0)
        _ = text.withUnsafeBytes { pwrite(number, $0.baseAddress!, $0.count, 0) }
    }

    /// Unlocks before it closes: a child process that is being started may hold a copy of the descriptor for a moment.
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
