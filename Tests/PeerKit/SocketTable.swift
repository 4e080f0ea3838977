import Foundation

/// The kernel's list of sockets. A probe that connects would be a client to whatever stands behind the port.
package enum SocketTable {
    private static let listening = "0A"

    /// True when a socket on this machine listens on the port, whatever its address.
    package static func isListening(_ port: UInt16) -> Bool {
        let suffix = ":" + String(format: "%04X", Int(port))
        return ["/proc/net/tcp", "/proc/net/tcp6"].contains { path in
            guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return false }
            return text.split(separator: "\n").dropFirst().contains { row in
                let columns = row.split(separator: " ", maxSplits: 4)
                return columns.count > 3 && columns[1].hasSuffix(suffix) && columns[3] == listening
            }
        }
    }
}
