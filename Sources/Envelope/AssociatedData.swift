// Associated data: context that both ends know without sending it. It is bound to every envelope, so that an envelope
// cannot be moved to another conversation, sender, network or protection.

/// How a message is protected on its way.
package enum Protection: UInt8, Sendable, Comparable, CaseIterable {
    case plaintext = 0
    /// End-to-gateway: the operator of the gateway can read it.
    case gateway = 1
    /// End-to-end: only the people's own devices can read it.
    case device = 2

    package static func < (left: Protection, right: Protection) -> Bool { left.rawValue < right.rawValue }

    /// The name shown to people and scripts.
    package var name: String {
        switch self {
        case .plaintext: "plaintext"
        case .gateway: "gateway"
        case .device: "device"
        }
    }
}

/// The associated data of one envelope.
///
/// The eight bytes `pawl-ad1` and one byte of protection, then these fields in order, each after its length as two
/// bytes, big-endian:
///
///     protocol | network | sender account | sender device | recipient account | recipient device | message id
package struct AssociatedData: Equatable, Sendable {
    package var protocolName: String
    package var network: String
    package var sender: String
    package var senderDevice: DeviceID
    package var recipient: String
    package var recipientDevice: DeviceID
    package var messageID: MessageID
    package var protection: Protection

    package init(
        protocolName: String, network: String, sender: String, senderDevice: DeviceID, recipient: String,
        recipientDevice: DeviceID, messageID: MessageID, protection: Protection
    ) {
        self.protocolName = protocolName
        self.network = network
        self.sender = sender
        self.senderDevice = senderDevice
        self.recipient = recipient
        self.recipientDevice = recipientDevice
        self.messageID = messageID
        self.protection = protection
    }

    package var bytes: [UInt8] {
        let version = "pawl-ad1"
        let texts = protocolName.utf8.count + network.utf8.count + sender.utf8.count + recipient.utf8.count
        var output: [UInt8] = []
        output.reserveCapacity(version.utf8.count + 1 + texts + 4 * 2 + 3 * 10)
        output.append(contentsOf: version.utf8)
        output.append(protection.rawValue)
        func field(_ bytes: String.UTF8View) {
            output.append(UInt8(truncatingIfNeeded: bytes.count >> 8))
            output.append(UInt8(truncatingIfNeeded: bytes.count))
            output.append(contentsOf: bytes)
        }
        func number(_ value: UInt64) {
            output.append(0)
            output.append(8)
            output.append(bigEndian: value)
        }
        field(protocolName.utf8)
        field(network.utf8)
        field(sender.utf8)
        number(senderDevice.value)
        field(recipient.utf8)
        number(recipientDevice.value)
        number(messageID.value)
        return output
    }
}
