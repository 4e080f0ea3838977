/// A message to a group: sealed once, opened by every device that has the sender key.
///
/// ```
/// 0         1            5               9
/// | version | key id u32 | iteration u32 | ciphertext | tag 16 | Ed25519 signature 64 |
/// ```
/// Version 1. All numbers are big-endian. The signature is over `associated data's length u64 || associated data ||`
/// all bytes of the message before it, in the context `sender key message`. The AEAD authenticates `signature key 32 ||
/// version || key id || iteration || associated data`.
///
/// The signature covers the associated data as well, because every member knows the AEAD key, and under a known key a
/// tag can be made valid for other associated data.
public struct SenderKeyMessage: Sendable {
    package static let version: UInt8 = 1
    static let headerSize = 9
    static let signatureContext = "sender key message"

    /// The exact value of `message.count - plaintext.count`, in bytes.
    public static let overhead = headerSize + KeySize.tag + KeySize.signature

    /// The id of the message's sender key. Not proven before ``SenderKeyReceiver/decrypt(_:associatedData:into:)`` has
    /// succeeded; two keys may have the same id.
    public let keyID: UInt32
    /// The message's number in its chain, from 0. Not proven either.
    public let iteration: UInt32

    /// Reads a message's header, to find the receiver for it.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed`` for fewer bytes than ``overhead``.
    public init(headerOf message: Span<UInt8>) throws(RatchetError) {
        self = try message.withUnsafeBytes { (bytes) throws(RatchetError) in try SenderKeyMessage(bytes) }
    }

    init(_ message: UnsafeRawBufferPointer) throws(RatchetError) {
        var reader = ByteReader(message)
        guard try reader.byte() == Self.version else { throw .unsupportedVersion }
        guard message.count >= Self.overhead else { throw .malformed }
        self.init(keyID: try reader.uint32(), iteration: try reader.uint32())
    }

    init(keyID: UInt32, iteration: UInt32) {
        (self.keyID, self.iteration) = (keyID, iteration)
    }

    func writeHeader(into output: inout [UInt8]) {
        output.append(Self.version)
        output.append(networkOrder: keyID)
        output.append(networkOrder: iteration)
    }

    /// The data that the AEAD authenticates. Fixed lengths come first, so no two inputs give the same bytes. The array
    /// must be returned to `Scratch`.
    package func authenticated(_ signatureKey: Bytes32, _ associatedData: Span<UInt8>) -> [UInt8] {
        var data = Scratch.take()
        signatureKey.append(to: &data)
        writeHeader(into: &data)
        associatedData.withUnsafeBytes { data.append(contentsOf: $0) }
        return data
    }

    /// The signed data for a message without its signature. The array must be returned to `Scratch`.
    static func signed(_ message: UnsafeRawBufferPointer, _ associatedData: Span<UInt8>) -> [UInt8] {
        var bytes = Scratch.take()
        IdentityKey.append(context: signatureContext, to: &bytes)
        bytes.append(networkOrder: UInt64(associatedData.count))
        associatedData.withUnsafeBytes { bytes.append(contentsOf: $0) }
        bytes.append(contentsOf: message)
        return bytes
    }
}

/// The AEAD key and nonce of exactly one group message.
///
/// `key 32 || nonce 12 = HKDF-SHA256(salt 00 * 32, message key of the chain, "DoubleRatchet/1 sender key", 44)`, so
/// that a chain key used in a session by mistake would open nothing there.
struct SenderMessageKey: ~Copyable {
    private let messageKey: MessageKey

    private static let info = Array("DoubleRatchet/1 sender key".utf8)

    init(_ messageKey: consuming MessageKey) {
        self.messageKey = messageKey
    }

    /// Calls `body` with key and nonce; `body` must not keep the pointers.
    private borrowing func withParts<Failure: Error>(
        _ body: (_ key: UnsafeRawBufferPointer, _ nonce: UnsafeRawBufferPointer) throws(Failure) -> Void
    ) throws(Failure) {
        let size = KeySize.aes256 + KeySize.nonce
        try withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { (bytes) throws(Failure) in
            defer { SecretBytes.wipe(bytes) }
            messageKey.withUnsafeBytes { secret in
                // An absent salt is a salt of zeros (RFC 5869, section 2.2).
                Self.info.withUnsafeBytes {
                    Primitives.hkdf(salt: Primitives.nothing, secret: secret, info: $0, into: bytes)
                }
            }
            try body(
                UnsafeRawBufferPointer(rebasing: bytes[..<KeySize.aes256]),
                UnsafeRawBufferPointer(rebasing: bytes[KeySize.aes256...]))
        }
    }

    /// Appends ciphertext and tag to `output`.
    package consuming func seal(
        _ plaintext: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) {
        withParts { key, nonce in
            Primitives.seal(plaintext, key: key, nonce: nonce, authenticating: data, into: &output)
        }
    }

    /// Appends the plaintext to `output`.
    ///
    /// - Throws: ``RatchetError/authenticationFailed``; `output` is then unchanged.
    package consuming func open(
        _ sealed: UnsafeRawBufferPointer, authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        try withParts { (key, nonce) throws(RatchetError) in
            try Primitives.open(sealed, key: key, nonce: nonce, authenticating: data, into: &output)
        }
    }
}
