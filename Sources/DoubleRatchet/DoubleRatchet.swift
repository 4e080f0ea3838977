/// The state machine of the Double Ratchet (revision 3, section 3). It knows no identities and no wire format.
///
/// One thing is done later than in the specification's pseudo-code, as its section 8.5 suggests: after a step of the peer
/// the own new key pair is made when the next message is sent, not when the peer's is received. So receiving needs
/// no randomness, and between the two there is no private ratchet key that could be stolen. Also, a header with an unknown
/// ratchet key is refused without any work while nothing was sent since the last step: no peer can know what to answer.
///
/// Everything is derived first and assigned after authentication. Until then a message that skips n others costs n HMACs
/// and, at a new ratchet key, one agreement; the keys of the skipped ones are derived when the message has proven genuine.
struct DoubleRatchet: ~Copyable, Sendable {
    struct SendingChain: Sendable {
        let pair: AgreementKeyPair
        var key: ChainKey
        /// The number of the next message.
        var next: UInt32
    }

    struct ReceivingChain: Sendable {
        var key: ChainKey
        /// The number of the first message that is neither opened nor skipped.
        var next: UInt32
    }

    var root: RootKey
    /// The peer's ratchet key; before its first message its signed prekey.
    var peerKey: Bytes32
    var sending: SendingChain?
    var receiving: ReceivingChain?
    /// The length of the previous sending chain: the `PN` of the headers.
    var previousCount: UInt32 = 0
    /// The first eight bytes of the peer's earlier ratchet keys, oldest first.
    var pastKeys: [UInt64] = []
    var skipped: SkippedKeys = SkippedKeys()

    /// `RatchetInitAlice`, up to the key pair, which the first message makes.
    init(initiatorRoot root: RootKey, peerSignedPreKey: Bytes32) {
        self.init(root: root, peerKey: peerSignedPreKey, sending: nil, receiving: nil)
    }

    /// `RatchetInitBob` together with the step of the first header; the signed prekey is not kept.
    init(responderRoot root: RootKey, signedPreKey: AgreementKeyPair, peerKey: Bytes32) throws(RatchetError) {
        let shared = try signedPreKey.agree(with: try AgreementPublicKey(peerKey))
        let (next, chain) = root.step(shared)
        self.init(root: next, peerKey: peerKey, sending: nil, receiving: ReceivingChain(key: chain, next: 0))
    }

    init(root: RootKey, peerKey: Bytes32, sending: SendingChain?, receiving: ReceivingChain?) {
        self.root = root
        self.peerKey = peerKey
        self.sending = sending
        self.receiving = receiving
    }

    // MARK: Sending (section 3.4)

    /// The chain to send the next message in, made if there is none. ``sent(_:root:)`` makes it so.
    func chainForSending(random: inout some RandomSource) throws(RatchetError) -> (SendingChain, RootKey) {
        if let sending {
            guard sending.next < UInt32.max else { throw .exhausted }
            return (sending, root)
        }
        let pair = AgreementKeyPair(random: &random)
        let (next, chain) = root.step(try pair.agree(with: AgreementPublicKey(checked: peerKey)))
        return (SendingChain(pair: pair, key: chain, next: 0), next)
    }

    /// Takes the step whose message key was used.
    mutating func sent(_ chain: SendingChain, root: RootKey) {
        self.root = root
        sending = SendingChain(pair: chain.pair, key: chain.key.next, next: chain.next + 1)
    }

    // MARK: Receiving (section 3.5)

    /// Opens a message and only then takes the step. Returns how many messages were newly skipped.
    mutating func receive(
        _ header: MessageHeader, _ sealed: UnsafeRawBufferPointer, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        if header.ratchetKey == peerKey {
            // Without a receiving chain this is a header under the prekey that we began with; nobody has such a chain.
            guard let receiving else { throw .authenticationFailed }
            if header.number >= receiving.next {
                return try receiveCurrent(receiving, header, sealed, authenticating: data, into: &output)
            }
        }
        if let index = skipped.index(of: header.ratchetKey, number: header.number) {
            try skipped.messageKey(at: index).open(sealed, authenticating: data, into: &output)
            skipped.remove(at: index)
            return 0
        }
        if header.ratchetKey == peerKey || pastKeys.contains(header.ratchetKey.prefix) { throw .duplicate }
        return try receiveStep(header, sealed, authenticating: data, into: &output)
    }

    private mutating func receiveCurrent(
        _ chain: ReceivingChain, _ header: MessageHeader, _ sealed: UnsafeRawBufferPointer,
        authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        let gap = header.number - chain.next
        guard gap <= RatchetLimits.maximumSkip else { throw .tooFarAhead }
        guard header.number < UInt32.max else { throw .exhausted }
        let key = chain.key.advanced(by: gap)
        try key.messageKey.open(sealed, authenticating: data, into: &output)

        skipped.store(chain: chain.key, ratchetKey: peerKey, from: chain.next, to: header.number)
        receiving = ReceivingChain(key: key.next, next: header.number + 1)
        return Int(gap)
    }

    private mutating func receiveStep(
        _ header: MessageHeader, _ sealed: UnsafeRawBufferPointer, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        guard let sending else { throw .authenticationFailed }
        let missing = receiving.map { header.previousCount > $0.next ? header.previousCount - $0.next : 0 } ?? 0
        guard header.number <= RatchetLimits.maximumSkip, missing <= RatchetLimits.maximumSkip else {
            throw .tooFarAhead
        }
        let shared = try sending.pair.agree(with: try AgreementPublicKey(header.ratchetKey))
        let (nextRoot, first) = root.step(shared)
        let key = first.advanced(by: header.number)
        try key.messageKey.open(sealed, authenticating: data, into: &output)

        if let receiving {
            skipped.store(
                chain: receiving.key, ratchetKey: peerKey, from: receiving.next, to: receiving.next + missing)
            pastKeys.append(peerKey.prefix)
            if pastKeys.count > RatchetLimits.maximumRememberedChains { pastKeys.removeFirst() }
        }
        skipped.store(chain: first, ratchetKey: header.ratchetKey, from: 0, to: header.number)
        root = nextRoot
        peerKey = header.ratchetKey
        receiving = ReceivingChain(key: key.next, next: header.number + 1)
        previousCount = sending.next
        self.sending = nil
        return Int(missing + header.number)
    }
}
