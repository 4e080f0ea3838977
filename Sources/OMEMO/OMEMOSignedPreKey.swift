public import DoubleRatchet

/// A medium-term prekey of one profile, signed by the identity.
///
/// It is replaced once a week to once a month; its predecessor is kept for the same time (XEP-0384, section 4.2).
public struct OMEMOSignedPreKey: ~Copyable, Sendable {
    /// The public part.
    public struct Public: Hashable, Sendable {
        /// The profile that the signature was made in.
        public let profile: OMEMOProfile
        /// The owner's number for this prekey.
        public let id: UInt32
        package let key: Bytes32
        /// 64 bytes over the key in its wire form: RFC 8032 in `omemo2`, XEdDSA in `axolotl`.
        public let signature: [UInt8]

        /// Makes the public part from a bundle's XML; ``OMEMOBundle/verify()`` checks the signature.
        ///
        /// - Parameters:
        ///   - id: the owner's number.
        ///   - key: the key in its wire form, 32 bytes in `omemo2` and 33 in `axolotl`.
        ///   - signature: 64 bytes.
        ///   - profile: the profile of the bundle.
        /// - Throws: ``RatchetError/malformed`` for other lengths or another type byte.
        public init(
            id: UInt32, key: Span<UInt8>, signature: Span<UInt8>, profile: OMEMOProfile
        ) throws(RatchetError) {
            guard signature.count == KeySize.signature else { throw .malformed }
            self.init(
                id: id,
                key: try key.withUnsafeBytes { (bytes) throws(RatchetError) in try profile.agreementKey(bytes) },
                signature: signature.withUnsafeBytes { Array($0) }, profile: profile)
        }

        package init(id: UInt32, key: Bytes32, signature: [UInt8], profile: OMEMOProfile) {
            (self.id, self.key, self.signature, self.profile) = (id, key, signature, profile)
        }

        /// The key in its wire form.
        public var keyBytes: [UInt8] { profile.wireForm(agreementKey: key) }

        package func verify(by identity: OMEMOIdentityKey) throws(RatchetError) {
            guard identity.profile == profile, try identity.isValidSignature(signature, of: keyBytes) else {
                throw .invalidSignature
            }
        }
    }

    package let pair: AgreementKeyPair
    /// The public part, to be published.
    public let publicKey: Public

    /// A new prekey from 32 bytes of `random`, signed by `identity`.
    public init(
        id: UInt32, identity: borrowing IdentityKeyPair, profile: OMEMOProfile, random: inout some RandomSource
    ) {
        pair = AgreementKeyPair(random: &random)
        let key = pair.publicKey.bytes
        publicKey = Public(
            id: id, key: key,
            signature: identity.omemoSignature(of: profile.wireForm(agreementKey: key), in: profile),
            profile: profile)
    }

    /// Reads the output of ``serialize(into:)``.
    ///
    /// - Throws: ``RatchetError/malformed``, ``RatchetError/unsupportedVersion``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        (pair, publicKey) = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in
            guard try reader.byte() == 1 else { throw .unsupportedVersion }
            guard let profile = OMEMOProfile(rawValue: try reader.byte()) else { throw .malformed }
            let id = try reader.uint32()
            let secret = try reader.secret(KeySize.curve25519)
            let key = try reader.bytes32()
            let signature = Array(try reader.take(KeySize.signature))
            return (
                AgreementKeyPair(secret: secret, checkedPublicKey: key),
                Public(id: id, key: key, signature: signature, profile: profile)
            )
        }
    }

    /// Appends `version 1 || profile || id u32 || private key 32 || public key 32 || signature 64`, 134 bytes. The
    /// caller seals the bytes and wipes the array.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.append(1)
        output.append(publicKey.profile.rawValue)
        output.append(networkOrder: publicKey.id)
        pair.secret.append(to: &output)
        publicKey.key.append(to: &output)
        output.append(contentsOf: publicKey.signature)
    }
}

extension OneTimePreKey.Public {
    /// Makes a prekey from a bundle's XML: `key` has 32 bytes in `omemo2` and 33 in `axolotl`.
    ///
    /// - Throws: ``RatchetError/malformed`` for another length or another type byte.
    public init(id: UInt32, key: Span<UInt8>, profile: OMEMOProfile) throws(RatchetError) {
        self.init(
            id: id, key: try key.withUnsafeBytes { (bytes) throws(RatchetError) in try profile.agreementKey(bytes) })
    }

    /// The key in the wire form of a profile.
    public func keyBytes(in profile: OMEMOProfile) -> [UInt8] { profile.wireForm(agreementKey: key) }
}
