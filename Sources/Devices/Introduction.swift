// A device's device list and public keys, sent to a peer that has announced that it supports envelopes.

public import DoubleRatchet
public import Envelope

/// The content of an envelope of the kind `introduction`:
///
///     form (1 B) | time (8 B) | device list (2 B length) | bundle (2 B length) | signature (64 B)
///
/// The form is 2: the sender starts and accepts Triple Ratchet sessions. Programs from before the Triple Ratchet send
/// form 1, which has the same fields. No session with them could be established, so each side rejects the other's form
/// and notifies its user. The time is the sender's, in milliseconds since 1970; an introduction that is not newer than
/// the device's last one is a copy. The device's identity key signs all bytes before the signature, followed by the
/// device's id.
public struct Introduction: Equatable, Sendable {
    private static let form: UInt8 = 2
    private static let formerForm: UInt8 = 1
    private static let context = "pawl introduction"

    /// The sender's time, in milliseconds since 1970.
    public var time: Int64
    /// The list that contains the sending device.
    public var deviceList: DeviceList
    /// The keys with which to start a session.
    public var bundle: PreKeyBundle
    /// The sending device.
    public var device: DeviceID

    /// Makes an introduction of a device.
    public init(time: Int64, deviceList: DeviceList, bundle: PreKeyBundle, device: DeviceID) {
        (self.time, self.deviceList, self.bundle, self.device) = (time, deviceList, bundle, device)
    }

    /// The form above, signed by the device.
    public func bytes(signedBy identity: borrowing IdentityKeyPair) -> [UInt8] {
        var output: [UInt8] = [Self.form]
        output.append(bigEndian: UInt64(bitPattern: time))
        output.append(field: deviceList.bytes)
        var keys: [UInt8] = []
        bundle.serialize(into: &keys)
        output.append(field: keys)
        return output + identity.sign(Self.signed(output, device).span, context: Self.context)
    }

    private static func signed(_ content: [UInt8], _ device: DeviceID) -> [UInt8] {
        var message = content
        message.append(bigEndian: device.value)
        return message
    }

    /// Reads the form above and checks everything that needs no stored state: the signatures of the list, of the
    /// bundle's keys and of the whole, and that the list contains the device.
    ///
    /// - Throws: `EnvelopeError`; `EnvelopeError.outdated` for form 1.
    public init(_ bytes: [UInt8], from device: DeviceID) throws(EnvelopeError) {
        var cursor = ByteCursor(bytes)
        let form = try cursor.byte()
        guard form != Self.formerForm else { throw .outdated(form) }
        guard form == Self.form else { throw .unsupportedVersion(form) }
        time = Int64(bitPattern: try cursor.uint64())
        deviceList = try DeviceList(try cursor.field())
        let keys = try cursor.field()
        let signature = try cursor.take(64)
        guard cursor.isAtEnd, let identity = deviceList.identity(of: device),
            let bundle = try? PreKeyBundle(serialized: keys.span), bundle.identity == identity,
            (try? bundle.verify()) != nil,
            identity.isValidSignature(
                signature.span, of: Self.signed(Array(bytes.dropLast(64)), device).span, context: Self.context)
        else { throw .malformed }
        self.bundle = bundle
        self.device = device
    }
}
