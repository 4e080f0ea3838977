/// The Double Ratchet (revision 3, section 3) of the OMEMO profiles: headers in the clear, an HMAC in the message.
///
/// As in the native engine, the own new key pair is made when the next message is sent (section 8.5), everything is
/// derived first and assigned after authentication, and before a message has proven genuine it costs at most one
/// agreement and ``OMEMOLimits/maximumSkip`` HMACs. Unlike there, some past receiving chains are kept, because peers may
/// name the length of their previous chain too low: see ``OMEMOLimits/maximumPastChains``.
struct OMEMORatchet: ~Copyable, Sendable {
    struct SendingChain: Sendable {
        let pair: AgreementKeyPair
        var key: ChainKey
        /// The number of the next message.
        var next: UInt32
    }

    struct ReceivingChain: Sendable {
        let ratchetKey: Bytes32
        var key: ChainKey
        /// The number of the first message that is neither opened nor skipped.
        var next: UInt32
    }

    /// The clear part of a message that the ratchet needs.
    struct Header {
        let ratchetKey: Bytes32
        let number: UInt32
        let previousCount: UInt32
    }

    /// What a step or a message in a chain left behind.
    struct Progress {
        /// How many messages were newly skipped.
        let skipped: Int
        /// Whether this is the first message of its chain from ``OMEMOLimits/heartbeatNumber`` on.
        let reachedHeartbeat: Bool
    }

    let rootInfo: [UInt8]
    var root: SecretBytes
    /// The peer's ratchet key; before its first message its signed prekey.
    var peerKey: Bytes32
    var sending: SendingChain?
    var receiving: ReceivingChain?
    /// The length of the previous sending chain: the `PN` of the headers.
    var previousCount: UInt32 = 0
    /// The peer's latest finished chains, oldest first.
    var past: [ReceivingChain] = []
    /// The first eight bytes of the peer's ratchet keys before those, oldest first.
    var pastKeys: [UInt64] = []
    var skipped = SkippedKeys()

    /// `RatchetInitAlice`, up to the key pair, which the first message makes.
    init(profile: OMEMOProfile, initiatorRoot root: SecretBytes, peerSignedPreKey: Bytes32) {
        self.init(profile: profile, root: root, peerKey: peerSignedPreKey, sending: nil, receiving: nil)
    }

    /// `RatchetInitBob` together with the step of the first header; the signed prekey is not kept.
    init(
        profile: OMEMOProfile, responderRoot root: SecretBytes, signedPreKey: AgreementKeyPair, peerKey: Bytes32
    ) throws(RatchetError) {
        let shared = try signedPreKey.agree(with: try AgreementPublicKey(peerKey))
        let (next, chain) = Self.step(root, shared, info: profile.rootInfo)
        self.init(
            profile: profile, root: next, peerKey: peerKey, sending: nil,
            receiving: ReceivingChain(ratchetKey: peerKey, key: chain, next: 0))
    }

    init(
        profile: OMEMOProfile, root: SecretBytes, peerKey: Bytes32, sending: SendingChain?, receiving: ReceivingChain?
    ) {
        rootInfo = profile.rootInfo
        self.root = root
        self.peerKey = peerKey
        self.sending = sending
        self.receiving = receiving
    }

    /// `KDF_RK` (section 7.2) with the info of the profile.
    private static func step(
        _ root: SecretBytes, _ shared: SecretBytes, info: [UInt8]
    ) -> (root: SecretBytes, chain: ChainKey) {
        let outputs = Primitives.hkdf(salt: root, secret: shared, info: info, blocks: 2)
        return (outputs[0], ChainKey(secret: outputs[1]))
    }

    // MARK: Sending (section 3.4)

    /// The chain to send the next message in, made if there is none. ``sent(_:root:)`` makes it so.
    func chainForSending(random: inout some RandomSource) throws(RatchetError) -> (SendingChain, SecretBytes) {
        if let sending {
            guard sending.next < UInt32.max else { throw .exhausted }
            return (sending, root)
        }
        let pair = AgreementKeyPair(random: &random)
        let shared = try pair.agree(with: try AgreementPublicKey(peerKey))
        let (next, chain) = Self.step(root, shared, info: rootInfo)
        return (SendingChain(pair: pair, key: chain, next: 0), next)
    }

    /// Takes the step whose message key was used.
    mutating func sent(_ chain: consuming SendingChain, root: SecretBytes) {
        self.root = root
        // Now `chain` alone holds its key, which is then overwritten in its place.
        sending = nil
        chain.key.advance()
        chain.next += 1
        sending = chain
    }

