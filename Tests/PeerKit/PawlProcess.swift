import Foundation
import Glibc
import Synchronization

/// The gateway under test, as a process of its own with a port and a data directory that outlive it.
package final class PawlProcess: Sendable {
    package struct Options: Sendable {
        /// Nil where the configuration file says it.
        package var policy: String? = "observe"
        /// `pawl sidecar` in place of `pawl serve`; then there is no policy.
        package var isSidecar = false
        /// Kept by the caller when it must outlive this value; otherwise one is made.
        package var dataDirectory: String?
        /// `irc` or `ircs`, for the listener and for the backend.
        package var listenScheme = "irc"
        package var upstreamScheme = "irc"
        /// Further arguments of `serve`.
        package var arguments: [String] = []
        package var environment: [String: String] = [:]
        /// What `start` waits for in its output: one of these.
        package var startTexts = ["ready"]
        /// Another program than the one that was built: an older version, say.
        package var binary: String?

        package init() {}

        package init(policy: String?, arguments: [String] = []) {
            self.policy = policy
            self.arguments = arguments
        }
    }

    package let dataDirectory: String
    private let scratch: ScratchDirectory
    private let reservation: FreePort
    private let upstream: UInt16
    private let options: Options
    private let current = Mutex<ChildProcess?>(nil)

    package var port: UInt16 { reservation.number }

    /// Starts it in front of `upstream`; ready when this returns.
    package init(upstream: UInt16, _ options: Options = Options()) throws {
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        dataDirectory = options.dataDirectory ?? scratch.file("data")
        self.upstream = upstream
        self.options = options
        try start()
    }

    deinit {
        stop()
    }

    /// `PAWL_BINARY`, else the program that was built beside the tests.
    package static func binary() throws -> String {
        if let path = ProcessInfo.processInfo.environment["PAWL_BINARY"], !path.isEmpty { return path }
        return try builtProgram("pawl")
    }

    /// A program that was built beside the tests.
    package static func builtProgram(_ name: String) throws -> String {
        var candidates = CommandLine.arguments.prefix(1) + Bundle.allBundles.map(\.bundlePath)
        if let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") {
            candidates.append(path)
        }
        for candidate in candidates {
            // a test bundle is a file in the products directory, or a directory in it
            var directory = URL(fileURLWithPath: candidate)
            for _ in 0..<3 {
                let path = directory.appendingPathComponent(name).path
                var isDirectory: ObjCBool = false
                if FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory), !isDirectory.boolValue,
                    FileManager.default.isExecutableFile(atPath: path)
                {
                    return path
                }
                directory.deleteLastPathComponent()
            }
        }
        throw PeerError("no \(name) beside the tests; for pawl, PAWL_BINARY can name one")
    }

    // MARK: Life

    /// Starts it again on the same port and data, if it does not run.
    package func start() throws {
        try current.withLock { current in
            guard current?.isRunning != true else { return }
            let child = try ChildProcess(
                options.binary ?? Self.binary(),
                [
                    options.isSidecar ? "sidecar" : "serve",
                    "--listen", "\(options.listenScheme)://127.0.0.1:\(port)",
                    "--upstream", "\(options.upstreamScheme)://127.0.0.1:\(upstream)", "--data", dataDirectory,
                ] + (options.isSidecar ? [] : options.policy.map { ["--policy", $0] } ?? []) + options.arguments,
                environment: options.environment, workingDirectory: scratch.path)
            try child.waitForOutput(of: options.startTexts)
            current = child
        }
    }

    /// SIGTERM; answers how it ended.
    @discardableResult
    package func stop() -> ChildProcess.ExitStatus? {
        take()?.stop(within: Deadline.usual)
    }

    /// SIGKILL: what a crash or a power cut leaves behind.
    package func crash() {
        guard let child = take() else { return }
        child.kill(SIGKILL)
        child.stop()
    }

    package func restart() throws {
        stop()
        try start()
    }

    @discardableResult
    package func signal(_ signal: Int32) -> Bool {
        current.withLock { $0?.kill(signal) ?? false }
    }

    package var pid: Int32? {
        current.withLock { $0?.pid }
    }

    package var isRunning: Bool {
        current.withLock { $0?.isRunning ?? false }
    }

    /// Standard output and error of the present run.
    package var output: String {
        current.withLock { $0.map { $0.stdout + $0.stderr } ?? "" }
    }

    // MARK: Administration

    /// Runs `pawl WORDS --data DIR`.
    package func admin(_ words: [String], timeout: Duration = Deadline.usual) throws -> ChildProcess.Output {
        try ChildProcess.run(
            options.binary ?? Self.binary(), words + ["--data", dataDirectory], environment: options.environment,
            timeout: timeout)
    }

    /// Runs `pawl WORDS` and nothing more: for a start that is to be refused.
    package static func run(
        _ words: [String], environment: [String: String] = [:], timeout: Duration = Deadline.usual
    ) throws -> ChildProcess.Output {
        try ChildProcess.run(binary(), words, environment: environment, timeout: timeout)
    }

    private func take() -> ChildProcess? {
        current.withLock { current in
            defer { current = nil }
            return current
        }
    }
}
