// Whether a store keeps what it is given: how its last commit ended, and whether its files are still the ones that were opened.

import Foundation
import Synchronization

/// The health of one store. A full disk, a disk that fails and a deleted directory are told apart from a store that works, for
/// readiness, reports and logs. Any thread may use it.
package final class StoreHealth: Sendable {
    /// Which file a path named.
    private struct Identity: Equatable {
        let device: UInt64
        let inode: UInt64

        /// - Returns: nil if there is no file.
        init?(_ path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            (device, inode) = (UInt64(status.st_dev), UInt64(status.st_ino))
        }
    }

    private struct State {
        var problem: String?
        var failedCommits = 0
        /// By path; those that have been there.
        var files: [String: Identity] = [:]
        var watcher: (@Sendable (String?) -> Void)?
    }

    private let path: String
    private let state: Mutex<State>

    /// - Parameter path: the database, which is open.
    package init(_ path: String) {
        self.path = path
        var state = State()
        state.files[path] = Identity(path)
        self.state = Mutex(state)
    }

    /// Why the store does not keep what it is given, in words; nil if it does.
    package var problem: String? { state.withLock { $0.problem } }
    /// Commits that failed since the store was opened.
    package var failedCommits: Int { state.withLock { $0.failedCommits } }

    /// - Parameter watcher: called with each change of ``problem``, once, on any thread.
    package func watch(_ watcher: @escaping @Sendable (String?) -> Void) {
        let problem = state.withLock { state in
            state.watcher = watcher
            return state.problem
        }
        if let problem { watcher(problem) }
    }

    /// Notes a problem if a file of the store is not there any more. What is written then is lost with the process.
    ///
    /// - Returns: the problem.
    @discardableResult
    package func checkFiles() -> String? {
        let missing = missingFile()
        if let missing { note(missing) }
        return missing
    }

    /// Commits, and notes how it ends.
    ///
    /// - Throws: what `commit` throws, or ``DiskFailure/unavailable(_:)`` if a file of the store is not there any more.
    package func committing<Value, Failure: DiskFailure>(_ commit: () throws(Failure) -> Value) throws(Failure) -> Value
    {
        if let missing = missingFile() {
            note(missing, isCommit: true)
            throw .unavailable(missing)
        }
        let value: Value
        do throws(Failure) {
            value = try commit()
        } catch {
            note("\(path.split(separator: "/").last ?? ""): \(error.message)", isCommit: true)
            throw error
        }
        note(nil)
        return value
    }

    private func missingFile() -> String? {
        state.withLock { state in
            // A store that was never a file of its own, as in tests, cannot lose it.
            guard let opened = state.files[path] else { return nil }
            guard Identity(path) == opened else { return Self.gone(path) }
            // SQLite makes its log with the first commit and keeps it until the database is closed.
            let log = path + "-wal"
            let found = Identity(log)
            guard let known = state.files[log] else {
                state.files[log] = found
                return nil
            }
            return found == known ? nil : Self.gone(log)
        }
    }

    private static func gone(_ path: String) -> String {
        "\(path) is not there any more, or another file is in its place. Nothing is accepted, because it would be lost. Stop "
            + "pawl, put the file back, for example from a backup, and start it again."
    }

    private func note(_ problem: String?, isCommit: Bool = false) {
        let watcher: (@Sendable (String?) -> Void)? = state.withLock { state in
            if isCommit { state.failedCommits += 1 }
            guard state.problem != problem else { return nil }
            // Of one outage each store tells the beginning and the end, however its words change meanwhile.
            let isChange = (state.problem == nil) != (problem == nil)
            state.problem = problem
            return isChange ? state.watcher : nil
        }
        watcher?(problem)
    }
}
