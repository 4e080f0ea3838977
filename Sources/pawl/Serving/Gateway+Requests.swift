// Single requests as the admin commands see them.

import CommitLoop
import IRCGateway
import NIOSupport
import Outbox
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension Gateway {
    /// - Throws: ``AdminFailure`` if this data directory has no such request.
    func request(_ id: UInt64) throws -> Request {
        guard let request = try store.request(id) else { throw AdminFailure(Remarks.noRequest(id)) }
        return request
    }

    /// Carries out an act on queued messages, and waits until it is stored.
    ///
    /// - Returns: why it was not done; nil if it was.
    func carryOut(_ kind: RequestAct.Kind) async throws -> String? { try await front.carryOut(kind, on: self) }

    /// What a waiting request waits for, in words.
    ///
    /// - Parameter waiting: all requests of its account that wait, in their order.
    func waitsFor(_ request: Request, among waiting: [Request]) -> String {
        let desk = environment.requests
        let holds = desk.gate.holds
        let account = AccountID(text: request.account)
        if let trace = desk.traces[request.id], trace.acknowledgedAt != nil {
            return "its recipient's device: the backend has it, and it has not been opened"
        }
        if desk.gate.hasBegun(request.id) { return "the backend, which has not confirmed it yet" }
        if holds.contains(.request(request.id)) { return "an operator, who holds it: pawl queue release \(request.id)" }
        if holds.contains(.account(account)) {
            return "an operator, who holds all of \(displayName(account)): "
                + "pawl queue release --account \(displayName(account))"
        }
        if let before = waiting.first(where: {
            $0.peer == request.peer && $0.id < request.id && holds.contains(.request($0.id))
        }) {
            return "request \(before.id), which an operator holds and which must be sent first"
        }
        let entries = environment.roster.entries.filter { $0.account == account }
        guard !entries.isEmpty else { return "its sender, who is not connected" }
        guard entries.contains(where: \.isPresent) else { return "the backend, which cannot be reached" }
        let peer = AccountID(text: request.peer)
        if peer.roomName == nil, environment.peers == nil, !environment.roster.isPresent(peer) {
            return "its recipient, who is not connected"
        }
        return "its turn: the connection is paced, and earlier messages are sent first"
    }
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
