// Callers that wait for the end of one request.

import RequestQueue
import Synchronization

/// Waits for one outcome, which may come before ``value()`` is called.
final class OutcomeWaiter: Sendable {
    private enum State {
        case empty
        case waiting(CheckedContinuation<RequestOutcome, any Error>)
        case ended(Result<RequestOutcome, any Error>)
    }

    private let state = Mutex(State.empty)

    /// Sets the outcome. Only the first call counts.
    func end(_ result: Result<RequestOutcome, any Error>) {
        let continuation: CheckedContinuation<RequestOutcome, any Error>? = state.withLock { state in
            switch state {
            case .empty: state = .ended(result)
            case .waiting(let continuation):
                state = .ended(result)
                return continuation
            case .ended: break
            }
            return nil
        }
        continuation?.resume(with: result)
    }

    /// Waits for the outcome. Only one task may call this.
    ///
    /// - Throws: the error that it was ended with, or `CancellationError`.
    func value() async throws -> RequestOutcome {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result: Result<RequestOutcome, any Error>? = state.withLock { state in
                    if case .ended(let result) = state { return result }
                    state = .waiting(continuation)
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            end(.failure(CancellationError()))
        }
    }
}

/// All waiters, by request.
struct OutcomeWaiters: Sendable {
    private var waiters: [RequestToken: [OutcomeWaiter]] = [:]
    private var isClosed = false

    /// - Returns: whether it will get an outcome; false if the queue is closed.
    mutating func add(_ waiter: OutcomeWaiter, for token: RequestToken) -> Bool {
        guard !isClosed else { return false }
        waiters[token, default: []].append(waiter)
        return true
    }

    mutating func remove(_ waiter: OutcomeWaiter, for token: RequestToken) {
        waiters[token]?.removeAll { $0 === waiter }
        if waiters[token]?.isEmpty == true { waiters[token] = nil }
    }

    /// Removes and returns the waiters for these results.
    mutating func take(_ results: [QueueBatch.Result]) -> [(OutcomeWaiter, RequestOutcome)] {
        guard !waiters.isEmpty else { return [] }
        return results.flatMap { result in
            (waiters.removeValue(forKey: result.request.token) ?? []).map { ($0, result.outcome) }
        }
    }

    /// Accepts no more waiters.
    ///
    /// - Returns: those that still wait.
    mutating func close() -> [OutcomeWaiter] {
        isClosed = true
        defer { waiters = [:] }
        return waiters.values.flatMap { $0 }
    }
}
