// The jobs of a messenger's machine, and its replies and events. Values only: they cross threads.

package import Devices
package import DoubleRatchet
package import Envelope
package import Protection

/// The name of a chat.
package enum ChatName: Hashable, Sendable, ExpressibleByStringLiteral {
    case person(String)
    case group(GroupID)

    package init(stringLiteral name: String) { self = .person(name) }

    package var id: AccountID {
        switch self {
        case .person(let name): .services(name)
        case .group(let group): group.chat
        }
    }
}

/// A message to send, or a change of an earlier one.
package struct SendJob: Sendable {
    package var chat: ChatName
    package var act: ChatContent.Act
    package var text: String
    package var fallback = Fallback.wait

    /// What happens with a text if the other person has no keys.
    package enum Fallback: Sendable, Equatable {
        case wait
        case refuse
        /// It is sent unprotected, but never in a latched chat; there it waits.
        case plaintext
    }

    package init(to user: String, _ act: ChatContent.Act = .text, text: String = "") {
        self.init(in: .person(user), act, text: text)
    }

    package init(in chat: ChatName, _ act: ChatContent.Act = .text, text: String = "") {
        (self.chat, self.act, self.text) = (chat, act, text)
    }
}

/// A message for the code of the other side, such as the offer of a call: sealed as a text is, and not kept.
package struct SignalJob: Sendable {
    /// The name of the other person; the person's own for their other devices.
    package var user: String
    /// Nil for all devices of the person.
    package var device: DeviceID?
    /// See ``ChatContent/isSignalKind(_:)``.
    package var kind: String
    /// At most ``ChatContent/textLimit`` bytes.
    package var text: String
    /// It is dropped unless it is sent in time, and by the recipient unless it comes in time. In seconds.
    package var lifetime: Int64

    package init(to user: String, device: DeviceID? = nil, kind: String, text: String, lifetime: Int64) {
        (self.user, self.device, self.kind, self.text, self.lifetime) = (user, device, kind, text, lifetime)
    }
}

/// A signal that has come.
package struct ReceivedSignal: Sendable, Equatable {
    /// The name of the sender; the person's own for a signal of their other device.
    package var user: String
    package var device: DeviceID
    package var kind: String
    package var text: String
    /// In milliseconds since 1970, by the sender's clock.
    package var writtenAt: Int64

    package init(user: String, device: DeviceID, kind: String, text: String, writtenAt: Int64) {
        (self.user, self.device, self.kind, self.text, self.writtenAt) = (user, device, kind, text, writtenAt)
    }
}

/// A change of a group.
package enum GroupChange: Sendable, Equatable {
    /// A new group of these people and the person.
    case create(name: String, metadata: [UInt8], members: [String])
    case rename(String)
    case metadata([UInt8])
    case add([String])
    /// Removes people; the person alone leaves.
    case remove([String])
    /// A moderator, or no longer one.
    case moderator(String, Bool)
    /// One more version without a change, so that what a removed device has made before counts.
    case confirm
}

/// A version of a group that is to be published.
package struct GroupProposal: Sendable, Equatable {
    package var chain: GroupChain
    var key: [UInt8]
    /// The sealed form for the server.
    package var blob: [UInt8]

    package init(chain: GroupChain, key: [UInt8], blob: [UInt8]) {
        (self.chain, self.key, self.blob) = (chain, key, blob)
    }
}

/// Which sessions are begun with keys that were read.
package struct NewSessions: Sendable {
    /// Whether sessions are begun with devices that have none. They are not to open an envelope: it begins one itself.
    package var begins: Bool
    /// A device with which a new session is begun in any case, because its messages cannot be opened.
    package var renewing: DeviceID?

    package init(begins: Bool = true, renewing: DeviceID? = nil) { (self.begins, self.renewing) = (begins, renewing) }
}

