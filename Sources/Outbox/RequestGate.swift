// The gate between committed requests and the backend: operators' holds and drops. All connections and the participants
// share one table, so that there is one moment at which a request is either being sent or has been stopped.
//
// One lock decides between a connection and an operator: a request whose sending has begun can be neither held nor
// dropped, and a dropped one is never sent. Holds outlive the process. A request's hold is stored with the request in
// the queue, an account's in a record (`RecordKind.hold`).

package import Protection
package import StorePort
import Synchronization

/// The requests that an operator's hold applies to.
package enum RequestScope: Hashable, Sendable {
    case request(UInt64)
    /// All requests of an account.
    case account(AccountID)

    /// The name in the store: `request ID` or `account TEXT`.
    package var name: String {
        switch self {
        case .request(let id): "request \(id)"
        case .account(let account): "account \(account.text)"
        }
    }

    /// The change that stores a hold since a time, in milliseconds since 1970.
    package func held(at time: Int64) -> StoreChange {
        .putRecord(RecordRow(kind: .hold, name: name, value: Array("\(time)".utf8)))
    }

    /// The change that removes a stored hold.
    package var released: StoreChange { .removeRecord(.hold, name: name) }

    /// The reverse of ``name``; nil if it is no such name.
    package init?(name: String) {
        let parts = name.split(separator: " ", maxSplits: 1).map(String.init)
        guard parts.count == 2 else { return nil }
        switch parts[0] {
        case "request":
            guard let id = UInt64(parts[1]) else { return nil }
            self = .request(id)
        case "account": self = .account(AccountID(text: parts[1]))
        default: return nil
        }
    }
}

/// Decides whether a request may be sent. Safe from any thread.
package final class RequestGate: Sendable {
    /// The decision for a request that a connection is about to send.
    package enum Answer: Sendable, Equatable { case go, held, dropped }

    private struct State {
        package var holds: Set<RequestScope> = []
        package var dropped: Set<UInt64> = []
        /// Requests whose sending has begun and whose outcome is unknown.
        package var begun: Set<UInt64> = []

        package func isHeld(_ request: Request) -> Bool {
            guard !holds.isEmpty else { return false }
            return holds.contains(.request(request.id))
                || holds.contains(.account(AccountID(text: request.account)))
        }
    }

    private let state = Mutex(State())

    package init() {}

    // MARK: Connections and participants

    /// Claims the right to send a request; from then on it can be neither held nor dropped, until ``end(_:)``.
    package func begin(_ request: Request) -> Answer {
        state.withLock { state in
            guard !state.dropped.contains(request.id) else { return .dropped }
            guard !state.isHeld(request) else { return .held }
            state.begun.insert(request.id)
            return .go
        }
    }

    /// Ends a claim: the request was not sent, or its outcome is known.
    package func end(_ id: UInt64) { state.withLock { _ = $0.begun.remove(id) } }

    package func isHeld(_ request: Request) -> Bool { state.withLock { $0.isHeld(request) } }

    package func hasBegun(_ id: UInt64) -> Bool { state.withLock { $0.begun.contains(id) } }

    // MARK: Operators

    /// All holds.
    package var holds: Set<RequestScope> { state.withLock { $0.holds } }

    /// Holds requests whose sending has not begun.
    ///
    /// - Returns: false for a request whose sending has begun; then nothing has changed.
    package func hold(_ scope: RequestScope) -> Bool {
        state.withLock { state in
            if case .request(let id) = scope, state.begun.contains(id) { return false }
            state.holds.insert(scope)
            return true
        }
    }

    package func release(_ scope: RequestScope) { state.withLock { _ = $0.holds.remove(scope) } }

    /// Drops a request for good.
    ///
    /// - Returns: false if its sending has begun, or if it is dropped already; then nothing has changed.
    package func drop(_ id: UInt64) -> Bool {
        state.withLock { state in
            guard !state.begun.contains(id) else { return false }
            return state.dropped.insert(id).inserted
        }
    }

    /// Undoes a drop: it was not committed, or the request is retried.
    package func undrop(_ id: UInt64) { state.withLock { _ = $0.dropped.remove(id) } }
}
