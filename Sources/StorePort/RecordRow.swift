// Records: small rows with a name, such as keys and lists of people's own devices. Each kind has its own format.

import Protection

/// The kind of a record.
@usableFromInline
package enum RecordKind: Int, Sendable, CaseIterable {
    /// A private prekey of a device in this vault, sealed.
    case preKey = 1
    /// The device list of an account whose device is in this vault.
    case ownDevices = 2
    /// The known devices of a peer: pinned, offered, compared.
    case peer = 3
    /// A sender key for a room, our own or a peer's, sealed.
    case senderKey = 4
    /// The published device list of an account, whether it is blocked, and when a device was last proven.
    case directoryAccount = 5
    /// The published prekeys of a device.
    case directoryDevice = 6
    /// An operator's hold, named by ``RequestScope/name``; the value is the time, in decimal digits.
    case hold = 7
    /// The highest number in a device's mailbox, written when the mailbox is empty; see ``Mailboxes``.
    case mailbox = 8
    case mailboxEntry = 9
    case sharedCiphertext = 10
    case blob = 11
    /// Digests of the last ids that a device has used for sending.
    case sent = 12
    /// The name of a gateway's network, under ``RecordRow/network``: it is bound to every envelope. The program keeps
    /// the chat protocol of the store under another name.
    case network = 13
    /// An account whose own policy applies in rooms too; see ``PolicySnapshot/withRooms``. The value is empty.
    case policyWithRooms = 16
    /// A chat of a messenger: its last message, its unread ones; sealed.
    case chat = 17
    /// A message of a messenger, sealed. The name is that of its chat and its place, and sorts by place.
    case chatMessage = 18
    /// The name of the row of a message, sealed, by what people call the message.
    case chatIndex = 19
    /// A message of a messenger that waits for keys; the value is empty.
    case chatWaiting = 20
    /// When the text of a message is deleted, by time; the value is empty.
    case chatTimer = 21
    /// What an account's messenger has published, byte for byte; see ``PublishedConfigs``.
    case publishedConfig = 22
    /// A group of a messenger, a version of it that has to be read, or a message that waits for such a version; sealed.
    case chatGroup = 23
    /// The push token of a device; see ``PushTokens``.
    case pushToken = 24
}

extension RecordKind {
    /// Where a record is; nil if its name does not tell.
    func placement(of name: String, in sharding: Sharding) -> Placement? {
        switch self {
        case .directoryAccount, .publishedConfig: .shard(sharding.shard(of: AccountID(text: name)))
        case .network, .policyWithRooms: .unsharded
        // Named by a device, or by what one has published.
        case .directoryDevice, .mailbox, .mailboxEntry, .sharedCiphertext, .sent, .blob, .pushToken: nil
        // An account's, or in earlier versions a request's.
        case .hold: nil
        // Of a person's own device, whose store is not divided.
        case .preKey, .ownDevices, .peer, .senderKey, .chat, .chatMessage, .chatIndex, .chatWaiting, .chatTimer,
            .chatGroup:
            nil
        }
    }
}

/// A small row with a name.
package struct RecordRow: Equatable, Sendable {
    /// The name of the record of ``RecordKind/network`` that has the network.
    package static let network = "network"

    package var kind: RecordKind
    package var name: String
    package var value: [UInt8]

    package init(kind: RecordKind, name: String, value: [UInt8]) {
        (self.kind, self.name, self.value) = (kind, name, value)
    }
}
