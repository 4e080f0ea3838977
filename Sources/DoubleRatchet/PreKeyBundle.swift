/// A device's public keys, needed to start a session with it (PQXDH, section 3.2).
///
/// ```
/// 0   1       2              34            134           1771               1807
/// | 1 | flags | identity key | signed      | KEM         | one-time prekey  |
/// |   |       | 32           | prekey 100  | prekey 1637 | 36, if flags = 1 |
/// ```
/// 1771 bytes, or 1807 with a one-time prekey. The parts are described in ``SignedPreKey/Public``, ``KEMPreKey/Public``
/// and ``OneTimePreKey/Public``.
public struct PreKeyBundle: Hashable, Sendable {
    /// The identity of the device.
    public let identity: IdentityKey
    /// The signed prekey.
    public let signedPreKey: SignedPreKey.Public
    /// A one-time KEM prekey, or the last-resort one.
    public let kemPreKey: KEMPreKey.Public
    /// A one-time prekey, if the directory had one left.
    public let oneTimePreKey: OneTimePreKey.Public?

    /// Makes a bundle without checking it.
    public init(
        identity: IdentityKey, signedPreKey: SignedPreKey.Public, kemPreKey: KEMPreKey.Public,
        oneTimePreKey: OneTimePreKey.Public?
    ) {
        self.identity = identity
        self.signedPreKey = signedPreKey
        self.kemPreKey = kemPreKey
        self.oneTimePreKey = oneTimePreKey
    }

    /// Reads the form above and checks the identity key; ``verify()`` checks the signatures.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``, ``RatchetError/invalidKey``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        self = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in
            guard try reader.byte() == 1 else { throw .unsupportedVersion }
            let flags = try reader.byte()
            guard flags <= 1 else { throw .malformed }
            return PreKeyBundle(
                identity: try IdentityKey(try reader.bytes32()),
                signedPreKey: try SignedPreKey.Public(from: &reader),
                kemPreKey: try KEMPreKey.Public(from: &reader),
                oneTimePreKey: flags == 1 ? try OneTimePreKey.Public(from: &reader) : nil)
        }
    }

    /// Appends the form above.
    public func serialize(into output: inout [UInt8]) {
        output.append(1)
        output.append(oneTimePreKey == nil ? 0 : 1)
        identity.rawBytes.append(to: &output)
        signedPreKey.serialize(into: &output)
        kemPreKey.serialize(into: &output)
        oneTimePreKey?.serialize(into: &output)
    }

    /// Verifies both signatures under ``identity``; initiating a session verifies them again. Takes about 230
    /// microseconds.
    ///
    /// - Throws: ``RatchetError/invalidSignature``.
    public func verify() throws(RatchetError) {
        try signedPreKey.verify(by: identity)
        try kemPreKey.verify(by: identity)
    }
}
