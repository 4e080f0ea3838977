import Foundation
import Glibc
import TestKit

/// The side of a service manager: a datagram socket that receives states, as sd_notify(3) describes them.
package final class NotifySocket: Sendable {
    /// What a program gets as `NOTIFY_SOCKET`.
    package let name: String
    private let socket: Int32

    /// - Parameter name: A path, or a name behind `@` that is not in the file system.
    package init(_ name: String) throws {
        self.name = name
        let handle = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard handle >= 0 else { throw PeerError("socket: \(String(cString: strerror(errno)))") }
        let bound = try UnixAddress.with(name) { Glibc.bind(handle, $0, $1) }
        guard bound == 0 else {
            close(handle)
            throw PeerError("bind \(name): \(String(cString: strerror(errno)))")
        }
        LoopbackSocket.setNonBlocking(handle)
        socket = handle
    }

    deinit { close(socket) }

    /// The next datagram, if there is one.
    package func receive() -> String? {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = recv(socket, &bytes, bytes.count, 0)
        return count < 0 ? nil : String(decoding: bytes.prefix(count), as: UTF8.self)
    }

    /// Waits for the next datagram.
    package func next(_ what: String) throws -> String {
        var text: String?
        try eventually(what) {
            text = receive()
            return text != nil
        }
        return text ?? ""
    }
}
