import Glibc
import Synchronization

/// A real server on loopback that tests put behind the gateway.
package protocol IRCServer: AnyObject, Sendable {
    /// The plain port for clients. It stays the same across `stop` and `start`.
    var port: UInt16 { get }
    /// The name that the server gives itself in the prefix of its numerics.
    var serverName: String { get }
    func start() throws
    func stop()
    /// SIGKILL: connections end without a word.
    func kill()
}

/// How a server guards itself against clients that say too much.
package enum FloodLimits: Sendable {
    /// What the server does when its configuration says nothing about it.
    case standard
    case lifted
}

/// The one place where a server's process is kept, so that it can be stopped and started again.
final class ServerProcess: Sendable {
    private let current = Mutex<ChildProcess?>(nil)

    func start(_ spawn: () throws -> ChildProcess) throws {
        try current.withLock { current in
            guard current?.isRunning != true else { return }
            current = try spawn()
        }
    }

    func stop() {
        take()?.stop()
    }

    func kill() {
        guard let child = take() else { return }
        child.kill(SIGKILL)
        child.stop()
    }

    var output: String {
        current.withLock { $0.map { $0.stdout + $0.stderr } ?? "" }
    }

    private func take() -> ChildProcess? {
        current.withLock { current in
            defer { current = nil }
            return current
        }
    }
}
