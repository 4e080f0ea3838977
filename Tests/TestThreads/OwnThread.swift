import Foundation

/// Runs blocking code on a thread of its own, still as a part of its test.
public func blocking<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) async throws -> Value {
    try await withTaskExecutorPreference(OwnThread()) { try await body() }
}

/// A new thread for each job.
final class OwnThread: TaskExecutor {
    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        Thread.detachNewThread { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
