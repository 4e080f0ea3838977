// Single requests as the admin commands see them.

import CommitLoop
import NIOSupport
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension Gateway {
    /// Carries out an act on queued messages, and waits until it is stored.
    ///
    /// - Returns: why it was not done; nil if it was.
    func carryOut(_ kind: RequestAct.Kind) async throws -> ActRefusal? { try await front.carryOut(kind, on: self) }
}

extension RequestAct.Kind {
    var name: String {
        switch self {
        case .drop: "drop"
        case .hold: "hold"
        case .release: "release"
        case .retry: "retry"
        case .purge: "purge"
        }
    }
}
