// What a person asks the others of a room for. It travels as a control message in the session with each of them, and is signed
// besides: nobody can pass it on as somebody else's.

package import DoubleRatchet
package import Envelope

/// A signed request to protect a room, or not to any more.
///
///     act (1 B) | number (8 B) | room (2 B length) | network (2 B length) | signature (64 B)
///
/// Signed by the device's identity over everything before, with the device's id; context `pawl room request`.
package struct RoomRequest: Equatable, Sendable {
    private static let context = "pawl room request"

    package enum Act: UInt8, Sendable, CustomStringConvertible {
        /// Send nothing in plain text to the room any more.
        case protect = 1
        /// Send plain text again where somebody in the room cannot read anything else.
        case plain = 2

        package var description: String { self == .protect ? "protect" : "plain" }
    }

    package var act: Act
    /// Higher than that of every earlier request of the device: the sender's time in milliseconds since 1970, or one more
    /// than the last number.
    package var number: Int64
    /// The folded name.
    package var room: String
    /// What the server calls its network (`NETWORK` of RPL_ISUPPORT); empty if it does not say.
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
