import Foundation
import Glibc
import TestKit

/// A program that takes lines on its standard input and says lines on its standard output.
///
/// Both are one socket. Its standard error is this process's, so that what it complains of stands beside the failed test.
package final class LinePeer {
    package let name: String
    private let pid: Int32
    private let socket: Int32
    private var received: [UInt8] = []
    /// So many bytes of them hold no end of a line.
    private var searched = 0

    package init(_ program: String, _ arguments: [String] = []) throws {
        var ends: [Int32] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw PeerError("socketpair: \(String(cString: strerror(errno)))")
        }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[1], 0)
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1)
        try SpawnExtension.closeFrom(3, &actions)
        let words = ([program] + arguments).map { strdup($0) }
        defer { words.forEach { free($0) } }
        var pid: pid_t = 0
        let result = posix_spawn(&pid, program, &actions, nil, words + [nil], environ)
        close(ends[1])
        guard result == 0 else {
            close(ends[0])
            throw PeerError("cannot start \(program): \(String(cString: strerror(result)))")
        }
        name = URL(fileURLWithPath: program).lastPathComponent
        self.pid = pid
        socket = ends[0]
    }

    /// The end of its input ends the program; one that does not end fails no run.
    deinit {
        close(socket)
        let ends: () throws -> Bool = { [pid] in
            var status: Int32 = 0
            return waitpid(pid, &status, WNOHANG) != 0
        }
        if (try? eventually("end of \(name)", timeout: .seconds(10), ends)) == nil {
            kill(pid, SIGKILL)
            var status: Int32 = 0
            waitpid(pid, &status, 0)
        }
    }

    /// Says one line and answers with the words of the next one. A peer that hangs fails its test and not the whole run.
    package func ask(_ words: String...) throws -> [String] {
        try send(words.joined(separator: " "))
        guard let line = try line(within: Deadline.usual) else { throw PeerError("\(name) does not answer") }
        return line.split(separator: " ").map(String.init)
    }

    /// Says one line.
    package func send(_ line: String) throws {
        let bytes = Array((line + "\n").utf8)
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { throw PeerError("\(name) takes no more: \(String(cString: strerror(errno)))") }
            sent += count
        }
    }

    /// The next line; nothing where none comes in that time.
    package func line(within timeout: Duration) throws -> String? {
        let deadline = Deadline(timeout)
        while true {
            if let end = received[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                let line = String(decoding: received[..<end], as: UTF8.self)
                received.removeFirst(end + 1)
                searched = 0
                return line
            }
            searched = received.count
            var entry = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            guard poll(&entry, 1, deadline.milliseconds) > 0 else {
                if deadline.hasPassed { return nil }
                continue
            }
            var buffer = [UInt8](repeating: 0, count: 65536)
            let count = recv(socket, &buffer, buffer.count, 0)
            guard count > 0 else { throw PeerError("\(name) ended") }
            received += buffer[..<count]
        }
    }
}
