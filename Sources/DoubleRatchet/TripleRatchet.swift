/// The Triple Ratchet (Double Ratchet, revision 3, section 6) with header encryption (section 4): a Diffie-Hellman
/// ratchet and a ``SparsePostQuantumRatchet`` side by side, and a message key from both. It knows no identities.
///
/// ```
/// root || chain || next header key = HKDF-SHA256(salt root, DH, "DoubleRatchet/2 root", 96)
/// message key = HKDF-SHA256(salt post-quantum key, classical key, "DoubleRatchet/2 message", 32)
/// ```
/// One thing is done later than in the specification's pseudo-code, as its section 8.5 suggests: after a step of the peer
/// the own new key pair is made when the next message is sent, not when the peer's is received. So receiving needs no
/// randomness, and between the two there is no private ratchet key that could be stolen. While nothing was sent since the
/// last step no new chain can have begun, and the next header key is not even tried.
///
/// Everything is derived first and assigned after authentication. Who does not know a header key causes no more work
/// than trying those that are there.
struct TripleRatchet: ~Copyable, Sendable {
    struct SendingChain: Sendable {
        let pair: AgreementKeyPair
        let headerKey: HeaderKey
        var key: ChainKey
        /// The number of the next message.
        var next: UInt32
    }

    struct ReceivingChain: Sendable {
        let headerKey: HeaderKey
        /// The chain's own number, from 0.
        let number: UInt32
        var key: ChainKey
        /// The number of the first message that is neither opened nor skipped.
        var next: UInt32
    }

    static let messageInfo = Array("DoubleRatchet/2 message".utf8)
    private static let rootInfo = Array("DoubleRatchet/2 root".utf8)

    var root: RootKey
    /// The peer's ratchet key; before its first message its signed prekey.
    var peerKey: Bytes32
    var sending: SendingChain?
    var receiving: ReceivingChain?
    /// `NHKs`: for the sending chain after the current one.
    var nextSendingHeader: HeaderKey
    /// `NHKr`: for the receiving chain after the current one.
    var nextReceivingHeader: HeaderKey
    /// The length of the previous sending chain: the `PN` of the headers.
    var previousCount: UInt32 = 0
    var postQuantum: SparsePostQuantumRatchet
    var finished: FinishedChains = FinishedChains()

    /// `RatchetInitAliceHE`, up to the key pair, which the first message makes.
    init(initiator secrets: PQXDH.Secrets, peerSignedPreKey: Bytes32) {
        self.init(
            root: secrets.root, peerKey: peerSignedPreKey, sending: nil, receiving: nil,
            nextSendingHeader: secrets.initiatorHeader, nextReceivingHeader: secrets.responderHeader,
            postQuantum: SparsePostQuantumRatchet(isInitiator: true, secret: secrets.postQuantum))
    }

    /// `RatchetInitBobHE` together with the step of the first header; the signed prekey is not kept.
    init(
        responder secrets: PQXDH.Secrets, signedPreKey: AgreementKeyPair, peerKey: Bytes32
    ) throws(RatchetError) {
        let shared = try signedPreKey.agree(with: try AgreementPublicKey(peerKey))
        let (root, chain, header) = Self.step(secrets.root, shared)
        self.init(
            root: root, peerKey: peerKey, sending: nil,
            receiving: ReceivingChain(headerKey: secrets.initiatorHeader, number: 0, key: chain, next: 0),
            nextSendingHeader: secrets.responderHeader, nextReceivingHeader: header,
            postQuantum: SparsePostQuantumRatchet(isInitiator: false, secret: secrets.postQuantum))
    }

    init(
        root: RootKey, peerKey: Bytes32, sending: SendingChain?, receiving: ReceivingChain?,
        nextSendingHeader: HeaderKey, nextReceivingHeader: HeaderKey, postQuantum: SparsePostQuantumRatchet
    ) {
        self.root = root
        self.peerKey = peerKey
        self.sending = sending
        self.receiving = receiving
        self.nextSendingHeader = nextSendingHeader
        self.nextReceivingHeader = nextReceivingHeader
        self.postQuantum = postQuantum
    }

    /// `KDF_RK_HE` (section 4.1).
    static func step(_ root: RootKey, _ shared: SecretBytes) -> (RootKey, ChainKey, HeaderKey) {
        let outputs = Primitives.hkdf(salt: root.secret, secret: shared, info: rootInfo, blocks: 3)
        return (RootKey(secret: outputs[0]), ChainKey(secret: outputs[1]), HeaderKey(secret: outputs[2]))
    }

    /// `KDF_HYBRID` (section 6.2): secret as long as one of the two is.
    static func combine(_ classical: consuming MessageKey, _ postQuantum: SecretBytes) -> MessageKey {
        MessageKey(
            secret: Primitives.hkdf(salt: postQuantum, secret: classical.secret, info: messageInfo, blocks: 1)[0])
    }

    // MARK: Sending (sections 4.4 and 6.3)

    /// What the next message goes with, and what the ratchet becomes by it.
    struct Sending {
        let header: MessageHeader
        let headerKey: HeaderKey
        /// What the ``MessageKey`` of this message and no other is made of. A property of that type here makes the optimizer of
        /// Swift 6.3 abort when it is also asked for testability.
        let messageSecret: SecretBytes
        fileprivate let root: RootKey
        fileprivate let chain: SendingChain
        fileprivate let nextSendingHeader: HeaderKey
        fileprivate let postQuantum: SparsePostQuantumRatchet
    }

    /// Prepares the next message. ``sent(_:)`` makes it so.
    func prepare(random: inout some RandomSource) throws(RatchetError) -> Sending {
        var (root, nextHeader) = (root, nextSendingHeader)
        let chain: SendingChain
        if let sending {
            guard sending.next < UInt32.max else { throw .exhausted }
            chain = sending
        } else {
            let pair = AgreementKeyPair(random: &random)
            let shared = try pair.agree(with: AgreementPublicKey(checked: peerKey))
            let (newRoot, key, header) = Self.step(root, shared)
            chain = SendingChain(pair: pair, headerKey: nextHeader, key: key, next: 0)
            (root, nextHeader) = (newRoot, header)
        }
        var postQuantum = postQuantum
        let (part, key) = try postQuantum.send(random: &random)
        return Sending(
            header: MessageHeader(
                ratchetKey: chain.pair.publicKey.bytes, number: chain.next, previousCount: previousCount,
                postQuantum: part),
            headerKey: chain.headerKey, messageSecret: Self.combine(chain.key.messageKey, key).secret, root: root,
            chain: SendingChain(
                pair: chain.pair, headerKey: chain.headerKey, key: chain.key.next, next: chain.next + 1),
            nextSendingHeader: nextHeader, postQuantum: postQuantum)
    }

    /// Takes the step of a message that was sealed.
    mutating func sent(_ step: Sending) {
        root = step.root
        sending = step.chain
        nextSendingHeader = step.nextSendingHeader
        postQuantum = step.postQuantum
    }
}
