// What stands between a committed request and the backend: operators' holds and drops. One table for all connections and
// the participants, so that there is one moment at which a request is either being sent or has been stopped.
//
// One lock decides between a connection and an operator: a request that the gate let go cannot be taken back, and one
// that it stopped is never sent. Holds outlive the process. A request's hold is stored with the request in the queue,
// an account's in a record (`RecordKind.hold`).

package import Protection
package import StorePort
import Synchronization

/// What an operator's hold covers.
package enum RequestScope: Hashable, Sendable {
    case request(UInt64)
    /// All that an account sends.
    case account(AccountID)

    /// As it stands in the store: `request ID` or `account TEXT`.
    package var name: String {
        switch self {
        case .request(let id): "request \(id)"
        case .account(let account): "account \(account.text)"
        }
    }

    /// The reverse of ``name``; nothing where it is no such name.
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

/// Says whether a request may be sent.
package final class RequestGate: Sendable {
    /// What a connection is to do with a request whose turn has come.
    package enum Answer: Sendable, Equatable { case go, held, dropped }

    private struct State {
        package var holds: Set<RequestScope> = []
        package var dropped: Set<UInt64> = []
        /// Their sending has begun, and what became of it is not known.
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

    /// The request is not with the backend, or it is known what became of it there.
    package func end(_ id: UInt64) { state.withLock { _ = $0.begun.remove(id) } }

    package func isHeld(_ request: Request) -> Bool { state.withLock { $0.isHeld(request) } }

    package func hasBegun(_ id: UInt64) -> Bool { state.withLock { $0.begun.contains(id) } }

    // MARK: Operators

    /// All holds.
    package var holds: Set<RequestScope> { state.withLock { $0.holds } }

    /// Holds what has not begun.
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

    /// Stops a request for good.
    ///
    /// - Returns: false where its sending has begun, or where it is stopped already; then nothing has changed.
    package func drop(_ id: UInt64) -> Bool {
        state.withLock { state in
            guard !state.begun.contains(id) else { return false }
            return state.dropped.insert(id).inserted
        }
    }

    /// Takes a drop back: it was not committed, or the request is wanted after all.
    package func undrop(_ id: UInt64) { state.withLock { _ = $0.dropped.remove(id) } }
}
