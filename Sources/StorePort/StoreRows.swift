// The rows of the store, as values. Secret fields are sealed by the caller.
//
// Request rows hold ciphertext. A delivery row holds the opened line, sealed, until the line has been written to the
// client's socket.

package import Envelope
package import Protection

/// A hosted device: the vault holds its private key.
package struct DeviceRow: Equatable, Sendable {
    package var id: DeviceID
    package var account: AccountID
    /// The identity key pair, sealed under the storage key.
    package var sealedIdentity: [UInt8]
    /// In milliseconds since 1970.
    package var createdAt: Int64

    package init(id: DeviceID, account: AccountID, sealedIdentity: [UInt8], createdAt: Int64) {
        (self.id, self.account, self.sealedIdentity, self.createdAt) = (id, account, sealedIdentity, createdAt)
    }
}

/// Names one side of a session: the owner's device and the peer's.
package struct SessionID: Hashable, Sendable {
    package var owner: DeviceID
    package var peer: DeviceID

    package init(owner: DeviceID, peer: DeviceID) { (self.owner, self.peer) = (owner, peer) }
}

/// The state of a session.
package struct SessionRow: Equatable, Sendable {
    package var id: SessionID
    /// Rises with each write; a writer with an old fence is rejected.
    package var fence: UInt64
    /// The ratchet state, sealed under the storage key.
    package var sealedState: [UInt8]

    package init(id: SessionID, fence: UInt64, sealedState: [UInt8]) {
        (self.id, self.fence, self.sealedState) = (id, fence, sealedState)
    }
}

/// An opened and committed line that was not yet written to the client's socket.
package struct DeliveryRow: Equatable, Sendable {
    /// The number of the line, in the order of opening.
    package var sequence: UInt64
    package var account: AccountID
    /// The line for the client, sealed under the storage key.
    package var sealedLine: [UInt8]

    package init(sequence: UInt64, account: AccountID, sealedLine: [UInt8]) {
        (self.sequence, self.account, self.sealedLine) = (sequence, account, sealedLine)
    }
}

/// The content key of one message, stored until it expires.
package struct ContentKeyRow: Equatable, Sendable {
    package var message: MessageID
    /// The digest of the whole envelope.
    package var digest: EnvelopeDigest
    /// In milliseconds since 1970; from then on the key is not used.
    package var expiresAt: Int64
    /// Sealed under the storage key, and bound to message, digest, expiry and the conversation, which the row does not
    /// have.
    package var sealedKey: [UInt8]

    package init(message: MessageID, digest: EnvelopeDigest, expiresAt: Int64, sealedKey: [UInt8]) {
        (self.message, self.digest) = (message, digest)
        (self.expiresAt, self.sealedKey) = (expiresAt, sealedKey)
    }
}

/// A conversation whose latch is raised.
package struct ConversationRow: Equatable, Sendable {
    package var id: ConversationID
    package var latch: Protection
    /// In milliseconds since 1970.
    package var since: Int64
    /// The folded nick by which ``ConversationID/first`` knew the other end; then the same for the second account.
    package var peerNameForFirst: String
    package var peerNameForSecond: String

    package init(
        id: ConversationID, latch: Protection, since: Int64, peerNameForFirst: String, peerNameForSecond: String
    ) {
        self.id = id
        self.latch = latch
        self.since = since
        self.peerNameForFirst = peerNameForFirst
        self.peerNameForSecond = peerNameForSecond
    }
}

/// What is known of the clients that an account uses.
package struct EvidenceRow: Equatable, Sendable {
    /// The services account, or the nick if there is none.
    package var name: String
    package var verified: Bool
    /// The client's name and version; empty if unknown.
    package var software: String
    /// Whether it has asked for the capability, which proves nothing.
    package var asked: Bool
    package var firstSeen: Int64
    package var lastSeen: Int64
    package var registrations: Int

    package init(
        name: String, verified: Bool, software: String, asked: Bool, firstSeen: Int64, lastSeen: Int64,
        registrations: Int
    ) {
        self.name = name
        self.verified = verified
        self.software = software
        self.asked = asked
        self.firstSeen = firstSeen
        self.lastSeen = lastSeen
        self.registrations = registrations
    }
}

/// How many messages between two accounts stricter policies would treat differently.
package struct ObservationRow: Equatable, Sendable {
    package var sender: String
    package var target: String
    /// One of ``ObservedRecipient``'s names.
    package var recipient: String
    package var messages: Int
    package var lastSeen: Int64

    package init(sender: String, target: String, recipient: String, messages: Int, lastSeen: Int64) {
        self.sender = sender
        self.target = target
        self.recipient = recipient
        self.messages = messages
        self.lastSeen = lastSeen
    }
}

/// One line of the audit log.
package struct AuditRow: Equatable, Sendable {
    package var at: Int64
    package var actor: String
    package var action: String
    package var detail: String

    package init(at: Int64, actor: String, action: String, detail: String) {
        (self.at, self.actor, self.action, self.detail) = (at, actor, action, detail)
    }
}

/// Messages counted in one hour.
package struct TallyRow: Equatable, Sendable {
    /// Hours since 1970.
    package var hour: Int64
    /// One of ``Tally``'s names.
    package var kind: String
    package var count: Int

    package init(hour: Int64, kind: String, count: Int) { (self.hour, self.kind, self.count) = (hour, kind, count) }
}
