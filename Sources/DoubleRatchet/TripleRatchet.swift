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
/// Receiving derives everything first and assigns it after authentication; a message in the current chain then is stepped over in
/// place, and costs no memory. Who does not know a header key causes no more work
/// than trying those that are there.
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
    /// The peer's ratchet key; before its first message its signed prekey.
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
    /// What can fail is done before anything changes.
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
    /// Steps over the next message, whose keys are put into `place`.
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
