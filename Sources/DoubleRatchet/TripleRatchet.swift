/// The Triple Ratchet (Double Ratchet, revision 3, section 6) with header encryption (section 4).
///
/// A Diffie-Hellman ratchet and a ``SparsePostQuantumRatchet`` side by side, and message keys from both. It has no
/// access to identities.
///
/// ```
/// root || chain || next header key = HKDF-SHA256(salt root, DH, "DoubleRatchet/2 root", 96)
/// message key = HKDF-SHA256(salt post-quantum key, classical key, "DoubleRatchet/2 message", 32)
/// ```
/// As the specification's section 8.5 suggests, one step comes later than in its pseudo-code: after a ratchet step of
/// the peer, the own new key pair is made when the next message is sent, not when the peer's is received. So receiving
/// needs no randomness, and in between there is no private ratchet key that could be stolen. If nothing was sent since
/// the last step, the peer cannot have started a new chain, and the next header key is not tried.
///
/// Receiving derives all keys first and assigns them after authentication. A message in the current chain is then
/// stepped over in place, without allocating memory. A sender without a header key causes no more work than trying the
/// stored ones.
package struct TripleRatchet: ~Copyable, Sendable {
    package struct SendingChain: Sendable {
        package let pair: AgreementKeyPair
        let headerKey: HeaderKey
        package var key: ChainKey
        /// The number of the next message.
        package var next: UInt32
    }

    package struct ReceivingChain: Sendable {
        let headerKey: HeaderKey
        /// The chain's own number, from 0.
        package let number: UInt32
        package var key: ChainKey
        /// The number of the first message that is neither opened nor skipped.
        package var next: UInt32
    }

    package var root: RootKey
    /// The peer's ratchet key; before the peer's first message, its signed prekey.
    package var peerKey: Bytes32
    package var sending: SendingChain?
    package var receiving: ReceivingChain?
    /// `NHKs`: for the sending chain after the current one.
    var nextSendingHeader: HeaderKey
    /// `NHKr`: for the receiving chain after the current one.
    var nextReceivingHeader: HeaderKey
    /// The length of the previous sending chain: the `PN` of the headers.
    package var previousCount: UInt32 = 0
    var postQuantum: SparsePostQuantumRatchet
    var finished: FinishedChains = FinishedChains()

    /// `RatchetInitAliceHE`, except for the key pair, which is made with the first message.
    init(initiator secrets: PQXDH.Secrets, peerSignedPreKey: Bytes32) {
        self.init(
            root: secrets.root, peerKey: peerSignedPreKey, sending: nil, receiving: nil,
            nextSendingHeader: secrets.initiatorHeader, nextReceivingHeader: secrets.responderHeader,
            postQuantum: SparsePostQuantumRatchet(isInitiator: true, secret: secrets.postQuantum))
    }

    /// `RatchetInitBobHE` together with the step of the first header. The signed prekey is not kept.
    init(
        responder secrets: PQXDH.Secrets, signedPreKey: AgreementKeyPair, peerKey: Bytes32
    ) throws(RatchetError) {
        let shared = try signedPreKey.agree(with: try AgreementPublicKey(peerKey))
        let (root, chain, header) = secrets.root.step(shared)
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

    // MARK: Sending (sections 4.4 and 6.3)

    /// Steps to the next message and returns its header and its key, which is in the memory of `keys`.
    ///
    /// All steps that can fail come before any change.
    package mutating func send(
        random: inout some RandomSource, keys: MessageKeys
    ) throws(RatchetError) -> (header: MessageHeader, headerKey: HeaderKey, key: UnsafeRawBufferPointer) {
        guard postQuantum.sending.next < UInt32.max else { throw .exhausted }
        if sending == nil { try beginChain(random: &random) }
        guard let place = try sending?.step(keys.classical) else { preconditionFailure("there is a sending chain") }
        let part = postQuantum.send(random: &random, into: keys.postQuantum)
        let header = MessageHeader(
            ratchetKey: place.ratchetKey, number: place.number, previousCount: previousCount, postQuantum: part)
        return (header, place.headerKey, keys.combine())
    }

    private mutating func beginChain(random: inout some RandomSource) throws(RatchetError) {
        let pair = AgreementKeyPair(random: &random)
        let (root, key, nextHeader) = root.step(try pair.agree(with: AgreementPublicKey(checked: peerKey)))
        sending = SendingChain(pair: pair, headerKey: nextSendingHeader, key: key, next: 0)
        self.root = root
        nextSendingHeader = nextHeader
    }
}

extension TripleRatchet.SendingChain {
    /// Steps over the next message and puts its keys into `place`.
    fileprivate mutating func step(
        _ place: MessageKeys.Place
    ) throws(RatchetError) -> (ratchetKey: Bytes32, number: UInt32, headerKey: HeaderKey) {
        guard next < UInt32.max else { throw .exhausted }
        key.derive(into: place)
        key.goOn(from: place)
        defer { next += 1 }
        return (pair.publicKey.bytes, next, headerKey)
    }
}
