// Answers to callers that wait for a commit.

import RequestQueue
import Synchronization

/// The answer to one caller that waits for a commit.
struct QueueAnswer: Sendable {
    /// Called with the error if the commit failed, and with the other answers of the same commit.
    let give: @Sendable (QueueStoreError?, QueueAnswers) -> Void
}

/// The answers that wait for one commit.
final class QueueAnswers: Sendable {
    private let rest: Mutex<ArraySlice<QueueAnswer>>
    private let failure: QueueStoreError?

    init(_ answers: [QueueAnswer], _ failure: QueueStoreError?) {
        rest = Mutex(answers[...])
        self.failure = failure
    }

    /// Gives the first that has not been given yet.
    ///
    /// - Returns: whether there was one.
    @discardableResult
    func giveNext() -> Bool {
        guard let answer = rest.withLock({ $0.popFirst() }) else { return false }
        answer.give(failure, self)
        return true
    }

    /// Gives all that have not been given yet.
    func giveAll() { while giveNext() {} }
}
