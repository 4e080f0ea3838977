/// A session between two devices: PQXDH first, then the Triple Ratchet with encrypted headers.
///
/// It has no access to accounts, storage or time. It cannot be copied, because two copies would use the same keys. The
/// caller stores the state after ``encrypt(_:associatedData:random:)`` before the message is sent, and after
/// ``decrypt(_:associatedData:into:)-(_,_,[UInt8])`` before the plaintext is delivered. A function that throws changes
/// nothing: neither the session nor the output array.
///
/// Every message authenticates `initiator's identity || responder's identity || header || associated data`, where the
/// identities have 32 bytes each and the header is all bytes of the message before its body, as sent. The version of the
/// messages is in the first of these bytes, and is fixed with the first message, see `MessageVersion`. A session of
/// version 1, without the post-quantum ratchet, cannot be continued: its state and its messages are rejected, and a new
/// session must be started.
public struct Session: ~Copyable, Sendable {
    package enum Role: UInt8, Sendable {
        case initiator = 0
        case responder = 1
    }

    /// The result of a received message besides its plaintext.
    public struct Received: Hashable, Sendable {
        /// The number of newly skipped messages: earlier ones that have not been received yet.
        public let skipped: Int
    }

    package let role: Role
    package let ownIdentity: IdentityKey
    /// The device at the other end.
    public let peerIdentity: IdentityKey
    let sessionID: Bytes32
    /// The version of every message that is sent, and of every message that is opened unless ``opensExactHeaders``.
    var version: MessageVersion
    /// Whether the session has begun in version 2 and gone on in version 3; messages of both are opened.
    var opensExactHeaders = false
    /// The prekey part of every message until the peer has answered; nil after that.
    var pending: PreKeyPart?
    package var ratchet: TripleRatchet
    /// The number of steps in this process.
    var mark: StateMark

    /// The id of this session at both ends, 32 public bytes: SHA-256 of its prekey part.
    public var id: [UInt8] { sessionID.array }

    /// Whether the peer is known to have the session: messages are then sent without the prekey part.
    public var isEstablished: Bool { pending == nil }

    /// The number of stored keys of skipped messages, at most ``RatchetLimits/maximumSkippedKeys``.
    public var skippedCount: Int { ratchet.finished.keyCount }

    // MARK: Starting

