public import Testing

/// Tests that block their thread, for seconds or minutes, run on threads that are kept for such tests.
///
/// Swift's own pool has as many threads as there are cores. Tests that block them all keep the others' tasks
/// waiting past any patience.
public struct BlockingTrait: SuiteTrait, TestTrait, TestScoping {
    /// Whether a suite's tests inherit it: they do.
    public var isRecursive: Bool { true }

    /// Runs a test case on the threads for such tests.
    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withTaskExecutorPreference(BlockingThreads.shared) { try await function() }
    }
}

extension Trait where Self == BlockingTrait {
    /// For tests that block the thread they run on.
    public static var blocking: Self { Self() }
}
