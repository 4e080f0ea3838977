// Answers to callers that wait for a commit.

import Synchronization

/// The answer to one caller that waits for a commit.
package struct QueueAnswer: Sendable {
    /// Called with the error if the commit failed, and with the other answers of the same commit.
    package let give: @Sendable (QueueStoreError?, QueueAnswers) -> Void

    package init(_ give: @escaping @Sendable (QueueStoreError?, QueueAnswers) -> Void) { self.give = give }
}

/// The answers that wait for one commit.
package final class QueueAnswers: Sendable {
    private let rest: Mutex<ArraySlice<QueueAnswer>>
    private let failure: QueueStoreError?

    package init(_ answers: [QueueAnswer], _ failure: QueueStoreError?) {
        rest = Mutex(answers[...])
        self.failure = failure
    }

    /// Gives the first that has not been given yet.
    ///
    /// - Returns: whether there was one.
    @discardableResult
    package func giveNext() -> Bool {
        guard let answer = rest.withLock({ $0.popFirst() }) else { return false }
        answer.give(failure, self)
        return true
    }

    /// Gives all that have not been given yet.
    package func giveAll() { while giveNext() {} }
}
