// The WebSocket connections of each account, for notices about its messages.

package import Protection
import Synchronization

/// The backend's id of a message that a client knows by a local id.
package struct MessageMerge: Sendable, Equatable {
    package var localID: String
    package var remoteID: String

    package init(localID: String, remoteID: String) { (self.localID, self.remoteID) = (localID, remoteID) }
}

/// The fate of a message whose write was answered before the backend had it.
package enum MessageNews: Sendable, Equatable {
    case merged(MessageMerge)
    /// The message will not be sent.
    ///
    /// - Parameter reason: the reason in words; nil if an operator has dropped it.
    case lost(localID: String, reason: String?)
}

/// The open, inspected WebSocket connections of all accounts.
package final class SocketListeners: Sendable {
    private let listeners = Mutex<[AccountID: [ConnectionID: @Sendable (MessageNews) -> Void]]>([:])

    package init() {}

    /// - Parameter listener: called on any thread.
    package func add(
        _ connection: ConnectionID, of account: AccountID, _ listener: @escaping @Sendable (MessageNews) -> Void
    ) {
        listeners.withLock { $0[account, default: [:]][connection] = listener }
    }

    package func remove(_ connection: ConnectionID, of account: AccountID) {
        listeners.withLock { listeners in
            listeners[account]?[connection] = nil
            if listeners[account]?.isEmpty == true { listeners[account] = nil }
        }
    }

    /// The number of connections of an account.
    package func count(of account: AccountID) -> Int { listeners.withLock { $0[account]?.count ?? 0 } }

    /// Notifies all connections of an account.
    package func notify(_ account: AccountID, _ news: MessageNews) {
        for listener in listeners.withLock({ Array(($0[account] ?? [:]).values) }) { listener(news) }
    }
}
