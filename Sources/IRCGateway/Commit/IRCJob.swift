// The jobs that IRC connections submit to the participants, and the replies. Values only: they cross threads.

package import DeviceDirectory
package import Devices
import DoubleRatchet
package import Envelope
package import Outbox
package import Protection
package import Reports
package import StorePort

/// A text to seal for one account or room.
package struct SealJob: Sendable {
    package var connection: ConnectionID
    package var ticket: UInt64
    package var sender: AccountID
    package var recipient: AccountID
    /// The nick that the recipient has now, as written.
    package var target: String
    /// The folded nicks by which sender and recipient know each other.
    package var senderName: String
    package var recipientName: String
    package var verb: String
    package var body: Body
    /// Characters of an envelope that fit in one line.
    package var capacity: Int
    /// The only device to seal for; nil for all devices of the recipient.
    package var device: DeviceID?
    /// The readers in a room whose members hold their own keys.
    package var members: [Member] = []
    /// Whether a message to such a room raises the room's latch. True behind a gateway in front.
    package var latchesRoom = false

    /// A member of a room whose keys are known.
    package struct Member: Sendable, Equatable {
        package var account: AccountID
        /// The nick to write to, as the backend folds it.
        package var nick: String
        /// Characters of an envelope that fit in one line to this member.
        package var capacity: Int

        package init(account: AccountID, nick: String, capacity: Int) {
            self.account = account
            self.nick = nick
            self.capacity = capacity
        }
    }

    package init(
        connection: ConnectionID, ticket: UInt64, sender: AccountID, recipient: AccountID, target: String,
        senderName: String, recipientName: String, verb: String, body: Body, capacity: Int, device: DeviceID? = nil
    ) {
        self.device = device
        self.connection = connection
        self.ticket = ticket
        self.sender = sender
        self.recipient = recipient
        self.target = target
        self.senderName = senderName
        self.recipientName = recipientName
        self.verb = verb
        self.body = body
        self.capacity = capacity
    }
}

/// An envelope to open for one of the accounts of a connection.
package struct OpenJob: Sendable {
    package var connection: ConnectionID
    package var ticket: UInt64
    /// The connection's account.
    package var account: AccountID
    /// The possible recipients: the room of the line; else the account, and earlier accounts of this connection.
    package var recipients: [AccountID]
    /// The accounts that the line's source may belong to.
    package var senders: [AccountID]
    package var envelope: [UInt8]
    /// The line for the client up to its text, for a delivery that is repeated after a crash.
    package var lineHead: [UInt8]
    /// The folded nick in the line's source.
    package var sourceName: String
    /// The mark for a text that was opened end to end; nil for none.
    package var mark: ProtectionMark?
    /// Since when the connection is in the line's room.
    package var presence: RoomPresence?
    /// Whether the backend marks the line as older than the connection's arrival.
    package var isReplay = false
    /// Whether a message in a room whose members hold their own keys raises the room's latch.
    package var latchesRoom = false
    /// The line that other connections may wait for; see ``OpenedMessages/begin(_:to:now:)``.
    package var line: OpenedMessages.Line?

    package init(
        connection: ConnectionID, ticket: UInt64, account: AccountID, recipients: [AccountID], senders: [AccountID],
        envelope: [UInt8], lineHead: [UInt8], sourceName: String = "", line: OpenedMessages.Line? = nil
    ) {
        self.sourceName = sourceName
        self.connection = connection
        self.ticket = ticket
        self.account = account
        self.recipients = recipients
        self.senders = senders
        self.envelope = envelope
        self.lineHead = lineHead
        self.line = line
    }

    /// The names under which the envelope came.
    var source: MessageSource { MessageSource(name: sourceName, accounts: senders) }
}

/// A person's request to the other members of a room to protect it, or to stop protecting it.
package struct RoomRequestJob: Sendable {
    package var connection: ConnectionID
    package var act: RoomRequest.Act
    /// The folded name.
    package var room: String
    /// The server's name for its network; empty if unknown.
    package var network = ""
    /// Members who joined after the person decided; nil if this is the decision, which is sent to all readers.
    package var nicks: [String]?
    /// Called once with whether the decision was stored.
    package var done: (@Sendable (Bool) -> Void)?

    package init(connection: ConnectionID, act: RoomRequest.Act, room: String) {
        (self.connection, self.act, self.room) = (connection, act, room)
    }
}

