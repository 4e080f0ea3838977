/// A session between two devices: PQXDH to begin with, the Double Ratchet from then on.
///
/// It knows nothing of accounts, storage or time. It cannot be copied, because two copies would use the same keys. The caller
/// stores the state after ``encrypt(_:associatedData:random:into:)`` before the message leaves, and after
/// ``decrypt(_:associatedData:into:)`` before the plaintext is delivered. What throws changes nothing: not the session,
/// not one byte of its state, not the output array.
///
/// Every message authenticates `initiator's identity || responder's identity || header || associated data`, where the
/// identities are 32 bytes each and the header is ``MessageHeader`` as it was sent.
public struct Session: ~Copyable, Sendable {
    enum Role: UInt8, Sendable {
        case initiator = 0
        case responder = 1
    }

    /// What a received message told besides its plaintext.
    public struct Received: Hashable, Sendable {
        /// How many messages this one overtook and that have not come: a gap, until they do.
        public let skipped: Int
    }

    let role: Role
    let ownIdentity: IdentityKey
    /// The device at the other end.
    public let peerIdentity: IdentityKey
    let sessionID: Bytes32
    /// What every message carries until the peer has answered.
    var pending: PreKeyPart?
    var ratchet: DoubleRatchet

    /// The name of this session at both ends, 32 public bytes: SHA-256 of its prekey part.
    public var id: [UInt8] { sessionID.array }

    /// Whether the peer is known to have the session: messages then go without the prekey part.
    public var isEstablished: Bool { pending == nil }

    /// How many keys of messages that have not come are kept, at most ``RatchetLimits/maximumSkippedKeys``.
    public var skippedCount: Int { ratchet.skipped.count }

    // MARK: Beginning

