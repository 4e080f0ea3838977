// What the gateway tells a service manager, as sd_notify(3) describes it. The protocol is one datagram, so no libsystemd.

import Foundation
import Glibc

/// The service manager that started this process and waits for its states; systemd with `Type=notify`.
struct ServiceManager: Sendable {
    enum State: Sendable {
        /// Clients are accepted.
        case ready(status: String)
        /// The configuration is read again. ``ready(status:)`` follows.
        case reloading
        /// The process ends, which may take some seconds.
        case stopping
    }

    /// The path of its socket; `@` begins a name that is not in the file system.
    let socket: String

    /// Returns nil if nobody waits for states: the variable `NOTIFY_SOCKET` is not set, or names something else than a
    /// socket of this machine.
    init?(environment: [String: String] = ProcessInfo.processInfo.environment) {
        guard let socket = environment["NOTIFY_SOCKET"], socket.utf8.count > 1, let first = socket.utf8.first,
            first == UInt8(ascii: "/") || first == UInt8(ascii: "@")
        else { return nil }
        self.socket = socket
    }

    /// Sends a state. A service manager that cannot be reached changes nothing: the gateway serves its clients anyway.
    func notify(_ state: State) {
        let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var path = Array(socket.utf8)
        if path[0] == UInt8(ascii: "@") { path[0] = 0 }
        // Without a zero at the end: in names outside the file system it would count.
        let room = MemoryLayout.size(ofValue: address.sun_path)
        guard path.count < room else { return }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let length = socklen_t(MemoryLayout.offset(of: \sockaddr_un.sun_path)! + path.count)
        let text = Array(Self.text(state).utf8)
        _ = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(descriptor, text, text.count, Int32(MSG_NOSIGNAL), $0, length)
            }
        }
    }

    /// The lines of a state.
    static func text(_ state: State) -> String {
        switch state {
        case .ready(let status): "READY=1\nSTATUS=\(status.filter { !$0.isNewline })\n"
        case .reloading:
            "RELOADING=1\nMONOTONIC_USEC=\(monotonicMicroseconds)\nSTATUS=Reads its configuration\n"
        case .stopping: "STOPPING=1\nSTATUS=Stops: what is under way ends\n"
        }
    }

    private static var monotonicMicroseconds: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1000
    }
}