/// Keys that a directory has returned.
package struct FoundJob: Sendable {
    package var connection: ConnectionID
    package var ticket: UInt64
    /// The accounts that they may belong to, the best name first.
    package var names: [AccountID]
    /// The folded nick that was looked up.
    package var nick: String
    package var deviceList: DeviceList
    package var devices: [PublishedDevice]

    package init(
        connection: ConnectionID, ticket: UInt64, names: [AccountID], nick: String, deviceList: DeviceList,
        devices: [PublishedDevice]
    ) {
        self.connection = connection
        self.ticket = ticket
        self.names = names
        self.nick = nick
        self.deviceList = deviceList
        self.devices = devices
    }
}

/// A job for the participants. Jobs take effect in their order.
///
/// Large cases are indirect: jobs are moved and copied several times, and a unit of work has room for two replies.
package enum IRCJob: Sendable {
    indirect case seal(SealJob)
    indirect case open(OpenJob)
    /// The backend has the message, and may have assigned an id.
    case acknowledged(id: UInt64, remoteID: String?)
    /// The backend has rejected the message, or it can no longer be sent.
    case failed(id: UInt64, reason: String)
    /// Lines have been written to the client's socket.
    case delivered(sequences: [UInt64])
    /// An account has logged in again. The reply has its undelivered lines and unsent requests.
    indirect case recover(connection: ConnectionID, ticket: UInt64, account: AccountID)
    /// A connection can no longer send. Its unsent requests wait until its account logs in again.
    case left(ConnectionID)
    /// A connection has logged out of an account and no longer sends the account's requests.
    indirect case loggedOut(ConnectionID, AccountID)
    /// A connection has lost its backend. Messages that their readers have not opened may be lost.
    case lost(ConnectionID)
    /// A connection without a login has ended.
    indirect case forget(AccountID, reason: String)
    /// An operator has lowered the latch of a conversation; the next protected message raises it again.
    indirect case reset(ConversationID)
    /// A job for the directory of a gateway in front. A sidecar refuses it.
    indirect case front(IRCFrontJob)
    /// A job for the person's own device. A gateway in front refuses it.
    indirect case sidecar(IRCSidecarJob)
    /// A message was sent or received end to end between two accounts: the conversation stays protected.
    indirect case protect(ConversationID, names: (first: String, second: String))
    /// An operator's act on a request.
    indirect case act(RequestAct)
    /// Changes that need no reply.
    case record([StoreChange])
    /// Time has passed.
    case tick

    /// The changes of a ``record(_:)``; none for other jobs.
    package var records: [StoreChange] { if case .record(let changes) = self { changes } else { [] } }

    package static func directory(_ job: DirectoryJob) -> IRCJob { .front(.directory(job)) }
}

/// A job for the directory of a gateway in front.
package enum IRCFrontJob: Sendable {
    /// Challenges a connection to prove its device.
    case challenge(ConnectionID)
    case directory(DirectoryJob)

    /// The reply of a gateway without a directory.
    var refusal: (connection: ConnectionID, reply: IRCReply) {
        let reason = "this gateway has no directory"
        return switch self {
        case .challenge(let connection): (connection, .directory(id: 0, .refused(reason)))
        case .directory(let job): (job.connection, .directory(id: job.id, .refused(reason)))
        }
    }
}

/// Where a revoked device of the person is told that it is.
package struct Farewell: Sendable {
    /// Ours: room for an envelope in a line with long names, in bytes.
    static let capacity = 300

    package var connection: ConnectionID
    /// The name under which the device is known to this one.
    package var nick: String

    package init(connection: ConnectionID, nick: String) { (self.connection, self.nick) = (connection, nick) }
}

/// A job for a person's own device in their sidecar.
package enum IRCSidecarJob: Sendable {
    /// Makes an introduction: the own device's keys, for a peer that has shown that it can use them.
    case introduce(connection: ConnectionID, ticket: UInt64, capacity: Int)
    /// A person has decided about the devices of a peer.
    case decide(AccountID, PeerDecision)
    /// A person has lost one of their own devices. It is told, if it can be reached.
    case revoke(DeviceID, farewell: Farewell? = nil)
    case askRoom(RoomRequestJob)
    /// Publishes the keys of the own device in a directory, with the proof for an account.
    case publish(connection: ConnectionID, nonce: [UInt8], account: String)
    /// Sends more one-time prekeys to a directory.
    case replenish(ConnectionID)
    /// A directory has returned the keys of an account.
    case found(FoundJob)

    /// The reply if the job is not done; nil for jobs that are answered by what they change.
    var refusal: (connection: ConnectionID, reply: IRCReply)? {
        switch self {
        case .introduce(let connection, let ticket, _):
            (connection, .sidecar(.introduction(ticket: ticket, bodies: [])))
        case .askRoom(let job): (job.connection, .sidecar(.roomAsked(job, nil)))
        case .found(let job): (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, nil, [])))
        case .decide, .revoke, .publish, .replenish: nil
        }
    }
}

