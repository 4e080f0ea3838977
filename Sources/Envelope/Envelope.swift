// The envelope: an encrypted message as it travels in the backend's message body. Binary and versioned. `Armour` makes
// it text; `Body` defines the plaintext of the ratchet message.
//
//      0      1                  9                 17
//     +------+------------------+------------------+---------------------------+
//     | V K  | sender device    | message id       | ratchet message ...       |
//     +------+------------------+------------------+---------------------------+
//       1 B    8 B, big-endian    8 B, big-endian    the rest
//
// V (high four bits) is the version, K (low four bits) the kind. Values that the context implies (network, accounts,
// the recipient's device, protection) are bound as associated data and not sent: see ``AssociatedData``. The last part
// is a ratchet message only if the kind is `direct`.

/// Why bytes are not an envelope that this version can open.
public enum EnvelopeError: Error, Equatable, Sendable {
    /// A version that this program does not know. It is rejected without an attempt to read it.
    case unsupportedVersion(UInt8)
    /// An earlier version that this program no longer accepts.
    case outdated(UInt8)
    /// A kind that this version does not define.
    case unsupportedKind(UInt8)
    /// Too short, too long, or not canonical.
    case malformed
}

/// The identifier of a device, random, eight bytes; drawn when the device is made.
public struct DeviceID: Hashable, Sendable, Comparable {
    /// The number.
    public let value: UInt64

    /// Makes an identifier of a number.
    public init(_ value: UInt64) { self.value = value }

    /// Orders identifiers by their numbers.
    public static func < (left: DeviceID, right: DeviceID) -> Bool { left.value < right.value }
}

/// The local id of a message, eight bytes: the gateway's name for it until the backend assigns one.
package struct MessageID: Hashable, Sendable, Comparable {
    package let value: UInt64

    package init(_ value: UInt64) { self.value = value }

    package static func < (left: MessageID, right: MessageID) -> Bool { left.value < right.value }
}

/// A parsed envelope. The ratchet message is not opened here.
package struct Envelope: Equatable, Sendable {
    /// The versions that this program reads. One that it has written stays: backends keep envelopes for years.
    private enum Version: UInt8 {
        case first = 1

        /// The version that this program writes.
        static let written = Version.first
    }

    /// Bytes before the ratchet message.
    package static let headerLength = 17

    /// The form of an envelope's content.
    package enum Kind: UInt8, Sendable {
        /// One ratchet message for one device.
        case direct = 1
        /// One body under a random content key, which is wrapped for several devices.
        case several = 2
        /// One message under the sender's key for a room.
        case room = 3
        /// The public keys of a device, for a peer that has announced that it supports envelopes. Signed, not sealed.
        case introduction = 4
    }

    package let kind: Kind
    package let sender: DeviceID
    package let messageID: MessageID
    package let ratchetMessage: [UInt8]

    package init(kind: Kind = .direct, sender: DeviceID, messageID: MessageID, ratchetMessage: [UInt8]) {
        (self.kind, self.sender, self.messageID, self.ratchetMessage) = (kind, sender, messageID, ratchetMessage)
    }

    /// Parses bytes. Nothing is authenticated yet: all fields are claims.
    ///
    /// - Parameter carrier: sets the maximum length.
    /// - Throws: ``EnvelopeError``.
    package init(_ bytes: [UInt8], in carrier: Carrier = .irc) throws(EnvelopeError) {
        guard bytes.count <= carrier.maximumLength else { throw .malformed }
        (kind, sender, messageID) = try Self.header(of: bytes)
        guard bytes.count > Self.headerLength else { throw .malformed }
        ratchetMessage = Array(bytes.dropFirst(Self.headerLength))
    }

    /// The kind and sender that an envelope claims; nil if the bytes are no envelope of a known version.
    package static func claim(of bytes: [UInt8]) -> (kind: Kind, sender: DeviceID)? {
        guard let header = try? header(of: bytes) else { return nil }
        return (header.kind, header.sender)
    }

    /// Reads the header of any known version.
    private static func header(
        of bytes: [UInt8]
    ) throws(EnvelopeError) -> (kind: Kind, sender: DeviceID, messageID: MessageID) {
        guard let first = bytes.first else { throw .malformed }
        guard let version = Version(rawValue: first >> 4) else { throw .unsupportedVersion(first >> 4) }
        switch version {
        case .first:
            guard let kind = Kind(rawValue: first & 0x0F) else { throw .unsupportedKind(first & 0x0F) }
            guard bytes.count >= headerLength else { throw .malformed }
            func number(_ place: Int) -> UInt64 { bytes[place..<place + 8].reduce(0) { $0 << 8 | UInt64($1) } }
            return (kind, DeviceID(number(1)), MessageID(number(9)))
        }
    }

    /// The bytes that the armour carries.
    package var bytes: [UInt8] {
        var output: [UInt8] = []
        output.reserveCapacity(Self.headerLength + ratchetMessage.count)
        output.append(Version.written.rawValue << 4 | kind.rawValue)
        output.append(bigEndian: sender.value)
        output.append(bigEndian: messageID.value)
        output.append(contentsOf: ratchetMessage)
        return output
    }
}

extension [UInt8] {
    package mutating func append(bigEndian value: UInt64) {
        for shift in stride(from: 56, through: 0, by: -8) { append(UInt8(truncatingIfNeeded: value >> UInt64(shift))) }
    }
}

extension DeviceID {
    /// Reads the text form; nil unless the text is exactly what ``name`` writes.
    package init?(name: String) {
        guard let number = UInt64(name, radix: 16), DeviceID(number).name == name else { return nil }
        self.init(number)
    }

    /// The text form: 16 hexadecimal digits in lower case.
    public var name: String {
        let digits = String(value, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}
