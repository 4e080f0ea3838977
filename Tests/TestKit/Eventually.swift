import Foundation

/// Default bound of a wait in tests, 3 minutes.
///
/// Generous: a test spends it only if something is broken, and the machine may be busy.
package let usualTimeout: Duration = .seconds(180)

/// The error of a condition that did not become true within its bound.
package struct TimeoutError: Error, CustomStringConvertible {
    package let description: String

    fileprivate init(_ what: String, _ timeout: Duration) { description = "not within \(timeout): \(what)" }
}

/// Polls a condition until it is true. Blocks the thread between polls.
///
/// Without `every` the pauses grow with the wait, and with what the condition itself takes: conditions start programs and
/// read files, and the program that is waited for needs the processor.
///
/// - Parameters:
///   - what: The condition in words, for the error.
///   - timeout: Bound in wall-clock time. The condition is evaluated at least once.
///   - pause: Time between two polls, for a condition that is true for a moment only; nil for pauses that grow.
/// - Throws: ``TimeoutError`` if the condition is false after the bound, or the error of the condition.
package func eventually(
    _ what: String, timeout: Duration = usualTimeout, every pause: Duration? = nil, _ condition: () throws -> Bool
) throws {
    let begin = ContinuousClock.now
    while true {
        let asked = ContinuousClock.now
        guard try !condition() else { return }
        let now = ContinuousClock.now
        guard now < begin + timeout else { throw TimeoutError(what, timeout) }
        let pause = pause ?? min(max(.milliseconds(5), (now - begin) / 16, (now - asked) * 2), .milliseconds(500))
        Thread.sleep(forTimeInterval: pause / .seconds(1))
    }
}

/// Polls a condition until it is true. Suspends the task between polls.
///
/// The bound is a number of polls, not wall-clock time: while blocking tests occupy Swift's thread pool, neither this
/// task nor the one that it waits for runs.
///
/// It is no overload of ``eventually(_:timeout:every:_:)``: of two overloads, Swift 6.3 chooses the blocking one for
/// `try await` with a synchronous closure.
///
/// - Parameters:
///   - what: The condition in words, for the error.
///   - timeout: Bound as the sum of all pauses.
///   - pause: Time between two polls.
/// - Throws: ``TimeoutError`` if no poll finds the condition true, or the error of the condition.
package func eventuallyAsync(
    _ what: String, timeout: Duration = usualTimeout, every pause: Duration = .milliseconds(5),
    _ condition: () async throws -> Bool
) async throws {
    for _ in 0..<Int(timeout / pause) {
        if try await condition() { return }
        try await Task.sleep(for: pause)
    }
    throw TimeoutError(what, timeout)
}
