// What becomes of rows when an older state of a store is accepted: the ratchets have advanced further than it knows.

package import StorePort

/// What becomes of rows when an older state of the store is accepted.
package enum AfterRollback {
    case kept, removed
    /// The driver changes some of them.
    case adjusted
}

extension RecordKind {
    /// What becomes of the records of a kind when an older state of the store is accepted.
    package var afterRollback: AfterRollback {
        switch self {
        // Prekeys may have been used since, and sender keys have advanced further than the records know.
        case .preKey, .senderKey: .removed
        case .directoryDevice: .adjusted
        // Mailboxes go on above the number of the last delivery, which leaps.
        case .ownDevices, .peer, .directoryAccount, .hold, .mailbox, .mailboxEntry, .sharedCiphertext, .blob, .sent,
            .network, .policyWithRooms, .chat, .chatMessage, .chatIndex, .chatWaiting, .chatTimer,
            .chatGroup, .publishedConfig, .pushToken:
            .kept
        }
    }
}
