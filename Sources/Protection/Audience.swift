// The sender and the readers of a message, as a chat protocol knows them: the input of Judgement.

package import Envelope

/// What a name on the wire refers to, as far as the gateway can tell.
package enum Recipient: Equatable, Sendable {
    /// An account behind this gateway whose clients cannot encrypt.
    case legacy(AccountID)
    /// An account whose own devices are known.
    case capable(AccountID)
    /// An account that presents other keys than the pinned ones; the person has not accepted them yet.
    case changed(AccountID)
    /// An account that the gateway has no keys for.
    case outsider
    /// A service or bot that the operator has exempted, recognised by its server or host.
    case exempt
    /// The hosted members of a room; the vault opens messages on their behalf.
    case room(AccountID)
}

/// The account that sends a message.
package struct Sender: Equatable, Sendable {
    package var account: AccountID
    package var capability: Capability

    package init(_ account: AccountID, _ capability: Capability) {
        (self.account, self.capability) = (account, capability)
    }
}

/// What encrypts the messages of one connection.
package enum Capability: Equatable, Sendable {
    /// The vault of a front gateway. The client cannot encrypt.
    case hosted
    /// The client, with a device that it has proven on this connection.
    case client
    /// The vault of a sidecar, with the user's own device.
    case sidecar
}

/// The readers of a message, as far as the gateway can tell.
package enum Audience: Equatable, Sendable {
    /// One account or service.
    ///
    /// - Parameter isProtectedName: whether the name was last used by the peer of a conversation whose latch is up. It counts only if
    ///   the recipient is an outsider.
    case one(Recipient, isProtectedName: Bool = false)
    /// A room of a protocol that does not list the readers of each message.
    case room(AccountID, isMember: Bool)
    /// A room whose key a sidecar distributes.
    case sidecarRoom(AccountID, SidecarRoom)
    /// A conversation of a backend that names its members.
    case conversation(AccountID, Members)
    /// The target's name is not UTF-8. Two targets could have the same name here.
    case unnameable
}

/// The state of a room in a sidecar.
package struct SidecarRoom: Equatable, Sendable {
    /// Whether the user is in it.
    package var isMember: Bool
    /// Whether all members have keys.
    package var isWhole: Bool
    /// Whether the last message to it was encrypted.
    package var wasSealed: Bool

    package init(isMember: Bool, isWhole: Bool, wasSealed: Bool) {
        (self.isMember, self.isWhole, self.wasSealed) = (isMember, isWhole, wasSealed)
    }
}

/// The sender of plaintext from the backend, and where it would be shown.
package enum InboundAudience: Equatable, Sendable {
    /// The reader alone.
    ///
    /// - Parameters:
    ///   - sender: nil if the gateway does not know the account.
    ///   - latch: the latch of the conversation in which the message would be shown.
    case one(sender: AccountID?, latch: Protection)
    /// A room.
    ///
    /// - Parameter sender: nil if the gateway does not know the account.
    case room(AccountID, sender: AccountID?)
    /// A room of a sidecar.
    ///
    /// - Parameters:
    ///   - isKnownPeer: whether the sender has keys.
    ///   - isSealed: whether the room's messages are encrypted now.
    case sidecarRoom(AccountID, isKnownPeer: Bool, isSealed: Bool)
    /// Neither the reader alone nor a room, for example a message to all users of a server.
    case many
    /// A conversation of a backend that names its members; nil if it is not known. Then the strictest one counts.
    case conversation(AccountID?)
}