/// An opened message.
package struct Opened: Sendable, Equatable {
    package var body: Body
    /// For ``IRCJob/delivered(sequences:)``; nil if no delivery was stored.
    package var sequence: UInt64?
    package var sender: AccountID
    /// How many messages of this conversation were lost before it.
    package var gap: Int
    package var protection = Protection.gateway
    /// Whether the sender's safety number has been compared.
    package var isVerified = false
    /// What the message changes about its sender's devices.
    package var event: PeerEvent?
    /// A control message for the device that sent it; nil for none.
    package var answer: Answer?

    /// The id of the message, for its trace; 0 if it has none.
    package var message: UInt64 = 0

    /// A control message for one device.
    package struct Answer: Sendable, Equatable {
        package var body: Body
        package var device: DeviceID
    }
}

/// Why a message was not sealed.
package enum IRCSealFailure: Sendable {
    /// The store failed.
    case notCommitted
    /// Too many requests of the account wait.
    case tooManyPending
    /// It needs more lines than are allowed.
    case tooLong
}

/// A reply of the participants, always after the commit.
package enum IRCReply: DirectoryReply {
    /// - Parameter keys: requests with the room's key for its readers, to be sent first.
    indirect case sealed(ticket: UInt64, Request, firstOfConversation: Bool, keys: [Request] = [])
    case sealFailed(ticket: UInt64, IRCSealFailure)
    indirect case opened(ticket: UInt64, Opened)
    case openFailed(ticket: UInt64, OpenFailure)
    /// The message that another connection had opened; nil if this connection has to submit its own job.
    case copied(ticket: UInt64, OpenedMessage?)
    /// The message that another connection had submitted cannot be opened by any.
    case copyFailed(ticket: UInt64, OpenFailure)
    /// Requests to send again, and opened lines that may not have been shown; often none.
    indirect case recovered(ticket: UInt64, requests: [Request], lines: [RecoveredLine])
    /// The backend has acknowledged a message, and the recipient's device has not opened it in time.
    case unopened(requestID: UInt64, target: String)
    /// `count` messages of this connection's account to a name have expired unsent.
    case expired(target: String, count: Int)
    /// An operator has dropped a request of this connection.
    case dropped(id: UInt64, target: String)
    /// Requests or lines wait for this connection's account: the connection submits
    /// ``IRCJob/recover(connection:ticket:account:)``.
    case requestsWaiting
    /// A directory message for a capable client; `id` is that of its request.
    indirect case directory(id: UInt32, DirectoryMessage)
    /// The device that this connection has proven.
    case proven(id: UInt32, DeviceID, oneTime: Int)
    /// A notice for the person behind the connection.
    case notice(String)
    /// A reply that only the connections of a sidecar get.
    indirect case sidecar(SidecarReply)
}

/// A reply of the participants to a connection of a sidecar.
package enum SidecarReply: Sendable {
    /// The lines of an introduction; empty if it could not be made.
    case introduction(ticket: UInt64, bodies: [[UInt8]])
    /// The lines that tell a device of the person, under its nick, that it is revoked.
    case farewell(nick: String, bodies: [[UInt8]])
    /// A message could not be sealed because there is no session with any device of the recipient.
    case keysMissing(ticket: UInt64)
    /// A message for the directory of the gateway in front.
    case ask(DirectoryMessage)
    /// Sessions have been begun with devices from a directory; each device gets a control message. The event is nil if
    /// none could be begun.
    case sessionsStarted(ticket: UInt64, PeerEvent?, [Opened.Answer])
    /// A control message to send to a peer, by the name under which the peer is known.
    case controlMessage(AccountID, Body)
    /// A request for how the rooms of the connection are protected.
    case rooms(@Sendable ([RoomReport]) -> Void)
    /// The person has decided about a room of the connection.
    case askRoom(RoomRequestJob)
    /// The control message for the other members of the room; nil if the decision could not be stored.
    case roomAsked(RoomRequestJob, Body?)
    /// The answer to a command that the person has written to the sidecar itself.
    case said([String])
}

/// A line that was opened before a crash and may not have been shown.
package struct RecoveredLine: Sendable, Equatable {
    package var sequence: UInt64
    package var line: [UInt8]
    /// The folded name of its room; nil if it is a direct message.
    package var room: String?
}
