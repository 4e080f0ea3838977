// Queued writes on their way over a WebSocket of their account.
//
// A write is sent over the connection that it came from, or, if that is closed, over another one of the same account. The
// backend has confirmed whose each connection is. A write without a connection waits in the queue for the next one.

package import NIOCore
package import Protection
package import RequestQueue
import Synchronization

/// One attempt to send a write over a WebSocket.
package final class SocketWrite: Sendable {
    /// How an attempt ends.
    package enum End: Sendable, Equatable {
        /// The backend has answered.
        case answered(Acknowledgement.Verdict, ByteBuffer)
        /// Nothing was sent: there is no connection that could carry it.
        case unsent
        /// Nothing was sent: another write with the same reference is on its way.
        case busy
        /// The connection has ended before the answer.
        case lost
        case timedOut
        case cancelled
    }

    /// Names the write.
    package let token: RequestToken
    /// The message, with its text sealed.
    package let bytes: ByteBuffer
    /// Called once, on any thread.
    private let done: Mutex<(@Sendable (End) -> Void)?>
    /// Called before ``done`` if nothing was sent.
    private let unsent = Mutex<(@Sendable () -> Void)?>(nil)

    package init(token: RequestToken, bytes: ByteBuffer, done: @escaping @Sendable (End) -> Void) {
        (self.token, self.bytes) = (token, bytes)
        self.done = Mutex(done)
    }

    /// Whether the attempt has ended.
    package var isOver: Bool { done.withLock { $0 == nil } }

    fileprivate func whenUnsent(_ call: @escaping @Sendable () -> Void) { unsent.withLock { $0 = call } }

    /// Ends the attempt.
    ///
    /// - Returns: false if it had ended before.
    @discardableResult
    package func end(_ end: End) -> Bool {
        let done = done.withLock { done in
            defer { done = nil }
            return done
        }
        if done != nil, end == .unsent { unsent.withLock { $0 }?() }
        done?(end)
        return done != nil
    }
}

/// The WebSocket connections over which the writes of each account are sent. Safe from any thread.
package final class SocketWrites: Sendable {
    package typealias Carrier = @Sendable (SocketWrite) -> Void

    private struct State {
        var carriers: [AccountID: [(connection: ConnectionID, carry: Carrier)]] = [:]
        /// The accounts that have writes and no connection.
        var wanted: Set<AccountID> = []
        var opened: (@Sendable (AccountID) -> Void)?
    }

    private let state = Mutex(State())

    package init() {}

    /// The name of an account's connections in the queue, as a host. No URL of a backend begins so.
    package static func host(of account: String) -> String { hostPrefix + account }
    package static let hostPrefix = "websocket:"
    /// The header field of a stored write that holds the number of the connection, the token, and the account.
    package static let field = "pawl-websocket"

    /// The value of ``field``.
    static func fieldValue(_ connection: ConnectionID, _ token: RequestToken, _ account: AccountID) -> String {
        "\(connection.value) \(token) \(account.text)"
    }

    /// Reads the value of ``field``; nil if it is not valid.
    package static func parse(
        _ value: String
    ) -> (connection: ConnectionID, token: RequestToken, account: AccountID)? {
        let parts = value.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let number = UInt64(parts[0]), let token = RequestToken(String(parts[1])) else {
            return nil
        }
        return (ConnectionID(number), token, AccountID(text: String(parts[2])))
    }

    /// Sets the closure that is called when an account has a connection for which writes wait.
    package func notify(_ opened: @escaping @Sendable (AccountID) -> Void) { state.withLock { $0.opened = opened } }

    /// Adds a connection.
    ///
    /// - Parameter carry: called on any thread.
    package func add(_ connection: ConnectionID, of account: AccountID, _ carry: @escaping Carrier) {
        let opened = state.withLock { state in
            state.carriers[account, default: []].append((connection, carry))
            return state.wanted.remove(account) == nil ? nil : state.opened
        }
        opened?(account)
    }

    package func remove(_ connection: ConnectionID, of account: AccountID) {
        state.withLock { state in
            state.carriers[account]?.removeAll { $0.connection == connection }
            if state.carriers[account]?.isEmpty == true { state.carriers[account] = nil }
        }
    }

    /// Hands a write to a connection of its account, or ends it as unsent.
    ///
    /// - Parameter preferred: the connection that it came from. Another process may have had the same number.
    package func send(_ write: SocketWrite, of account: AccountID, preferring preferred: ConnectionID?) {
        let carriers = state.withLock { $0.carriers[account] ?? [] }
        let known = Set(carriers.map(\.connection))
        // A connection that is about to end refuses the write, too.
        write.whenUnsent { [weak self] in self?.awaitConnection(of: account, besides: known) }
        if let chosen = carriers.first(where: { $0.connection == preferred }) ?? carriers.last {
            chosen.carry(write)
        } else {
            write.end(.unsent)
        }
    }

    /// Reports the next connection of an account, or one that was added since a write found none that could carry it.
    private func awaitConnection(of account: AccountID, besides known: Set<ConnectionID>) {
        let opened = state.withLock { state -> (@Sendable (AccountID) -> Void)? in
            let isNew = state.carriers[account]?.contains { !known.contains($0.connection) } == true
            if !isNew { state.wanted.insert(account) }
            return isNew ? state.opened : nil
        }
        opened?(account)
    }
}
