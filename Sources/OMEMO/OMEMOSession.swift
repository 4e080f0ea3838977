public import DoubleRatchet

/// An OMEMO session between two devices: X3DH first, then the Double Ratchet.
///
/// A session carries the key material of a payload (``OMEMOPayload``), once for each recipient device; the gateway
/// handles all XML. The session has no access to accounts, storage or time, and cannot be copied, because two copies
/// would use the same keys. The caller stores the state after `encrypt(_:random:into:)` before the message is sent, and
/// after ``decrypt(_:isKeyExchange:into:)`` before the plaintext is delivered. A function that throws changes nothing:
/// neither the session nor the output array.
///
/// If both ends start a session at the same time, or one end starts again, a device has several sessions with another.
/// The caller keeps them, opens a message with the session that accepts it, and sends with the one that opened the
/// latest message.
///
/// The caller must send two replies: an empty message to the key exchange of
/// ``respond(identity:signedPreKey:preKey:message:profile:expecting:plaintext:)``, which establishes the session at the
/// other end, and a heartbeat if ``Received/isHeartbeatDue`` is true.
public struct OMEMOSession: ~Copyable, Sendable {
    package enum Role: UInt8, Sendable {
        case initiator = 0
        case responder = 1
    }

    /// The kind of an encrypted message, for the attribute `kex` (omemo2) or `prekey` (axolotl) of its element.
    public enum Form: Hashable, Sendable {
        /// The peer has not answered yet: the message includes the key exchange.
        case keyExchange
        /// A message of a session that the peer has established.
        case message
    }

    /// The result of a received message besides its plaintext.
    public struct Received: Hashable, Sendable {
        /// The number of newly skipped messages: earlier ones that have not been received yet.
        public let skipped: Int
        /// Whether the caller has to send an empty message now, so that the peer's next message uses a new ratchet key.
        /// This was the first message under its ratchet key with a number of ``OMEMOLimits/heartbeatNumber`` or more
        /// (XEP-0384, Business Rules).
        public let isHeartbeatDue: Bool
    }

    package let role: Role
    /// Our identity as the peer knows it.
    package let ownIdentity: OMEMOIdentityKey
    /// The device at the other end.
    public let peerIdentity: OMEMOIdentityKey
    /// The exchange that started the session.
    package let exchange: OMEMOKeyExchange
    /// Whether the peer is known to have the session: messages are then sent without the key exchange.
    public internal(set) var isEstablished: Bool
    package var ratchet: OMEMORatchet

    /// The profile of the session.
    public var profile: OMEMOProfile { exchange.identity.profile }

    /// The number of stored keys of skipped messages, at most ``OMEMOLimits/maximumSkippedKeys``.
    public var skippedCount: Int { ratchet.skipped.count }

    /// Whether `exchange` started this session. If so, this session opens its message and no second session is made.
    /// The prekey may have been deleted by then.
    public borrowing func began(with exchange: OMEMOKeyExchange) -> Bool {
        role == .responder && exchange == self.exchange
    }

    // MARK: Starting

    /// Starts a session with the device of `bundle` (X3DH, section 3.3). Costs one signature check and four agreements.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - bundle: the peer's keys; the signature is verified here, and one of the one-time prekeys is drawn.
    ///   - expected: the identity that the caller has pinned for this device, if any.
    ///   - random: 40 bytes are taken.
    /// - Throws: ``RatchetError/untrustedIdentity``, ``RatchetError/invalidSignature``, ``RatchetError/invalidKey``, or
    ///   ``RatchetError/unknownPreKey`` for a bundle without one-time prekeys.
    public static func initiate(
        identity: borrowing IdentityKeyPair, with bundle: OMEMOBundle, expecting expected: OMEMOIdentityKey?,
        random: inout some RandomSource
    ) throws(RatchetError) -> OMEMOSession {
        let own = identity.omemoKey(in: bundle.profile)
        guard bundle.identity == expected ?? bundle.identity, bundle.identity != own else { throw .untrustedIdentity }
        try bundle.verify()
        guard !bundle.preKeys.isEmpty else { throw .unknownPreKey }
        let preKey = bundle.preKeys[Self.index(below: bundle.preKeys.count, random: &random)]
        let ephemeral = AgreementKeyPair(random: &random)
        let root = try X3DH.initiate(identity: identity, ephemeral: ephemeral, with: bundle, preKey: preKey)
        let exchange = OMEMOKeyExchange(
            identity: own, ephemeralKey: ephemeral.publicKey.bytes, signedPreKeyID: bundle.signedPreKey.id,
            preKeyID: preKey.id)
        return OMEMOSession(
            role: .initiator, ownIdentity: own, peerIdentity: bundle.identity, exchange: exchange, isEstablished: false,
            ratchet: OMEMORatchet(
                profile: bundle.profile, initiatorRoot: root, peerSignedPreKey: bundle.signedPreKey.key))
    }

