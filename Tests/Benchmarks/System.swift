import Glibc
import NIOCore

/// Ports of 127.0.0.1.
enum Ports {
    /// Below the range that the system gives to outgoing connections, of which a benchmark makes thousands.
    private static let range = 20_000..<32_000

    /// A port on which nothing listens.
    static func free() throws -> Int {
        for _ in 0..<1000 {
            let port = Int.random(in: Self.range)
            let isFree = Self.withSocket(port) { descriptor, address, length in
                bind(descriptor, address, length) == 0
            }
            if isFree { return port }
        }
        throw Failure("no free port between \(Self.range.lowerBound) and \(Self.range.upperBound)")
    }

    /// Whether a connection to the port is accepted.
    static func isListening(_ port: Int) -> Bool {
        Self.withSocket(port) { descriptor, address, length in connect(descriptor, address, length) == 0 }
    }

    private static func withSocket(
        _ port: Int, _ body: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Bool
    ) -> Bool {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { return false }
        defer { Glibc.close(descriptor) }
        guard let address = try? SocketAddress(ipAddress: "127.0.0.1", port: port) else { return false }
        return address.withSockAddr { body(descriptor, $0, socklen_t($1)) }
    }
}

/// Sleeps.
func pause(_ time: TimeAmount) {
    var wanted = timespec(
        tv_sec: Int(time.nanoseconds / 1_000_000_000), tv_nsec: Int(time.nanoseconds % 1_000_000_000))
    var left = timespec()
    while nanosleep(&wanted, &left) != 0, errno == EINTR {
        wanted = left
    }
}

/// A file's text; also of the files under /proc, which name no size.
func readText(_ path: String) throws -> String {
    guard let file = fopen(path, "r") else { throw Failure("\(path): \(lastError())") }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 4096)
    while true {
        let count = fread(&chunk, 1, chunk.count, file)
        guard count > 0 else { break }
        bytes.append(contentsOf: chunk[..<count])
    }
    return String(decoding: bytes, as: UTF8.self)
}

/// Writes a file of text.
func writeText(_ text: String, to path: String) throws {
    guard let file = fopen(path, "w") else { throw Failure("\(path): \(lastError())") }
    defer { fclose(file) }
    guard fputs(text, file) >= 0 else { throw Failure("\(path): \(lastError())") }
}

/// Says on standard error what is being done.
func progress(_ text: String) {
    _ = (text + "\n").withCString { Glibc.write(2, $0, strlen($0)) }
}
