import DoubleRatchet

/// One message of the Double Ratchet on the wire, without the key exchange that may enclose it.
///
/// ```
/// omemo2:  OMEMOAuthenticatedMessage { mac 16 = 1, message = 2 },
///          where message is OMEMOMessage { n = 1, pn = 2, dh_pub 32 = 3, ciphertext = 4 }
/// axolotl: 33 | SignalMessage { ratchetKey 33 = 1, counter = 2, previousCounter = 3, ciphertext = 4 } | mac 8
/// ```
/// (XEP-0384, Protobuf Schema, and the Signal protocol's wire format, version 3.) The MAC is over ``authenticated``,
/// byte for byte as received. An absent previousCounter is 0.
struct OMEMOMessage {
    package let ratchetKey: Bytes32
    package let number: UInt32
    package let previousCount: UInt32
    package let authenticated: UnsafeRawBufferPointer
    package let ciphertext: UnsafeRawBufferPointer
    package let mac: UnsafeRawBufferPointer

    /// The Signal protocol's version byte: this version and the oldest supported one, both 3.
    static let axolotlVersion: UInt8 = 0x33

    private enum Field {
        // OMEMOMessage
        package static let number: UInt8 = 1
        package static let previousCount: UInt8 = 2
        package static let ratchetKey: UInt8 = 3
        package static let ciphertext: UInt8 = 4
        // OMEMOAuthenticatedMessage
        package static let mac: UInt8 = 1
        package static let message: UInt8 = 2
        // SignalMessage
        static let signalRatchetKey: UInt8 = 1
        static let signalNumber: UInt8 = 2
        static let signalPreviousCount: UInt8 = 3
        static let signalCiphertext: UInt8 = 4
    }

    /// The result points into `bytes`.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``.
    init(_ bytes: UnsafeRawBufferPointer, profile: OMEMOProfile) throws(RatchetError) {
        guard bytes.count <= OMEMOLimits.maximumMessageLength else { throw .malformed }
        switch profile {
        case .omemo2: try self.init(omemo2: bytes)
        case .axolotl: try self.init(axolotl: bytes)
        }
    }

    private init(omemo2 bytes: UnsafeRawBufferPointer) throws(RatchetError) {
        let outer = try ProtobufMessage(bytes)
        mac = try outer.bytes(UInt64(Field.mac))
        guard mac.count == OMEMOProfile.omemo2.macLength else { throw .malformed }
        authenticated = try outer.bytes(UInt64(Field.message))
        let inner = try ProtobufMessage(authenticated)
        number = try inner.number(UInt64(Field.number))
        previousCount = try inner.number(UInt64(Field.previousCount))
        ratchetKey = try OMEMOProfile.omemo2.agreementKey(try inner.bytes(UInt64(Field.ratchetKey)))
        ciphertext = try inner.bytes(UInt64(Field.ciphertext))
    }

    private init(axolotl bytes: UnsafeRawBufferPointer) throws(RatchetError) {
        let macLength = OMEMOProfile.axolotl.macLength
        try Self.checkVersion(bytes)
        guard bytes.count > macLength else { throw .malformed }
        mac = UnsafeRawBufferPointer(rebasing: bytes.suffix(macLength))
        authenticated = UnsafeRawBufferPointer(rebasing: bytes.dropLast(macLength))
        let message = try ProtobufMessage(UnsafeRawBufferPointer(rebasing: authenticated.dropFirst()))
        number = try message.number(UInt64(Field.signalNumber))
        previousCount = try message.optionalNumber(UInt64(Field.signalPreviousCount)) ?? 0
        ratchetKey = try OMEMOProfile.axolotl.agreementKey(try message.bytes(UInt64(Field.signalRatchetKey)))
        ciphertext = try message.bytes(UInt64(Field.signalCiphertext))
    }

    static func checkVersion(_ bytes: UnsafeRawBufferPointer) throws(RatchetError) {
        guard let version = bytes.first else { throw .malformed }
        guard version == axolotlVersion else { throw .unsupportedVersion }
    }

    /// Appends the bytes that the MAC is over, except for the identities before them and the ciphertext after them.
    package static func writeHead(
        profile: OMEMOProfile, ratchetKey: Bytes32, number: UInt32, previousCount: UInt32, ciphertextCount: Int,
        into output: inout [UInt8]
    ) {
        switch profile {
        case .omemo2:
            output.append(protobuf: Field.number, number: number)
            output.append(protobuf: Field.previousCount, number: previousCount)
            output.append(protobuf: Field.ratchetKey, byteCount: profile.agreementKeyLength)
            profile.append(agreementKey: ratchetKey, to: &output)
            output.append(protobuf: Field.ciphertext, byteCount: ciphertextCount)
        case .axolotl:
            output.append(axolotlVersion)
            output.append(protobuf: Field.signalRatchetKey, byteCount: profile.agreementKeyLength)
            profile.append(agreementKey: ratchetKey, to: &output)
            output.append(protobuf: Field.signalNumber, number: number)
            output.append(protobuf: Field.signalPreviousCount, number: previousCount)
            output.append(protobuf: Field.signalCiphertext, byteCount: ciphertextCount)
        }
    }

    /// Appends the whole message around its authenticated part.
    package static func write(
        _ authenticated: some Collection<UInt8>, mac: some Collection<UInt8>, profile: OMEMOProfile,
        into output: inout [UInt8]
    ) {
        switch profile {
        case .omemo2:
            output.append(protobuf: Field.mac, bytes: mac)
            output.append(protobuf: Field.message, bytes: authenticated)
        case .axolotl:
            output.append(contentsOf: authenticated)
            output.append(contentsOf: mac)
        }
    }
}