    // MARK: Receiving (section 3.5)

    /// Lets `open` try the message's key and only then takes the step.
    mutating func receive(
        _ header: Header, open: (consuming MessageKey) throws(RatchetError) -> Void
    ) throws(RatchetError) -> Progress {
        if let chain = receiving, chain.ratchetKey == header.ratchetKey, header.number >= chain.next {
            let (advanced, progress) = try receive(header, in: chain, open: open)
            receiving = advanced
            return progress
        }
        let index = past.firstIndex { $0.ratchetKey == header.ratchetKey }
        if let index, header.number >= past[index].next {
            let (advanced, progress) = try receive(header, in: past[index], open: open)
            past[index] = advanced
            return progress
        }
        if let index = skipped.index(of: header.ratchetKey, number: header.number) {
            try open(skipped.messageKey(at: index))
            skipped.remove(at: index)
            return Progress(skipped: 0, reachedHeartbeat: false)
        }
        if header.ratchetKey == peerKey {
            // Without a receiving chain this is a header under the prekey that we began with; nobody has such a chain.
            throw receiving == nil ? .authenticationFailed : .duplicate
        }
        if index != nil || pastKeys.contains(header.ratchetKey.prefix) { throw .duplicate }
        return try receiveStep(header, open: open)
    }

    private mutating func receive(
        _ header: Header, in chain: ReceivingChain, open: (consuming MessageKey) throws(RatchetError) -> Void
    ) throws(RatchetError) -> (ReceivingChain, Progress) {
        let gap = header.number - chain.next
        guard gap <= OMEMOLimits.maximumSkip else { throw .tooFarAhead }
        guard header.number < UInt32.max else { throw .exhausted }
        let key = chain.key.advanced(by: gap)
        try open(key.messageKey)

        store(chain, upTo: header.number)
        let advanced = ReceivingChain(ratchetKey: chain.ratchetKey, key: key.next, next: header.number + 1)
        let heartbeat = OMEMOLimits.heartbeatNumber
        return (
            advanced,
            Progress(
                skipped: Int(gap),
                reachedHeartbeat: chain.ratchetKey == peerKey && chain.next <= heartbeat && header.number >= heartbeat)
        )
    }

    private mutating func receiveStep(
        _ header: Header, open: (consuming MessageKey) throws(RatchetError) -> Void
    ) throws(RatchetError) -> Progress {
        guard let sending else { throw .authenticationFailed }
        guard header.number <= OMEMOLimits.maximumSkip else { throw .tooFarAhead }
        let shared = try sending.pair.agree(with: try AgreementPublicKey(header.ratchetKey))
        let (nextRoot, first) = Self.step(root, shared, info: rootInfo)
        let key = first.advanced(by: header.number)
        try open(key.messageKey)

        let missing = receiving.map { retire($0, length: header.previousCount) } ?? 0
        store(ReceivingChain(ratchetKey: header.ratchetKey, key: first, next: 0), upTo: header.number)
        root = nextRoot
        peerKey = header.ratchetKey
        receiving = ReceivingChain(ratchetKey: header.ratchetKey, key: key.next, next: header.number + 1)
        previousCount = sending.next
        self.sending = nil
        return Progress(
            skipped: missing + Int(header.number), reachedHeartbeat: header.number >= OMEMOLimits.heartbeatNumber)
    }

    /// Moves a chain to the past ones, after taking the keys out of it that are missing below `length`. A greater gap
    /// than one message may leave does not stop the step: its keys stay in the chain.
    private mutating func retire(_ chain: ReceivingChain, length: UInt32) -> Int {
        var chain = chain
        var missing: UInt32 = 0
        if length > chain.next, length - chain.next <= OMEMOLimits.maximumSkip {
            missing = length - chain.next
            store(chain, upTo: length)
            chain = ReceivingChain(ratchetKey: chain.ratchetKey, key: chain.key.advanced(by: missing), next: length)
        }
        past.append(chain)
        if past.count > OMEMOLimits.maximumPastChains {
            pastKeys.append(past.removeFirst().ratchetKey.prefix)
            if pastKeys.count > OMEMOLimits.maximumRememberedChains { pastKeys.removeFirst() }
        }
        return Int(missing)
    }

    private mutating func store(_ chain: ReceivingChain, upTo number: UInt32) {
        skipped.store(
            chain: chain.key, ratchetKey: chain.ratchetKey, from: chain.next, to: number,
            limit: OMEMOLimits.maximumSkippedKeys)
    }
}
