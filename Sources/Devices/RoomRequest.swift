// A person's request to the other members of a room. It travels as a control message in the session with each of them
// and is signed as well, so that no recipient can pass it on as another person's.

package import DoubleRatchet
package import Envelope

/// A signed request to protect a room, or to stop protecting it.
///
///     act (1 B) | number (8 B) | room (2 B length) | network (2 B length) | signature (64 B)
///
/// The device's identity key signs all bytes before the signature, followed by the device's id; context `pawl room
/// request`.
package struct RoomRequest: Equatable, Sendable {
    private static let context = "pawl room request"

    package enum Act: UInt8, Sendable, CustomStringConvertible {
        /// Stop sending plain text to the room.
        case protect = 1
        /// Send plain text again if a member of the room cannot read anything else.
        case plain = 2

        package var description: String { self == .protect ? "protect" : "plain" }
    }

    package var act: Act
    /// Higher than the number of every earlier request of the device: the sender's time in milliseconds since 1970, or
    /// the last number plus one.
    package var number: Int64
    /// The folded name.
    package var room: String
    /// The server's name for its network (`NETWORK` of RPL_ISUPPORT); empty if the server does not send one.
    package var network: String
    private var signature: [UInt8] = []

    package init(
        act: Act, number: Int64, room: String, network: String, device: DeviceID, identity: borrowing IdentityKeyPair
    ) {
        (self.act, self.number, self.room, self.network) = (act, number, room, network)
        signature = identity.sign(signed(by: device).span, context: Self.context)
    }

    package func isSigned(by identity: IdentityKey, _ device: DeviceID) -> Bool {
        identity.isValidSignature(signature.span, of: signed(by: device).span, context: Self.context)
    }

    private func signed(by device: DeviceID) -> [UInt8] {
        var message = content
        message.append(bigEndian: device.value)
        return message
    }

    // MARK: Bytes

    private var content: [UInt8] {
        var output: [UInt8] = [act.rawValue]
        output.append(bigEndian: UInt64(bitPattern: number))
        output.append(field: Array(room.utf8))
        output.append(field: Array(network.utf8))
        return output
    }

    package var bytes: [UInt8] { content + signature }

    /// Reads the form above. The signature is not checked.
    ///
    /// - Throws: ``EnvelopeError``
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        guard let act = Act(rawValue: try cursor.byte()) else { throw .malformed }
        self.act = act
        number = Int64(bitPattern: try cursor.uint64())
        room = String(decoding: try cursor.field(), as: UTF8.self)
        network = String(decoding: try cursor.field(), as: UTF8.self)
        signature = try cursor.take(64)
        guard cursor.isAtEnd else { throw .malformed }
    }
}
