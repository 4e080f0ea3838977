// Operations across the C interface, in both directions. `done` comes exactly once; a handle is released after `done` and
// never while `cancel` runs.

package import CTransports
import Foundation
import Synchronization

/// An operation of another language that a Swift task waits for.
package final class CoreOperation: Sendable {
    // Unchecked: the handle's functions may be called on every thread, and the lock is held around every access.
    private struct State: @unchecked Sendable {
        var operation: pawl_operation?
        var isCancelled = false
        /// While a thread is inside `cancel`, the handle is not released.
        var isCancelling = false
        var isDone = false

        /// The handle, if it may be released now. It is taken out: nothing releases it again.
        mutating func takeReleasable() -> State {
            guard isDone, !isCancelling, let operation else { return State() }
            self.operation = nil
            return State(operation: operation)
        }
    }

    private let state = Mutex(State())
    private let reply = Once<Reply>()
    private let limit: Int

    private init(limit: Int) { self.limit = limit }

    /// Starts an operation and waits for its end. Cancellation of the task cancels the operation.
    ///
    /// It is started even if the task is cancelled already, and cancelled at once: the other side has to know that the
    /// reply of a request will not be received.
    ///
    /// - Parameter limit: Upper bound of payload and reason, in bytes.
    package static func run(
        limit: Int, _ start: (pawl_completion) -> pawl_operation
    ) async -> Reply {
        let operation = CoreOperation(limit: limit)
        operation.begin(start)
        return await operation.reply.value { operation.cancel() }
    }

    private func begin(_ start: (pawl_completion) -> pawl_operation) {
        // The context is one reference to self, which `done` takes.
        let context = Unmanaged.passRetained(self).toOpaque()
        let operation = start(
            pawl_completion(context: context) { context, outcome in
                guard let context else { return }
                let operation = Unmanaged<CoreOperation>.fromOpaque(context).takeRetainedValue()
                operation.done(outcome?.pointee ?? pawl_outcome(.failure(.weird(reason: "an outcome is missing"))))
            })
        let started = State(operation: operation)
        let releasable = state.withLock { state in
            state.operation = started.operation
            return state.takeReleasable()
        }
        Self.release(releasable)
    }

    private func done(_ outcome: pawl_outcome) {
        let result = outcome.take(limit: limit)
        let releasable = state.withLock { state in
            state.isDone = true
            return state.takeReleasable()
        }
        Self.release(releasable)
        reply.fulfil(result)
    }

    private func cancel() {
        let current = state.withLock { state in
            guard !state.isDone, !state.isCancelled, let operation = state.operation else { return State() }
            (state.isCancelled, state.isCancelling) = (true, true)
            return State(operation: operation)
        }
        guard let operation = current.operation else { return }
        operation.cancel?(operation.object)
        let releasable = state.withLock { state in
            state.isCancelling = false
            return state.takeReleasable()
        }
        Self.release(releasable)
    }

    private static func release(_ state: State) {
        if let operation = state.operation { operation.release?(operation.object) }
    }
}

/// An operation of Swift that another language waits for.
package final class SwiftOperation: Sendable {
    // Unchecked: the completion may be called on any thread, and only one call takes it.
    private struct Completion: @unchecked Sendable { let completion: pawl_completion }

    private let completion: Mutex<Completion?>
    private let task = Mutex<Task<Void, Never>?>(nil)

    private init(_ completion: pawl_completion) { self.completion = Mutex(Completion(completion: completion)) }

    /// Starts work in a task. If the caller cancels, `done` comes at once, even if the work goes on.
    package static func start(
        _ completion: pawl_completion, _ work: @escaping @Sendable () async -> Reply
    ) -> pawl_operation {
        let operation = SwiftOperation(completion)
        let task = Task { operation.done(await work()) }
        operation.task.withLock { $0 = task }
        return pawl_operation(
            object: Unmanaged.passRetained(operation).toOpaque(),
            cancel: { object in
                guard let object else { return }
                let operation = Unmanaged<SwiftOperation>.fromOpaque(object).takeUnretainedValue()
                operation.task.withLock { $0 }?.cancel()
                operation.done(.failure(.cancelled))
            },
            release: { object in
                guard let object else { return }
                Unmanaged<SwiftOperation>.fromOpaque(object).release()
            })
    }

    private func done(_ reply: Reply) {
        let taken = completion.withLock { completion in
            defer { completion = nil }
            return completion
        }
        guard let completion = taken?.completion else { return }
        var outcome = pawl_outcome(reply)
        completion.done(completion.context, &outcome)
    }
}

/// A Swift object behind a handle of the C interface.
package final class SwiftObject<Value: Sendable>: Sendable {
    private let value: Value

    private init(_ value: Value) { self.value = value }

    /// A pointer with one reference, for `object` of a handle.
    package static func retained(_ value: Value) -> UnsafeMutableRawPointer {
        Unmanaged.passRetained(SwiftObject(value)).toOpaque()
    }

    /// The value behind a pointer that ``retained(_:)`` made.
    package static func value(_ object: UnsafeMutableRawPointer?) -> Value? {
        object.map { Unmanaged<SwiftObject>.fromOpaque($0).takeUnretainedValue().value }
    }

    /// One reference more.
    package static func retain(_ object: UnsafeMutableRawPointer?) {
        if let object { _ = Unmanaged<SwiftObject>.fromOpaque(object).retain() }
    }

    /// Gives one reference back.
    package static func release(_ object: UnsafeMutableRawPointer?) {
        if let object { Unmanaged<SwiftObject>.fromOpaque(object).release() }
    }
}

/// A table of C functions that lives as long as the process.
package struct StaticTable<Table>: @unchecked Sendable {
    // Unchecked: the table is written once and only read afterwards.
    package let pointer: UnsafePointer<Table>

    package init(_ table: Table) {
        let memory = UnsafeMutablePointer<Table>.allocate(capacity: 1)
        memory.initialize(to: table)
        pointer = UnsafePointer(memory)
    }
}
