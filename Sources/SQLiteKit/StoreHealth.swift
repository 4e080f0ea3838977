// The health of a store: how its last commit ended, and whether its files are still those that were opened.

import Foundation
import Synchronization

/// The health of one store, for readiness, reports and logs: detects a full or failing disk and a deleted directory.
///
/// Safe to use from any thread.
package final class StoreHealth: Sendable {
    /// Identifies the file at a path.
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
        /// The files that were there, by path.
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

    /// Why the store cannot commit, in words; nil if it can.
    package var problem: String? { state.withLock { $0.problem } }
    /// Commits that failed since the store was opened.
    package var failedCommits: Int { state.withLock { $0.failedCommits } }

    /// - Parameter watcher: called when a ``problem`` begins and when it ends, on any thread; at once if there is one.
    package func watch(_ watcher: @escaping @Sendable (String?) -> Void) {
        let problem = state.withLock { state in
            state.watcher = watcher
            return state.problem
        }
        if let problem { watcher(problem) }
    }

    /// Notes a problem if a file of the store has been removed or replaced: further writes would be lost with the
    /// process.
    ///
    /// - Returns: the problem; nil if there is none.
    @discardableResult
    package func checkFiles() -> String? {
        let missing = missingFile()
        if let missing { note(missing) }
        return missing
    }

    /// Runs a commit, and notes how it ends.
    ///
    /// - Throws: the error of `commit`, or ``DiskFailure/unavailable(_:)`` if a file of the store has been removed or
    ///   replaced.
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
            // A store without a file of its own, as in tests, cannot lose it.
            guard let opened = state.files[path] else { return nil }
            guard Identity(path) == opened else { return Self.gone(path) }
            // SQLite makes its log with the first commit, and keeps it until the database is closed.
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
            + "this program, put the file back, for example from a backup, and start it again."
    }

    private func note(_ problem: String?, isCommit: Bool = false) {
        let watcher: (@Sendable (String?) -> Void)? = state.withLock { state in
            if isCommit { state.failedCommits += 1 }
            guard state.problem != problem else { return nil }
            // Only the beginning and the end of an outage are reported, even if its text changes meanwhile.
            let isChange = (state.problem == nil) != (problem == nil)
            state.problem = problem
            return isChange ? state.watcher : nil
        }
        watcher?(problem)
    }
}
