// What the vault's queue changes, one request at a time.

package import RequestQueue
package import StorePort

extension StoreChange {
    /// A request as a queue accepts it, whatever its state.
    package static func insert(_ request: Request) -> StoreChange {
        let new = request.queued
        var queued = QueuedRequest(
            id: request.id, token: Request.token(request.id), tenant: new.tenant, lane: new.lane, payload: new.payload,
            creates: [], dependsOn: [], identifiers: nil, idempotencyKey: "", coalescingKey: nil,
            timestamp: request.acceptedAt)
        queued.setProgress(
            state: request.state, attempts: request.attempts, crashes: 0, doubts: 0, lease: nil, notBefore: 0,
            isHeld: false, cause: request.reason, size: 0)
        return .queue(.insert(queued, form: RequestForm.encode(queued)))
    }

    /// One that waits has ended.
    package static func done(_ id: UInt64, cause: String? = nil, at: Int64) -> StoreChange {
        finish(id, RequestOutcome(.success(status: 0), cause: cause), at: at)
    }

    /// One that waits is given up.
    package static func dead(_ id: UInt64, _ reason: String, at: Int64) -> StoreChange {
        finish(id, RequestOutcome(.failure(status: nil), cause: reason), at: at)
    }

    private static func finish(_ id: UInt64, _ outcome: RequestOutcome, at: Int64) -> StoreChange {
        .queue(.finish(id: id, lease: nil, outcome: outcome, keeping: .result, at: at))
    }

    /// What the backend calls the message of a request.
    package static func named(_ id: UInt64, of account: String, _ remote: String, at: Int64 = 0) -> StoreChange {
        let message = EntityReference(type: Request.message, local: "\(id)")
        return .queue(.map(IdentifierMapping(tenant: account, reference: message, remote: remote), at: at))
    }
}

extension Store {
    /// The queue's row of a request, finished or not.
    package func queuedRequest(_ id: UInt64) throws -> QueuedRequest? {
        try queueTables.requests(states: RequestState.allCases, after: id - 1, limit: 1).first { $0.id == id }
    }
}
