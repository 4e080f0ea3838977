// Why an operator's act on a request was refused: a code for scripts, and a text for the operator.

package import RequestQueue

/// Why an act was refused. Nothing has changed.
package enum ActRefusal: Error, Hashable, Sendable {
    case noSuchRequest(UInt64)
    case done(UInt64)
    case dead(UInt64, cause: String?)
    /// Ended by its sender or for good.
    case cancelled(UInt64, cause: String?)
    /// It was sent, and the backend's answer is awaited.
    case inFlight(UInt64)
    /// The backend has it, and its recipient has not opened it.
    case notOpened(UInt64)
    case dropping(UInt64)
    case notHeld(UInt64)
    /// Nothing of an account is held.
    case nothingHeld
    /// The act is for dead requests only.
    case notDead(UInt64, RequestState)
    /// A dead request that cannot be sent again.
    case notRepeatable(UInt64, NotRepeatable)
    /// The queue does not know a request that the store has.
    case lost(UInt64)
    /// The queue refused it.
    case queue(QueueActError)
    /// The store could not be read or written.
    case store(String)
    /// The store could not be written; the queue repeats the act as soon as it can.
    case later
    case otherOwner

    /// Stays the same if the text changes.
    package var code: String {
        switch self {
        case .noSuchRequest: "no-such-request"
        case .done: "request-done"
        case .dead: "request-dead"
        case .cancelled: "request-cancelled"
        case .inFlight: "request-in-flight"
        case .notOpened: "request-not-opened"
        case .dropping: "request-being-dropped"
        case .notHeld: "request-not-held"
        case .nothingHeld: "nothing-held"
        case .notDead: "request-not-dead"
        case .notRepeatable(_, let reason): "not-repeatable-\(reason.code)"
        case .lost: "request-lost"
        case .queue: "queue-refused"
        case .store: "store-failed"
        case .later: "done-later"
        case .otherOwner: "other-owner"
        }
    }

    package var text: String {
        switch self {
        case .noSuchRequest(let id):
            "There is no request \(id) at this gateway. Finished requests are kept for some time only. See: pawl queue list."
        case .done(let id): "Request \(id) is done: nothing of it waits."
        case .dead(let id, let cause): "Request \(id) is dead already: \(Self.sentence(cause))"
        case .cancelled(let id, let cause):
            "Request \(id) was given up for good: \(Self.sentence(cause)) Its sender has to write it again."
        case .inFlight(let id):
            "Request \(id) has been sent to the backend, and its answer is awaited: it cannot be taken back."
        case .notOpened(let id):
            "Request \(id) is with the backend, and its recipient has not opened it yet: it cannot be taken back."
        case .dropping(let id): "Request \(id) is being dropped already."
        case .notHeld(let id): "Request \(id) is not held by itself."
        case .nothingHeld: "Nothing of this account is held."
        case .notDead(let id, let state):
            "Request \(id) is \(state.name): only a dead one can be sent again or removed."
        case .notRepeatable(let id, let reason): "Request \(id) cannot be sent again: \(reason.text)"
        case .lost(let id): "Request \(id) is not known to this gateway any more; restart it."
        case .queue(let error): "\(error)"
        case .store(let cause): "Nothing has changed: \(cause)"
        case .later: "The store could not be written. The request is removed later. Check the disk."
        case .otherOwner: "Another gateway owns this part of the store; nothing was changed."
        }
    }
}

extension ActRefusal {
    private static func sentence(_ cause: String?) -> String {
        let cause = cause ?? "no reason is known"
        return cause.hasSuffix(".") ? cause : cause + "."
    }

    /// The store could not be written.
    package static let notStored = ActRefusal.store("the store could not be written. Check the disk.")
}

/// Why the recipient would not open the bytes of a dead request.
package enum NotRepeatable: Hashable, Sendable {
    case keysElsewhere, malformed, senderKeysGone, recipientKeysGone, openedAlready, noSession, tooFarBehind
    case sessionReplaced
    /// The queue refused it.
    case queue(QueueActError)

    var code: String {
        switch self {
        case .keysElsewhere: "keys-elsewhere"
        case .malformed: "malformed"
        case .senderKeysGone: "sender-keys-gone"
        case .recipientKeysGone: "recipient-keys-gone"
        case .openedAlready: "opened-already"
        case .noSession: "no-session"
        case .tooFarBehind: "too-far-behind"
        case .sessionReplaced: "session-replaced"
        case .queue: "queue-refused"
        }
    }

    var text: String {
        switch self {
        case .keysElsewhere:
            "the recipient's keys are not here, so it is unknown whether they still open it. Write it again."
        case .malformed: "its bytes are not those of one message."
        case .senderKeysGone:
            "its sender's keys are not those that sealed it. A connection without a login ends with its keys."
        case .recipientKeysGone:
            "its recipient's keys were deleted. A connection without a login ends with its keys."
        case .openedAlready: "its recipient has opened it already."
        case .noSession: "there is no session between the two any more."
        case .tooFarBehind: "too many messages lie between it and what its recipient has opened."
        case .sessionReplaced:
            "the session that it was sealed for has been set up anew. Its sender has to write it again."
        case .queue(let error): "\(error)"
        }
    }
}
