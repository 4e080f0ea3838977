import Foundation
import Glibc

/// The kernel's list of sockets. A probe that connects would be a client to whatever stands behind the port.
package enum SocketTable {
    private static let listening = "0A"
    private static let connecting = "02"

    /// True when a socket on this machine listens on the port, whatever its address.
    package static func isListening(_ port: UInt16) -> Bool {
        let suffix = ":" + String(format: "%04X", Int(port))
        return ["/proc/net/tcp", "/proc/net/tcp6"].contains { path in
            listeners(path) { $0.hasSuffix(suffix) }
        }
    }

    /// True when a connection to the port on loopback has sent its first packet and waits for the answer.
    package static func isAwaited(_ port: UInt16) -> Bool {
        let suffix = ":" + String(format: "%04X", Int(port))
        return rows("/proc/net/tcp") { $0[2].hasSuffix(suffix) && $0[3] == connecting ? true : nil }
    }

    /// Whether the local address of a listening socket fits. The kernel lists those first, and thousands of closed connections
    /// behind them, which are not read.
    private static func listeners(_ path: String, _ fits: (Substring) -> Bool) -> Bool {
        rows(path) { $0[3] != listening ? false : fits($0[1]) ? true : nil }
    }

    /// Reads rows until the function returns something. The kernel gives a page at a time, so that Foundation takes the first
    /// page for the whole file.
    private static func rows(_ path: String, _ isSo: ([Substring]) -> Bool?) -> Bool {
        guard let file = fopen(path, "r") else { return false }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 512)
        // Names of the columns.
        guard fgets(&line, Int32(line.count), file) != nil else { return false }
        while fgets(&line, Int32(line.count), file) != nil {
            let text = line.withUnsafeBufferPointer { $0.baseAddress.map { String(cString: $0) } ?? "" }
            let columns = text.split(separator: " ", maxSplits: 4)
            guard columns.count > 3 else { return false }
            if let result = isSo(columns) { return result }
        }
        return false
    }
}
