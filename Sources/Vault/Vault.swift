// The vault owns hosted devices and their sessions. It seals and opens for every chat protocol, and knows no thread, no
// clock, no socket and no protocol. In a sidecar, `IRCParticipants` uses the keys of the person's own device as well.

package import Devices
package import DoubleRatchet
package import Envelope
package import Protection
package import StorePort

/// Why an envelope is not opened.
///
/// Not nested in `Vault`, because typed throws of a type nested in a generic one crash the optimiser (Swift 6.3).
package struct OpenError: Error {
    package var reason: OpenFailure

    package init(reason: OpenFailure) { self.reason = reason }
}

/// A latch that is raised when the unit of work is committed.
package struct RaisedLatch: Sendable {
    package var conversation: ConversationID
    package var account: AccountID
    package var peer: AccountID
    /// The folded names by which the two know each other; empty in rooms.
    package var peerName: String
    package var accountName: String
    package var protection: Protection

    package init(
        conversation: ConversationID, account: AccountID, peer: AccountID, peerName: String = "",
        accountName: String = "", protection: Protection = .gateway
    ) {
        (self.conversation, self.account, self.peer) = (conversation, account, peer)
        (self.peerName, self.accountName, self.protection) = (peerName, accountName, protection)
    }

    /// The latch of a room, which all senders share.
    package init(room: AccountID, protection: Protection) {
        self.init(
            conversation: ConversationID(room, room), account: room, peer: room, protection: protection)
    }
}

/// Hosted devices and their sessions, and the conversations that they protect. One thread at a time uses it.
///
/// An object: code that is generic over ``VaultHolding`` copies a value to read one of its members.
package final class Vault {
    /// Upper bound of `message.count - plaintext.count` for an established session, in bytes.
    package static var ratchetOverhead: Int { Session.maximumOverhead }

    /// Upper bound of `envelope.count - body.count` for one conversation with established sessions, in bytes.
    package static var historyOverhead: Int {
        MultiRecipientMessage.overhead + Envelope.headerLength + recipientOverhead
    }

    /// Upper bound of what each device with an established session adds to an envelope for several, in bytes.
    package static var recipientOverhead: Int {
        MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + ratchetOverhead
    }

    package let network: String
    /// Names that the network had before; envelopes sealed under them are still opened.
    package var earlierNetworks: [String] = [] { didSet { networks = [network] + earlierNetworks } }
    /// The network names under which an envelope may have been sealed, the present one first.
    package private(set) var networks: [String]
    /// How the chat protocol carries envelopes; its name is bound to each of them.
    package let carrier: Carrier
    /// Read by the participants only.
    package let store: OrderedStore
    package var sharding: Sharding { store.sharding }
    let sealer: StorageSealer
    package let latches: LatchTable
    let sessionCache: SessionCache
    /// Conversations whose latch is raised, uncommitted ones included.
    var conversations: Set<ConversationID> = []
    /// The message that has raised the latch of a conversation, as long as it is the only one sealed there.
    var firstMessages: [ConversationID: MessageID] = [:]
    /// How long the keys of history are stored, in milliseconds; if zero, as for backends without history, they are kept in
    /// memory only.
    package var historyRetention: Int64 = 0
    /// Cached keys of messages that were sealed or opened last.
    var contentKeys = RememberedKeys()
    /// When the store is next checked for expired keys, in monotonic nanoseconds.
    var prunesKeysAt: Int64 = 0

    /// Takes over the hosted devices and the latches of a store.
    ///
    /// - Returns: through `ended`, accounts without a login: they have ended with their connections.
    /// - Throws: ``StoreError`` if a device cannot be unsealed.
    package init(
        network: String, carrier: Carrier, sealer: StorageSealer, store: any Store, latches: LatchTable,
        random: some RandomSource, contents: StoreContents, ended: inout Set<AccountID>
    ) throws(StoreError) {
        (self.network, self.carrier, self.sealer, self.latches) = (network, carrier, sealer, latches)
        networks = [network]
        self.store = OrderedStore(store, by: contents.epochs)
        sessionCache = SessionCache(sealer: sealer, store: self.store, random: random)
        try sessionCache.adopt(contents.devices.filter { $0.account.isVerified })
        ended.formUnion(contents.devices.map(\.account).filter { !$0.isVerified })
        for row in contents.conversations {
            guard row.id.first.isVerified, row.id.second.isVerified else {
                ended.formUnion([row.id.first, row.id.second].filter { !$0.isVerified })
                continue
            }
            conversations.insert(row.id)
            latches.raise(row.id, to: row.latch)
            latches.remember(name: row.peerNameForFirst, of: row.id.second, for: row.id.first)
            latches.remember(name: row.peerNameForSecond, of: row.id.first, for: row.id.second)
        }
    }

    /// The data bound to a message between hosted accounts.
    ///
    /// - Parameter network: the network's name; nil for the present one.
    package func associatedData(
        _ sender: AccountID, _ senderDevice: DeviceID, _ recipient: AccountID, _ recipientDevice: DeviceID,
        _ message: MessageID, network: String? = nil
    ) -> [UInt8] {
        AssociatedData(
            protocolName: carrier.protocolName, network: network ?? self.network, sender: sender.text,
            senderDevice: senderDevice, recipient: recipient.text, recipientDevice: recipientDevice,
            messageID: message, protection: .gateway
        ).bytes
    }

    /// Upper bound of `message.count - plaintext.count` for the next message of a session, in bytes.
    ///
    /// Messages of a session that is not established include the prekey part.
    package func overhead(_ box: SessionBox) -> Int {
        Self.ratchetOverhead + (box.sessions.isEstablished ? 0 : Session.maximumPreKeyPart)
    }
}
