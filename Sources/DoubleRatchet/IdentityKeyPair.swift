/// The private identity of a device: an Ed25519 seed of 32 bytes.
///
/// The X25519 private key is the scalar that Ed25519 itself signs with, `clamp(SHA-512(seed)[0..<32])`, so the same
/// identity signs its prekeys and takes part in the key agreement. It cannot be copied, and it is wiped when it goes
/// out of scope.
public struct IdentityKeyPair: ~Copyable, Sendable {
    private let seed: SecretBytes
    package let signingKey: Primitives.SigningPrivateKey

    /// The public key, by which peers identify this device.
    public let publicKey: IdentityKey
    package let agreementPair: AgreementKeyPair

    /// Makes a new identity from 32 bytes of `random`.
    public init(random: inout some RandomSource) {
        self.init(SecretBytes(count: KeySize.curve25519, random: &random))
    }

    /// Makes the identity of a stored seed; the caller wipes its copy.
    ///
    /// - Throws: ``RatchetError/malformed`` for another length than 32 bytes.
    public init(seed: Span<UInt8>) throws(RatchetError) {
        guard seed.count == KeySize.curve25519 else { throw .malformed }
        self.init(seed.withUnsafeBytes { SecretBytes(copying: $0) })
    }

    private init(_ seed: SecretBytes) {
        self.seed = seed
        signingKey = Primitives.signingKey(seed: seed)
        publicKey = IdentityKey(checked: Primitives.publicKey(of: signingKey))
        agreementPair = AgreementKeyPair(secret: Primitives.sha512FirstHalf(seed))
    }

    /// Appends the 32-byte seed to `output`. The caller seals it and wipes the array with ``SecretBytes/wipe(_:)``.
    public borrowing func serialize(into output: inout [UInt8]) {
        seed.append(to: &output)
    }

    /// Signs `"DoubleRatchet/1 " || context || 0x00 || message` with Ed25519 (RFC 8032); 64 bytes.
    ///
    /// The context separates the uses of the identity from each other. It must be a constant of the caller, never input
    /// from outside.
    ///
    /// - Precondition: the context contains no zero byte and does not begin with ``reservedContext``, under which this
    ///   library signs prekeys.
    public borrowing func sign(_ message: Span<UInt8>, context: String) -> [UInt8] {
        precondition(!context.utf8.starts(with: Self.reservedContext.utf8), "contexts of prekeys belong to the library")
        return Primitives.sign(IdentityKey.signedBytes(message, context: context), with: signingKey)
    }

    /// The reserved prefix of contexts: no context of a caller may begin with it.
    public static let reservedContext = "prekey"

    /// Signs the public part of a prekey.
    borrowing func signPreKey(_ message: Span<UInt8>, context: String) -> [UInt8] {
        Primitives.sign(IdentityKey.signedBytes(message, context: context), with: signingKey)
    }
}
