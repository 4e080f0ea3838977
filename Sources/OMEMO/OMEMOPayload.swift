public import DoubleRatchet

/// One payload for all recipients, under its own key, which each recipient receives through its ``OMEMOSession``.
///
/// ```
///          key material               payload
/// omemo2:  key 32 | HMAC-SHA256 16    AES-256-CBC, keys by HKDF "OMEMO Payload" (XEP-0384, section 4.4)
/// axolotl: key 16 | GCM tag 16        AES-128-GCM without its tag, the IV beside it (XEP-0384 version 0.3, section 4.4)
/// ```
/// The tag is part of the key material, so a payload is bound to the session messages that carry its key. It is not
/// bound to the names of sender and recipients: the content element inside it does that (XEP-0420).
public struct OMEMOPayload: Sendable {
    /// For the `payload` element: as long as the plaintext in axolotl, 1 to 16 bytes longer in omemo2.
    public let ciphertext: [UInt8]
    /// For the `iv` element of axolotl: 12 bytes; empty in omemo2.
    public let iv: [UInt8]
    /// For ``OMEMOSession/encrypt(_:random:into:)-(SecretBytes,_,_)``, once for each recipient device: 48 bytes in
    /// omemo2, 32 in axolotl.
    public let keyMaterial: SecretBytes

    private static let info = Array("OMEMO Payload".utf8)
    private static let tagLength = 16
    private static let nonceLength = 12
    /// The length that clients used before 12 bytes became the rule.
    private static let oldNonceLength = 16

    private static func keyLength(_ profile: OMEMOProfile) -> Int {
        switch profile {
        case .axolotl: 16
        case .omemo2: 32
        }
    }

    /// Seals a payload under a fresh key.
    ///
    /// - Parameters:
    ///   - plaintext: any length, also zero.
    ///   - profile: the profile of the recipients' sessions.
    ///   - random: 32 bytes are taken in omemo2, 28 in axolotl.
    public static func seal(
        _ plaintext: Span<UInt8>, profile: OMEMOProfile, random: inout some RandomSource
    ) -> OMEMOPayload {
        let key = SecretBytes(count: keyLength(profile), random: &random)
        switch profile {
        case .omemo2:
            var ciphertext: [UInt8] = []
            let material = key.withUnsafeBytes { secret in
                OMEMOCipherKeys.with(secret, info: info) { keys in
                    plaintext.withUnsafeBytes { keys.seal($0, into: &ciphertext) }
                    return ciphertext.withUnsafeBytes { keys.withMAC(of: $0) { joined(key, $0.prefix(tagLength)) } }
                }
            }
            return OMEMOPayload(ciphertext: ciphertext, iv: [], keyMaterial: material)
        case .axolotl:
            var nonce = [UInt8](repeating: 0, count: nonceLength)
            nonce.withUnsafeMutableBytes { random.fill($0) }
            let (ciphertext, tag) = plaintext.withUnsafeBytes { Primitives.sealGCM($0, key: key, nonce: nonce) }
            return OMEMOPayload(ciphertext: ciphertext, iv: nonce, keyMaterial: joined(key, tag))
        }
    }

    /// The key material of an empty message, which has no payload: a heartbeat, or the reply to a key exchange
    /// (XEP-0384, Business Rules): 32 zero bytes in omemo2, 16 in axolotl.
    public static func emptyKeyMaterial(_ profile: OMEMOProfile) -> SecretBytes {
        SecretBytes(count: keyLength(profile)) { _ in }
    }

    /// Opens a payload with key material from a session.
    ///
    /// - Parameters:
    ///   - ciphertext: from the `payload` element.
    ///   - iv: from the `iv` element in axolotl: 12 bytes, or 16 from old clients; empty in omemo2.
    ///   - keyMaterial: the output of ``OMEMOSession/decrypt(_:isKeyExchange:into:)``.
    ///   - profile: the profile of the session.
    ///   - output: the plaintext is appended.
    /// - Throws: ``RatchetError/malformed`` for other lengths, ``RatchetError/authenticationFailed`` if the key
    ///   material was sent for another payload.
    public static func open(
        _ ciphertext: Span<UInt8>, iv: Span<UInt8>, keyMaterial: Span<UInt8>, profile: OMEMOProfile,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        let keyLength = keyLength(profile)
        guard keyMaterial.count == keyLength + tagLength else { throw .malformed }
        switch profile {
        case .omemo2: guard iv.isEmpty else { throw .malformed }
        case .axolotl: guard iv.count == nonceLength || iv.count == oldNonceLength else { throw .malformed }
        }
        try keyMaterial.withUnsafeBytes { (material) throws(RatchetError) in
            let key = SecretBytes(copying: UnsafeRawBufferPointer(rebasing: material.prefix(keyLength)))
            let tag = UnsafeRawBufferPointer(rebasing: material.suffix(tagLength))
            try ciphertext.withUnsafeBytes { (ciphertext) throws(RatchetError) in
                switch profile {
                case .omemo2:
                    try key.withUnsafeBytes { (secret) throws(RatchetError) in
                        try OMEMOCipherKeys.with(secret, info: info) { (keys) throws(RatchetError) in
                            try keys.verify(tag, of: ciphertext)
                            try keys.open(ciphertext, into: &output)
                        }
                    }
                case .axolotl:
                    try iv.withUnsafeBytes { (iv) throws(RatchetError) in
                        try Primitives.openGCM(ciphertext, tag: tag, key: key, nonce: iv, into: &output)
                    }
                }
            }
        }
    }

    private static func joined(_ key: SecretBytes, _ tag: some Collection<UInt8>) -> SecretBytes {
        SecretBytes(count: key.count + tag.count) { bytes in
            key.withUnsafeBytes { bytes.copyMemory(from: $0) }
            UnsafeMutableRawBufferPointer(rebasing: bytes[key.count...]).copyBytes(from: tag)
        }
    }
}
