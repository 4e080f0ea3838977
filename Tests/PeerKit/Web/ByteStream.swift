import Foundation
import Glibc

/// A connection on loopback over which exact bytes go, with bounded waits. It belongs to one thread at a time.
package final class ByteStream {
    package let port: UInt16
    /// Read and not yet taken.
    package private(set) var pending: [UInt8] = []
    /// The other side has closed or torn the connection.
    package private(set) var hasEnded = false
    private let socket: Int32

    package init(port: UInt16) throws {
        self.port = port
        socket = try LoopbackSocket.open()
        guard LoopbackSocket.connect(socket, to: port) == 0 else {
            // An error thrown from here on runs `deinit`, which closes the socket.
            throw PeerError("cannot connect to \(port): \(String(cString: strerror(errno)))")
        }
        LoopbackSocket.set(socket, Int32(IPPROTO_TCP), TCP_NODELAY, 1)
        LoopbackSocket.setNonBlocking(socket)
    }

    deinit {
        close(socket)
    }

    /// Writes all of it. A side that answers and closes before it has read everything is heard first.
    package func send(_ bytes: some Collection<UInt8>, timeout: Duration = Deadline.usual) throws {
        let deadline = Deadline(timeout)
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN {
                guard !deadline.hasPassed else { throw PeerError("\(port) takes no more bytes") }
                if wait(POLLIN | POLLOUT, deadline) & Int16(POLLIN) != 0 { readSome() }
                if hasEnded { return }
            } else if errno != EINTR {
                return hasEnded = true
            }
        }
    }

    /// Takes in what has come by now.
    package func lookAround() {
        readSome()
    }

    /// No more bytes come from here.
    package func endSending() {
        shutdown(socket, Int32(SHUT_WR))
    }

    /// Reads on until `enough` says that what is pending suffices, or the connection ends.
    ///
    /// - Returns: False where it has ended before.
    @discardableResult
    package func read(
        _ what: String, timeout: Duration = Deadline.usual, until enough: ([UInt8]) throws -> Bool
    ) throws -> Bool {
        let deadline = Deadline(timeout)
        while try !enough(pending) {
            if hasEnded { return false }
            guard !deadline.hasPassed else {
                throw PeerError("no \(what) from \(port) within \(timeout); there is \(Self.excerpt(pending))")
            }
            if wait(POLLIN, deadline) != 0 { readSome() }
        }
        return true
    }

    /// So many bytes that came.
    package func take(_ count: Int) -> [UInt8] {
        defer { pending.removeFirst(count) }
        return Array(pending[..<count])
    }

    /// Everything up to the end of the connection.
    package func takeAll(timeout: Duration = Deadline.usual) throws -> [UInt8] {
        try read("end", timeout: timeout) { _ in hasEnded }
        return take(pending.count)
    }

    static func excerpt(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.prefix(300), as: UTF8.self).debugDescription
    }

    private func readSome() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = recv(socket, &buffer, buffer.count, 0)
        if count > 0 {
            pending += buffer[..<count]
        } else if count == 0 || (errno != EAGAIN && errno != EINTR) {
            hasEnded = true
        }
    }

    private func wait(_ events: Int32, _ deadline: Deadline) -> Int16 {
        var entry = pollfd(fd: socket, events: Int16(events), revents: 0)
        return poll(&entry, 1, deadline.milliseconds) > 0 ? entry.revents : 0
    }
}
