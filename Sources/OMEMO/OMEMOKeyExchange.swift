public import DoubleRatchet

/// The key exchange in an initiator's messages until it has received a first reply (X3DH, section 3.3).
///
/// ```
/// omemo2:  OMEMOKeyExchange { pk_id = 1, spk_id = 2, ik 32 = 3, ek 32 = 4, message = 5 }
/// axolotl: 33 | PreKeySignalMessage { preKeyId = 1, baseKey 33 = 2, identityKey 33 = 3, message = 4,
///                                     registrationId = 5, signedPreKeyId = 6 }
/// ```
/// The registration id has no meaning in OMEMO: it is neither written nor read. A one-time prekey is mandatory in both
/// profiles, so a message without its id is malformed.
public struct OMEMOKeyExchange: Hashable, Sendable {
    /// The claimed sender. Not proven before the message has been opened.
    public let identity: OMEMOIdentityKey
    /// The initiator's ephemeral key: together with ``identity`` it identifies the exchange.
    package let ephemeralKey: Bytes32
    /// The signed prekey that the responder needs.
    public let signedPreKeyID: UInt32
    /// The one-time prekey that the responder needs.
    public let preKeyID: UInt32

    private enum Field {
        // OMEMOKeyExchange
        static let preKeyID: UInt8 = 1
        package static let signedPreKeyID: UInt8 = 2
        package static let identity: UInt8 = 3
        package static let ephemeralKey: UInt8 = 4
        package static let message: UInt8 = 5
        // PreKeySignalMessage
        static let signalPreKeyID: UInt8 = 1
        static let signalEphemeralKey: UInt8 = 2
        static let signalIdentity: UInt8 = 3
        static let signalMessage: UInt8 = 4
        static let signalSignedPreKeyID: UInt8 = 6
    }

    init(identity: OMEMOIdentityKey, ephemeralKey: Bytes32, signedPreKeyID: UInt32, preKeyID: UInt32) {
        self.identity = identity
        self.ephemeralKey = ephemeralKey
        self.signedPreKeyID = signedPreKeyID
        self.preKeyID = preKeyID
    }

    /// Reads the key exchange of a message without using any secret key.
    ///
    /// It tells which prekeys to look up, and whether a session with it exists already (``OMEMOSession/began(with:)``).
    /// Takes about 20 microseconds, for the identity.
    ///
    /// - Throws: ``RatchetError/malformed``, also for more than ``OMEMOLimits/maximumMessageLength`` bytes,
    ///   ``RatchetError/unsupportedVersion``, ``RatchetError/invalidKey``.
    public init(of message: Span<UInt8>, profile: OMEMOProfile) throws(RatchetError) {
        self = try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            try Self.parse(bytes, profile: profile).exchange
        }
    }

    /// The exchange, and the bytes of the inner message.
    package static func parse(
        _ bytes: UnsafeRawBufferPointer, profile: OMEMOProfile
    ) throws(RatchetError) -> (exchange: OMEMOKeyExchange, message: UnsafeRawBufferPointer) {
        guard bytes.count <= OMEMOLimits.maximumMessageLength else { throw .malformed }
        switch profile {
        case .omemo2:
            let fields = try ProtobufMessage(bytes)
            let exchange = OMEMOKeyExchange(
                identity: try OMEMOIdentityKey(try fields.bytes(UInt64(Field.identity)), profile: profile),
                ephemeralKey: try profile.agreementKey(try fields.bytes(UInt64(Field.ephemeralKey))),
                signedPreKeyID: try fields.number(UInt64(Field.signedPreKeyID)),
                preKeyID: try fields.number(UInt64(Field.preKeyID)))
            return (exchange, try fields.bytes(UInt64(Field.message)))
        case .axolotl:
            try OMEMOMessage.checkVersion(bytes)
            let fields = try ProtobufMessage(UnsafeRawBufferPointer(rebasing: bytes.dropFirst()))
            let exchange = OMEMOKeyExchange(
                identity: try OMEMOIdentityKey(try fields.bytes(UInt64(Field.signalIdentity)), profile: profile),
                ephemeralKey: try profile.agreementKey(try fields.bytes(UInt64(Field.signalEphemeralKey))),
                signedPreKeyID: try fields.number(UInt64(Field.signalSignedPreKeyID)),
                preKeyID: try fields.number(UInt64(Field.signalPreKeyID)))
            return (exchange, try fields.bytes(UInt64(Field.signalMessage)))
        }
    }

    /// Appends the exchange around `message`.
    package func write(around message: [UInt8], into output: inout [UInt8]) {
        let ephemeralKey = identity.profile.wireForm(agreementKey: ephemeralKey)
        switch identity.profile {
        case .omemo2:
            output.append(protobuf: Field.preKeyID, number: preKeyID)
            output.append(protobuf: Field.signedPreKeyID, number: signedPreKeyID)
            output.append(protobuf: Field.identity, bytes: identity.bytes)
            output.append(protobuf: Field.ephemeralKey, bytes: ephemeralKey)
            output.append(protobuf: Field.message, bytes: message)
        case .axolotl:
            output.append(OMEMOMessage.axolotlVersion)
            output.append(protobuf: Field.signalPreKeyID, number: preKeyID)
            output.append(protobuf: Field.signalEphemeralKey, bytes: ephemeralKey)
            output.append(protobuf: Field.signalIdentity, bytes: identity.bytes)
            output.append(protobuf: Field.signalMessage, bytes: message)
            output.append(protobuf: Field.signalSignedPreKeyID, number: signedPreKeyID)
        }
    }
}
