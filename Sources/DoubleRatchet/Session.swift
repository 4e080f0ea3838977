// A session between two devices: PQXDH, then the Double Ratchet. Every message binds who the two are.

/// What the receiver learns besides the plaintext.
public struct Received: Equatable, Sendable {
    /// Messages of this session that this one has overtaken; they may still come, or be lost.
    public let skipped: Int
}

/// One side of a session. A value that is used in place; whoever wants to go back saves it first.
///
/// A failure of any kind leaves the session exactly as it was.
public struct Session: ~Copyable, Sendable {
    /// Who the other side is.
    public let peerIdentity: IdentityKey
    let ownIdentity: IdentityKey
    let isInitiator: Bool
    var ratchet: DoubleRatchet
    /// Sent along until the first answer has come.
    var preKeys: PreKeyHeader?

    /// Whether the other side is known to have the session: an initiator has received something.
    public var isEstablished: Bool { preKeys == nil }

    /// Keys of messages that have not come yet.
    public var skippedKeyCount: Int { ratchet.skipped.count }

    init(
        peerIdentity: IdentityKey, ownIdentity: IdentityKey, isInitiator: Bool, ratchet: DoubleRatchet,
        preKeys: PreKeyHeader?
    ) {
        self.peerIdentity = peerIdentity
        self.ownIdentity = ownIdentity
        self.isInitiator = isInitiator
        self.ratchet = ratchet
        self.preKeys = preKeys
    }

    // MARK: Beginning

    /// Begins a session with a device by its bundle (PQXDH section 3.3).
    ///
    /// - Throws: ``RatchetError/invalidSignature`` or ``RatchetError/invalidKey``.
    public static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: PreKeyBundle, random: inout some RandomSource
    ) throws(RatchetError) -> Session {
        let (secret, header) = try PQXDH.initiate(identity, bundle, random: &random)
        return Session(
            peerIdentity: bundle.identity, ownIdentity: identity.publicKey, isInitiator: true,
            ratchet: try DoubleRatchet(initiator: secret, peerKey: bundle.signedPreKey.key, random: &random),
            preKeys: header)
    }

    /// Takes up a session from its first message (PQXDH section 3.4). ``PreKeyHeader/peek(_:)`` says which prekeys it
    /// needs. The one-time prekey is to be deleted once this has succeeded and has been stored.
    ///
    /// - Parameter plaintext: what the message held is appended.
    /// - Throws: ``RatchetError``. Nothing was used up then.
    public static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: SignedPreKey, oneTimePreKey: OneTimePreKey?,
        kemPreKey: KEMPreKey, message: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        plaintext: inout [UInt8]
    ) throws(RatchetError) -> Session {
        guard let header = try PreKeyHeader.peek(message) else { throw .malformed }
        let secret = try PQXDH.respond(
            identity, header, signedPreKey: signedPreKey, oneTimePreKey: oneTimePreKey, kemPreKey: kemPreKey)
        var session = Session(
            peerIdentity: header.identity, ownIdentity: identity.publicKey, isInitiator: false,
            ratchet: DoubleRatchet(responder: secret, preKey: signedPreKey), preKeys: nil)
        _ = try session.decrypt(message, associatedData: associatedData, random: &random, into: &plaintext)
        return session
    }

    // MARK: Messages

    /// Seals a message.
    ///
    /// - Parameters:
    ///   - associatedData: what both sides know and is not sent.
    ///   - output: the message is appended; at most ``RatchetLimits/messageOverhead`` bytes longer than the plaintext,
    ///     and about 1.7 KB more until the first answer has come.
    /// - Throws: ``RatchetError/exhausted``; ``RatchetError/malformed`` where a responder has received nothing yet.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        var next = ratchet
        let (key, index) = try next.nextToSend()
        let start = output.count
        MessageHeader(
            preKeys: preKeys, ratchetKey: next.ownKey, index: index, previousCount: next.previousCount
        ).write(into: &output)
        let data = authenticated(output[start...], associatedData)
        do throws(RatchetError) {
            try plaintext.withUnsafeBytes { bytes throws(RatchetError) in
                try MessageKey(key).seal(bytes, authenticating: data, into: &output)
            }
        } catch {
            output.removeLast(output.count - start)
            throw error
        }
        ratchet = next
    }

    /// Opens a message.
    ///
    /// - Parameter output: the plaintext is appended.
    /// - Throws: ``RatchetError``; the session is as it was then.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout [UInt8]
    ) throws(RatchetError) -> Received {
        var reader = ByteReader(message)
        let header = try MessageHeader(&reader)
        if let told = header.preKeys, isInitiator || told.identity != peerIdentity { throw .authenticationFailed }
        var next = ratchet
        let (key, skipped) = try next.keyToReceive(header, random: &random)
        let data = authenticated(reader.consumed[...], associatedData)
        output += try MessageKey(key).open(reader.rest, authenticating: data)
        ratchet = next
        if isInitiator { preKeys = nil }
        return Received(skipped: skipped)
    }

    /// Initiator's identity, responder's identity, the caller's data behind its length, the header.
    private func authenticated(_ header: ArraySlice<UInt8>, _ associatedData: Span<UInt8>) -> [UInt8] {
        var data = isInitiator ? ownIdentity.bytes + peerIdentity.bytes : peerIdentity.bytes + ownIdentity.bytes
        data.append(number: UInt32(truncatingIfNeeded: associatedData.count))
        data += associatedData.array
        data += header
        return data
    }
}
