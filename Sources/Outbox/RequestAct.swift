// Operators' acts on single requests, as values for the participants.

package import StorePort

/// An operator's act, with the function that takes its outcome.
package struct RequestAct: Sendable {
    package enum Kind: Sendable {
        /// A waiting request becomes dead and is never sent.
        case drop(UInt64)
        /// Waiting requests are not sent until the hold is released.
        case hold(RequestScope)
        case release(RequestScope)
        /// A dead request waits again, with the same bytes.
        case retry(UInt64)
        /// A dead request is removed.
        case purge(UInt64)
    }

    /// How an act ended.
    package enum Outcome: Sendable, Equatable {
        /// It is committed.
        /// - Parameter isNotified: whether the sender's connection was notified.
        case done(isNotified: Bool)
        /// Nothing has changed.
        case refused(ActRefusal)
    }

    package var kind: Kind
    package var audit: AuditRow
    /// Called once, on the commit thread, after the commit.
    package var answer: @Sendable (Outcome) -> Void

    package init(_ kind: Kind, audit: AuditRow, answer: @escaping @Sendable (Outcome) -> Void) {
        (self.kind, self.audit, self.answer) = (kind, audit, answer)
    }
}
