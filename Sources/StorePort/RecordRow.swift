// What devices of people's own add to the store: few rows, read whole, each of a kind with a form of its own.

/// What a record is.
package enum RecordKind: Int, Sendable, CaseIterable {
    /// A private prekey of a device in this vault, sealed.
    case preKey = 1
    /// The device list of an account whose device is in this vault.
    case ownDevices = 2
    /// What is known of somebody's devices: pinned, offered, compared.
    case peer = 3
    /// A sender key for a room, our own or somebody's, sealed.
    case senderKey = 4
    /// The published device list of an account, and who vouched for it.
    case directoryAccount = 5
    /// The published prekeys of a device.
    case directoryDevice = 6
    /// What an operator holds back, named by ``RequestScope/name``; the value is the time, in decimal digits.
    case hold = 7
    /// Up to which number a device has its letters; see ``Mailroom``.
    case mailbox = 8
    case letter = 9
    case parcel = 10
    case blob = 11
    /// What a device has called the last things that it sent.
    case sent = 12
    /// The name of a gateway's network, under ``RecordRow/network``: it is bound to every envelope.
    case network = 13
    /// An account whose own policy counts in rooms too; see ``PolicySnapshot/withRooms``. Without a value.
    case policyWithRooms = 16
}

/// A small row with a name.
package struct RecordRow: Equatable, Sendable {
    /// The name of the only record of ``RecordKind/network``.
    package static let network = "network"

    package var kind: RecordKind
    package var name: String
    package var value: [UInt8]

    package init(kind: RecordKind, name: String, value: [UInt8]) {
        (self.kind, self.name, self.value) = (kind, name, value)
    }
}