    /// Starts a session with the device of `bundle` (PQXDH, section 3.3). Costs two signature checks, one encapsulation
    /// and three or four agreements.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - bundle: the peer's keys; both signatures are verified here.
    ///   - expected: the identity that the caller has pinned for this peer, if any.
    ///   - random: 32 bytes are taken. The encapsulation draws its own from the operating system.
    /// - Throws: ``RatchetError/untrustedIdentity``, ``RatchetError/invalidSignature``, ``RatchetError/invalidKey``.
    public static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: PreKeyBundle, expecting expected: IdentityKey? = nil,
        random: inout some RandomSource
    ) throws(RatchetError) -> Session {
        guard bundle.identity == expected ?? bundle.identity, bundle.identity != identity.publicKey else {
            throw .untrustedIdentity
        }
        try bundle.verify()
        let encapsulation = try Primitives.encapsulate(to: bundle.kemPreKey.key)
        return try initiate(identity: identity, with: bundle, encapsulation: encapsulation, random: &random)
    }

    /// The same after all checks, with an encapsulation that a test may choose.
    static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: PreKeyBundle, encapsulation: Primitives.Encapsulation,
        random: inout some RandomSource
    ) throws(RatchetError) -> Session {
        let agreement = try PQXDH.initiate(
            identity: identity, with: bundle, encapsulation: encapsulation, random: &random)
        return Session(
            role: .initiator, ownIdentity: identity.publicKey, peerIdentity: bundle.identity,
            sessionID: agreement.part.sessionID, pending: agreement.part,
            ratchet: DoubleRatchet(initiatorRoot: agreement.root, peerSignedPreKey: bundle.signedPreKey.key))
    }

    /// Takes part in a session that a first message begins (PQXDH, section 3.4), and opens that message.
    ///
    /// Only when this has succeeded does the caller delete the one-time prekeys, in the transaction that stores the session.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - signedPreKey: the one that ``PreKeyMessage/header(of:)`` names; so are `oneTimePreKey`, nil where it names
    ///     none, and `kemPreKey`.
    ///   - message: the first message, or any later one before our first reply.
    ///   - associatedData: what the sender bound; see ``encrypt(_:associatedData:random:into:)``.
    ///   - expected: the identity that the caller has pinned for this peer, if any.
    ///   - plaintext: the opened message is appended.
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``, ``RatchetError/unknownPreKey``,
    ///   ``RatchetError/untrustedIdentity``, ``RatchetError/invalidKey``, ``RatchetError/tooFarAhead``,
    ///   ``RatchetError/authenticationFailed``.
    public static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: borrowing SignedPreKey,
        oneTimePreKey: borrowing OneTimePreKey?, kemPreKey: borrowing KEMPreKey, message: Span<UInt8>,
        associatedData: Span<UInt8>, expecting expected: IdentityKey? = nil, plaintext: inout [UInt8]
    ) throws(RatchetError) -> Session {
        let header = try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            return try MessageHeader(from: &reader)
        }
        guard let part = header.preKeyPart else { throw .malformed }
        let (oneTimeID, oneTimePair) = Self.parts(of: oneTimePreKey)
        guard part.signedPreKeyID == signedPreKey.publicKey.id, part.kemPreKeyID == kemPreKey.publicKey.id,
            part.oneTimePreKeyID == oneTimeID
        else { throw .unknownPreKey }
        let peer = try IdentityKey(part.identity)
        guard peer == expected ?? peer, peer != identity.publicKey else { throw .untrustedIdentity }
        let root = try PQXDH.respond(
            identity: identity, signedPreKey: signedPreKey, kemPreKey: kemPreKey, oneTimePair: oneTimePair, part: part)
        var session = Session(
            role: .responder, ownIdentity: identity.publicKey, peerIdentity: peer, sessionID: part.sessionID,
            pending: nil,
            ratchet: try DoubleRatchet(
                responderRoot: root, signedPreKey: signedPreKey.pair, peerKey: header.ratchetKey))
        _ = try session.decrypt(message, associatedData: associatedData, into: &plaintext)
        return session
    }

    private static func parts(of key: borrowing OneTimePreKey?) -> (UInt32?, AgreementKeyPair?) {
        switch key {
        case .some(let key): (key.publicKey.id, key.pair)
        case .none: (nil, nil)
        }
    }

    init(
        role: Role, ownIdentity: IdentityKey, peerIdentity: IdentityKey, sessionID: Bytes32, pending: PreKeyPart?,
        ratchet: consuming DoubleRatchet
    ) {
        self.role = role
        self.ownIdentity = ownIdentity
        self.peerIdentity = peerIdentity
        self.sessionID = sessionID
        self.pending = pending
        self.ratchet = ratchet
    }

    // MARK: Messages

    /// Seals `plaintext` and appends the message to `output`: 51 to 59 bytes more than the plaintext, and 1640 or 1644
    /// more until the session is established.
    ///
    /// - Parameters:
    ///   - plaintext: any length, also none.
    ///   - associatedData: what both ends know and is not sent: sender and recipient device, conversation, message id.
    ///   - random: 32 bytes are taken for the first message after one from the peer.
    ///   - output: the message is appended.
    /// - Throws: ``RatchetError/exhausted``, ``RatchetError/invalidKey``.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        let (chain, root) = try ratchet.chainForSending(random: &random)
        let header = MessageHeader(
            preKeyPart: pending, ratchetKey: chain.pair.publicKey.bytes, number: chain.next,
            previousCount: ratchet.previousCount)
        let start = output.count
        header.write(into: &output)
        let data = output[start...].withUnsafeBytes { authenticated($0, associatedData) }
        plaintext.withUnsafeBytes { chain.key.messageKey.seal($0, authenticating: data, into: &output) }
        ratchet.sent(chain, root: root)
    }

    /// Opens `message` and appends its plaintext to `output`. A forged message costs at most one agreement and
    /// ``RatchetLimits/maximumSkip`` HMACs.
    ///
    /// - Parameters:
    ///   - message: exactly one message; bytes added to it make it a forgery.
    ///   - associatedData: what the sender bound.
    ///   - output: the plaintext is appended.
    /// - Returns: the gap that the message left.
    /// - Throws: ``RatchetError/duplicate``, ``RatchetError/tooFarAhead``, ``RatchetError/authenticationFailed``,
    ///   ``RatchetError/malformed``, ``RatchetError/unsupportedVersion``, ``RatchetError/invalidKey``,
    ///   ``RatchetError/differentSession``, ``RatchetError/exhausted``.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Received {
        try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            let header = try MessageHeader(from: &reader)
            if let part = header.preKeyPart {
                guard role == .responder, part.sessionID == sessionID else { throw .differentSession }
            }
            let sealed = reader.rest
            let data = authenticated(
                UnsafeRawBufferPointer(rebasing: bytes.dropLast(sealed.count)), associatedData)
            let skipped = try ratchet.receive(header, sealed, authenticating: data, into: &output)
            pending = nil
            return Received(skipped: skipped)
        }
    }

    /// Fixed lengths first and the header delimits itself, so no two inputs give the same bytes.
    private borrowing func authenticated(_ header: UnsafeRawBufferPointer, _ associatedData: Span<UInt8>) -> [UInt8] {
        var data: [UInt8] = []
        data.reserveCapacity(64 + header.count + associatedData.count)
        (role == .initiator ? ownIdentity : peerIdentity).rawBytes.append(to: &data)
        (role == .initiator ? peerIdentity : ownIdentity).rawBytes.append(to: &data)
        data.append(contentsOf: header)
        associatedData.withUnsafeBytes { data.append(contentsOf: $0) }
        return data
    }
}
