// Which WebSocket connections an account has, so that it can be told what has become of its messages.

package import Protection
import Synchronization

/// What the backend calls a message that a client knows by a local id.
package struct MessageMerge: Sendable, Equatable {
    package var localID: String
    package var remoteID: String

    package init(localID: String, remoteID: String) { (self.localID, self.remoteID) = (localID, remoteID) }
}

/// What has become of a message that was answered at once.
package enum MessageNews: Sendable, Equatable {
    case merged(MessageMerge)
    /// The backend will not have it.
    ///
    /// - Parameter reason: in words; nothing where an operator has dropped it.
    case lost(localID: String, reason: String?)
}

/// The open WebSocket connections whose messages are looked at.
package final class SocketBook: Sendable {
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

    /// How many connections of an account there are.
    package func count(of account: AccountID) -> Int { listeners.withLock { $0[account]?.count ?? 0 } }

    /// Tells every connection of an account.
    package func tell(_ account: AccountID, _ news: MessageNews) {
        for listener in listeners.withLock({ Array(($0[account] ?? [:]).values) }) { listener(news) }
    }
}
