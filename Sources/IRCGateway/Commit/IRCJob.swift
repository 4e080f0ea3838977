// What IRC connections ask of the participants, and what they are answered. Values only: they cross threads.

package import DeviceDirectory
package import Devices
import DoubleRatchet
package import Envelope
package import Outbox
package import Protection
package import Reports
package import StorePort

/// A text to be sealed for one account.
package struct SealJob: Sendable {
    package var connection: ConnectionID
    package var ticket: UInt64
    package var sender: AccountID
    package var recipient: AccountID
    /// The nick that the recipient has now, as written.
    package var target: String
    /// By which folded nicks the two know each other.
    package var senderName: String
    package var recipientName: String
    package var verb: String
    package var body: Body
    /// Characters that one line has room for.
    package var capacity: Int
    /// Only this device of the recipient is meant; nothing where all are.
    package var device: DeviceID?
    /// Who reads in a room whose members hold keys of their own.
    package var members: [Member] = []
    /// Whether a message to such a room raises the room's latch: so it is behind a gateway in front.
    package var latchesRoom = false

    /// Somebody in a room whose keys are known.
    package struct Member: Sendable, Equatable {
        package var account: AccountID
        /// The nick to write to, as the backend folds it.
        package var nick: String
        /// Characters that one line to them has room for.
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

/// An envelope to be opened for one of the accounts of a connection.
package struct OpenJob: Sendable {
    package var connection: ConnectionID
    package var ticket: UInt64
    /// The connection's account.
    package var account: AccountID
    /// Whom it may be for: the room that it stands in; else the account, and those it had before on this connection.
    package var recipients: [AccountID]
    /// The accounts that the line's source may stand for.
    package var senders: [AccountID]
    package var envelope: [UInt8]
    /// The line for the client up to its text, for a delivery that has to be repeated after a crash.
    package var lineHead: [UInt8]
    /// The folded nick that the line came under.
    package var sourceName: String
    /// What the text is marked with once it has been opened end to end.
    package var mark: ProtectionMark?
    /// Where the connection stands in the room that the line was said in.
    package var standing: RoomStanding?
    /// Whether the backend says that the line was said before the connection came.
    package var isReplay = false
    /// Whether a message of a room whose members hold keys of their own raises the room's latch.
    package var latchesRoom = false
    /// The line that others may wait for; see ``OpenedMessages/begin(_:to:now:)``.
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
}

/// A request to the others of a room to protect it, or not to any more.
package struct RoomRequestJob: Sendable {
    package var connection: ConnectionID
    package var act: RoomRequest.Act
    /// The folded name.
    package var room: String
    /// What the server calls its network; empty if it does not say.
    package var network = ""
    /// Members who have come since the person decided; nil if this is the decision, which goes to all readers.
    package var nicks: [String]?
    /// Called once the decision is stored, with whether it was.
    package var done: (@Sendable (Bool) -> Void)?

    package init(connection: ConnectionID, act: RoomRequest.Act, room: String) {
        (self.connection, self.act, self.room) = (connection, act, room)
    }
}

/// Keys that a directory has handed out.
package struct FoundJob: Sendable {
    package var connection: ConnectionID
    package var ticket: UInt64
    /// Whom they may belong to, the best name first.
    package var names: [AccountID]
    /// The folded nick that was asked for.
    package var nick: String
    package var chain: DeviceChain
    package var devices: [PublishedDevice]

    package init(
        connection: ConnectionID, ticket: UInt64, names: [AccountID], nick: String, chain: DeviceChain,
        devices: [PublishedDevice]
    ) {
        self.connection = connection
        self.ticket = ticket
        self.names = names
        self.nick = nick
        self.chain = chain
        self.devices = devices
    }
}

/// One thing for the vault to do. The order of jobs is the order of their effects.
package enum IRCJob: Sendable {
    case seal(SealJob)
    case open(OpenJob)
    /// The backend has the message; it may have given it a name.
    case acknowledged(id: UInt64, remoteID: String?)
    /// The backend has refused the message, or it cannot be sent any more.
    case failed(id: UInt64, reason: String)
    /// Lines have been handed to the client's socket.
    case delivered(sequences: [UInt64])
    /// An account has come back: what waits for it, and what it was sending?
    case recover(connection: ConnectionID, ticket: UInt64, account: AccountID)
    /// A connection can send nothing any more: what it has not sent waits until its account comes back.
    case left(ConnectionID)
    /// A connection speaks for an account no longer: what waits for that is not its to send.
    case loggedOut(ConnectionID, AccountID)
    /// The backend of a connection has gone: what its readers have not opened may never have reached them.
    case lost(ConnectionID)
    /// A connection without a login has ended.
    case forget(AccountID, reason: String)
    /// An operator has lowered the latch of a conversation; the next protected message begins it anew.
    case reset(ConversationID)
    /// Keys of the own device are asked for, to be sent to somebody who has shown that it can use them.
    case introduce(connection: ConnectionID, ticket: UInt64, capacity: Int)
    /// A person has decided something about somebody's devices.
    case decide(AccountID, PeerDecision)
    /// A person has lost one of their own devices.
    case revoke(DeviceID)
    case askRoom(RoomRequestJob)
    /// A connection that may become a capable one is to prove its device.
    case challenge(ConnectionID)
    case directory(DirectoryJob)
    /// A message came end to end between two accounts, or went: the conversation stays so.
    case protect(ConversationID, names: (first: String, second: String))
    /// The keys of the own device for a directory, as proof for an account.
    case publish(connection: ConnectionID, nonce: [UInt8], account: String)
    /// More one-time prekeys for a directory.
    case replenish(ConnectionID)
    /// What a directory has said of somebody.
    case found(FoundJob)
    /// An operator's act on a request.
    case act(RequestAct)
    /// Changes that need no answer.
    case record([StoreChange])
    /// Time has passed.
    case tick

    /// The changes of a ``record(_:)``; none for other jobs.
    package var records: [StoreChange] { if case .record(let changes) = self { changes } else { [] } }
}

/// An opened message.
package struct Opened: Sendable, Equatable {
    package var body: Body
    /// For ``IRCJob/delivered(sequences:)``; nothing where no delivery was stored.
    package var sequence: UInt64?
    package var sender: AccountID
    /// Messages of this conversation that were lost before it.
    package var gap: Int
    package var protection = Protection.gateway
    /// The sender's safety number has been compared.
    package var isVerified = false
    /// What the message says about its sender's devices.
    package var event: PeerEvent?
    /// What goes back to the device that it came from.
    package var answer: Answer?

    /// The id of the message, for its trace; 0 where it has none.
    package var message: UInt64 = 0

    /// A control message for one device.
    package struct Answer: Sendable, Equatable {
        package var body: Body
        package var device: DeviceID
    }
}

/// What has become known of somebody's devices.
package enum PeerEvent: Sendable, Equatable {
    /// Keys were exchanged with somebody who had none here.
    case met(AccountID)
    /// Keys were exchanged anew, or for one more device.
    case renewed(AccountID)
    /// Somebody shows keys that are not those of the person known by this name.
    case changed(AccountID)
    /// Somebody speaks end to end in the room of this folded name, and so will the person.
    case roomProtected(String)
    /// The device belongs to the person's list from now on.
    case adopted(AccountID)
    /// Another of the person's own devices has removed this one.
    case revoked
    /// A known person writes under a name that is new.
    case otherName(AccountID)
    /// Somebody in a room asks for its protection, or for the end of it.
    case asked(RoomRequest)
    /// Both ends have begun a session, and ours is the one that counts: the other end is to hear of it. Whether what came
    /// was for people to read, who do not see it.
    case crossed(isText: Bool)
}

/// What a person decides about somebody's devices.
package enum PeerDecision: Sendable, Equatable {
    /// The keys that were offered are the person's.
    case accept
    /// The safety number has been compared.
    case verify
    /// They are to be met anew.
    case forget
    /// They are the person's own: this device takes theirs into its list.
    case adopt
    /// They are the person's own: this device is to be taken into their list.
    case join
}

/// What the vault answers, always after the commit.
package enum IRCReply: Sendable {
    /// - Parameter keys: requests that bring the room's readers the key, and go before it.
    case sealed(ticket: UInt64, Request, firstOfConversation: Bool, keys: [Request] = [])
    case sealFailed(ticket: UInt64, reason: String)
    case opened(ticket: UInt64, Opened)
    case openFailed(ticket: UInt64, OpenFailure)
    /// What another connection asked for and this one waits for; without a message it has to ask itself.
    case copied(ticket: UInt64, OpenedMessage?)
    /// Requests that wait to be sent again, and lines that were opened and perhaps never shown; often none.
    case recovered(ticket: UInt64, requests: [Request], lines: [RecoveredLine])
    /// The backend has had a message for a while and the recipient's device has not opened it.
    case notSeen(requestID: UInt64, target: String)
    /// So many messages to a name waited for this connection's account for longer than they may.
    case lapsed(target: String, count: Int)
    /// An operator has dropped a request that was this connection's to send.
    case dropped(id: UInt64, target: String)
    /// Something waits for this connection's account.
    case recall
    /// The lines of an introduction; none where it could not be made.
    case introduction(ticket: UInt64, bodies: [[UInt8]])
    /// A message could not be sealed because there is no session with any device of the recipient.
    case keysMissing(ticket: UInt64)
    /// Something for a capable client, as the answer to its request of this number.
    case directory(id: UInt32, DirectoryMessage)
    /// The device that this connection has proven.
    case proven(id: UInt32, DeviceID, oneTime: Int)
    /// Something to ask of the directory of the gateway in front.
    case ask(DirectoryMessage)
    /// Sessions have been begun with devices that a directory named; each is to be told. Nothing where they were not.
    case met(ticket: UInt64, PeerEvent?, [Opened.Answer])
    /// A control message for somebody, under the name that they are known by.
    case letter(AccountID, Body)
    /// Something that the person behind the connection is to read.
    case remark(String)
    /// The person asks how the rooms of the connection are protected.
    case rooms(@Sendable ([RoomReport]) -> Void)
    /// The person has decided about a room of the connection.
    case askRoom(RoomRequestJob)
    /// What is to be sent to the others of the room; nil if the decision could not be stored.
    case roomAsked(RoomRequestJob, Body?)
}

/// A line that was opened before a crash and is not known to have been shown.
package struct RecoveredLine: Sendable, Equatable {
    package var sequence: UInt64
    package var line: [UInt8]
    /// The folded name of the room that it was said in.
    package var room: String?
}