/// A job. Jobs take effect in their order. The reply goes to the ticket, after the commit.
package enum MessengerJob: Sendable {
    case send(ticket: UInt64, SendJob)
    case signal(ticket: UInt64, SignalJob)
    /// An envelope has come from the server. The reply is the acknowledgement.
    ///
    /// - Parameter hasKeys: whether the sender's published keys were read for this envelope.
    case receive(ticket: UInt64, [UInt8], from: String, hasKeys: Bool)
    /// An unprotected text has come.
    ///
    /// - Parameter id: what names it at the server; a text with the same id is the same text. Nil for a text without.
    case receivePlaintext(ticket: UInt64, String, from: String, id: MessageID? = nil)
    /// The server reports a receipt, which proves nothing about its sender.
    case receipt(ticket: UInt64, MessageID, from: String, isRead: Bool)
    /// The server reports that it has dropped messages of a device, which proves nothing.
    case lost(ticket: UInt64, DeviceID, of: String, count: Int)
    /// The published keys of a person were read; nil if there are none.
    ///
    /// - Parameter oneTime: one-time prekeys that the server has handed out for the sessions that begin.
    case keys(
        ticket: UInt64, [UInt8]?, of: String, NewSessions = NewSessions(),
        oneTime: [DeviceID: OneTimePreKey.Public] = [:])
    /// The server has so many one-time prekeys of this device left. The reply has those to add.
    case replenish(ticket: UInt64, left: Int)
    /// The store is an earlier copy of this device's store. The first job of a process.
    case restored(ticket: UInt64)
    /// The account is new: this device is its first, and its keys are published.
    case found(ticket: UInt64)
    /// The account exists: this device asks the master device to be added.
    case join(ticket: UInt64, [UInt8])
    /// The person has accepted the request of another device.
    case adopt(ticket: UInt64, [UInt8])
    /// The person has lost a device.
    case revoke(ticket: UInt64, DeviceID)
    /// The person has decided about the keys of somebody.
    case decide(ticket: UInt64, String, PeerDecision)
    /// The person has read a chat.
    case markRead(ticket: UInt64, ChatName)
    /// New texts of the person in a chat stay for a number of seconds; nil for good.
    case setTimer(ticket: UInt64, ChatName, Int64?)
    /// Messages of a chat before a place, the last ones first.
    case history(ticket: UInt64, ChatName, before: UInt64?, limit: Int)
    case chats(ticket: UInt64)
    /// Makes the next version of a group, or a new group, to be published. It changes nothing.
    ///
    /// - Parameter base: the group; nil for a new one.
    case proposeGroup(ticket: UInt64, GroupChange, of: GroupID?)
    /// A proposed version was published under an id: it counts from now on, and is sent to the members.
    case publishedGroup(ticket: UInt64, GroupProposal, blob: String)
    /// A blob was read that a message has named; nil if there is none.
    ///
    /// - Parameter hasKeys: whether the published keys of the members that have signed were read for it.
    case readGroup(ticket: UInt64, GroupReference, [UInt8]?, hasKeys: Bool)
    case groups(ticket: UInt64)
    /// Makes an introduction of this device, for transports with keys in band.
    case introduce(ticket: UInt64)
    /// Whether the transport is authenticated. Requests wait until it is.
    case authenticated(Bool)
    /// Whether envelopes for several devices are sent as one, from now on.
    case sendsSeveral(Bool)
    /// An attempt to send a request has ended.
    ///
    /// - Parameter random: 64 random bits, for the pause before the next attempt.
    case attempted(UInt64, lease: UInt64, AttemptEnd, random: UInt64)
    /// Time has passed.
    case tick
}

/// How an attempt ended.
package enum AttemptEnd: Sendable, Equatable {
    case done
    /// It may succeed later.
    case failed
    /// The transport does not have this call.
    case unsupported
    /// The server lists no such recipient, or not all of them.
    case unknownRecipient
    /// The server will not do it.
    case refused(String)
}

/// One call of the transport.
package struct Attempt: Sendable {
    package enum Call: Sendable, Equatable {
        case send([UInt8], user: String, device: DeviceID, message: MessageID)
        case sendSeveral([UInt8], to: [Recipient], message: MessageID)
        case plaintext(String, user: String, message: MessageID)
        case receipt(MessageID, user: String, isRead: Bool)
        case publish([UInt8])
        case register([UInt8])
    }

    /// A recipient of an envelope for several devices.
    package struct Recipient: Sendable, Equatable {
        package var user: String
        package var device: DeviceID

        package init(user: String, device: DeviceID) { (self.user, self.device) = (user, device) }
    }

    package var id: UInt64
    package var lease: UInt64
    package var call: Call
    /// The call is not made after this time, in milliseconds since 1970; nil for a call that does not become useless.
    package var expires: Int64?
}

