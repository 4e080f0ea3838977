// Who a device is: one seed that signs and agrees.

/// The long-term key pair of a device: an Ed25519 seed (RFC 8032); the X25519 private key is the scalar that RFC 8032
/// section 5.1.5 makes of the same seed.
public struct IdentityKeyPair: ~Copyable, Sendable {
    let seed: SecretBytes
    let scalar: SecretBytes
    /// The half that others may know.
    public let publicKey: IdentityKey

    init(seed: SecretBytes) throws(RatchetError) {
        self.seed = seed
        scalar = Primitives.scalar(ofSeed: seed)
        publicKey = IdentityKey(
            signing: try Primitives.signingKey(seed: seed), agreement: try Primitives.publicKey(of: scalar))
    }

    /// A new identity.
    public static func generate(random: inout some RandomSource) -> IdentityKeyPair {
        while true {
            // Any 32 bytes are a seed; the loop is for the compiler.
            if let pair = try? IdentityKeyPair(seed: random.secret(32)) { return pair }
        }
    }

    /// Appends the secret as 33 bytes: version 1, seed.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.append(1)
        output.append(seed)
    }

    /// Reads what ``serialize(into:)`` wrote.
    ///
    /// - Throws: ``RatchetError/malformed`` or ``RatchetError/unsupportedVersion(_:)``.
    public init(serialized: Span<UInt8>) throws(RatchetError) {
        var reader = ByteReader(serialized)
        let version = try reader.byte()
        guard version == 1 else { throw .unsupportedVersion(version) }
        let seed = try reader.secret(32)
        try reader.finish()
        try self.init(seed: seed)
    }
}

/// The public half of an identity: 32 bytes Ed25519, then 32 bytes X25519. An identity is both; who pins one pins both.
public struct IdentityKey: Hashable, Sendable {
    let signing: [UInt8]
    let agreement: [UInt8]

    init(signing: [UInt8], agreement: [UInt8]) { (self.signing, self.agreement) = (signing, agreement) }

    /// The 64 bytes.
    public var bytes: [UInt8] { signing + agreement }

    /// Reads 64 bytes.
    ///
    /// - Throws: ``RatchetError/malformed``, or ``RatchetError/invalidKey`` where the X25519 key is not canonical.
    public init(_ bytes: some Collection<UInt8>) throws(RatchetError) {
        guard bytes.count == 64 else { throw .malformed }
        signing = Array(bytes.prefix(32))
        agreement = Array(bytes.dropFirst(32))
        try Primitives.demandCanonical(agreement)
    }
}