    /// One of 2^64 values modulo the count: the bias is negligible for any number of prekeys.
    private static func index(below count: Int, random: inout some RandomSource) -> Int {
        var value: UInt64 = 0
        Swift.withUnsafeMutableBytes(of: &value) { random.fill($0) }
        return Int(value % UInt64(count))
    }

    /// Makes the responder's session from a first message (X3DH, section 3.4), and opens that message.
    ///
    /// If this succeeds, the caller deletes the one-time prekey in the transaction that stores the session, and then
    /// sends an empty message.
    ///
    /// - Parameters:
    ///   - identity: our own identity.
    ///   - signedPreKey: the signed prekey that the message's ``OMEMOKeyExchange`` names.
    ///   - preKey: the one-time prekey that it names.
    ///   - message: the first message, or any later one before our first reply.
    ///   - profile: the profile of the message's element.
    ///   - expected: the identity that the caller has pinned for this device, if any.
    ///   - plaintext: the opened message is appended.
    /// - Returns: the session.
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``, ``RatchetError/unknownPreKey``,
    ///   ``RatchetError/untrustedIdentity``, ``RatchetError/invalidKey``, ``RatchetError/tooFarAhead``,
    ///   ``RatchetError/authenticationFailed``.
    public static func respond(
        identity: borrowing IdentityKeyPair, signedPreKey: borrowing OMEMOSignedPreKey,
        preKey: borrowing OneTimePreKey, message: Span<UInt8>, profile: OMEMOProfile,
        expecting expected: OMEMOIdentityKey?, plaintext: inout [UInt8]
    ) throws(RatchetError) -> OMEMOSession {
        let own = identity.omemoKey(in: profile)
        let (exchange, ratchetKey) = try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            let (exchange, inner) = try OMEMOKeyExchange.parse(bytes, profile: profile)
            return (exchange, try OMEMOMessage(inner, profile: profile).ratchetKey)
        }
        guard signedPreKey.publicKey.profile == profile, exchange.signedPreKeyID == signedPreKey.publicKey.id,
            exchange.preKeyID == preKey.publicKey.id
        else { throw .unknownPreKey }
        guard exchange.identity == expected ?? exchange.identity, exchange.identity != own else {
            throw .untrustedIdentity
        }
        let root = try X3DH.respond(
            identity: identity, signedPreKey: signedPreKey.pair, preKey: preKey.pair, exchange: exchange)
        var session = OMEMOSession(
            role: .responder, ownIdentity: own, peerIdentity: exchange.identity, exchange: exchange,
            isEstablished: true,
            ratchet: try OMEMORatchet(
                profile: profile, responderRoot: root, signedPreKey: signedPreKey.pair, peerKey: ratchetKey))
        _ = try session.decrypt(message, isKeyExchange: true, into: &plaintext)
        return session
    }

    init(
        role: Role, ownIdentity: OMEMOIdentityKey, peerIdentity: OMEMOIdentityKey, exchange: OMEMOKeyExchange,
        isEstablished: Bool, ratchet: consuming OMEMORatchet
    ) {
        self.role = role
        self.ownIdentity = ownIdentity
        self.peerIdentity = peerIdentity
        self.exchange = exchange
        self.isEstablished = isEstablished
        self.ratchet = ratchet
    }

    // MARK: Messages

    /// Encrypts `plaintext`, in OMEMO the key material of a payload, and appends the message to `output`.
    ///
    /// - Parameters:
    ///   - plaintext: any length, as long as the message stays within the peer's ``OMEMOLimits/maximumMessageLength``.
    ///   - random: 32 bytes are taken for the first message after one from the peer.
    ///   - output: the message is appended.
    /// - Returns: whether the message carries the key exchange.
    /// - Throws: ``RatchetError/exhausted``, ``RatchetError/invalidKey``.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, random: inout some RandomSource, into output: inout [UInt8]
    ) throws(RatchetError) -> Form {
        let profile = profile
        return try MessageKeys.Place.with { (place) throws(RatchetError) in
            let header = try ratchet.send(random: &random, into: place)
            var data = identities(sentByUs: true)
            defer { Scratch.giveBack(&data) }
            let start = data.count
            OMEMOMessage.writeHead(
                profile: profile, ratchetKey: header.ratchetKey, number: header.number,
                previousCount: header.previousCount, ciphertextCount: Primitives.sizeCBC(plaintext.count), into: &data)
            OMEMOCipherKeys.with(place.messageKey, info: profile.messageInfo) { keys in
                plaintext.withUnsafeBytes { keys.seal($0, into: &data) }
                data.withUnsafeBytes { data in
                    keys.withMAC(of: data) { mac in
                        write(data[start...], mac: mac.prefix(profile.macLength), into: &output)
                    }
                }
            }
            return isEstablished ? .message : .keyExchange
        }
    }

    private borrowing func write(
        _ authenticated: some Collection<UInt8>, mac: some Collection<UInt8>, into output: inout [UInt8]
    ) {
        guard !isEstablished else {
            return OMEMOMessage.write(authenticated, mac: mac, profile: profile, into: &output)
        }
        var message: [UInt8] = []
        OMEMOMessage.write(authenticated, mac: mac, profile: profile, into: &message)
        exchange.write(around: message, into: &output)
    }

    /// Encrypts key material made by ``OMEMOPayload/seal(_:profile:random:)``.
    public mutating func encrypt(
        _ keyMaterial: SecretBytes, random: inout some RandomSource, into output: inout [UInt8]
    ) throws(RatchetError) -> Form {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(keyMaterial.count)
        keyMaterial.append(to: &bytes)
        defer { SecretBytes.wipe(&bytes) }
        return try encrypt(bytes.span, random: &random, into: &output)
    }

    /// Opens `message` and appends its plaintext to `output`.
    ///
    /// A forged message costs at most one agreement and ``OMEMOLimits/maximumSkip`` HMACs.
    ///
    /// - Parameters:
    ///   - message: the bytes of one `key` element.
    ///   - isKeyExchange: the element's attribute `kex` (omemo2) or `prekey` (axolotl).
    ///   - output: the plaintext is appended; the caller wipes it after use.
    /// - Returns: the number of skipped messages, and whether a heartbeat is due.
    /// - Throws: ``RatchetError/duplicate``, ``RatchetError/tooFarAhead``, ``RatchetError/authenticationFailed``,
    ///   ``RatchetError/malformed``, ``RatchetError/unsupportedVersion``, ``RatchetError/invalidKey``,
    ///   ``RatchetError/differentSession`` for a key exchange that did not start this session,
    ///   ``RatchetError/exhausted``.
    public mutating func decrypt(
        _ message: Span<UInt8>, isKeyExchange: Bool, into output: inout [UInt8]
    ) throws(RatchetError) -> Received {
        try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            var inner = bytes
            if isKeyExchange {
                let parsed = try OMEMOKeyExchange.parse(bytes, profile: profile)
                guard began(with: parsed.exchange) else { throw .differentSession }
                inner = parsed.message
            }
            return try decrypt(try OMEMOMessage(inner, profile: profile), into: &output)
        }
    }

    private mutating func decrypt(
        _ message: OMEMOMessage, into output: inout [UInt8]
    ) throws(RatchetError) -> Received {
        let info = profile.messageInfo
        var identities = identities(sentByUs: false)
        defer { Scratch.giveBack(&identities) }
        let header = OMEMORatchet.Header(
            ratchetKey: message.ratchetKey, number: message.number, previousCount: message.previousCount)
        let progress = try ratchet.receive(header) { (messageKey) throws(RatchetError) in
            try OMEMOCipherKeys.with(messageKey, info: info) { (keys) throws(RatchetError) in
                try identities.span.withUnsafeBytes { (identities) throws(RatchetError) in
                    try keys.verify(message.mac, of: identities, message.authenticated)
                }
                try keys.open(message.ciphertext, into: &output)
            }
        }
        isEstablished = true
        return Received(skipped: progress.skipped, isHeartbeatDue: progress.reachedHeartbeat)
    }

    /// The data authenticated before the message: `initiator || responder` in omemo2 (XEP-0384, section 4.2), 64 bytes;
    /// `sender || recipient` in axolotl, 66 bytes. The array must be returned to `Scratch`.
    private borrowing func identities(sentByUs: Bool) -> [UInt8] {
        let ownFirst =
            switch profile {
            case .omemo2: role == .initiator
            case .axolotl: sentByUs
            }
        var bytes = Scratch.take()
        (ownFirst ? ownIdentity : peerIdentity).append(to: &bytes)
        (ownFirst ? peerIdentity : ownIdentity).append(to: &bytes)
        return bytes
    }
}
