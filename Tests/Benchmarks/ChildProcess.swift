import Glibc
import NIOCore
import Synchronization

/// A process that was started here, is accounted by its number, and is stopped by it.
final class ChildProcess: Sendable {
    /// All that run; whoever is interrupted kills them.
    private static let running = Mutex<Set<pid_t>>([])

    private static let stopLimit = TimeAmount.seconds(5)
    private static let pollInterval = TimeAmount.milliseconds(10)

    let pid: pid_t
    private let name: String
    private let log: String

    /// Starts `executable`; what it prints goes to the file `log`.
    init(
        _ executable: String, _ arguments: [String], environment: [String: String] = [:], log: String
    ) throws {
        self.name = executable.split(separator: "/").last.map(String.init) ?? executable
        self.log = log
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0o600)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // What is ignored or blocked here would be so there as well, and the process could not be asked to end.
        var signals = sigset_t()
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))
        var words = ([executable] + arguments).map { strdup($0) } + [nil]
        var variables = Self.environment(adding: environment).map { strdup($0) } + [nil]
        defer { (words + variables).forEach { free($0) } }
        var pid: pid_t = 0
        let status = posix_spawn(&pid, executable, &actions, &attributes, &words, &variables)
        guard status == 0 else {
            throw Failure("\(executable) did not start: \(String(cString: strerror(status)))")
        }
        self.pid = pid
        Self.running.withLock { _ = $0.insert(pid) }
    }

    /// This executable, started again with other arguments.
    static func again(_ arguments: [String], log: String) throws -> ChildProcess {
        try ChildProcess(ownPath(), arguments, log: log)
    }

    /// This executable's path.
    static func ownPath() throws -> String {
        guard let path = realpath("/proc/self/exe", nil) else { throw Failure("/proc: \(lastError())") }
        defer { free(path) }
        return String(cString: path)
    }

    private static func environment(adding added: [String: String]) -> [String] {
        var result: [String] = []
        var next = environ
        while let variable = next.pointee {
            let text = String(cString: variable)
            if added[String(text.prefix { $0 != "=" })] == nil { result.append(text) }
            next += 1
        }
        return result + added.map { "\($0.key)=\($0.value)" }
    }

    /// Waits until the process has printed this word.
    func wait(forWord word: String, limit: TimeAmount = .seconds(20)) throws {
        try self.wait(limit, "it did not say \"\(word)\"") { (try? readText(self.log))?.contains(word) == true }
    }

    /// Waits until something listens on this port of 127.0.0.1.
    func wait(forPort port: Int, limit: TimeAmount = .seconds(20)) throws {
        try self.wait(limit, "nothing listens on port \(port)") { Ports.isListening(port) }
    }

    /// Waits until the process has ended by itself.
    func waitForEnd() throws -> String {
        var status: Int32 = 0
        waitpid(self.pid, &status, 0)
        Self.running.withLock { _ = $0.remove(self.pid) }
        let text = try readText(self.log)
        guard status == 0 else { throw Failure("\(self.name) failed: \(text)") }
        return text
    }

    private func wait(_ limit: TimeAmount, _ complaint: String, until isDone: () -> Bool) throws {
        let deadline = NIODeadline.now() + limit
        while !isDone() {
            var status: Int32 = 0
            if waitpid(self.pid, &status, WNOHANG) == self.pid {
                Self.running.withLock { _ = $0.remove(self.pid) }
                throw Failure("\(self.name) ended: \((try? readText(self.log)) ?? "")")
            }
            guard NIODeadline.now() < deadline else {
                throw Failure("\(self.name): \(complaint): \((try? readText(self.log)) ?? "")")
            }
            pause(Self.pollInterval)
        }
    }

    /// Ends the process: first by asking.
    func stop() {
        guard Self.running.withLock({ $0.remove(self.pid) }) != nil else { return }
        kill(self.pid, SIGTERM)
        let deadline = NIODeadline.now() + Self.stopLimit
        var status: Int32 = 0
        while waitpid(self.pid, &status, WNOHANG) == 0 {
            if NIODeadline.now() > deadline { kill(self.pid, SIGKILL) }
            pause(Self.pollInterval)
        }
    }

    /// Kills all that was started and still runs.
    static func killAll() {
        for pid in Self.running.withLock({ $0 }) {
            kill(pid, SIGKILL)
        }
    }
}

// MARK: - Accounts

extension ChildProcess {
    /// Processor time used so far, by the process and the kernel for it, in microseconds.
    func processorTime() throws -> Double {
        let text = try readText("/proc/\(self.pid)/stat")
        // The name, in parentheses, may hold anything: fields count from behind it.
        let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
        guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13]) else {
            throw Failure("/proc/\(self.pid)/stat is not understood")
        }
        return (user + system) * 1e6 / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    /// Memory held, in kilobytes.
    func residentKilobytes() throws -> Double {
        try self.number(labelled: "VmRSS:", in: "status")
    }

    /// Bytes written to storage so far.
    func bytesWritten() throws -> Double {
        try self.number(labelled: "write_bytes:", in: "io")
    }

    private func number(labelled label: String, in file: String) throws -> Double {
        let lines = try readText("/proc/\(self.pid)/\(file)").split(separator: "\n")
        guard let words = lines.first(where: { $0.hasPrefix(label) })?.split(whereSeparator: { " \t".contains($0) }),
            words.count > 1, let number = Double(words[1])
        else { throw Failure("/proc/\(self.pid)/\(file) has no \(label)") }
        return number
    }
}
