// The OMEMO profiles have a ratchet of their own: the header encryption and the post-quantum ratchet of the native
// session leave little to share.

package import DoubleRatchet

/// The Double Ratchet (revision 3, section 3) of the OMEMO profiles: clear headers, an HMAC in the message.
///
/// As in the native engine, a new own key pair is made when the next message is sent (section 8.5), and all keys are
/// derived first and assigned after authentication. An unauthenticated message costs at most one agreement and
/// ``OMEMOLimits/maximumSkip`` HMACs. Unlike there, some past receiving chains are kept, because peers may send too low
/// a length of their previous chain: see ``OMEMOLimits/maximumPastChains``.
package struct OMEMORatchet: ~Copyable, Sendable {
    package struct SendingChain: Sendable {
        package let pair: AgreementKeyPair
        package var key: ChainKey
        /// The number of the next message.
        package var next: UInt32
    }

    package struct ReceivingChain: Sendable {
        package let ratchetKey: Bytes32
        package var key: ChainKey
        /// The number of the first message that is neither opened nor skipped.
        package var next: UInt32
    }

    /// The header fields that the ratchet needs.
    package struct Header {
        package let ratchetKey: Bytes32
        package let number: UInt32
        package let previousCount: UInt32
    }

    /// The result of receiving a message.
    package struct Progress {
        /// The number of newly skipped messages.
        package let skipped: Int
        /// Whether this is the first message of its chain from ``OMEMOLimits/heartbeatNumber`` on.
        package let reachedHeartbeat: Bool
    }

    let rootInfo: [UInt8]
    package var root: SecretBytes
    /// The peer's ratchet key; before the peer's first message, its signed prekey.
    package var peerKey: Bytes32
    package var sending: SendingChain?
    package var receiving: ReceivingChain?
    /// The length of the previous sending chain: the `PN` of the headers.
    package var previousCount: UInt32 = 0
    /// The peer's latest finished chains, oldest first.
    var past: [ReceivingChain] = []
    /// The first eight bytes of the peer's earlier ratchet keys, oldest first.
    var pastKeys: [UInt64] = []
    package var skipped = SkippedKeys()

    /// `RatchetInitAlice`, except for the key pair, which is made with the first message.
    init(profile: OMEMOProfile, initiatorRoot root: SecretBytes, peerSignedPreKey: Bytes32) {
        self.init(profile: profile, root: root, peerKey: peerSignedPreKey, sending: nil, receiving: nil)
    }

    /// `RatchetInitBob` together with the step of the first header. The signed prekey is not kept.
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

    /// Steps to the next message, puts its keys into `place` and returns its header. All steps that can fail come
    /// before any change.
    package mutating func send(
        random: inout some RandomSource, into place: MessageKeys.Place
    ) throws(RatchetError) -> Header {
        if sending == nil {
            let pair = AgreementKeyPair(random: &random)
            let shared = try pair.agree(with: try AgreementPublicKey(peerKey))
            let (next, chain) = Self.step(root, shared, info: rootInfo)
            sending = SendingChain(pair: pair, key: chain, next: 0)
            root = next
        }
        guard let (ratchetKey, number) = try sending?.step(place) else {
            preconditionFailure("there is a sending chain")
        }
        return Header(ratchetKey: ratchetKey, number: number, previousCount: previousCount)
    }

    // MARK: Receiving (section 3.5)

    /// Tries the message's key with `open`, and takes the step only if that succeeds.
    package mutating func receive(
        _ header: Header, open: (_ messageKey: UnsafeRawBufferPointer) throws(RatchetError) -> Void
    ) throws(RatchetError) -> Progress {
        if receiving?.reaches(header) ?? false, var chain = receiving.take() {
            // Taken out to be stepped in place.
            defer { receiving = chain }
            return try Self.receive(header, in: &chain, isCurrent: chain.ratchetKey == peerKey, &skipped, open: open)
        }
        let index = past.firstIndex { $0.ratchetKey == header.ratchetKey }
        if let index, past[index].reaches(header) {
            return try Self.receive(header, in: &past[index], isCurrent: false, &skipped, open: open)
        }
        if let index = skipped.index(of: header.ratchetKey, number: header.number) {
            try open(skipped.messageKey(at: index))
            skipped.remove(at: index)
            return Progress(skipped: 0, reachedHeartbeat: false)
        }
        if header.ratchetKey == peerKey {
            // Without a receiving chain, this header names the prekey that the session started with; no chain exists
            // for it.
            throw receiving == nil ? .authenticationFailed : .duplicate
        }
        if index != nil || pastKeys.contains(header.ratchetKey.prefix) { throw .duplicate }
        return try receiveStep(header, open: open)
    }

    private static func receive(
        _ header: Header, in chain: inout ReceivingChain, isCurrent: Bool, _ skipped: inout SkippedKeys,
        open: (_ messageKey: UnsafeRawBufferPointer) throws(RatchetError) -> Void
    ) throws(RatchetError) -> Progress {
        let gap = header.number - chain.next
        guard gap <= OMEMOLimits.maximumSkip else { throw .tooFarAhead }
        guard header.number < UInt32.max else { throw .exhausted }
        return try MessageKeys.Place.with { (place) throws(RatchetError) in
            chain.key.derive(gap, into: place)
            try open(place.messageKey)

            let heartbeat = OMEMOLimits.heartbeatNumber
            let progress = Progress(
                skipped: Int(gap),
                reachedHeartbeat: isCurrent && chain.next <= heartbeat && header.number >= heartbeat)
            skipped.store(chain, upTo: header.number)
            chain.key.goOn(from: place)
            chain.next = header.number + 1
            return progress
        }
    }

    private mutating func receiveStep(
        _ header: Header, open: (_ messageKey: UnsafeRawBufferPointer) throws(RatchetError) -> Void
    ) throws(RatchetError) -> Progress {
        guard let sending else { throw .authenticationFailed }
        guard header.number <= OMEMOLimits.maximumSkip else { throw .tooFarAhead }
        let shared = try sending.pair.agree(with: try AgreementPublicKey(header.ratchetKey))
        let (nextRoot, first) = Self.step(root, shared, info: rootInfo)
        var chain = ReceivingChain(ratchetKey: header.ratchetKey, key: first, next: 0)
        try MessageKeys.Place.with { (place) throws(RatchetError) in
            first.derive(header.number, into: place)
            try open(place.messageKey)
            chain.key.goOn(from: place)
            chain.next = header.number + 1
        }

        let missing = receiving.map { retire($0, length: header.previousCount) } ?? 0
        skipped.store(ReceivingChain(ratchetKey: header.ratchetKey, key: first, next: 0), upTo: header.number)
        root = nextRoot
        peerKey = header.ratchetKey
        receiving = chain
        previousCount = sending.next
        self.sending = nil
        return Progress(
            skipped: missing + Int(header.number), reachedHeartbeat: header.number >= OMEMOLimits.heartbeatNumber)
    }

    /// Moves a chain to the past ones, after storing its skipped keys below `length`. If the gap is larger than one
    /// message may leave, the step still succeeds, and the keys stay derivable from the chain.
    private mutating func retire(_ chain: ReceivingChain, length: UInt32) -> Int {
        var chain = chain
        var missing: UInt32 = 0
        if length > chain.next, length - chain.next <= OMEMOLimits.maximumSkip {
            missing = length - chain.next
            skipped.store(chain, upTo: length)
            chain = ReceivingChain(ratchetKey: chain.ratchetKey, key: chain.key.advanced(by: missing), next: length)
        }
        past.append(chain)
        if past.count > OMEMOLimits.maximumPastChains {
            pastKeys.append(past.removeFirst().ratchetKey.prefix)
            if pastKeys.count > OMEMOLimits.maximumRememberedChains { pastKeys.removeFirst() }
        }
        return Int(missing)
    }
}

extension OMEMORatchet.SendingChain {
    /// Steps over the next message and puts its keys into `place`.
    fileprivate mutating func step(
        _ place: MessageKeys.Place
    ) throws(RatchetError) -> (ratchetKey: Bytes32, number: UInt32) {
        guard next < UInt32.max else { throw .exhausted }
        key.derive(into: place)
        key.goOn(from: place)
        defer { next += 1 }
        return (pair.publicKey.bytes, next)
    }
}

extension OMEMORatchet.ReceivingChain {
    /// Whether the message is one of this chain that was neither opened nor skipped.
    fileprivate func reaches(_ header: OMEMORatchet.Header) -> Bool {
        ratchetKey == header.ratchetKey && header.number >= next
    }
}

extension SkippedKeys {
    fileprivate mutating func store(_ chain: OMEMORatchet.ReceivingChain, upTo number: UInt32) {
        store(
            chain: chain.key, ratchetKey: chain.ratchetKey, from: chain.next, to: number,
            limit: OMEMOLimits.maximumSkippedKeys)
    }
}
