// What is asked of the vault where the backend keeps what was said and hands it out again and again, in any order.

package import Devices
package import Envelope
package import Protection

/// A text to be sealed for a conversation of such a backend.
package struct WriteJob: Sendable {
    /// A device of a person's own that reads along.
    package struct Reader: Sendable, Equatable {
        package var account: AccountID
        package var device: DeviceID

        package init(account: AccountID, device: DeviceID) { (self.account, self.device) = (account, device) }
    }

    package var connection: ConnectionID
    package var ticket: UInt64
    package var sender: AccountID
    /// Of the kind that ``AccountID/room(_:status:)`` makes.
    package var conversation: AccountID
    /// At most ``Content/maximumLength`` bytes.
    package var plaintext: [UInt8]
    /// Those with a session with the sender's device. The key is wrapped for each, or the message is not written.
    package var readers: [Reader]

    package init(
        connection: ConnectionID, ticket: UInt64, sender: AccountID, conversation: AccountID, plaintext: [UInt8],
        readers: [Reader] = []
    ) {
        (self.connection, self.ticket) = (connection, ticket)
        (self.sender, self.conversation) = (sender, conversation)
        (self.plaintext, self.readers) = (plaintext, readers)
    }
}

/// An envelope for the backend, sealed and with its key kept.
package struct WrittenEnvelope: Sendable, Equatable {
    package var bytes: [UInt8]
    package var message: MessageID
    /// Whether it has protected its conversation.
    package var isFirstOfConversation: Bool
}

/// Why a message was not written.
package enum WriteFailure: String, Error, Sendable, Equatable, CaseIterable {
    /// It does not fit one envelope. The client's fault; it is no use to try again.
    case tooLong = "too_long"
    /// There is no session with one of its readers.
    case keysMissing = "keys_missing"
    /// The store did not take it. Nothing was said; it may be tried again.
    case store
}

/// All envelopes of one answer of a backend, to be opened.
package struct ReadJob: Sendable {
    /// Ours: what one job opens: a page of a thousand messages, which takes the commit thread some 10 ms. What is more
    /// fails as ``OpenFailure/store``.
    package static let itemLimit = 1024
    /// Ours: bytes of all envelopes of one job, counted likewise; 4 MiB take some 10 ms.
    package static let byteLimit = 4 << 20

    package struct Item: Sendable, Equatable {
        package var envelope: [UInt8]
        /// Who has said it, as the backend has it; nothing where it does not say.
        package var sender: AccountID?
        /// Where it stands.
        package var conversation: AccountID

        package init(envelope: [UInt8], sender: AccountID?, conversation: AccountID) {
            (self.envelope, self.sender, self.conversation) = (envelope, sender, conversation)
        }
    }

    package var connection: ConnectionID
    package var ticket: UInt64
    /// Whom the backend has given it to. Who may read what is the backend's to say: the vault opens for everybody behind it.
    package var reader: AccountID
    package var items: [Item]

    package init(connection: ConnectionID, ticket: UInt64, reader: AccountID, items: [Item]) {
        (self.connection, self.ticket) = (connection, ticket)
        (self.reader, self.items) = (reader, items)
    }

    /// Items in runs of which each fits one job; an envelope of more than ``byteLimit`` is a run of its own.
    package static func runs(_ items: [Item]) -> [[Item]] {
        var runs: [[Item]] = []
        var bytes = 0
        for item in items {
            bytes += item.envelope.count
            if let last = runs.indices.last, runs[last].count < itemLimit, bytes <= byteLimit {
                runs[last].append(item)
            } else {
                runs.append([item])
                bytes = item.envelope.count
            }
        }
        return runs
    }
}

/// What has become of one envelope.
package enum ReadOutcome: Sendable, Equatable {
    case text([UInt8], sender: AccountID, protection: Protection, message: MessageID)
    case failed(OpenFailure)
}
