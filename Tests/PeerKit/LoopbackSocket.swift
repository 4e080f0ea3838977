import Glibc

/// The few socket calls that the clients and the relay share.
enum LoopbackSocket {
    static func open() throws -> Int32 {
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let socket = Glibc.socket(AF_INET, type, 0)
        guard socket >= 0 else { throw PeerError("socket: \(String(cString: strerror(errno)))") }
        return socket
    }

    static func bind(_ socket: Int32, to port: UInt16, host: UInt8 = 1) -> Int32 {
        set(socket, SOL_SOCKET, SO_REUSEADDR, 1)
        return withAddress(port, host: host) { Glibc.bind(socket, $0, $1) }
    }

    static func connect(_ socket: Int32, to port: UInt16) -> Int32 {
        withAddress(port) { Glibc.connect(socket, $0, $1) }
    }

    static func set(_ socket: Int32, _ level: Int32, _ option: Int32, _ value: Int32) {
        var value = value
        setsockopt(socket, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
    }

    static func setNonBlocking(_ socket: Int32) {
        _ = fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK)
    }

    /// Closes with RST: the other side sees the connection torn, not ended.
    static func reset(_ socket: Int32) {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
        close(socket)
    }

    private static func withAddress(
        _ port: UInt16, host: UInt8 = 1, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = (0x7F00_0000 | UInt32(host)).bigEndian
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}
