/// The public identity of a device: one Ed25519 key, 32 bytes, for signing and key agreement.
///
/// Its X25519 key is derived and not sent: `u = (1 + y) / (1 - y)` (RFC 7748, section 4.1). So an identity is one key,
/// and nothing has to bind two keys to each other. A key is accepted only if its encoding is canonical and its point is
/// on the curve and not of low order.
public struct IdentityKey: Hashable, Sendable, CustomStringConvertible {
    /// The length of the encoded key in bytes.
    public static let byteCount = 32

    package let rawBytes: Bytes32

    /// Checks an Ed25519 public key. Takes about 20 microseconds.
    ///
    /// - Throws: ``RatchetError/malformed`` for another length than 32 bytes, ``RatchetError/invalidKey`` for a key
    ///   that is not canonical, not on the curve or of low order.
    public init(_ bytes: Span<UInt8>) throws(RatchetError) {
        guard bytes.count == Self.byteCount else { throw .malformed }
        try self.init(bytes.withUnsafeBytes { Bytes32($0) })
    }

    package init(_ bytes: Bytes32) throws(RatchetError) {
        rawBytes = bytes
        _ = try agreementKey()
    }

    /// A key that was checked before it was stored, or that this library made.
    package init(checked bytes: Bytes32) {
        rawBytes = bytes
    }

    /// The encoded key, 32 bytes.
    public var bytes: [UInt8] { rawBytes.array }

    /// Whether `signature` (64 bytes) is a signature of this identity over `message` in `context`: see
    /// ``IdentityKeyPair/sign(_:context:)``.
    public func isValidSignature(_ signature: Span<UInt8>, of message: Span<UInt8>, context: String) -> Bool {
        let signature = signature.withUnsafeBytes { Array($0) }
        return Primitives.verify(signature, of: Self.signedBytes(message, context: context), by: rawBytes)
    }

    /// The X25519 key of this identity.
    package func agreementKey() throws(RatchetError) -> AgreementPublicKey {
        let y = FieldElement(littleEndian: rawBytes)
        // Bit 255 is the sign of x; the bits below it must be the canonical encoding of y.
        var withoutSign = rawBytes.array
        withoutSign[31] &= 0x7F
        guard y.littleEndian == Bytes32(withoutSign) else { throw .invalidKey }
        let one = FieldElement(1)
        let u = (one + y) * (one - y).inverse
        // The Montgomery form of the curve equation: u^3 + 486662 u^2 + u must be a square.
        guard (u * (u * u + FieldElement(486_662) * u + one)).isSquare else { throw .invalidKey }
        return try AgreementPublicKey(u.littleEndian)
    }

    /// The signed bytes: `"DoubleRatchet/1 " || context || 0x00 || message`.
    static func signedBytes(_ message: Span<UInt8>, context: String) -> [UInt8] {
        var bytes: [UInt8] = []
        append(context: context, to: &bytes)
        message.withUnsafeBytes { bytes.append(contentsOf: $0) }
        return bytes
    }

    /// Appends the part before the message.
    package static func append(context: String, to bytes: inout [UInt8]) {
        precondition(!context.utf8.contains(0), "a context has no zero byte")
        bytes.append(contentsOf: "DoubleRatchet/1 ".utf8)
        bytes.append(contentsOf: context.utf8)
        bytes.append(0)
    }

    /// The key in hexadecimal; it is public.
    public var description: String {
        let digits = Array("0123456789abcdef")
        return String(bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
    }
}