/// Why a job was not done.
package enum MessengerRefusal: Error, Sendable, Equatable {
    /// The store failed; nothing has changed.
    case notCommitted
    case tooLong
    /// The other person has published no keys, and an unprotected message is not allowed; or the signal is for a device
    /// that is not listed.
    case keysMissing
    /// The message that it is about is not in the chat, or is somebody else's.
    case unknownMessage
    /// Only the master device of an account adds and removes devices.
    case notMaster
    /// The bytes are no request of a device for this account, or no list of it.
    case notAuthentic
    /// A limit is reached, or the device is not in the list.
    case noSuchDevice
    /// Nothing is known of this person.
    case unknownUser
    /// The person is no member of this group.
    case unknownGroup
    /// The role of the person does not allow it, or it changes nothing.
    case notAllowed
    /// A limit of groups is reached.
    case groupLimit
    /// The group was changed by another member at the same time.
    case groupChanged
}

/// What became of an envelope from the server.
package enum ReceiveOutcome: Sendable, Equatable {
    /// It is stored, or needs no row. The server may forget it.
    case taken
    /// It was opened before.
    case copy
    /// It cannot be opened. The server may forget it: a copy cannot be opened either.
    case dropped(OpenFailure)
    /// The sender's published keys have to be read first.
    case keysWanted
}

/// What has happened. Sent after the commit.
package enum MessengerEvent: Sendable {
    /// A new message in a chat.
    case message(ChatMessage)
    /// A message has other text, another state or other reactions, or is deleted.
    case changed(ChatMessage)
    case chat(ChatSummary)
    case peer(PeerEvent)
    /// The published keys of a person are needed.
    case keysWanted(String)
    /// An envelope of a person could not be opened.
    case unreadable(String, OpenFailure)
    /// A device of a person uses a session that this device does not have: a new one has to be begun.
    case sessionLost(String, DeviceID)
    /// Messages of a person were lost before one that has come.
    case gap(String, Int)
    /// An unprotected text under the name of a person in a latched chat was not shown.
    case withheld(String)
    /// The person's own list has changed.
    case ownDevices(DeviceList)
    case signal(ReceivedSignal)
    /// Earlier messages of chats have come from the master device.
    case history([AccountID], isComplete: Bool)
    /// A group is new, or has another version.
    case group(GroupState)
    /// A published version of a group has to be read.
    case groupWanted(GroupReference)
    /// A version of a group was refused.
    case groupRefused(GroupReference, GroupRefusal)
    /// The person has left a group, and a version that another member has made at the same time still has them.
    case leaveAgain(GroupID)
}

/// Why a version of a group does not count.
package enum GroupRefusal: String, Sendable, Equatable {
    /// The server does not have it, or it is not what its reference names.
    case unavailable
    /// It is not signed by the members that it names.
    case notAuthentic = "not_authentic"
    /// Another version was made at the same time, and counts; or a removed device has made it.
    case fork
    /// Two long branches: only the owner can decide, by one more version.
    case undecidedFork = "undecided_fork"
    /// It does not have the person.
    case notMember = "not_member"
    /// Too many groups, or too many unread versions.
    case limit
}

/// A reply to a ticket, or what the transport is to do, or an event.
package enum MessengerReply: Sendable {
    case accepted(ChatMessage)
    case refused(MessengerRefusal)
    case received(ReceiveOutcome)
    case done
    case history([ChatMessage])
    case chats([ChatSummary])
    case groups([GroupState])
    case group(GroupState)
    case proposal(GroupProposal)
    /// An envelope of the kind `introduction`.
    case introduction([UInt8])
    /// One-time prekeys of this device for the server; none if it has enough.
    case oneTimeKeys([OneTimePreKey.Public])
    /// The published keys of these people have to be read first.
    case keysNeeded([String])
    case event(MessengerEvent)
    case attempt(Attempt)
}
