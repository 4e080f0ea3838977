import Foundation

/// A few threads that tests may block. So many run such tests at once, and no more.
final class BlockingThreads: TaskExecutor, @unchecked Sendable {
    /// Such tests wait for others most of the time.
    static let shared = BlockingThreads(width: max(2, ProcessInfo.processInfo.activeProcessorCount * 3 / 2))

    // Guarded by the condition.
    private var jobs: [UnownedJob] = []
    private let condition = NSCondition()

    init(width: Int) {
        for _ in 0..<width {
            Thread.detachNewThread { [self] in while true { next().runSynchronously(on: asUnownedTaskExecutor()) } }
        }
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        condition.withLock { jobs.append(job) }
        condition.signal()
    }

    private func next() -> UnownedJob {
        condition.withLock {
            while jobs.isEmpty { condition.wait() }
            return jobs.removeFirst()
        }
    }
}
