// Who waits for a commit, and how they are told.

import RequestQueue
import Synchronization

/// Tells one who waits.
struct QueueAnswer: Sendable {
    /// Is given why the commit has failed, where it has, and the answers that are to be given besides.
    let give: @Sendable (QueueStoreError?, QueueAnswers) -> Void
}

/// The answers that one commit allows.
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
