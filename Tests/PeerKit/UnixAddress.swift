package import Glibc

/// The address of a Unix socket: a path, or a name behind `@` that is not in the file system.
package enum UnixAddress {
    /// Calls a body with the address.
    ///
    /// - Throws: ``PeerError`` if the name is too long.
    package static func with(
        _ name: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) throws -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var path = Array(name.utf8)
        if path.first == UInt8(ascii: "@") { path[0] = 0 }
        // A path ends with a zero, which is there already.
        guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { throw PeerError("too long: \(name)") }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + path.count)
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
        }
    }
}
