import RequestQueue
import Synchronization
import TestKit
import Testing

@testable import RequestQueueClient

/// Equal requests at the same time are one call, whoever leaves.
@Suite struct DeduplicatorTests {
    /// A network in which calls wait until they are let go.
    final class Gate: Sendable {
        private let state = Mutex((calls: 0, cancelled: 0, isOpen: false))
        var calls: Int { state.withLock { $0.calls } }
        var cancelled: Int { state.withLock { $0.cancelled } }
        func open() { state.withLock { $0.isOpen = true } }

        @Sendable func send(_ request: NetworkRequest) async throws(NetworkFailure) -> NetworkResponse {
            let number = state.withLock { state in
                state.calls += 1
                return state.calls
            }
            while !state.withLock({ $0.isOpen }) {
                if Task.isCancelled {
                    state.withLock { $0.cancelled += 1 }
                    throw .cancelled
                }
                try? await Task.sleep(for: .milliseconds(1))
            }
            if request.url == "fail" { throw .networkConnectionLost }
            return NetworkResponse(status: 200 + number)
        }
    }

    private func get(_ url: String = "a", timeout: Int64 = 1) -> NetworkRequest {
        NetworkRequest(method: .get, url: url, timeoutInterval: timeout)
    }

    private func ask(
        _ deduplicator: APIRequestDeduplicator, _ gate: Gate, _ request: NetworkRequest
    ) -> Task<Result<NetworkResponse, NetworkFailure>, Never> {
        Task {
            do throws(NetworkFailure) {
                return .success(try await deduplicator.send(request, gate.send))
            } catch {
                return .failure(error)
            }
        }
    }

    @Test func manyAskAndOneCallIsMade() async throws {
        let (deduplicator, gate) = (APIRequestDeduplicator(), Gate())
        // Each has a different rest of its timeout, because they were not prepared at the same time.
        let tasks = (0..<50).map { ask(deduplicator, gate, get(timeout: 60_000 - $0)) }
        let other = ask(deduplicator, gate, get("b"))
        try await eventuallyAsync("both calls") { await deduplicator.waiting == 51 }
        gate.open()
        var statuses: Set<Int> = []
        for task in tasks { statuses.insert(try await task.value.get().status) }
        #expect(statuses.count == 1)
        _ = await other.value
        // Who asks later asks anew.
        #expect(try await ask(deduplicator, gate, get()).value.get().status == 203)
    }

    @Test func theFirstLeavesAndTheOthersHaveTheirAnswer() async throws {
        let (deduplicator, gate) = (APIRequestDeduplicator(), Gate())
        let leader = ask(deduplicator, gate, get())
        try await eventuallyAsync("the call") { gate.calls == 1 }
        let follower = ask(deduplicator, gate, get())
        try await eventuallyAsync("both wait") { await deduplicator.waiting == 2 }
        leader.cancel()
        #expect(await leader.value == .failure(.cancelled))
        gate.open()
        #expect(try await follower.value.get().status == 201)
        #expect(gate.calls == 1 && gate.cancelled == 0)
    }

    @Test func whenAllHaveLeftTheCallEnds() async throws {
        let (deduplicator, gate) = (APIRequestDeduplicator(), Gate())
        let tasks = (0..<3).map { _ in ask(deduplicator, gate, get()) }
        try await eventuallyAsync("all wait") { await deduplicator.waiting == 3 && gate.calls == 1 }
        for task in tasks { task.cancel() }
        for task in tasks { #expect(await task.value == .failure(.cancelled)) }
        try await eventuallyAsync("the call ends") { gate.cancelled == 1 }
    }

    @Test func aFailureIsEverybodys() async throws {
        let (deduplicator, gate) = (APIRequestDeduplicator(), Gate())
        let tasks = (0..<5).map { _ in ask(deduplicator, gate, get("fail")) }
        try await eventuallyAsync("all wait") { await deduplicator.waiting == 5 }
        gate.open()
        for task in tasks { #expect(await task.value == .failure(.networkConnectionLost)) }
    }
}
