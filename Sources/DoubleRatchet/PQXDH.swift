// PQXDH (Signal, revision 1): the first secret of a session, from four X25519 agreements and one ML-KEM encapsulation.

/// The part of an initiator's messages that lets the other side make the same secret. It goes with every message until
/// the first answer has come:
///
///     identity (64) | ephemeral (32) | signed prekey id (4) | one-time flag (1) [id (4)] | KEM prekey id (4) |
///     KEM ciphertext (1568)
public struct PreKeyHeader: Equatable, Sendable {
    /// The initiator.
    public let identity: IdentityKey
    /// Which of the responder's prekeys are used.
    public let signedPreKeyID: UInt32
    /// Which one-time prekey, where the bundle had one.
    public let oneTimePreKeyID: UInt32?
    /// Which KEM prekey.
    public let kemPreKeyID: UInt32
    let ephemeral: [UInt8]
    let ciphertext: [UInt8]

    /// Reads the header of a first message without touching any state, so that the caller can look its prekeys up.
    ///
    /// - Returns: nothing where the message is of an established session.
    /// - Throws: ``RatchetError/malformed``, ``RatchetError/unsupportedVersion(_:)`` or ``RatchetError/invalidKey``.
    public static func peek(_ message: Span<UInt8>) throws(RatchetError) -> PreKeyHeader? {
        var reader = ByteReader(message)
        return try MessageHeader(&reader).preKeys
    }

    init(_ reader: inout ByteReader) throws(RatchetError) {
        identity = try IdentityKey(try reader.take(64))
        ephemeral = try reader.take(RatchetLimits.publicKeyLength)
        try Primitives.demandCanonical(ephemeral)
        signedPreKeyID = try reader.number()
        switch try reader.byte() {
        case 0: oneTimePreKeyID = nil
        case 1: oneTimePreKeyID = try reader.number()
        default: throw .malformed
        }
        kemPreKeyID = try reader.number()
        ciphertext = try reader.take(RatchetLimits.kemCiphertextLength)
    }

    init(identity: IdentityKey, ephemeral: [UInt8], bundle: PreKeyBundle, ciphertext: [UInt8]) {
        self.identity = identity
        self.ephemeral = ephemeral
        self.ciphertext = ciphertext
        signedPreKeyID = bundle.signedPreKey.id
        oneTimePreKeyID = bundle.oneTimePreKey?.id
        kemPreKeyID = bundle.kemPreKey.id
    }

    func write(into output: inout [UInt8]) {
        output += identity.bytes + ephemeral
        output.append(number: signedPreKeyID)
        output.append(oneTimePreKeyID == nil ? 0 : 1)
        if let oneTimePreKeyID { output.append(number: oneTimePreKeyID) }
        output.append(number: kemPreKeyID)
        output += ciphertext
    }
}

/// The key agreement.
enum PQXDH {
    /// PQXDH section 2.2: application, curve, hash, KEM.
    private static let info = Array("Pawl_CURVE25519_SHA-256_ML-KEM-1024_1".utf8)

    /// Section 3.3, the initiator's side.
    static func initiate(
        _ identity: borrowing IdentityKeyPair, _ bundle: PreKeyBundle, random: inout some RandomSource
    ) throws(RatchetError) -> (secret: SecretBytes, header: PreKeyHeader) {
        try bundle.verify()
        let ephemeral = random.secret(32)
        let (kemSecret, ciphertext) = try Primitives.encapsulate(bundle.kemPreKey.key)
        var parts = [
            try Primitives.agree(identity.scalar, bundle.signedPreKey.key),
            try Primitives.agree(ephemeral, bundle.identity.agreement),
            try Primitives.agree(ephemeral, bundle.signedPreKey.key),
        ]
        if let once = bundle.oneTimePreKey { parts.append(try Primitives.agree(ephemeral, once.key)) }
        parts.append(kemSecret)
        let header = PreKeyHeader(
            identity: identity.publicKey, ephemeral: try Primitives.publicKey(of: ephemeral), bundle: bundle,
            ciphertext: ciphertext)
        let secret = derive(
            parts, header, responder: bundle.identity, signedPreKey: bundle.signedPreKey.key,
            oneTimePreKey: bundle.oneTimePreKey?.key, kemKey: bundle.kemPreKey.key)
        return (secret, header)
    }

    /// Section 3.4, the responder's side.
    ///
    /// - Throws: ``RatchetError/unknownPreKey`` where the header names other prekeys than those handed over.
    static func respond(
        _ identity: borrowing IdentityKeyPair, _ header: PreKeyHeader, signedPreKey: SignedPreKey,
        oneTimePreKey: OneTimePreKey?, kemPreKey: KEMPreKey
    ) throws(RatchetError) -> SecretBytes {
        guard header.signedPreKeyID == signedPreKey.publicPart.id, header.kemPreKeyID == kemPreKey.publicPart.id,
            header.oneTimePreKeyID == oneTimePreKey?.publicPart.id
        else { throw .unknownPreKey }
        var parts = [
            try Primitives.agree(signedPreKey.secret, header.identity.agreement),
            try Primitives.agree(identity.scalar, header.ephemeral),
            try Primitives.agree(signedPreKey.secret, header.ephemeral),
        ]
        if let once = oneTimePreKey { parts.append(try Primitives.agree(once.secret, header.ephemeral)) }
        parts.append(try Primitives.decapsulate(header.ciphertext, seed: kemPreKey.seed))
        return derive(
            parts, header, responder: identity.publicKey, signedPreKey: signedPreKey.publicPart.key,
            oneTimePreKey: oneTimePreKey?.publicPart.key, kemKey: kemPreKey.publicPart.key)
    }

    /// Section 2.2, KDF(KM), with the whole transcript in the info: both identities, every public key and the
    /// ciphertext.
    private static func derive(
        _ parts: [SecretBytes], _ header: PreKeyHeader, responder: IdentityKey, signedPreKey: [UInt8],
        oneTimePreKey: [UInt8]?, kemKey: [UInt8]
    ) -> SecretBytes {
        var transcript: [UInt8] = []
        header.write(into: &transcript)
        transcript += responder.bytes + signedPreKey + (oneTimePreKey ?? []) + kemKey
        var material = [UInt8](repeating: 0xFF, count: 32)
        material.reserveCapacity(32 * (parts.count + 1))
        for part in parts { material.append(part) }
        let input = SecretBytes(material)
        material.wipe()
        return Primitives.hkdf(input, salt: nil, info: info + Primitives.sha256(transcript), count: 32)
    }
}
