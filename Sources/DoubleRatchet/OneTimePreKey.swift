/// An X25519 prekey for one session only (PQXDH, section 3.2: `OPKB`). Its owner deletes it in the transaction that
/// stores the session made with it.
///
/// It is not signed: a directory that invents one can only make the session fail.
public struct OneTimePreKey: ~Copyable, Sendable {
    /// The public part: `id u32 || X25519 key 32`, 36 bytes, big-endian.
    public struct Public: Hashable, Sendable {
        /// The encoded length in bytes.
        public static let byteCount = 36

        /// The owner's number for this prekey.
        public let id: UInt32
        package let key: Bytes32

        /// Reads the 36 bytes above.
        ///
        /// - Throws: ``RatchetError/malformed`` for another length.
        public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
            self = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in try Public(from: &reader) }
        }

        package init(id: UInt32, key: Bytes32) {
            (self.id, self.key) = (id, key)
        }

        package init(from reader: inout ByteReader) throws(RatchetError) {
            id = try reader.uint32()
            key = try reader.bytes32()
        }

        /// Appends the 36 bytes above.
        public func serialize(into output: inout [UInt8]) {
            output.append(networkOrder: id)
            key.append(to: &output)
        }
    }

    package let pair: AgreementKeyPair
    /// The public part, to be published.
    public let publicKey: Public

    /// Makes a new prekey from 32 bytes of `random`.
    public init(id: UInt32, random: inout some RandomSource) {
        pair = AgreementKeyPair(random: &random)
        publicKey = Public(id: id, key: pair.publicKey.bytes)
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

    /// Appends `version 1 || private key 32 || public part 36`. The caller seals the bytes and wipes the array.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.append(1)
        pair.secret.append(to: &output)
        publicKey.serialize(into: &output)
    }
}