    /// Starts a session with the device of `bundle` (PQXDH, section 3.3). Costs two signature checks, one encapsulation
    /// and three or four agreements.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - bundle: the peer's keys; both signatures are verified here.
    ///   - expected: the identity that the caller has pinned for this peer; nil accepts the bundle's (trust on first
    ///     use).
    ///   - random: 32 bytes are taken. The encapsulation takes its own from the operating system.
    /// - Throws: ``RatchetError/untrustedIdentity``, ``RatchetError/invalidSignature``, ``RatchetError/invalidKey``.
    public static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: PreKeyBundle, expecting expected: IdentityKey?,
        random: inout some RandomSource
    ) throws(RatchetError) -> Session {
        guard bundle.identity == expected ?? bundle.identity, bundle.identity != identity.publicKey else {
            throw .untrustedIdentity
        }
        try bundle.verify()
        let encapsulation = try Primitives.encapsulate(to: bundle.kemPreKey.key)
        return try initiate(identity: identity, with: bundle, encapsulation: encapsulation, random: &random)
    }

    /// Starts a session after all checks, with an encapsulation that a test may choose.
    package static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: PreKeyBundle, encapsulation: Primitives.Encapsulation,
        random: inout some RandomSource
    ) throws(RatchetError) -> Session {
        let agreement = try PQXDH.initiate(
            identity: identity, with: bundle, encapsulation: encapsulation, random: &random)
        return Session(
            role: .initiator, ownIdentity: identity.publicKey, peerIdentity: bundle.identity,
            sessionID: agreement.part.sessionID, version: bundle.signedPreKey.version, pending: agreement.part,
            ratchet: TripleRatchet(initiator: agreement.secrets, peerSignedPreKey: bundle.signedPreKey.key))
    }

    /// Makes the responder's session from a first message (PQXDH, section 3.4), and opens that message.
    ///
    /// If this succeeds, the caller deletes the one-time prekeys in the transaction that stores the session.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - signedPreKey: the signed prekey that ``PreKeyMessage/header(of:)`` names.
    ///   - oneTimePreKey: the one-time prekey that it names; nil if it names none.
    ///   - kemPreKey: the KEM prekey that it names.
    ///   - message: the first message, or any later one before our first reply.
    ///   - associatedData: the data that the sender bound; see ``encrypt(_:associatedData:random:)``.
    ///   - expected: the identity that the caller has pinned for this peer; nil accepts the message's (trust on first
    ///     use).
    ///   - plaintext: the opened message is appended.
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``, ``RatchetError/unknownPreKey``,
    ///   ``RatchetError/untrustedIdentity``, ``RatchetError/invalidKey``, ``RatchetError/tooFarAhead``,
    ///   ``RatchetError/authenticationFailed``.
    public static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: borrowing SignedPreKey,
        oneTimePreKey: borrowing OneTimePreKey?, kemPreKey: borrowing KEMPreKey, message: Span<UInt8>,
        associatedData: Span<UInt8>, expecting expected: IdentityKey?, plaintext: inout [UInt8]
    ) throws(RatchetError) -> Session {
        try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            let message = try Message(bytes)
            return try respond(
                identity: identity, signedPreKey: signedPreKey, oneTimePreKey: oneTimePreKey, kemPreKey: kemPreKey,
                message: message, associatedData: associatedData, expecting: expected, plaintext: &plaintext)
        }
    }

    private static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: borrowing SignedPreKey,
        oneTimePreKey: borrowing OneTimePreKey?, kemPreKey: borrowing KEMPreKey, message: Message,
        associatedData: Span<UInt8>, expecting expected: IdentityKey?, plaintext: inout [UInt8]
    ) throws(RatchetError) -> Session {
        guard let part = message.preKeyPart else { throw .malformed }
        let (oneTimeID, oneTimePair) = Self.parts(of: oneTimePreKey)
        guard part.signedPreKeyID == signedPreKey.publicKey.id, part.kemPreKeyID == kemPreKey.publicKey.id,
            part.oneTimePreKeyID == oneTimeID
        else { throw .unknownPreKey }
        let peer = try IdentityKey(part.identity)
        guard peer == expected ?? peer, peer != identity.publicKey else { throw .untrustedIdentity }
        let secrets = try PQXDH.respond(
            identity: identity, signedPreKey: signedPreKey, kemPreKey: kemPreKey, oneTimePair: oneTimePair, part: part)
        let peerKey = try CipherContext.withOne { (context) throws(RatchetError) in
            let opened = secrets.initiatorHeader.open(
                message.sealedHeader, hint: message.hint, first: message.first, with: context)
            guard let opened else { throw .authenticationFailed }
            return try MessageHeader(
                opened, message.version, minimumVersion: SparsePostQuantumRatchet.version
            ).ratchetKey
        }
        var session = Session(
            role: .responder, ownIdentity: identity.publicKey, peerIdentity: peer, sessionID: part.sessionID,
            version: message.version, pending: nil,
            ratchet: try TripleRatchet(responder: secrets, signedPreKey: signedPreKey.pair, peerKey: peerKey))
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
        role: Role, ownIdentity: IdentityKey, peerIdentity: IdentityKey, sessionID: Bytes32, version: MessageVersion,
        opensExactHeaders: Bool = false, pending: PreKeyPart?, ratchet: consuming TripleRatchet
    ) {
        self.role = role
        self.ownIdentity = ownIdentity
        self.peerIdentity = peerIdentity
        self.sessionID = sessionID
        self.version = version
        self.opensExactHeaders = opensExactHeaders
        self.pending = pending
        self.ratchet = ratchet
        mark = StateMark()
    }

    /// Goes on in version 3, and opens messages of version 2 as before.
    ///
    /// For a caller that has both ends of a session from an earlier version of this library. A session with a device
    /// elsewhere keeps the version that it has begun in.
    package mutating func padHeaders() {
        guard version == .exactHeader else { return }
        (version, opensExactHeaders) = (.paddedHeader, true)
    }

    // MARK: Messages

    /// Lower bound of `message.count - plaintext.count`, in bytes. Genuine messages have at least 37 more, because no
    /// header is empty.
    public static let minimumOverhead = 1 + 1 + 1 + 2 * KeySize.tag

    /// Upper bound of `message.count - plaintext.count` in an established session, in bytes. Usually 110.
    public static let maximumOverhead = 1 + 1 + 1 + MessageHeader.maximumSize + 2 * KeySize.tag

    /// Upper bound of the additional bytes of a message until the session is established, in bytes.
    public static let maximumPreKeyPart = PreKeyPart.maximumSize

    /// Encrypts `plaintext`. The message can be sent after the state is stored; see ``PendingMessage``.
    ///
    /// It is 110 or ``maximumOverhead`` (120) bytes longer than the plaintext, and 1640 or ``maximumPreKeyPart`` (1644)
    /// more until the session is established. In sessions of version 2 it is 72 to 120 bytes longer.
    ///
    /// - Parameters:
    ///   - plaintext: any length, also zero.
    ///   - associatedData: data that both ends know and that is not sent: sender and recipient device, conversation,
    ///     message id.
    ///   - random: up to 96 bytes are taken: 32 for the first message after one from the peer, and 64 or 32 if an epoch
    ///     of the post-quantum ratchet begins.
    /// - Throws: ``RatchetError/exhausted``, ``RatchetError/invalidKey``.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource
    ) throws(RatchetError) -> PendingMessage {
        var message: [UInt8] = []
        try encrypt(plaintext, associatedData: associatedData, random: &random, into: &message)
        return PendingMessage(message, [mark])
    }

    /// The current state, to be stored, in the form of ``serialize(into:)``.
    public borrowing func uncommittedState() -> UncommittedState { UncommittedState([mark]) { serialize(into: &$0) } }

    /// Encrypts `plaintext` and appends the message to `output`.
    ///
    /// For callers that keep the order of encrypting, storing and sending themselves. The length is that of the other
    /// function. Once the session is established, a message that starts no new chain allocates nothing, if `output` has
    /// the capacity.
    ///
    /// - Parameters:
    ///   - plaintext: any length, also zero.
    ///   - associatedData: data that both ends know and that is not sent: sender and recipient device, conversation,
    ///     message id.
    ///   - random: up to 96 bytes are taken: 32 for the first message after one from the peer, and 64 or 32 if an epoch
    ///     of the post-quantum ratchet begins.
    ///   - output: the message is appended.
    /// - Throws: ``RatchetError/exhausted``, ``RatchetError/invalidKey``.
    package mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout [UInt8]
    ) throws(RatchetError) {
        let size = plaintext.count + overheadBound
        try output.append(addingCapacity: size) { (output) throws(RatchetError) in
            try encrypt(plaintext, associatedData: associatedData, random: &random, into: &output)
        }
    }

    /// Encrypts into the caller's memory.
    ///
    /// - Precondition: `output` has room for the plaintext and ``maximumOverhead``, and for ``maximumPreKeyPart`` until
    ///   the session is established.
    package mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, random: inout some RandomSource,
        into output: inout OutputSpan<UInt8>
    ) throws(RatchetError) {
        precondition(output.freeCapacity >= plaintext.count + overheadBound, "there is room for a message")
        try CipherContext.withOne { (context) throws(RatchetError) in
            let (header, headerKey, key) = try ratchet.send(random: &random, keys: context.keys)
            mark.advance()
            var data = beginData()
            defer { Scratch.giveBack(&data) }
            let start = data.count
            Message.writeHead(version, pending, header, key: headerKey, with: context, into: &data)
            let head = start..<data.count
            associatedData.withUnsafeBytes { data.append(contentsOf: $0) }
            data.withUnsafeBytes { data in
                output.appendBytes(head.count + plaintext.count + KeySize.tag) { message in
                    message.copyMemory(from: UnsafeRawBufferPointer(rebasing: data[head]))
                    let body = UnsafeMutableRawBufferPointer(rebasing: message[head.count...])
                    plaintext.withUnsafeBytes { body.copyMemory(from: $0) }
                    context.setKey(key)
                    CipherContext.zeroNonce.withUnsafeBytes { context.seal(body, nonce: $0, authenticating: data) }
                }
            }
        }
    }

    /// Upper bound of the bytes that the next message adds to its plaintext.
    private var overheadBound: Int { Self.maximumOverhead + (pending == nil ? 0 : Self.maximumPreKeyPart) }

    /// Opens `message` and appends its plaintext to `output`.
    ///
    /// A sender without the peer's header keys causes only the work of trying ours. A changed copy of a genuine message
    /// may cost the work of its header again. A message of the current chain that leaves no gap allocates nothing, if
    /// `output` has the capacity, unless it brings the first or the last needed chunk of a post-quantum value.
    ///
    /// - Parameters:
    ///   - message: exactly one message; additional bytes make it a forgery.
    ///   - associatedData: the data that the sender bound.
    ///   - output: the plaintext is appended.
    /// - Returns: the number of skipped messages.
    /// - Throws: ``RatchetError/duplicate``, ``RatchetError/tooFarAhead``, ``RatchetError/authenticationFailed``,
    ///   ``RatchetError/malformed``, ``RatchetError/unsupportedVersion``, ``RatchetError/downgrade``,
    ///   ``RatchetError/invalidKey``, ``RatchetError/differentSession``, ``RatchetError/diverged``,
    ///   ``RatchetError/exhausted``.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Received {
        try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            try decrypt(try Message(bytes), associatedData: associatedData, into: &output)
        }
    }

    /// Opens into the caller's memory.
    ///
    /// - Precondition: `output` has room for the message's bytes less ``minimumOverhead``.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(RatchetError) -> Received {
        precondition(output.freeCapacity >= message.count - Self.minimumOverhead, "there is room for the plaintext")
        return try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            try decrypt(try Message(bytes), associatedData: associatedData, into: &output)
        }
    }

    private mutating func decrypt(
        _ message: Message, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Received {
        var received = Received(skipped: 0)
        try output.append(addingCapacity: message.plaintextCount) { (output) throws(RatchetError) in
            received = try decrypt(message, associatedData: associatedData, into: &output)
        }
        return received
    }

    private mutating func decrypt(
        _ message: Message, associatedData: Span<UInt8>, into output: inout OutputSpan<UInt8>
    ) throws(RatchetError) -> Received {
        if let part = message.preKeyPart {
            guard role == .responder, part.sessionID == sessionID else { throw .differentSession }
        }
        // It may belong to an earlier session of the record: no key of this session seals another version.
        guard message.version == version || opensExactHeaders else { throw .authenticationFailed }
        var data = beginData()
        defer { Scratch.giveBack(&data) }
        data.append(contentsOf: message.head)
        associatedData.withUnsafeBytes { data.append(contentsOf: $0) }
        var skipped = 0
        try output.appendBytes(message.plaintextCount) { (plaintext) throws(RatchetError) in
            skipped = try CipherContext.withOne { (context) throws(RatchetError) in
                try data.span.withUnsafeBytes { (data) throws(RatchetError) in
                    try ratchet.receive(
                        TripleRatchet.Opening(message: message, data: data, context: context, plaintext: plaintext))
                }
            }
        }
        pending = nil
        return Received(skipped: skipped)
    }

    /// The data that every message authenticates, up to its header; header and associated data follow. Fixed lengths
    /// come first and the header delimits itself, so no two inputs give the same bytes. The array must be returned to
    /// `Scratch`.
    private borrowing func beginData() -> [UInt8] {
        var data = Scratch.take()
        (role == .initiator ? ownIdentity : peerIdentity).rawBytes.append(to: &data)
        (role == .initiator ? peerIdentity : ownIdentity).rawBytes.append(to: &data)
        return data
    }
}
