/// A signed ML-KEM-1024 prekey (PQXDH, section 3.2: `PQOPKB`, or `PQSPKB` for the last resort).
///
/// The owner deletes a one-time key once a session was made with it. The last-resort key is used if no one-time key is
/// left. It serves many sessions and is replaced every few days.
public struct KEMPreKey: ~Copyable, Sendable {
    static let signatureContext = "prekey ML-KEM-1024"

    /// The public part: 1637 bytes.
    ///
    /// ```
    /// 0        4               5                   1573                1637
    /// | id u32 | last resort 1 | encapsulation key | Ed25519 signature |
    /// ```
    /// All numbers are big-endian; *last resort* is 0 or 1. The signature is over everything before it, in the context
    /// `prekey ML-KEM-1024`.
    public struct Public: Hashable, Sendable {
        /// The encoded length in bytes.
        public static let byteCount = 1637

        /// The owner's number for this prekey.
        public let id: UInt32
        /// Whether many sessions may use this key.
        public let isLastResort: Bool
        package let key: [UInt8]
        package let signature: [UInt8]

        /// Reads the 1637 bytes above; ``PreKeyBundle/verify()`` checks the signature.
        ///
        /// - Throws: ``RatchetError/malformed`` for another length or another value of *last resort*.
        public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
            self = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in try Public(from: &reader) }
        }

        package init(id: UInt32, isLastResort: Bool, key: [UInt8], signature: [UInt8]) {
            (self.id, self.isLastResort, self.key, self.signature) = (id, isLastResort, key, signature)
        }

        package init(from reader: inout ByteReader) throws(RatchetError) {
            id = try reader.uint32()
            let mark = try reader.byte()
            guard mark <= 1 else { throw .malformed }
            isLastResort = mark == 1
            key = Array(try reader.take(KeySize.kemPublic))
            signature = Array(try reader.take(KeySize.signature))
        }

        /// Appends the 1637 bytes above.
        public func serialize(into output: inout [UInt8]) {
            output.append(contentsOf: Self.signedPart(id: id, isLastResort: isLastResort, key: key))
            output.append(contentsOf: signature)
        }

        static func signedPart(id: UInt32, isLastResort: Bool, key: [UInt8]) -> [UInt8] {
            var bytes: [UInt8] = []
            bytes.reserveCapacity(byteCount)
            bytes.append(networkOrder: id)
            bytes.append(isLastResort ? 1 : 0)
            bytes.append(contentsOf: key)
            return bytes
        }

        package func verify(by identity: IdentityKey) throws(RatchetError) {
            let signed = Self.signedPart(id: id, isLastResort: isLastResort, key: key)
            guard identity.isValidSignature(signature.span, of: signed.span, context: signatureContext) else {
                throw .invalidSignature
            }
        }
    }

    let seed: SecretBytes
    /// The public part, to be published.
    public let publicKey: Public

    /// Makes a new prekey from 64 bytes of `random` (FIPS 203: `d || z`), signed by `identity`.
    public init(
        id: UInt32, isLastResort: Bool, identity: borrowing IdentityKeyPair, random: inout some RandomSource
    ) {
        seed = SecretBytes(count: KeySize.kemSeed, random: &random)
        let key = Primitives.kemPublicKey(seed: seed)
        let signed = Public.signedPart(id: id, isLastResort: isLastResort, key: key)
        publicKey = Public(
            id: id, isLastResort: isLastResort, key: key,
            signature: identity.signPreKey(signed.span, context: Self.signatureContext))
    }

    /// Reads the output of ``serialize(into:)``.
    ///
    /// - Throws: ``RatchetError/malformed``, ``RatchetError/unsupportedVersion``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        (seed, publicKey) = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in
            guard try reader.byte() == 1 else { throw .unsupportedVersion }
            return (try reader.secret(KeySize.kemSeed), try Public(from: &reader))
        }
    }

    /// Appends `version 1 || seed 64 || public part 1637`. The caller seals the bytes and wipes the array.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.append(1)
        seed.append(to: &output)
        publicKey.serialize(into: &output)
    }
}
