package import Foundation
import Synchronization

/// Joins a client's and a service's transport in one process.
///
/// One service is bound to it at a time; the last one wins.
public final class MemoryLink: Sendable {
    private struct Running: Sendable {
        var task: Task<Void, Never>
        var answer: @Sendable (Reply) -> Void

        func end() {
            task.cancel()
            answer(.failure(.closed(reason: "the service is closed")))
        }
    }

    private struct State: Sendable {
        var processing: Processing?
        /// Changes with each binding, so that an old one cannot unbind its successor.
        var binding: UInt64 = 0
        var isDraining = false
        var running: [UInt64: Running] = [:]
        var next: UInt64 = 0
        /// Set when the last running request ends.
        var idle: Once<Void>?
    }

    private let state = Mutex(State())

    /// A link without a service.
    public init() {}

    /// Binds a service.
    ///
    /// - Returns: what identifies the binding.
    package func bind(_ processing: Processing) -> UInt64 {
        let (binding, old) = state.withLock { state in
            let old = state.running
            state.running = [:]
            (state.processing, state.isDraining) = (processing, false)
            state.binding += 1
            return (state.binding, old)
        }
        for request in old.values { request.end() }
        return binding
    }

    /// Unbinds at once: requests under way are cancelled, and their clients receive an error without waiting for them.
    package func unbind(_ binding: UInt64) {
        let requests = state.withLock { state in
            guard state.binding == binding else { return [Running]() }
            state.processing = nil
            defer { state.running = [:] }
            return Array(state.running.values)
        }
        for request in requests { request.end() }
    }

    /// Takes no more requests, and returns when those under way have ended.
    package func drain(_ binding: UInt64) async {
        let idle: Once<Void>? = state.withLock { state in
            guard state.binding == binding else { return nil }
            state.isDraining = true
            guard !state.running.isEmpty else { return nil }
            if state.idle == nil { state.idle = Once() }
            return state.idle
        }
        await idle?.value { idle?.fulfil(()) }
    }

    /// Whether a service is there that has the protocol.
    package func supports(_ proto: ProtocolID) -> Bool? {
        state.withLock { $0.isDraining ? nil : $0.processing }?.supports(proto)
    }

    /// Starts a request; the answer goes to the closure, unless the request is cancelled before.
    ///
    /// - Returns: the task that processes it, or nil if there is no service.
    package func start(_ request: Data, _ answer: @escaping @Sendable (Reply) -> Void) -> Task<Void, Never>? {
        state.withLock { state in
            guard let processing = state.processing, !state.isDraining else { return nil }
            state.next += 1
            let id = state.next
            let task = Task { [self] in
                let reply = Task.isCancelled ? .failure(.cancelled) : await processing.process(request)
                ended(id, reply)
            }
            state.running[id] = Running(task: task, answer: answer)
            return task
        }
    }

    private func ended(_ id: UInt64, _ reply: Reply) {
        // Not there any more if the service was unbound: then the client has its answer.
        state.withLock { $0.running[id] }?.answer(reply)
        let idle = state.withLock { state in
            state.running[id] = nil
            guard state.running.isEmpty else { return nil as Once<Void>? }
            defer { state.idle = nil }
            return state.idle
        }
        idle?.fulfil(())
    }
}
