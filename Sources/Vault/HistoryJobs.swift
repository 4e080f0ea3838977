// Jobs for backends that keep the history of messages and return it repeatedly and in any order.

package import Devices
package import Envelope
package import Protection

/// A text to seal for a conversation of such a backend.
package struct SealMessageJob: Sendable {
    /// A person's own device that gets a copy of the key.
    package struct Reader: Sendable, Equatable {
        package var account: AccountID
        package var device: DeviceID

        package init(account: AccountID, device: DeviceID) { (self.account, self.device) = (account, device) }
    }

    package var connection: ConnectionID
    package var ticket: UInt64
    package var sender: AccountID
    /// Made by ``AccountID/room(_:status:)``.
    package var conversation: AccountID
    /// At most ``Content/maximumLength`` bytes.
    package var plaintext: [UInt8]
    /// Each needs a session with the sender's device. The key is wrapped for all of them, or the message is not
    /// written.
    package var readers: [Reader]
    /// The longest envelope that the backend accepts, in bytes; nil if only the carrier limits it.
    package var maximumLength: Int?

    package init(
        connection: ConnectionID, ticket: UInt64, sender: AccountID, conversation: AccountID, plaintext: [UInt8],
        readers: [Reader] = [], maximumLength: Int? = nil
    ) {
        self.maximumLength = maximumLength
        (self.connection, self.ticket) = (connection, ticket)
        (self.sender, self.conversation) = (sender, conversation)
        (self.plaintext, self.readers) = (plaintext, readers)
    }
}

/// A sealed envelope for the backend, whose content key is stored.
package struct SealedEnvelope: Sendable, Equatable {
    package var bytes: [UInt8]
    package var message: MessageID
    /// Whether it has raised the latch of its conversation.
    package var isFirstOfConversation: Bool
}

/// Why a message was not written.
package enum SealFailure: String, Error, Sendable, Equatable, CaseIterable {
    /// The message does not fit in one envelope, or has too many readers. The client's fault; a retry fails too.
    case tooLong = "too_long"
    /// There is no session with one of its readers.
    case keysMissing = "keys_missing"
    /// The store failed. Nothing was sent; the client may retry.
    case store
}

/// The envelopes of one answer of a backend, to open.
package struct OpenMessagesJob: Sendable {
    /// Ours: what one job opens: a page of a thousand messages, which takes the commit thread some 10 ms. What is more
    /// fails as ``OpenFailure/store``.
    package static let itemLimit = 1024
    /// Ours: bytes of all envelopes of one job; 4 MiB take some 10 ms. Envelopes beyond it fail in the same way.
    package static let byteLimit = 4 << 20

    package struct Item: Sendable, Equatable {
        package var envelope: [UInt8]
        /// The sender that the backend names; nil if it names none.
        package var sender: AccountID?
        /// The conversation that contains it.
        package var conversation: AccountID

        package init(envelope: [UInt8], sender: AccountID?, conversation: AccountID) {
            (self.envelope, self.sender, self.conversation) = (envelope, sender, conversation)
        }
    }

    package var connection: ConnectionID
    package var ticket: UInt64
    /// The account that received the answer. The backend decides what an account may read; the vault opens for all
    /// accounts.
    package var reader: AccountID
    package var items: [Item]

    package init(connection: ConnectionID, ticket: UInt64, reader: AccountID, items: [Item]) {
        (self.connection, self.ticket) = (connection, ticket)
        (self.reader, self.items) = (reader, items)
    }

    /// Splits items into runs that fit in one job. An envelope of more than ``byteLimit`` is a run of its own.
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

/// The result for one envelope.
package enum OpenOutcome: Sendable, Equatable {
    case text([UInt8], sender: AccountID, protection: Protection, message: MessageID)
    case failed(OpenFailure)
}
