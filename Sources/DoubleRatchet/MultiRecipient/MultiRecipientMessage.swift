/// One body for several devices, sealed once under a random content key. Each device receives the key in its own
/// ratchet message.
///
/// ```
/// devices u8 | each: recipient u64, length u16, ratchet message | sealed body
/// ```
/// All numbers are big-endian. The body is under AES-256-GCM-SIV with a nonce of zeros: its key is used once. The
/// plaintext of each ratchet message is the content key. It authenticates the caller's associated data followed by the
/// SHA-256 of the sealed body, because every recipient has the key and could replace the sender's body.
public struct MultiRecipientMessage: Hashable, Sendable {
    /// Bytes of a content key.
    public static let contentKeySize = 32
    /// The bytes besides body and ratchet messages: the count, and the tag.
    public static let overhead = 1 + KeySize.tag
    /// Bytes before each ratchet message.
    public static let recipientOverhead = 8 + 2
    /// The maximum number of recipients of one message: the count is one byte.
    public static let recipientLimit = 255

    /// The content key, wrapped for one device.
    public struct WrappedKey: Hashable, Sendable {
        /// The caller's number for the device.
        public let recipient: UInt64
        /// A message of the session with it.
        public let message: [UInt8]

        /// Makes a wrapped key from its parts.
        public init(recipient: UInt64, message: [UInt8]) { (self.recipient, self.message) = (recipient, message) }
    }

    /// The wrapped keys, one for each recipient.
    public let keys: [WrappedKey]
    /// The body under the content key, with its tag.
    public let sealedBody: [UInt8]

    /// Makes a message from its parts. Checks only that they fit the form above; ``MultiRecipientSealer`` seals one.
    ///
    /// - Throws: ``RatchetError/malformed`` for more than ``recipientLimit`` keys, or a ratchet message of more than
    ///   65,535 bytes.
    public init(keys: [WrappedKey], sealedBody: [UInt8]) throws(RatchetError) {
        guard keys.count <= Self.recipientLimit, keys.allSatisfy({ $0.message.count <= UInt16.max }) else {
            throw .malformed
        }
        self.init(checked: keys, sealedBody: sealedBody)
    }

    init(checked keys: [WrappedKey], sealedBody: [UInt8]) { (self.keys, self.sealedBody) = (keys, sealedBody) }

    /// Reads the form above.
    ///
    /// - Throws: ``RatchetError/malformed``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        (keys, sealedBody) = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            var keys: [WrappedKey] = []
            for _ in 0..<(try reader.byte()) {
                let recipient = try reader.uint64()
                let length = Int(try reader.uint16())
                keys.append(WrappedKey(recipient: recipient, message: Array(try reader.take(length))))
            }
            return (keys, Array(reader.rest))
        }
    }

    /// Appends the form above.
    public func serialize(into output: inout [UInt8]) {
        output.append(UInt8(keys.count))
        for key in keys {
            output.append(networkOrder: key.recipient)
            output.append(networkOrder: UInt16(key.message.count))
            output.append(contentsOf: key.message)
        }
        output.append(contentsOf: sealedBody)
    }

    /// The ratchet message for a recipient; the first if there are several, nil if there is none.
    public func message(for recipient: UInt64) -> [UInt8]? { keys.first { $0.recipient == recipient }?.message }

    /// The data that the ratchet messages authenticate: the caller's associated data and the SHA-256 of the sealed
    /// body.
    public func authenticated(_ associatedData: [UInt8]) -> [UInt8] { Self.authenticated(associatedData, sealedBody) }

    package static func authenticated(_ associatedData: [UInt8], _ sealedBody: [UInt8]) -> [UInt8] {
        associatedData + sealedBody.withUnsafeBytes { Primitives.sha256($0) }.array
    }

    /// Opens the body with the content key from our ratchet message, and appends it to `output`.
    ///
    /// Use only that key: the ratchet message authenticates this body; the body itself does not authenticate its
    /// sender.
    ///
    /// - Parameters:
    ///   - contentKey: the plaintext of the ratchet message; wipe it with ``SecretBytes/wipe(_:)``.
    ///   - associatedData: the data that the sender bound to the body.
    ///   - output: the body is appended.
    /// - Throws: ``RatchetError/malformed`` for a key of another length; ``RatchetError/authenticationFailed`` for
    ///   other associated data, or if the sender has sent a wrong key.
    public func openBody(
        contentKey: Span<UInt8>, associatedData: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) {
        guard contentKey.count == Self.contentKeySize else { throw .malformed }
        let key = contentKey.withUnsafeBytes { SecretBytes(copying: $0) }
        try sealedBody.span.withUnsafeBytes { (sealed) throws(RatchetError) in
            try Primitives.open(sealed, key: key, authenticating: associatedData, into: &output)
        }
    }
}
