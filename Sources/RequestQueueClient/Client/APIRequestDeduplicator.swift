// Sends equal requests at the same time once.

import Foundation
public import RequestQueue

/// Combines equal requests that are sent at the same time.
public protocol APIRequestDeduplicating: Sendable {
    /// Sends a request, or waits for the answer to an equal one in flight.
    ///
    /// - Throws: ``NetworkFailure``, to all callers that waited for the same answer.
    func send(
        _ request: NetworkRequest,
        _ body: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
    ) async throws(NetworkFailure) -> NetworkResponse
}

/// The standard deduplicator: one call for all callers that come while it is in flight. A cancelled caller leaves
/// alone; when the last one has left, the call is cancelled.
public actor APIRequestDeduplicator: APIRequestDeduplicating {
    private typealias Outcome = Result<NetworkResponse, NetworkFailure>

    private struct Call {
        var number: UInt64
        var task: Task<Void, Never>?
        var waiters: [UInt64: CheckedContinuation<Outcome, Never>] = [:]
    }

    private var calls: [NetworkRequest: Call] = [:]
    private var next: UInt64 = 0

    /// A deduplicator without calls.
    public init() {}

    /// Number of callers that wait for an answer.
    var waiting: Int { calls.values.reduce(0) { $0 + $1.waiters.count } }

    /// See ``APIRequestDeduplicating/send(_:_:)``.
    public func send(
        _ request: NetworkRequest,
        _ body: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
    ) async throws(NetworkFailure) -> NetworkResponse {
        next += 1
        let waiter = next
        let outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Outcome, Never>) in
                join(request, waiter, continuation, body)
            }
        } onCancel: {
            Task { await self.leave(request, waiter) }
        }
        return try outcome.get()
    }

    /// Registers the caller before anything is awaited, so that no other call can interleave.
    private func join(
        _ request: NetworkRequest, _ waiter: UInt64, _ continuation: CheckedContinuation<Outcome, Never>,
        _ body: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
    ) {
        if Task.isCancelled {
            continuation.resume(returning: .failure(.cancelled))
            return
        }
        if calls[request] != nil {
            calls[request]?.waiters[waiter] = continuation
            return
        }
        calls[request] = Call(number: waiter, waiters: [waiter: continuation])
        calls[request]?.task = Task {
            let outcome: Outcome
            do throws(NetworkFailure) {
                outcome = .success(try await body(request))
            } catch {
                outcome = .failure(error)
            }
            self.end(request, waiter, outcome)
        }
    }

    private func end(_ request: NetworkRequest, _ number: UInt64, _ outcome: Outcome) {
        guard let call = calls[request], call.number == number else { return }
        calls[request] = nil
        for waiter in call.waiters.values { waiter.resume(returning: outcome) }
    }

    private func leave(_ request: NetworkRequest, _ waiter: UInt64) {
        guard let continuation = calls[request]?.waiters.removeValue(forKey: waiter) else { return }
        continuation.resume(returning: .failure(.cancelled))
        guard let call = calls[request], call.waiters.isEmpty else { return }
        calls[request] = nil
        call.task?.cancel()
    }
}
