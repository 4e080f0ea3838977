/// The key agreement that starts a session (PQXDH revision 1, sections 2.2, 3.3 and 3.4).
///
/// ```
/// KM   = FF * 32 || DH(IKA, SPKB) || DH(EKA, IKB) || DH(EKA, SPKB) || [DH(EKA, OPKB)] || SS
/// SK   = HKDF-SHA256(salt 00 * 32, KM, info, 128)
///      = root 32 || post-quantum secret 32 || initiator's header key 32 || responder's next header key 32
/// info = "DoubleRatchet/2 PQXDH CURVE25519 SHA-256 ML-KEM-1024" || SHA-256(transcript)
/// transcript = flags || IKB || SPKB || last resort || PQPKB 1568 || [OPKB] || prekey part
/// ```
/// Beyond the specification, the hash of every public value of the agreement is in the info, so two parties that
/// disagree about any of them get different keys.
enum PQXDH {
    private static let label = Array("DoubleRatchet/2 PQXDH CURVE25519 SHA-256 ML-KEM-1024".utf8)

    /// The initial secrets of both ratchets and the first headers (Double Ratchet, sections 4.2 and 5.3).
    struct Secrets {
        package let root: RootKey
        let postQuantum: SecretBytes
        /// `shared_hka`
        let initiatorHeader: HeaderKey
        /// `shared_nhkb`
        let responderHeader: HeaderKey
    }

    /// The result of the agreement: the secrets, and the part to send.
    struct Agreement {
        package let secrets: Secrets
        let part: PreKeyPart
    }

    /// Section 3.3. The caller has verified the signatures of `bundle`. The encapsulation is an argument because its
    /// randomness cannot be passed in.
    package static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: PreKeyBundle, encapsulation: Primitives.Encapsulation,
        random: inout some RandomSource
    ) throws(RatchetError) -> Agreement {
        let signedPreKey = try AgreementPublicKey(bundle.signedPreKey.key)
        var oneTimeKey: AgreementPublicKey?
        if let offered = bundle.oneTimePreKey { oneTimeKey = try AgreementPublicKey(offered.key) }
        let ephemeral = AgreementKeyPair(random: &random)
        var secrets = [
            try identity.agreementPair.agree(with: signedPreKey),
            try ephemeral.agree(with: try bundle.identity.agreementKey()),
            try ephemeral.agree(with: signedPreKey),
        ]
        if let oneTimeKey { secrets.append(try ephemeral.agree(with: oneTimeKey)) }
        secrets.append(encapsulation.secret)
        let part = PreKeyPart(
            identity: identity.publicKey.rawBytes, ephemeralKey: ephemeral.publicKey.bytes,
            signedPreKeyID: bundle.signedPreKey.id, kemPreKeyID: bundle.kemPreKey.id,
            ciphertext: encapsulation.ciphertext, oneTimePreKeyID: bundle.oneTimePreKey?.id)
        let agreed = derive(
            secrets, part: part, responder: bundle.identity, signedPreKey: signedPreKey.bytes,
            kemPreKey: bundle.kemPreKey, oneTimePreKey: oneTimeKey?.bytes)
        return Agreement(secrets: agreed, part: part)
    }

    /// Section 3.4. The prekeys must be those that `part` names.
    package static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: borrowing SignedPreKey, kemPreKey: borrowing KEMPreKey,
        oneTimePair: AgreementKeyPair?, part: PreKeyPart
    ) throws(RatchetError) -> Secrets {
        let initiator = try IdentityKey(part.identity).agreementKey()
        let ephemeral = try AgreementPublicKey(part.ephemeralKey)
        var secrets = [
            try signedPreKey.pair.agree(with: initiator),
            try identity.agreementPair.agree(with: ephemeral),
            try signedPreKey.pair.agree(with: ephemeral),
        ]
        if let oneTimePair { secrets.append(try oneTimePair.agree(with: ephemeral)) }
        secrets.append(try Primitives.decapsulate(part.ciphertext, seed: kemPreKey.seed))
        return derive(
            secrets, part: part, responder: identity.publicKey, signedPreKey: signedPreKey.publicKey.key,
            kemPreKey: kemPreKey.publicKey, oneTimePreKey: oneTimePair?.publicKey.bytes)
    }

    private static func derive(
        _ secrets: [SecretBytes], part: PreKeyPart, responder: IdentityKey, signedPreKey: Bytes32,
        kemPreKey: KEMPreKey.Public, oneTimePreKey: Bytes32?
    ) -> Secrets {
        var transcript: [UInt8] = [oneTimePreKey == nil ? 0 : 1]
        transcript.reserveCapacity(3400)
        responder.rawBytes.append(to: &transcript)
        signedPreKey.append(to: &transcript)
        transcript.append(kemPreKey.isLastResort ? 1 : 0)
        transcript.append(contentsOf: kemPreKey.key)
        oneTimePreKey?.append(to: &transcript)
        part.write(into: &transcript)
        var info = label
        transcript.withUnsafeBytes { Primitives.sha256($0) }.append(to: &info)
        let outputs = KeyMaterial.derive(from: secrets, info: info, blocks: 4)
        return Secrets(
            root: RootKey(secret: outputs[0]), postQuantum: outputs[1], initiatorHeader: HeaderKey(secret: outputs[2]),
            responderHeader: HeaderKey(secret: outputs[3]))
    }
}
