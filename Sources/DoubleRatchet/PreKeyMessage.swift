/// The prekey part of an initiator's messages until it has received a first reply (PQXDH, section 3.3).
///
/// ```
/// 0                     32                 64               68            72                 1640        1644
/// | initiator's         | ephemeral key    | signed prekey  | KEM prekey  | KEM ciphertext   | one-time   |
/// | identity key 32     | X25519 32        | id u32         | id u32      | 1568             | id u32 [2] |
/// ```
/// 1640 bytes, or 1644 with a one-time prekey (flag 2). All numbers are big-endian.
package struct PreKeyPart: Hashable, Sendable {
    static let maximumSize = 1644

    package let identity: Bytes32
    package let ephemeralKey: Bytes32
    package let signedPreKeyID: UInt32
    let kemPreKeyID: UInt32
    package let ciphertext: [UInt8]
    let oneTimePreKeyID: UInt32?

    init(
        identity: Bytes32, ephemeralKey: Bytes32, signedPreKeyID: UInt32, kemPreKeyID: UInt32, ciphertext: [UInt8],
        oneTimePreKeyID: UInt32?
    ) {
        self.identity = identity
        self.ephemeralKey = ephemeralKey
        self.signedPreKeyID = signedPreKeyID
        self.kemPreKeyID = kemPreKeyID
        self.ciphertext = ciphertext
        self.oneTimePreKeyID = oneTimePreKeyID
    }

    init(from reader: inout ByteReader, hasOneTimePreKey: Bool) throws(RatchetError) {
        identity = try reader.bytes32()
        ephemeralKey = try reader.bytes32()
        signedPreKeyID = try reader.uint32()
        kemPreKeyID = try reader.uint32()
        ciphertext = Array(try reader.take(KeySize.kemCiphertext))
        oneTimePreKeyID = hasOneTimePreKey ? try reader.uint32() : nil
    }

    package func write(into output: inout [UInt8]) {
        identity.append(to: &output)
        ephemeralKey.append(to: &output)
        output.append(networkOrder: signedPreKeyID)
        output.append(networkOrder: kemPreKeyID)
        output.append(contentsOf: ciphertext)
        if let oneTimePreKeyID { output.append(networkOrder: oneTimePreKeyID) }
    }

    /// SHA-256 of the part's bytes: the id of the session.
    var sessionID: Bytes32 {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.maximumSize)
        write(into: &bytes)
        return bytes.withUnsafeBytes { Primitives.sha256($0) }
    }
}

/// Reads a first message without using any key.
public enum PreKeyMessage {
    /// The claims of a first message. Not proven before
    /// ``Session/respond(identity:signedPreKey:oneTimePreKey:kemPreKey:message:associatedData:expecting:plaintext:)``
    /// has succeeded.
    public struct Header: Hashable, Sendable {
        /// The claimed sender.
        public let identity: IdentityKey
        /// The signed prekey that the responder needs.
        public let signedPreKeyID: UInt32
        /// The KEM prekey that the responder needs.
        public let kemPreKeyID: UInt32
        /// The one-time prekey that the responder needs, if any.
        public let oneTimePreKeyID: UInt32?
        /// The session it belongs to; compare with ``Session/id``, because several first messages may come.
        public let sessionID: [UInt8]
    }

    /// Whether a message has the flag of a first message. Reads one byte.
    public static func isPreKeyMessage(_ message: Span<UInt8>) -> Bool {
        guard let first = message.withUnsafeBytes({ $0.first }) else { return false }
        return MessageVersion(rawValue: first >> 4) != nil && first & Message.preKeyFlag != 0
    }

    /// The header of a first message.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/downgrade``, ``RatchetError/invalidKey``, or
    ///   ``RatchetError/malformed`` if it is not a first message.
    public static func header(of message: Span<UInt8>) throws(RatchetError) -> Header {
        try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            guard let part = try Message(bytes).preKeyPart else { throw .malformed }
            return Header(
                identity: try IdentityKey(part.identity), signedPreKeyID: part.signedPreKeyID,
                kemPreKeyID: part.kemPreKeyID, oneTimePreKeyID: part.oneTimePreKeyID,
                sessionID: part.sessionID.array)
        }
    }
}
