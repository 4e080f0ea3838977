/// The Sparse Post-Quantum Ratchet (Double Ratchet, revision 3, section 5): chains of message keys that a fresh ML-KEM
/// secret of the ``Braid`` enters at every epoch.
///
/// ```
/// start:     root || A to B || B to A = HKDF-SHA256(salt 00 * 32, secret of PQXDH, "DoubleRatchet/2 SPQR start", 96)
/// new epoch: root || A to B || B to A = HKDF-SHA256(salt root, secret of the epoch, "DoubleRatchet/2 SPQR epoch", 96)
/// ```
/// A message of the braid's epoch e is under the chains of epoch e - 1, of which its receiver is known to have the secret.
/// Chains step as those of the Double Ratchet do (section 7.2). A is the initiator.
///
/// There is no store of skipped keys here: both ratchets count the same messages of one direction in the same order, so the
/// ``TripleRatchet`` knows from the classical header how many were skipped, keeps one combined key for each, and a finished
/// epoch leaves nothing behind.
struct SparsePostQuantumRatchet: Sendable {
    /// The version of the part that headers carry.
    static let version: UInt8 = 1

    struct Chain: Sendable {
        var key: ChainKey
        /// The number of the next message.
        var next: UInt32
    }

    private static let startInfo = Array("DoubleRatchet/2 SPQR start".utf8)
    private static let epochInfo = Array("DoubleRatchet/2 SPQR epoch".utf8)

    let isInitiator: Bool
    /// What the session began with: a part of an older version is a downgrade.
    let minimumVersion: UInt8
    var braid: Braid
    var root: SecretBytes
    var sending: Chain
    var receiving: Chain
    /// The epoch whose chain `receiving` is.
    var receivingEpoch: UInt32
    /// The chains of the newest secret, until the braid's epoch shows that they are in use.
    var nextSending: ChainKey?
    var nextReceiving: ChainKey?

    /// Both sides' beginning, from 32 bytes that PQXDH has made for this.
    init(isInitiator: Bool, secret: SecretBytes) {
        let outputs = Primitives.hkdf(
            salt: SecretBytes(count: 32) { _ in }, secret: secret, info: Self.startInfo, blocks: 3)
        let chains = outputs[1...].map { Chain(key: ChainKey(secret: $0), next: 0) }
        self.init(
            isInitiator: isInitiator, minimumVersion: Self.version,
            braid: Braid(isInitiator: isInitiator, secret: secret), root: outputs[0],
            sending: chains[isInitiator ? 0 : 1], receiving: chains[isInitiator ? 1 : 0], receivingEpoch: 0)
    }

    init(
        isInitiator: Bool, minimumVersion: UInt8, braid: Braid, root: SecretBytes, sending: Chain, receiving: Chain,
        receivingEpoch: UInt32
    ) {
        self.isInitiator = isInitiator
        self.minimumVersion = minimumVersion
        self.braid = braid
        self.root = root
        self.sending = sending
        self.receiving = receiving
        self.receivingEpoch = receivingEpoch
    }

    private mutating func add(_ secret: SecretBytes) {
        let outputs = Primitives.hkdf(salt: root, secret: secret, info: Self.epochInfo, blocks: 3)
        root = outputs[0]
        nextSending = ChainKey(secret: outputs[isInitiator ? 1 : 2])
        nextReceiving = ChainKey(secret: outputs[isInitiator ? 2 : 1])
    }

    // MARK: Messages

    /// The part for the next message, and the key to combine into that message's.
    mutating func send(
        random: inout some RandomSource
    ) throws(RatchetError) -> (part: PostQuantumPart, key: SecretBytes) {
        guard sending.next < UInt32.max else { throw .exhausted }
        let epoch = braid.epoch
        let (message, secret) = braid.send(random: &random)
        if let secret { add(secret) }
        let part = PostQuantumPart(epoch: epoch, number: sending.next, message: message)
        let key = sending.key.messageKey.secret
        sending = Chain(key: sending.key.next, next: sending.next + 1)
        return (part, key)
    }

    /// The keys of skipped messages: the end of one epoch's chain, then the beginning of the next one's.
    struct Passage: Sendable {
        private var key: ChainKey
        private var left: UInt32
        private let following: ChainKey?

        fileprivate init(_ key: ChainKey, count: UInt32, then following: ChainKey?) {
            (self.key, left, self.following) = (key, count, following)
        }

        /// The chain at the next skipped message.
        mutating func next() -> ChainKey {
            if left == 0, let following { self = Passage(following, count: .max, then: nil) }
            defer { (key, left) = (key.next, left - 1) }
            return key
        }
    }

    /// Goes on to a message that is newer than all before it, and after which `gap` others are missing.
    ///
    /// - Throws: ``RatchetError/malformed`` where its numbers do not agree with that: no implementation of this protocol
    ///   counts so.
    mutating func advance(to part: PostQuantumPart, gap: UInt32) throws(RatchetError) -> (SecretBytes, Passage) {
        guard part.number < UInt32.max else { throw .exhausted }
        let passage: Passage
        let place: ChainKey
        if part.epoch == receivingEpoch + 1 {
            guard part.number >= receiving.next, part.number - receiving.next == gap else { throw .malformed }
            passage = Passage(receiving.key, count: gap, then: nil)
            place = receiving.key.advanced(by: gap)
        } else {
            guard part.epoch == receivingEpoch + 2, let following = nextReceiving, part.number <= gap else {
                throw .malformed
            }
            passage = Passage(receiving.key, count: gap - part.number, then: following)
            place = following.advanced(by: part.number)
            nextReceiving = nil
            receivingEpoch += 1
        }
        receiving = Chain(key: place.next, next: part.number + 1)
        return (place.messageKey.secret, passage)
    }

    /// Gives the message's chunk to the braid. Throws as ``Braid/receive(_:epoch:)`` does.
    mutating func take(_ part: PostQuantumPart) throws(RatchetError) {
        let epoch = braid.epoch
        if let secret = try braid.receive(part.message, epoch: part.epoch) { add(secret) }
        if braid.epoch > epoch, let key = nextSending {
            sending = Chain(key: key, next: 0)
            nextSending = nil
        }
    }
}
