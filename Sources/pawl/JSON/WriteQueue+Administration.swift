// Reports on single writes for operators, and acts on them.

import Foundation
import Outbox
import Protection
import RequestQueue
import RequestQueueClient

extension WriteQueue {
    /// The cause of a dropped write.
    static let droppedReason = "Dropped by an operator of the gateway."

    /// Returns the rows of `pawl queue list`. Dropped writes are listed with the dead ones.
    func rows(
        states: [RequestState], limit: Int, isHeld: (_ account: String) -> Bool
    ) async throws -> [RequestRow] {
        var states = states
        if states.contains(.pending) { states.append(.inFlight) }
        if states.contains(.dead) { states.append(.cancelled) }
        let requests = try queue.requests(states: states, limit: limit)
        let remoteIDs = await remoteIDs(of: requests)
        return requests.map { request in
            RequestRow(
                id: "\(request.id)", state: request.state.name,
                held: !request.state.isFinal && (request.isHeld || isHeld(request.tenant)),
                account: request.tenant, target: request.target, lines: 1,
                accepted: Table.time(request.timestamp), remoteID: remoteIDs[request.id], reason: request.cause)
        }
    }

    /// Returns the backend's ids of the messages that requests have created, by the requests' numbers.
    func remoteIDs(of requests: [QueuedRequest]) async -> [UInt64: String] {
        let names = await queue.remoteIdentifiers(createdBy: requests)
        return names.compactMapValues(\.first)
    }

    /// - Throws: ``AdminFailure`` if there is no such write.
    func request(_ id: UInt64) throws -> QueuedRequest {
        guard let request = try queue.request(number: id) else {
            throw AdminFailure(.noSuchRequest(id))
        }
        return request
    }

    /// Returns the numbers of all writes that are dead now.
    func deadLetters() throws -> [UInt64] {
        var ids: [UInt64] = []
        while true {
            let page = try queue.requests(states: [.dead], after: ids.last ?? 0, limit: 1000)
            guard !page.isEmpty else { return ids }
            ids += page.map(\.id)
        }
    }

    /// Why a write cannot be dropped; nil if it waits or is in flight, because its answer may never come.
    func whyNotDropped(_ request: QueuedRequest) -> ActRefusal? {
        request.state == .inFlight ? nil : whyNotWaiting(request)
    }

    /// Why a write cannot be held or released; nil if it waits.
    func whyNotWaiting(_ request: QueuedRequest) -> ActRefusal? {
        switch request.state {
        case .pending: nil
        case .inFlight: .inFlight(request.id)
        case .done: .done(request.id)
        case .dead: .dead(request.id, cause: request.cause)
        case .cancelled: .cancelled(request.id, cause: request.cause)
        }
    }

    /// Performs an act on one write.
    ///
    /// - Returns: why the act was refused; nil if it was done.
    func carryOut(_ kind: RequestAct.Kind) async throws -> ActRefusal? {
        do {
            switch kind {
            case .drop(let id):
                let request = try request(id)
                if let why = whyNotDropped(request) { return why }
                try await queue.cancel(request.token, cause: Self.droppedReason)
            case .retry(let id):
                let request = try request(id)
                guard request.state != .cancelled else { return .cancelled(id, cause: request.cause) }
                guard request.state == .dead else { return .notDead(id, request.state) }
                try await revive(request)
            case .purge(let id):
                let request = try request(id)
                guard request.state == .dead else { return .notDead(id, request.state) }
                try await queue.purge(request.token)
            case .hold(.request(let id)), .release(.request(let id)):
                let request = try request(id)
                if let why = whyNotWaiting(request) { return why }
                let isHold = if case .hold = kind { true } else { false }
                guard isHold || request.isHeld else { return .notHeld(id) }
                try await queue.hold(request.token, isHold)
            case .hold(.account(let account)): try await queue.hold(tenant: account.text)
            case .release(.account(let account)): try await queue.hold(tenant: account.text, false)
            }
            return nil
        } catch let error as QueueActError {
            return .queue(error)
        } catch let error as QueueError {
            return .store("\(error)")
        } catch let error as QueueStoreError {
            return .store(error.message)
        }
    }

    /// Describes what a write waits for; nil if it has ended.
    func waitsFor(_ request: QueuedRequest) async -> String? {
        guard !request.state.isFinal else { return nil }
        guard request.state == .pending else { return "the backend, which has not answered yet" }
        let obstacles = await queue.obstacles(request.token)
        return obstacles.isEmpty ? "its turn" : obstacles.joined(separator: "; ")
    }
}

extension QueuedRequest {
    /// The backend's name of the conversation.
    var target: String { lane ?? "" }
}
