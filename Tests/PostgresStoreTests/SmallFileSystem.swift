import Foundation
import Glibc
import PeerKit
import TestKit

/// A file system of a few megabytes, in memory. It needs the right to mount one.
final class SmallFileSystem: Sendable {
    /// Why there can be none here; nil if there can.
    static let obstacle: String? = {
        guard let scratch = try? ScratchDirectory() else { return "no directory" }
        guard mount(scratch.path, 1) else { return "no right to mount" }
        umount2(scratch.path, Int32(MNT_DETACH))
        return nil
    }()

    private let scratch: ScratchDirectory

    init(megabytes: Int) throws {
        scratch = try ScratchDirectory()
        guard Self.mount(scratch.path, megabytes) else { throw PeerError("mount: \(String(cString: strerror(errno)))") }
        try scratch.directory("log")
        try scratch.give(to: "nobody")
    }

    deinit { umount2(scratch.path, Int32(MNT_DETACH)) }

    private static func mount(_ path: String, _ megabytes: Int) -> Bool {
        Glibc.mount("tmpfs", path, "tmpfs", 0, "size=\(megabytes)m") == 0
    }

    /// An empty directory of `nobody` on it.
    var path: String { scratch.file("log") }

    /// Takes what is free.
    func fill() throws {
        let number = open(scratch.file("filler"), O_WRONLY | O_CREAT, 0o600)
        guard number >= 0 else { throw PeerError("no filler") }
        defer { close(number) }
        let block = [UInt8](repeating: 0, count: 1 << 16)
        while write(number, block, block.count) > 0 {}
    }

    func empty() { unlink(scratch.file("filler")) }
}
