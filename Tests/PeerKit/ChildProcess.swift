import Foundation
import Glibc
import Synchronization
import TestKit

/// A program started by a test. Its output goes to files, so that nobody has to read a pipe for it to go on.
package final class ChildProcess: Sendable {
    package enum ExitStatus: Equatable, Sendable {
        case exited(Int32)
        case signaled(Int32)
    }

    package struct Output: Sendable {
        package let status: ExitStatus
        package let stdout: String
        package let stderr: String

        package var succeeded: Bool { status == .exited(0) }
    }

    package let name: String
    package let pid: Int32
    private let scratch: ScratchDirectory
    private let status = Mutex<ExitStatus?>(nil)

    /// `environment` is added to this process's own; an empty value removes the name.
    package init(
        _ program: String, _ arguments: [String] = [], environment: [String: String] = [:],
        workingDirectory: String? = nil
    ) throws {
        let path = try Self.find(program)
        let scratch = try ScratchDirectory()
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, scratch.file("stdout"), O_CREAT | O_WRONLY | O_APPEND, 0o644)
        posix_spawn_file_actions_addopen(&actions, 2, scratch.file("stderr"), O_CREAT | O_WRONLY | O_APPEND, 0o644)
        try SpawnExtension.closeFrom(3, &actions)
        if let workingDirectory {
            try SpawnExtension.changeDirectory(workingDirectory, &actions)
        }
        // Foundation and test runners ignore or block signals; a child must not inherit that
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

        var merged = ProcessInfo.processInfo.environment
        merged.merge(environment) { $1 }
        let words = ([path] + arguments).map { strdup($0) }
        let variables = merged.filter { !$0.value.isEmpty }.map { strdup("\($0.key)=\($0.value)") }
        defer { (words + variables).forEach { free($0) } }
        var pid: pid_t = 0
        var result = posix_spawn(&pid, path, &actions, &attributes, words + [nil], variables + [nil])
        // A child that another thread is starting may hold open for a moment what a test has just written and now starts.
        for _ in 0..<400 where result == ETXTBSY {
            usleep(5_000)
            result = posix_spawn(&pid, path, &actions, &attributes, words + [nil], variables + [nil])
        }
        guard result == 0 else { throw PeerError("cannot start \(path): \(String(cString: strerror(result)))") }
        self.name = program
        self.pid = pid
        self.scratch = scratch
    }

    deinit {
        stop()
    }

    package var stdout: String { scratch.read("stdout") }
    package var stderr: String { scratch.read("stderr") }
    package var isRunning: Bool { exitStatus == nil }

    /// Nil while it runs.
    package var exitStatus: ExitStatus? {
        status.withLock { status in
            if status == nil {
                var raw: Int32 = 0
                if waitpid(pid, &raw, WNOHANG) == pid {
                    let signal = raw & 0x7F
                    status = signal == 0 ? .exited((raw >> 8) & 0xFF) : .signaled(signal)
                }
            }
            return status
        }
    }

    /// Signals the process, never one that took its number after it ended.
    @discardableResult
    package func kill(_ signal: Int32) -> Bool {
        guard isRunning else { return false }
        return Glibc.kill(pid, signal) == 0
    }

    /// SIGTERM, then SIGKILL when it has not gone after `bound`.
    @discardableResult
    package func stop(within bound: Duration = .seconds(3)) -> ExitStatus? {
        kill(SIGTERM)
        if (try? waitForExit(timeout: bound)) == nil {
            kill(SIGKILL)
            _ = try? waitForExit()
        }
        return exitStatus
    }

    @discardableResult
    package func waitForExit(timeout: Duration = Deadline.usual) throws -> ExitStatus {
        var found: ExitStatus?
        try eventually("end of \(name)", timeout: timeout) {
            found = exitStatus
            return found != nil
        }
        guard let found else { throw PeerError("\(name) has no exit status") }
        return found
    }

    package func waitUntilListening(_ port: UInt16, timeout: Duration = Deadline.usual) throws {
        try wait("\(name) listening on \(port)", timeout: timeout) { SocketTable.isListening(port) }
    }

    /// Waits for a line of its output that contains `text`, and answers that line.
    @discardableResult
    package func waitForOutput(_ text: String, timeout: Duration = Deadline.usual) throws -> String {
        try waitForOutput(of: [text], timeout: timeout)
    }

    /// Waits for a line of its output that contains one of `texts`, and answers that line.
    @discardableResult
    package func waitForOutput(of texts: [String], timeout: Duration = Deadline.usual) throws -> String {
        var found: Substring?
        try wait("\(texts) from \(name)", timeout: timeout) {
            found = (stdout + "\n" + stderr).split(separator: "\n").first { line in
                texts.contains { line.contains($0) }
            }
            return found != nil
        }
        return found.map(String.init) ?? ""
    }

    /// Runs a short-lived program to its end.
    package static func run(
        _ program: String, _ arguments: [String] = [], environment: [String: String] = [:],
        timeout: Duration = Deadline.usual
    ) throws -> Output {
        let child = try ChildProcess(program, arguments, environment: environment)
        let status = try child.waitForExit(timeout: timeout)
        return Output(status: status, stdout: child.stdout, stderr: child.stderr)
    }

    private func wait(_ what: String, timeout: Duration, _ condition: () -> Bool) throws {
        do {
            try eventually(what, timeout: timeout) {
                if condition() { return true }
                guard isRunning else { throw PeerError("\(name) ended before \(what)") }
                return false
            }
        } catch {
            throw PeerError("\(error)\n\(stdout.suffix(2000))\(stderr.suffix(4000))")
        }
    }

    /// Servers live in `sbin`, which is not in everybody's PATH.
    private static func find(_ program: String) throws -> String {
        guard !program.contains("/") else { return program }
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        for directory in path.split(separator: ":") + ["/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
            let candidate = "\(directory)/\(program)"
            if access(candidate, X_OK) == 0 { return candidate }
        }
        throw PeerError("\(program) is not installed")
    }
}

/// Two calls of glibc that its headers show only to those who define `_GNU_SOURCE`.
enum SpawnExtension {
    private typealias Actions = UnsafeMutablePointer<posix_spawn_file_actions_t>

    /// A child must not hold the sockets of the tests, or a connection would outlive its close.
    static func closeFrom(_ first: Int32, _ actions: inout posix_spawn_file_actions_t) throws {
        typealias Call = @convention(c) (Actions, Int32) -> Int32
        _ = unsafeBitCast(try find("posix_spawn_file_actions_addclosefrom_np"), to: Call.self)(&actions, first)
    }

    static func changeDirectory(_ path: String, _ actions: inout posix_spawn_file_actions_t) throws {
        typealias Call = @convention(c) (Actions, UnsafePointer<CChar>) -> Int32
        _ = unsafeBitCast(try find("posix_spawn_file_actions_addchdir_np"), to: Call.self)(&actions, path)
    }

    private static func find(_ name: String) throws -> UnsafeMutableRawPointer {
        guard let address = dlsym(nil, name) else { throw PeerError("this libc has no \(name)") }
        return address
    }
}
