// Sends equal requests at the same time once.

import Foundation
public import RequestQueue

/// Combines requests that are sent at the same time and are equal, apart from their timeouts.
public protocol APIRequestDeduplicating: Sendable {
    /// Sends a request, or waits for the answer to an equal one in flight.
    ///
    /// - Throws: `NetworkFailure`, to all callers that waited for the same answer.
    func send(
        _ request: NetworkRequest,
        _ body: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
    ) async throws(NetworkFailure) -> NetworkResponse
}

/// The standard deduplicator: one call for all callers that come while it is in flight, with the timeout of the first.
/// A cancelled caller leaves alone; when the last one has left, the call is cancelled.
public actor APIRequestDeduplicator: APIRequestDeduplicating {
    private typealias Outcome = Result<NetworkResponse, NetworkFailure>

    private struct Call {
        var number: UInt64
        var task: Task<Void, Never>?
        var waiters: [UInt64: CheckedContinuation<Outcome, Never>] = [:]
    }

    /// A request without its timeout. What is left of the timeout depends on when a request was prepared, so equal
    /// requests that were prepared a millisecond apart would differ.
    private struct Key: Hashable {
        private let request: NetworkRequest

        init(_ request: NetworkRequest) {
            var request = request
            request.timeoutInterval = 0
            self.request = request
        }
    }

    private var calls: [Key: Call] = [:]
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
        let (waiter, key) = (next, Key(request))
        let outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Outcome, Never>) in
                join(request, key, waiter, continuation, body)
            }
        } onCancel: {
            Task { await self.leave(key, waiter) }
        }
        return try outcome.get()
    }

    /// Registers the caller before anything is awaited, so that no other call can interleave.
    private func join(
        _ request: NetworkRequest, _ key: Key, _ waiter: UInt64, _ continuation: CheckedContinuation<Outcome, Never>,
        _ body: @escaping @Sendable (NetworkRequest) async throws(NetworkFailure) -> NetworkResponse
    ) {
        if Task.isCancelled {
            continuation.resume(returning: .failure(.cancelled))
            return
        }
        if calls[key] != nil {
            calls[key]?.waiters[waiter] = continuation
            return
        }
        calls[key] = Call(number: waiter, waiters: [waiter: continuation])
        calls[key]?.task = Task {
            let outcome: Outcome
            do throws(NetworkFailure) {
                outcome = .success(try await body(request))
            } catch {
                outcome = .failure(error)
            }
            self.end(key, waiter, outcome)
        }
    }

    private func end(_ key: Key, _ number: UInt64, _ outcome: Outcome) {
        guard let call = calls[key], call.number == number else { return }
        calls[key] = nil
        for waiter in call.waiters.values { waiter.resume(returning: outcome) }
    }

    private func leave(_ key: Key, _ waiter: UInt64) {
        guard let continuation = calls[key]?.waiters.removeValue(forKey: waiter) else { return }
        continuation.resume(returning: .failure(.cancelled))
        guard let call = calls[key], call.waiters.isEmpty else { return }
        calls[key] = nil
        call.task?.cancel()
    }
}
