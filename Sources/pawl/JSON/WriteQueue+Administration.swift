// What an operator sees of single writes, and does to them.

import Foundation
import Outbox
import Protection
import RequestQueue
import RequestQueueClient

extension WriteQueue {
    /// Why a write that was dropped is not sent any more.
    static let droppedReason = "Dropped by an operator of the gateway."

    /// Requests for `pawl queue list`. What was dropped is listed with the dead.
    func rows(
        states: [RequestState], limit: Int, isHeld: (_ account: String) -> Bool
    ) async throws -> [QueueCommand.List.Row] {
        var states = states
        if states.contains(.pending) { states.append(.inFlight) }
        if states.contains(.dead) { states.append(.cancelled) }
        let requests = try queue.requests(states: states, limit: limit)
        let remoteIDs = await remoteIDs(of: requests)
        return requests.map { request in
            QueueCommand.List.Row(
                id: "\(request.id)", state: request.state.name,
                held: !request.state.isFinal && (request.isHeld || isHeld(request.tenant)),
                account: request.tenant, target: request.target, lines: 1,
                accepted: Table.time(request.timestamp), remoteID: remoteIDs[request.id], reason: request.cause)
        }
    }

    /// What the backend calls the messages that requests have made, by the requests' numbers.
    func remoteIDs(of requests: [QueuedRequest]) async -> [UInt64: String] {
        let names = await queue.remoteIdentifiers(createdBy: requests)
        return names.compactMapValues(\.first)
    }

    /// - Throws: ``AdminFailure`` where there is no such write.
    func request(_ id: UInt64) throws -> QueuedRequest {
        guard let request = try queue.request(number: id) else {
            throw AdminFailure(
                "There is no request \(id) at this gateway. Done ones are kept for a day; see: pawl queue list.")
        }
        return request
    }

    /// The numbers of all writes that are dead now.
    func deadLetters() throws -> [UInt64] {
        var ids: [UInt64] = []
        while true {
            let page = try queue.requests(states: [.dead], after: ids.last ?? 0, limit: 1000)
            guard !page.isEmpty else { return ids }
            ids += page.map(\.id)
        }
    }

    /// Why a write cannot be dropped; nil if it waits or is under way. An answer may never come.
    func whyNotDropped(_ request: QueuedRequest) -> String? {
        request.state == .inFlight ? nil : whyNotWaiting(request)
    }

    /// Why a write cannot be held or released; nil if it waits.
    func whyNotWaiting(_ request: QueuedRequest) -> String? {
        switch request.state {
        case .pending: nil
        case .inFlight:
            "Request \(request.id) has been sent to the backend, and its answer is awaited: it cannot be taken back."
        case .done: "Request \(request.id) is done: nothing of it waits."
        case .dead: "Request \(request.id) is dead already: \(request.cause ?? "no reason is known")"
        case .cancelled: "Request \(request.id) is given up already: \(request.cause ?? "no reason is known")"
        }
    }

    /// Carries out an act on one write.
    ///
    /// - Returns: why it was not done; nothing where it was.
    func carryOut(_ kind: RequestAct.Kind) async throws -> String? {
        do {
            switch kind {
            case .drop(let id):
                let request = try request(id)
                if let why = whyNotDropped(request) { return why }
                try await queue.cancel(request.token, cause: Self.droppedReason)
            case .retry(let id):
                let request = try request(id)
                guard request.state != .cancelled else {
                    return
                        "Request \(id) was given up for good: \(request.cause ?? "") Its sender has to write it again."
                }
                guard request.state == .dead else {
                    return "Request \(id) is \(request.state == .done ? "done" : "still waiting"): only a dead one is "
                        + "sent again."
                }
                try await revive(request)
            case .purge(let id):
                let request = try request(id)
                guard request.state == .dead else {
                    return "Request \(id) is \(request.state.name): only a dead one can be removed."
                }
                try await queue.purge(request.token)
            case .hold(.request(let id)), .release(.request(let id)):
                let request = try request(id)
                if let why = whyNotWaiting(request) { return why }
                let isHold = if case .hold = kind { true } else { false }
                guard isHold || request.isHeld else { return "Request \(id) is not held by itself." }
                try await queue.hold(request.token, isHold)
            case .hold(.account(let account)): try await queue.hold(tenant: account.text)
            case .release(.account(let account)): try await queue.hold(tenant: account.text, false)
            }
            return nil
        } catch let error as QueueActError {
            return "\(error)"
        } catch let error as QueueError {
            return "\(error)"
        } catch let error as QueueStoreError {
            return error.message
        }
    }

    /// What a write waits for, in words; nothing where it has ended.
    func waitsFor(_ request: QueuedRequest) async -> String? {
        guard !request.state.isFinal else { return nil }
        guard request.state == .pending else { return "the backend, which has been sent it and has not answered" }
        let obstacles = await queue.obstacles(request.token)
        return obstacles.isEmpty ? "its turn" : obstacles.joined(separator: "; ")
    }
}

extension QueuedRequest {
    /// The conversation, as the backend calls it.
    var target: String { lane ?? "" }
}
