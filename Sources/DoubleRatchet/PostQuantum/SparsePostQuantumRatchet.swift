/// The Sparse Post-Quantum Ratchet (Double Ratchet, revision 3, section 5): chains of message keys.
///
/// A fresh ML-KEM secret of the ``Braid`` enters the chains at every epoch.
///
/// ```
/// start:     root || A to B || B to A = HKDF-SHA256(salt 00 * 32, secret of PQXDH, "DoubleRatchet/2 SPQR start", 96)
/// new epoch: root || A to B || B to A = HKDF-SHA256(salt root, secret of the epoch, "DoubleRatchet/2 SPQR epoch", 96)
/// ```
/// A message of the braid's epoch e belongs to the chains of epoch e - 1, whose secret its receiver is known to have.
/// Chains step like those of the Double Ratchet (section 7.2). A is the initiator.
///
/// This ratchet stores no skipped keys. Both ratchets count the same messages of one direction in the same order, so
/// the ``TripleRatchet`` gets the number of skipped messages from the classical header and stores one combined key for
/// each. A finished epoch leaves no state.
struct SparsePostQuantumRatchet: Sendable {
    /// The version of the post-quantum part of headers.
    package static let version: UInt8 = 1

    struct Chain: Sendable {
        package var key: ChainKey
        /// The number of the next message.
        package var next: UInt32
    }

    private static let startInfo = Array("DoubleRatchet/2 SPQR start".utf8)
    private static let epochInfo = Array("DoubleRatchet/2 SPQR epoch".utf8)

    let isInitiator: Bool
    /// The version that the session started with: a part of an older version is a downgrade.
    let minimumVersion: UInt8
    var braid: Braid
    package var root: SecretBytes
    package var sending: Chain
    package var receiving: Chain
    /// The epoch of the `receiving` chain.
    var receivingEpoch: UInt32
    /// The chains of the newest secret, until the braid's epoch shows that they are used.
    var nextSending: ChainKey?
    var nextReceiving: ChainKey?

    /// Makes the initial state of one side, from 32 bytes that PQXDH has derived for it.
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

    /// Steps to the next message: returns its part, and puts its keys into `place`. The caller must check that the
    /// chain is not exhausted.
    package mutating func send(random: inout some RandomSource, into place: MessageKeys.Place) -> PostQuantumPart {
        let epoch = braid.epoch
        let (message, secret) = braid.send(random: &random)
        if let secret { add(secret) }
        sending.key.derive(into: place)
        sending.key.goOn(from: place)
        defer { sending.next += 1 }
        return PostQuantumPart(epoch: epoch, number: sending.next, message: message)
    }

    /// The keys of skipped messages: the end of one epoch's chain, then the beginning of the next one's.
    struct Passage: Sendable {
        private var key: ChainKey
        private var left: UInt32
        private let following: ChainKey?

        fileprivate init(_ key: ChainKey, count: UInt32, then following: ChainKey?) {
            (self.key, left, self.following) = (key, count, following)
        }

        /// Puts the keys of the next skipped message into `place`, and steps the chain over it.
        package mutating func next(into place: MessageKeys.Place) {
            if left == 0, let following { self = Passage(following, count: .max, then: nil) }
            key.derive(into: place)
            key.goOn(from: place)
            left -= 1
        }
    }

    /// Derives the keys of a message that is newer than all before it, with `gap` messages missing before it.
    ///
    /// Nothing changes before ``arrive(at:from:)``.
    ///
    /// - Throws: ``RatchetError/diverged`` if its numbers contradict `gap`: only an end that was rolled back sends such
    ///   numbers. ``RatchetError/exhausted``.
    package func derive(_ part: PostQuantumPart, gap: UInt32, into place: MessageKeys.Place) throws(RatchetError) {
        guard part.number < UInt32.max else { throw .exhausted }
        if part.epoch == receivingEpoch + 1 {
            guard part.number >= receiving.next, part.number - receiving.next == gap else { throw .diverged }
            receiving.key.derive(gap, into: place)
        } else {
            guard part.epoch == receivingEpoch + 2, let nextReceiving, part.number <= gap else { throw .diverged }
            nextReceiving.derive(part.number, into: place)
        }
    }

    /// The `gap` skipped messages before one that ``derive(_:gap:into:)`` accepted.
    func passage(to part: PostQuantumPart, gap: UInt32) -> Passage {
        part.epoch == receivingEpoch + 1
            ? Passage(receiving.key, count: gap, then: nil)
            : Passage(receiving.key, count: gap - part.number, then: nextReceiving)
    }

    /// Steps over an authenticated message, with the keys in `place`.
    mutating func arrive(at part: PostQuantumPart, from place: MessageKeys.Place) {
        if part.epoch == receivingEpoch + 2, let following = nextReceiving {
            receiving.key = following
            nextReceiving = nil
            receivingEpoch += 1
        }
        receiving.key.goOn(from: place)
        receiving.next = part.number + 1
    }

    /// Whether a message that was skipped can have `part`. It was sent before the newest received message, so its epoch
    /// is the same or an earlier one.
    ///
    /// A later epoch would step the braid while `receiving` stays behind.
    func canBeLate(_ part: PostQuantumPart) -> Bool { part.epoch <= receivingEpoch + 1 }

    /// The effect of the message's chunk on the braid.
    ///
    /// - Throws: ``RatchetError/diverged`` if the braid rejects it. The chunk came in a header that only the peer can
    ///   have made, so the two ends have diverged: one has drawn its keys a second time, from an earlier state.
    ///   ``RatchetError/exhausted``.
    func effect(of part: PostQuantumPart) throws(RatchetError) -> Braid.Effect {
        do {
            return try braid.effect(of: part.message, epoch: part.epoch)
        } catch {
            throw error == .exhausted ? error : .diverged
        }
    }

    /// Applies an effect, after ``arrive(at:from:)``.
    package mutating func take(_ effect: Braid.Effect) {
        let epoch = braid.epoch
        if let secret = braid.take(effect) { add(secret) }
        if braid.epoch > epoch, let key = nextSending {
            sending = Chain(key: key, next: 0)
            nextSending = nil
        }
    }
}
