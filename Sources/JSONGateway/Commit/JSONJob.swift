// The jobs that HTTP exchanges and WebSockets submit to the participants, and the replies. Values only: they cross
// threads.

package import DeviceDirectory
import Devices
import DoubleRatchet
package import Envelope
package import Protection
package import RequestQueue
package import StorePort
package import Vault

/// A job for the participants. Jobs take effect in their order.
///
/// Large cases are indirect: jobs are moved and copied several times, and a unit of work has room for two replies.
package enum JSONJob: Sendable {
    /// Seals a message for a backend that keeps history.
    indirect case seal(SealMessageJob)
    /// Looks up an earlier write.
    indirect case find(FindWriteJob)
    /// Queues a write, and seals its text.
    indirect case write(WriteJob)
    /// An event for the queue, such as the end of an attempt.
    case queue(MachineEvent)
    /// The time that the last ``JSONReply/turn(_:)`` named has come.
    case wake
    /// Opens envelopes from the history of such a backend.
    indirect case open(OpenMessagesJob)
    /// Makes the key of a file.
    indirect case sealFile(SealFileJob)
    /// Finds the key of a sealed file.
    indirect case openFile(OpenFileJob)
    /// The backend has rejected a message: if no other was sealed in its conversation, the latch is lowered.
    indirect case refused(ConversationID, MessageID)
    /// A message was sent or received end to end between two accounts: the conversation stays protected.
    indirect case protect(ConversationID, names: (first: String, second: String))
    /// An operator has lowered the latch of a conversation; the next protected message raises it again.
    indirect case reset(ConversationID)
    /// Challenges a connection to prove its device.
    case challenge(ConnectionID)
    indirect case directory(DirectoryJob)
    /// A call about mailboxes or blobs.
    indirect case mail(MailJob)
    /// A call about the signalling of calls between devices without keys.
    indirect case callRelay(CallRelayJob)
    /// Changes that need no reply.
    case record([StoreChange])
    /// Time has passed.
    case tick

    /// Whether the submitter gets a reply.
    package var isAnswered: Bool {
        switch self {
        case .protect, .refused, .reset, .record, .tick, .queue, .wake: false
        case .seal, .find, .write, .open, .sealFile, .openFile, .challenge, .directory, .mail, .callRelay: true
        }
    }

    /// The changes of a ``record(_:)``; none for other jobs.
    package var records: [StoreChange] { if case .record(let changes) = self { changes } else { [] } }
}

/// A reply of the participants, always after the commit.
package enum JSONReply: DirectoryReply {
    indirect case sealed(ticket: UInt64, SealedEnvelope)
    case sealFailed(ticket: UInt64, SealFailure)
    /// The earlier write; nil if the queue knows none.
    indirect case foundWrite(KnownWrite?)
    /// A write was refused, or is committed and answered at once, or is one that was queued before.
    ///
    /// A write whose client waits for its outcome has no other reply.
    indirect case queued(RequestToken, Result<KnownWrite, ExchangeRefusal>)
    /// A WebSocket message was not queued, or is committed, or is one that was queued before. Each one has this reply.
    indirect case queuedFrame(ticket: UInt64, Result<KnownWrite, ExchangeRefusal>)
    /// For the part of the program that sends the queue's requests, see ``JSONParticipants/sender``.
    indirect case turn(QueueTurn)
    /// - Parameter outcomes: in the order of ``OpenMessagesJob/items``.
    case opened(ticket: UInt64, [OpenOutcome])
    /// The key of a file that was made or found.
    indirect case fileKey(Result<SealedFile.Key, OpenError>)
    /// A message of the directory, as the answer to the client's request of this number.
    indirect case directory(id: UInt32, DirectoryMessage)
    /// The device that this connection has proven.
    case proven(id: UInt32, DeviceID, oneTime: Int)
    indirect case mail(id: UInt32, MailAnswer)
    indirect case callRelay(id: UInt32, CallRelayAnswer)
}

extension JSONReply {
    /// The kind of the reply, for the log.
    var name: String {
        switch self {
        case .sealed: "sealed"
        case .sealFailed: "sealFailed"
        case .foundWrite: "foundWrite"
        case .queued: "queued"
        case .queuedFrame: "queuedFrame"
        case .turn: "turn"
        case .opened: "opened"
        case .fileKey: "fileKey"
        case .directory: "directory"
        case .proven: "proven"
        case .mail: "mail"
        case .callRelay: "relay"
        }
    }
}
