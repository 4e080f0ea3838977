// A result that is there once. All waits of the transports end in one of these, so cancellation and deadlines are one
// piece of code.

import Synchronization

/// A value that is set once and that any number of tasks wait for.
package final class Once<Value: Sendable>: Sendable {
    private struct Waiters: Sendable {
        var continuations: [UnsafeContinuation<Value, Never>] = []
        var value: Value?
    }

    private let state = Mutex(Waiters())

    package init() {}

    /// Sets the value if none is set.
    ///
    /// - Returns: whether this call has set it.
    @discardableResult
    package func fulfil(_ value: Value) -> Bool {
        let continuations: [UnsafeContinuation<Value, Never>]? = state.withLock { state in
            guard state.value == nil else { return nil }
            state.value = value
            defer { state.continuations = [] }
            return state.continuations
        }
        guard let continuations else { return false }
        for continuation in continuations { continuation.resume(returning: value) }
        return true
    }

    /// The value, or nil if none is set.
    package var current: Value? { state.withLock { $0.value } }

    /// Waits for the value. Does not end early if the task is cancelled.
    package func value() async -> Value {
        await withUnsafeContinuation { continuation in
            let value = state.withLock { state -> Value? in
                if state.value == nil { state.continuations.append(continuation) }
                return state.value
            }
            if let value { continuation.resume(returning: value) }
        }
    }

    /// Waits for the value. Cancellation of the task runs the closure, which is expected to set a value.
    package func value(onCancel: @escaping @Sendable () -> Void) async -> Value {
        await withTaskCancellationHandler(operation: { await value() }, onCancel: onCancel)
    }
}

/// Runs an operation, and returns a substitute if it does not end in time or if the task is cancelled.
///
/// An operation that ignores cancellation goes on in the background; its result is dropped.
package func within<Value: Sendable>(
    _ deadline: Duration, late: Value, cancelled: Value, _ operation: @escaping @Sendable () async -> Value
) async -> Value {
    let once = Once<Value>()
    let work = Task { once.fulfil(await operation()) }
    let timer = Task {
        guard (try? await Task.sleep(for: deadline)) != nil else { return }
        once.fulfil(late)
    }
    let value = await once.value { once.fulfil(cancelled) }
    work.cancel()
    timer.cancel()
    return value
}
