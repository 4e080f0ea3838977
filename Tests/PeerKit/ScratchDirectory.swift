import Foundation
import Glibc

/// A directory of its own under the system's temporary one, removed with everything in it at the end.
///
/// Other users may enter it, because some servers give up root before they read their files. The name is short:
/// a Unix socket's path has room for 107 bytes.
package final class ScratchDirectory: Sendable {
    package let path: String

    package init() throws {
        var template = Array((FileManager.default.temporaryDirectory.path + "/pawl-XXXXXX").utf8CString)
        guard mkdtemp(&template) != nil else {
            throw PeerError("mkdtemp: \(String(cString: strerror(errno)))")
        }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        chmod(path, 0o755)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    package func file(_ name: String) -> String {
        path + "/" + name
    }

    /// Writes a file and answers its path.
    @discardableResult
    package func write(_ name: String, _ text: String, mode: UInt32 = 0o644) throws -> String {
        let file = file(name)
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        chmod(file, mode)
        return file
    }

    @discardableResult
    package func directory(_ name: String) throws -> String {
        try FileManager.default.createDirectory(atPath: file(name), withIntermediateDirectories: true)
        return file(name)
    }

    package func read(_ name: String) -> String {
        String(decoding: FileManager.default.contents(atPath: file(name)) ?? Data(), as: UTF8.self)
    }

    /// What is in a directory of it, by name; nothing when it does not exist.
    package func names(in directory: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: file(directory))) ?? []).sorted()
    }

    /// Gives everything in it to another user, for a server that will not run as root.
    package func give(to user: String) throws {
        guard let entry = getpwnam(user) else { throw PeerError("no user \(user)") }
        let inside = FileManager.default.enumerator(atPath: path)?.compactMap { $0 as? String } ?? []
        for name in [""] + inside {
            chown(file(name), entry.pointee.pw_uid, entry.pointee.pw_gid)
        }
    }
}
