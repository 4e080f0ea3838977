// What HTTP exchanges and WebSockets ask of the participants, and what they are answered. Values only: they cross threads.

package import DeviceDirectory
import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import StorePort
package import Vault

/// One thing for the participants to do. The order of jobs is the order of their effects.
package enum JSONJob: Sendable {
    /// Seals a message for a backend that keeps history.
    case write(WriteJob)
    /// Opens envelopes that such a backend hands out.
    case read(ReadJob)
    /// The backend has refused a message: if nothing else was sealed in its conversation, its latch goes down.
    case refused(ConversationID, MessageID)
    /// A message was sent or came end to end between two accounts: the conversation stays protected.
    case protect(ConversationID, names: (first: String, second: String))
    /// An operator has lowered the latch of a conversation; the next protected message raises it again.
    case reset(ConversationID)
    /// A connection that may become a capable one is to prove its device.
    case challenge(ConnectionID)
    case directory(DirectoryJob)
    /// A call about mailboxes or blobs.
    case mail(MailJob)
    /// Changes that need no answer.
    case record([StoreChange])
    /// Time has passed.
    case tick

    /// Whether the submitter gets a reply.
    package var isAnswered: Bool {
        switch self {
        case .protect, .refused, .reset, .record, .tick: false
        case .write, .read, .challenge, .directory, .mail: true
        }
    }

    /// The changes of a ``record(_:)``; none for other jobs.
    package var records: [StoreChange] { if case .record(let changes) = self { changes } else { [] } }
}

/// What the participants answer, always after the commit.
package enum JSONReply: Sendable {
    case wrote(ticket: UInt64, WrittenEnvelope)
    case writeFailed(ticket: UInt64, WriteFailure)
    /// - Parameter outcomes: in the order of ``ReadJob/items``.
    case read(ticket: UInt64, [ReadOutcome])
    /// A message of the directory, as the answer to the client's request of this number.
    case directory(id: UInt32, DirectoryMessage)
    /// The device that this connection has proven.
    case proven(id: UInt32, DeviceID, oneTime: Int)
    case mail(id: UInt32, MailAnswer)
}
