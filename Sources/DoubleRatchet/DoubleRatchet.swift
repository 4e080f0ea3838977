// The Double Ratchet (Signal, revision 3, sections 2 and 3) as a value: a step gives a new value, and whoever holds the
// old one keeps it until the step has been authenticated. It knows neither identities nor the wire.

/// The state of one side.
struct DoubleRatchet: Sendable {
    private(set) var root: RootKey
    private(set) var ownSecret: SecretBytes
    private(set) var ownKey: [UInt8]
    private(set) var peerKey: [UInt8]?
    private(set) var sending: ChainKey?
    private(set) var receiving: ChainKey?
    private(set) var previousCount: UInt32
    var skipped = SkippedKeys()

    /// RatchetInitAlice (section 3.3): the initiator knows the responder's signed prekey.
    init(
        initiator secret: SecretBytes, peerKey: [UInt8], random: inout some RandomSource
    ) throws(RatchetError) {
        ownSecret = random.secret(32)
        ownKey = try Primitives.publicKey(of: ownSecret)
        self.peerKey = peerKey
        let (root, chain) = RootKey(secret: secret).step(try Primitives.agree(ownSecret, peerKey))
        (self.root, sending) = (root, chain)
        previousCount = 0
    }

    /// RatchetInitBob (section 3.3): the responder's first ratchet key is its signed prekey.
    init(responder secret: SecretBytes, preKey: SignedPreKey) {
        root = RootKey(secret: secret)
        ownSecret = preKey.secret
        ownKey = preKey.publicPart.key
        previousCount = 0
    }

    init(
        root: RootKey, ownSecret: SecretBytes, peerKey: [UInt8]?, sending: ChainKey?, receiving: ChainKey?,
        previousCount: UInt32
    ) throws(RatchetError) {
        self.root = root
        self.ownSecret = ownSecret
        ownKey = try Primitives.publicKey(of: ownSecret)
        self.peerKey = peerKey
        self.sending = sending
        self.receiving = receiving
        self.previousCount = previousCount
    }

    // MARK: Sending

    /// The key and number of the next message (RatchetEncrypt, section 3.4).
    ///
    /// - Throws: ``RatchetError/malformed`` where a responder has not received anything yet.
    mutating func nextToSend() throws(RatchetError) -> (key: SecretBytes, index: UInt32) {
        guard let chain = sending else { throw .malformed }
        let (next, key) = try chain.step()
        sending = next
        return (key, chain.index)
    }

    // MARK: Receiving

    /// The key of a received message, and how many were skipped on the way to it (RatchetDecrypt, section 3.5).
    ///
    /// - Throws: ``RatchetError/duplicate``, ``RatchetError/tooFarAhead`` or ``RatchetError/invalidKey``.
    mutating func keyToReceive(
        _ header: MessageHeader, random: inout some RandomSource
    ) throws(RatchetError) -> (key: SecretBytes, skipped: Int) {
        let place = SkippedKeys.Place(ratchetKey: header.ratchetKey, index: header.index)
        if let key = skipped[place] {
            skipped.remove(place)
            return (key, 0)
        }
        var passed = 0
        if header.ratchetKey != peerKey {
            // Looked at before any hash is computed: what a forged header can cost is bounded by both together.
            let rest = receiving.map { header.previousCount >= $0.index ? header.previousCount - $0.index : 0 } ?? 0
            guard rest <= RatchetLimits.maximumSkip, header.index <= RatchetLimits.maximumSkip else {
                throw .tooFarAhead
            }
            passed += try skip(to: header.previousCount)
            try turn(to: header.ratchetKey, random: &random)
        } else if receiving == nil {
            // A header of the key that we began with, without a turn: nobody can send under it.
            throw .authenticationFailed
        }
        guard let chain = receiving else { throw .authenticationFailed }
        guard header.index >= chain.index else { throw .duplicate }
        guard header.index - chain.index <= RatchetLimits.maximumSkip else { throw .tooFarAhead }
        passed += try skip(to: header.index)
        guard let reached = receiving else { throw .authenticationFailed }
        let (next, key) = try reached.step()
        receiving = next
        return (key, passed)
    }

    /// SkipMessageKeys (section 3.5).
    private mutating func skip(to index: UInt32) throws(RatchetError) -> Int {
        guard var chain = receiving, let peerKey else { return 0 }
        var count = 0
        while chain.index < index {
            let (next, key) = try chain.step()
            skipped.insert(.init(ratchetKey: peerKey, index: chain.index), key)
            chain = next
            count += 1
        }
        receiving = chain
        return count
    }

    /// DHRatchet (section 3.5).
    private mutating func turn(to key: [UInt8], random: inout some RandomSource) throws(RatchetError) {
        previousCount = sending?.index ?? 0
        peerKey = key
        let (received, receivingChain) = root.step(try Primitives.agree(ownSecret, key))
        receiving = receivingChain
        ownSecret = random.secret(32)
        ownKey = try Primitives.publicKey(of: ownSecret)
        let (sent, sendingChain) = received.step(try Primitives.agree(ownSecret, key))
        root = sent
        sending = sendingChain
    }
}
