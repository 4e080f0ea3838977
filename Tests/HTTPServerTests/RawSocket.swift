import Foundation
import Glibc
import Synchronization

/// What went wrong with a raw socket.
struct RawError: Error, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

/// A blocking socket on loopback that sends the bytes it is told to. Every wait is bounded.
final class RawSocket: @unchecked Sendable {
    // Used by one thread at a time.
    private let descriptor: Int32
    private var unread: [UInt8] = []
    private var isClosed = false

    static let patience = 60

    init(descriptor: Int32) {
        self.descriptor = descriptor
        var time = timeval(tv_sec: Self.patience, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        var on: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
    }

    convenience init(port: Int, receiveBuffer: Int32? = nil) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        if var size = receiveBuffer {
            setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
        }
        var address = Self.loopback(port)
        let status = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard status == 0 else { throw RawError("connect: \(String(cString: strerror(errno)))") }
        self.init(descriptor: descriptor)
    }

    deinit { close() }

    static func loopback(_ port: Int) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return address
    }

    func send(_ text: String) throws { try send(Array(text.utf8)) }

    func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw RawError("send: \(String(cString: strerror(errno)))") }
            rest = rest.dropFirst(count)
        }
    }

    /// - Returns: whether anything came before the end.
    private func fill() throws -> Bool {
        var chunk = [UInt8](repeating: 0, count: 65536)
        var count = recv(descriptor, &chunk, chunk.count, 0)
        while count < 0, errno == EINTR { count = recv(descriptor, &chunk, chunk.count, 0) }
        guard count >= 0 else { throw RawError("recv: \(String(cString: strerror(errno))), \(Self.text(unread))") }
        unread += chunk[..<count]
        return count > 0
    }

    static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes.prefix(500), as: UTF8.self) }

    /// Reads up to and with this text.
    func read(until end: String) throws -> String {
        let wanted = Array(end.utf8)
        var start = 0
        while true {
            var index = start
            while index + wanted.count <= unread.count {
                if unread[index..<(index + wanted.count)].elementsEqual(wanted) {
                    let found = Array(unread[..<(index + wanted.count)])
                    unread.removeFirst(found.count)
                    return String(decoding: found, as: UTF8.self)
                }
                index += 1
            }
            start = max(0, unread.count - wanted.count)
            guard try fill() else { throw RawError("ended before \(end.debugDescription): \(Self.text(unread))") }
        }
    }

    func read(_ count: Int) throws -> [UInt8] {
        while unread.count < count {
            guard try fill() else { throw RawError("ended after \(unread.count) of \(count)") }
        }
        defer { unread.removeFirst(count) }
        return Array(unread[..<count])
    }

    /// A head with its empty line.
    func head() throws -> String { try read(until: "\r\n\r\n") }

    /// An answer with `Content-Length`, or chunked, or with neither.
    func message() throws -> (head: String, body: String) {
        let head = try head()
        for line in head.split(separator: "\r\n") {
            let parts = line.split(separator: ":", maxSplits: 1)
            guard parts.count == 2 else { continue }
            let value = parts[1].trimmingCharacters(in: .whitespaces)
            if parts[0].lowercased() == "content-length", let count = Int(value) {
                return (head, String(decoding: try read(count), as: UTF8.self))
            }
            if parts[0].lowercased() == "transfer-encoding" {
                var body = ""
                while true {
                    let size = try read(until: "\r\n")
                    guard let count = Int(size.dropLast(), radix: 16) else { throw RawError("chunk size \(size)") }
                    if count == 0 { break }
                    body += String(decoding: try read(count), as: UTF8.self)
                    _ = try read(2)
                }
                let trailers = try read(until: "\r\n")
                if trailers != "\r\n" { body += "|" + trailers + (try read(until: "\r\n")) }
                return (head, body)
            }
        }
        return (head, "")
    }

    /// Reads to the end of the connection; a reset counts as an end.
    func rest() -> [UInt8] {
        while (try? fill()) == true {}
        defer { unread = [] }
        return unread
    }

    var restText: String { String(decoding: rest(), as: UTF8.self) }

    /// Whether the other side has ended, with nothing left to read.
    func isAtEnd() -> Bool { unread.isEmpty && ((try? fill()) ?? false) == false }

    /// Bytes that were sent and have not reached the other side's kernel.
    var unacknowledged: Int {
        var count: Int32 = 0
        return ioctl(descriptor, UInt(TIOCOUTQ), &count) == 0 ? Int(count) : 0
    }

    func endOutput() { _ = Glibc.shutdown(descriptor, Int32(SHUT_WR)) }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        Glibc.close(descriptor)
    }

    /// With RST.
    func reset() {
        var off = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &off, socklen_t(MemoryLayout<linger>.size))
        close()
    }
}

/// A listener whose every connection is served by a function on a thread of its own.
final class RawServer: Sendable {
    let port: Int
    private let descriptor: Int32
    private let accepted = Mutex(0)
    private let failures = Mutex<[String]>([])

    /// - Parameter serve: gets each connection with its number from 0.
    init(_ serve: @escaping @Sendable (RawSocket, Int) throws -> Void) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = RawSocket.loopback(0)
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && listen(descriptor, 512) == 0
                    && getsockname(descriptor, $0, &size) == 0
            }
        }
        guard status else { throw RawError("listen: \(String(cString: strerror(errno)))") }
        self.descriptor = descriptor
        port = Int(in_port_t(bigEndian: address.sin_port))
        Thread.detachNewThread { [weak self] in
            while true {
                let socket = accept(descriptor, nil, nil)
                if socket < 0, errno == EINTR { continue }
                guard socket >= 0, let number = self?.count() else { break }
                Thread.detachNewThread { [weak self] in
                    let connection = RawSocket(descriptor: socket)
                    do { try serve(connection, number) } catch { self?.note("\(error)") }
                    connection.close()
                }
            }
        }
    }

    /// Stops to listen, so that connecting fails.
    func stop() { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }

    deinit {
        stop()
        Glibc.close(descriptor)
    }

    private func count() -> Int {
        accepted.withLock { count in
            count += 1
            return count - 1
        }
    }

    private func note(_ text: String) { failures.withLock { $0.append(text) } }

    /// Connections so far.
    var connections: Int { accepted.withLock { $0 } }
    /// What its functions have thrown.
    var complaints: [String] { failures.withLock { $0 } }
}
