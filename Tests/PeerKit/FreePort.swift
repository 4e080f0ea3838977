import Foundation
import Glibc

/// A TCP port on loopback that nobody uses, reserved against other users of this kit until released.
///
/// A port that the kernel picks may be given to somebody else between our closing it and the server's binding it.
/// So the number comes from below the range that the kernel hands out, and a lock on a file named after it keeps
/// other runs away for as long as the reservation lives, across restarts of the server.
package final class FreePort: Sendable {
    /// Below Linux's default `ip_local_port_range` (32768 to 60999), above the ports with names.
    private static let range: Range<UInt16> = 20_000..<32_000

    package let number: UInt16
    private let lock: Int32
    private let path: String

    package init() throws {
        // The same for all runs of this user, whatever each of them takes for its temporary directory.
        let directory = "/tmp/pawl-ports-\(getuid())"
        if mkdir(directory, 0o700) != 0, errno != EEXIST {
            throw PeerError("cannot make \(directory): \(String(cString: strerror(errno)))")
        }
        for _ in 0..<10_000 {
            let candidate = UInt16.random(in: Self.range)
            let path = "\(directory)/\(candidate)"
            guard let lock = Self.lockFile(path) else { continue }
            guard Self.canBind(candidate) else {
                unlink(path)
                close(lock)
                continue
            }
            self.number = candidate
            self.lock = lock
            self.path = path
            return
        }
        throw PeerError("no free port on loopback")
    }

    deinit {
        unlink(path)
        close(lock)
    }

    private static func lockFile(_ path: String) -> Int32? {
        let file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        guard file >= 0 else { return nil }
        var held = stat()
        var named = stat()
        // the holder before us may have unlinked the file that we opened: then the lock means nothing
        guard flock(file, LOCK_EX | LOCK_NB) == 0, fstat(file, &held) == 0, stat(path, &named) == 0,
            held.st_ino == named.st_ino
        else {
            close(file)
            return nil
        }
        return file
    }

    private static func canBind(_ port: UInt16) -> Bool {
        guard let socket = try? LoopbackSocket.open() else { return false }
        defer { close(socket) }
        return LoopbackSocket.bind(socket, to: port) == 0
    }
}
