import Foundation
public import Testing

/// Tests that block their thread, for seconds or minutes, run on threads of their own, and only a few of them at once.
///
/// Swift's own pool has as many threads as there are cores. Tests that block them all keep the others' tasks
/// waiting past any patience. So would threads that such tests share: each part of a test runs at once.
public struct BlockingTrait: SuiteTrait, TestTrait, TestScoping {
    /// Such tests wait for others most of the time.
    private static let permits = Permits(max(2, ProcessInfo.processInfo.activeProcessorCount * 2))

    /// Whether a suite's tests inherit it: they do.
    public var isRecursive: Bool { true }

    /// Runs a test case on threads of its own.
    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await Self.permits.withPermit {
            try await withTaskExecutorPreference(OwnThread()) { try await function() }
        }
    }
}

extension Trait where Self == BlockingTrait {
    /// For tests that block the thread they run on.
    public static var blocking: Self { Self() }
}
