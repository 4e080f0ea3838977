// A connection that is made when it is needed, and made anew after it was lost. One thread at a time uses it: the port is
// synchronous, so a thread of its own for each connection would only add two switches to each commit.

import StorePort
import Synchronization

/// A connection and its lock.
final class Link: Sendable {
    /// Ours: how long a connection may take to be made, in milliseconds.
    static let connectTimeout = 10_000
    /// Ours: how long a statement may take, in milliseconds. A commit waits for its standby; after that its outcome is
    /// unknown.
    static let statementTimeout = 30_000

    private struct State {
        var connection: Connection?
        /// The place of the host that has answered last, which is tried first.
        var host = 0
    }

    let address: StoreAddress
    private let name: String
    private let state = Mutex(State())
    private let connectLimit = Atomic<Int>(Link.connectTimeout)
    /// What is demanded of each new connection, within a time in milliseconds.
    private let check: @Sendable (Connection, Int) throws(StoreError) -> Void

    /// - Parameter name: by which the server lists the connection.
    init(
        _ address: StoreAddress, name: String, check: @escaping @Sendable (Connection, Int) throws(StoreError) -> Void
    ) { (self.address, self.name, self.check) = (address, name, check) }

    /// Closes the connection; the next statement makes a new one.
    func close() { state.withLock { $0.connection = nil } }

    /// From now on a connection is made as fast as one for a beat, or not at all.
    func hasten() { connectLimit.store(ClusterStatements.connectTimeout, ordering: .sequentiallyConsistent) }

    /// How long a connection may take to be made if its user has no limit of its own, in milliseconds.
    var connectionTime: Int { connectLimit.load(ordering: .sequentiallyConsistent) }

    /// Runs statements on the connection, which no other thread uses meanwhile.
    func use<Value: Sendable>(_ body: @Sendable (Connection) throws(StoreError) -> Value) throws(StoreError) -> Value {
        try state.withLock { (state) throws(StoreError) in
            do throws(StoreError) {
                return try body(open(&state))
            } catch {
                if state.connection?.isOpen == false { state.connection = nil }
                throw error
            }
        }
    }

    /// Runs a commit.
    func commit(_ sql: String, _ parameters: [Parameter]) -> Result<Void, StatementFailure> {
        state.withLock { state in
            do throws(StoreError) {
                let connection = try open(&state)
                do throws(StatementFailure) {
                    _ = try connection.run(
                        sql, parameters, isPrepared: !address.isPooled, isCommit: true, timeout: Self.statementTimeout)
                    return .success(())
                } catch {
                    switch error {
                    case .lost, .unreachable, .refused(.readOnly, _): state.connection = nil
                    case .refused, .own: break
                    }
                    return .failure(error)
                }
            } catch {
                if case .rolledBack = error { return .failure(.own(error)) }
                return .failure(.unreachable(error.message))
            }
        }
    }

    /// Reads rows. A read that was lost is repeated once over a new connection.
    func read<Value: Sendable>(
        _ sql: String, _ parameters: [Parameter] = [], _ value: @Sendable (Rows) throws(StoreError) -> Value
    ) throws(StoreError) -> Value {
        try state.withLock { (state) throws(StoreError) in
            var isRepeated = false
            while true {
                let connection = try open(&state)
                let rows: Rows
                do throws(StatementFailure) {
                    rows = try connection.run(
                        sql, parameters, isPrepared: !address.isPooled, timeout: Self.statementTimeout)
                } catch {
                    if case .refused(let state, _) = error, state != .readOnly { throw StoreError(error) }
                    state.connection = nil
                    guard isRepeated else {
                        isRepeated = true
                        continue
                    }
                    throw StoreError(error)
                }
                return try value(rows)
            }
        }
    }

    /// Runs a statement once, in a time of its own. A connection on which it gets no answer is closed.
    ///
    /// - Parameters:
    ///   - timeout: for the statement, and for each statement of the check of a new connection; in milliseconds.
    ///   - isCommit: whether a warning of the server makes the outcome unknown.
    func exchange<Value: Sendable>(
        _ sql: String, _ parameters: [Parameter], timeout: Int, connectTimeout: Int, isCommit: Bool = false,
        _ value: @Sendable (Rows) throws(StoreError) -> Value
    ) -> Result<Value, StatementFailure> {
        state.withLock { state in
            let connection: Connection
            do throws(StoreError) {
                connection = try open(&state, connectTimeout: connectTimeout, checkTimeout: timeout)
            } catch {
                if case .rolledBack = error { return .failure(.own(error)) }
                return .failure(.unreachable(error.message))
            }
            let rows: Rows
            do throws(StatementFailure) {
                rows = try connection.run(
                    sql, parameters, isPrepared: !address.isPooled, isCommit: isCommit, timeout: timeout)
            } catch {
                switch error {
                case .lost, .unreachable, .refused(.readOnly, _): state.connection = nil
                case .refused, .own: break
                }
                return .failure(error)
            }
            do throws(StoreError) { return .success(try value(rows)) } catch { return .failure(.own(error)) }
        }
    }

    private func open(
        _ state: inout State, connectTimeout: Int? = nil, checkTimeout: Int = Link.statementTimeout
    ) throws(StoreError) -> Connection {
        if let connection = state.connection, connection.isOpen { return connection }
        state.connection = nil
        let connection = try Connection.open(
            address, name: name, timeout: connectTimeout ?? connectionTime, first: &state.host)
        try check(connection, checkTimeout)
        state.connection = connection
        return connection
    }
}

extension StoreError {
    /// The failure of a statement whose outcome does not matter, or is known.
    init(_ failure: StatementFailure) {
        switch failure {
        case .own(let error): self = error
        case .unreachable(let text), .lost(let text):
            self = .unavailable("The connection to the database was lost: \(text).")
        case .refused(let state, let text):
            switch state {
            case .uniqueViolation, .noTable, .noSchema:
                self = .corrupt("The database is not as this program left it: \(text) (SQLSTATE \(state.code)).")
            default: self = .unavailable("The database refused a statement: \(text) (SQLSTATE \(state.code)).")
            }
        }
    }
}
