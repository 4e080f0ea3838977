/// A medium-term X25519 prekey, signed by the identity; replaced every few days (PQXDH, section 3.2: `SPKB`).
public struct SignedPreKey: ~Copyable, Sendable {
    static let signatureContext = "prekey signed"

    /// The public part: 100 bytes.
    ///
    /// ```
    /// 0        4               36                  100
    /// | id u32 | X25519 key 32 | Ed25519 signature |
    /// ```
    /// All numbers are big-endian. The signature is over `id || key` in the context `prekey signed`. The highest bit of
    /// the id is `paddedHeaderMark`.
    public struct Public: Hashable, Sendable {
        /// The encoded length in bytes.
        public static let byteCount = 100
        /// The bit of ``id`` with which the owner announces that it reads padded headers. A server cannot remove it,
        /// because the id is signed. Devices that do not know it take it for a part of the number.
        package static let paddedHeaderMark: UInt32 = 1 << 31

        /// The owner's number for this prekey; the highest bit is a mark.
        public let id: UInt32
        package let key: Bytes32
        package let signature: [UInt8]

        /// The version of the sessions that are started with this prekey.
        package var version: MessageVersion { id & Self.paddedHeaderMark == 0 ? .exactHeader : .paddedHeader }

        /// Reads the 100 bytes above; ``PreKeyBundle/verify()`` checks the signature.
        ///
        /// - Throws: ``RatchetError/malformed`` for another length.
        public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
            self = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in try Public(from: &reader) }
        }

        package init(id: UInt32, key: Bytes32, signature: [UInt8]) {
            (self.id, self.key, self.signature) = (id, key, signature)
        }

        package init(from reader: inout ByteReader) throws(RatchetError) {
            id = try reader.uint32()
            key = try reader.bytes32()
            signature = Array(try reader.take(KeySize.signature))
        }

        /// Appends the 100 bytes above.
        public func serialize(into output: inout [UInt8]) {
            output.append(contentsOf: Self.signedPart(id: id, key: key))
            output.append(contentsOf: signature)
        }

        static func signedPart(id: UInt32, key: Bytes32) -> [UInt8] {
            var bytes: [UInt8] = []
            bytes.append(networkOrder: id)
            key.append(to: &bytes)
            return bytes
        }

        package func verify(by identity: IdentityKey) throws(RatchetError) {
            let signed = Self.signedPart(id: id, key: key)
            guard identity.isValidSignature(signature.span, of: signed.span, context: signatureContext) else {
                throw .invalidSignature
            }
        }
    }

    package let pair: AgreementKeyPair
    /// The public part, to be published.
    public let publicKey: Public

    /// Makes a new prekey from 32 bytes of `random`, signed by `identity`.
    ///
    /// - Parameters:
    ///   - id: the owner's number, below 2^31. The public part has it with the highest bit set, which announces that
    ///     headers of messages to this device may be padded.
    ///   - identity: signs the prekey.
    ///   - random: 32 bytes are taken.
    public init(id: UInt32, identity: borrowing IdentityKeyPair, random: inout some RandomSource) {
        self.init(marked: id | Public.paddedHeaderMark, identity: identity, random: &random)
    }

    /// Makes a new prekey whose id may be without the mark, as devices that read version 2 only have it.
    package init(marked id: UInt32, identity: borrowing IdentityKeyPair, random: inout some RandomSource) {
        pair = AgreementKeyPair(random: &random)
        let signed = Public.signedPart(id: id, key: pair.publicKey.bytes)
        publicKey = Public(
            id: id, key: pair.publicKey.bytes,
            signature: identity.signPreKey(signed.span, context: Self.signatureContext))
    }

    /// Reads the output of ``serialize(into:)``.
    ///
    /// - Throws: ``RatchetError/malformed``, ``RatchetError/unsupportedVersion``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        (pair, publicKey) = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in
            guard try reader.byte() == 1 else { throw .unsupportedVersion }
            let secret = try reader.secret(KeySize.curve25519)
            let publicKey = try Public(from: &reader)
            return (AgreementKeyPair(secret: secret, checkedPublicKey: publicKey.key), publicKey)
        }
    }

    /// Appends `version 1 || private key 32 || public part 100`. The caller seals the bytes and wipes the array.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.append(1)
        pair.secret.append(to: &output)
        publicKey.serialize(into: &output)
    }
}
