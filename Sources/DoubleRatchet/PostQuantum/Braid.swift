/// The ML-KEM Braid (revision 1, section 2): both sides agree on a fresh ML-KEM secret per epoch.
///
/// Each message transports one chunk of 32 bytes. Messages may be lost or come in any order.
///
/// ```
/// sends a key                                       encapsulates to it
///   keysUnsampled                                     noHeaderReceived
///     | send                     header 96 ->            | all of the header
///   keysSampled                                       headerReceived
///     | a chunk                  <- ciphertext1 960      | send
///   headerSent                                        ciphertext1Sampled ----------- an acknowledging chunk
///     | all of ciphertext1       key 1152 ->             | all of the key                        |
///   ciphertext1Received                               keyReceivedCiphertext1Sampled   ciphertext1Acknowledged
///     | a chunk                  key, acknowledging ->   | an acknowledging chunk                | all of the key
///   keySentCiphertext1Received                        ciphertext2Sampled <---------------------- |
///     | all of ciphertext2       <- ciphertext2 160      | a message of the next epoch
///   noHeaderReceived, next epoch                      keysUnsampled, next epoch
/// ```
/// The header has a MAC of 32 bytes, and so has ciphertext2. An epoch takes at least 44 messages of the side that sends
/// its key. The labels and message forms are this library's own, not those of Signal's implementation.
///
/// A value type: the receiver works on a copy and keeps it once the message is authenticated.
struct Braid: Sendable {
    /// Ours: upper bound of epochs, so that a number takes at most three bytes on the wire. Each epoch takes at least
    /// 88 messages.
    static let maximumEpoch: UInt32 = 1 << 21

    enum State: Sendable {
        case keysUnsampled
        case keysSampled(BraidKeyPair, sent: UInt16)
        case headerSent(BraidKeyPair, sent: UInt16, ChunkCollector)
        case ciphertext1Received(BraidKeyPair, sent: UInt16, first: [UInt8])
        case keySentCiphertext1Received(BraidKeyPair, first: [UInt8], ChunkCollector)
        case noHeaderReceived(ChunkCollector)
        case headerReceived([UInt8])
        case ciphertext1Sampled(BraidEncapsulation, sent: UInt16, ChunkCollector)
        case keyReceivedCiphertext1Sampled(BraidEncapsulation, sent: UInt16, vector: [UInt8])
        case ciphertext1Acknowledged(BraidEncapsulation, ChunkCollector)
        case ciphertext2Sampled([UInt8], sent: UInt16)
    }

    /// The braid's part of a message, except for its epoch.
    struct Message: Hashable, Sendable {
        enum Kind: UInt8, Sendable {
            case none = 0
            case header = 1
            case key = 2
            case keyAcknowledging = 3
            case ciphertext1 = 4
            case ciphertext2 = 5
        }

        let kind: Kind
        /// Nil for ``Kind/none`` only.
        let chunk: ErasureCode.Chunk?
    }

    static let headerSize = IncrementalKEM.headerSize + BraidAuthenticator.macSize
    static let ciphertext2Size = IncrementalKEM.secondSize + BraidAuthenticator.macSize
    private static let secretInfo = Array("DoubleRatchet/2 SPQR epoch secret".utf8)

    var epoch: UInt32
    var authenticator: BraidAuthenticator
    var state: State

    /// Makes the state of epoch 1, in which the initiator sends the key.
    init(isInitiator: Bool, secret: SecretBytes) {
        epoch = 1
        authenticator = BraidAuthenticator(secret: secret)
        state = isInitiator ? .keysUnsampled : Self.awaitingHeader
    }

    init(epoch: UInt32, authenticator: BraidAuthenticator, state: State) {
        (self.epoch, self.authenticator, self.state) = (epoch, authenticator, state)
    }

    static var awaitingHeader: State { .noHeaderReceived(ChunkCollector(size: headerSize)) }

    /// Whether this epoch's secret is known while messages still belong to the epoch before.
    var hasEncapsulated: Bool {
        switch state {
        case .ciphertext1Sampled, .keyReceivedCiphertext1Sampled, .ciphertext1Acknowledged, .ciphertext2Sampled: true
        default: false
        }
    }

    // MARK: Sending (section 2.5)

    /// The next message, and the secret of this epoch if it is made now. Takes 64 bytes of `random` for a key pair or
    /// 32 for an encapsulation.
    package mutating func send(random: inout some RandomSource) -> (Message, secret: SecretBytes?) {
        switch state {
        case .keysUnsampled:
            let keys = BraidKeyPair(seed: SecretBytes(count: IncrementalKEM.seedSize, random: &random))
            state = .keysSampled(keys, sent: 0)
            return send(random: &random)
        case .keysSampled(var keys, var sent):
            let chunk = Self.chunk(of: keys.header(authenticatedBy: authenticator, epoch: epoch), &sent)
            state = .keysSampled(keys, sent: sent)
            return (Message(kind: .header, chunk: chunk), nil)
        case .headerSent(var keys, var sent, let collector):
            let chunk = Self.chunk(of: keys.vector(), &sent)
            state = .headerSent(keys, sent: sent, collector)
            return (Message(kind: .key, chunk: chunk), nil)
        case .ciphertext1Received(var keys, var sent, let first):
            let chunk = Self.chunk(of: keys.vector(), &sent)
            state = .ciphertext1Received(keys, sent: sent, first: first)
            return (Message(kind: .keyAcknowledging, chunk: chunk), nil)
        case .headerReceived(let header):
            var encapsulation = BraidEncapsulation(message: SecretBytes(count: 32, random: &random), header: header)
            let secret = finishEpoch(encapsulation.secret())
            var sent: UInt16 = 0
            let chunk = Self.chunk(of: encapsulation.first(), &sent)
            state = .ciphertext1Sampled(encapsulation, sent: sent, ChunkCollector(size: IncrementalKEM.vectorSize))
            return (Message(kind: .ciphertext1, chunk: chunk), secret)
        case .ciphertext1Sampled(var encapsulation, var sent, let collector):
            let chunk = Self.chunk(of: encapsulation.first(), &sent)
            state = .ciphertext1Sampled(encapsulation, sent: sent, collector)
            return (Message(kind: .ciphertext1, chunk: chunk), nil)
        case .keyReceivedCiphertext1Sampled(var encapsulation, var sent, let vector):
            let chunk = Self.chunk(of: encapsulation.first(), &sent)
            state = .keyReceivedCiphertext1Sampled(encapsulation, sent: sent, vector: vector)
            return (Message(kind: .ciphertext1, chunk: chunk), nil)
        case .ciphertext2Sampled(let data, var sent):
            let chunk = Self.chunk(of: data, &sent)
            state = .ciphertext2Sampled(data, sent: sent)
            return (Message(kind: .ciphertext2, chunk: chunk), nil)
        case .keySentCiphertext1Received, .noHeaderReceived, .ciphertext1Acknowledged:
            return (Message(kind: .none, chunk: nil), nil)
        }
    }

    private static func chunk(of data: [UInt8], _ sent: inout UInt16) -> ErasureCode.Chunk {
        defer { sent = (sent + 1) % ErasureCode.maximumIndex }
        return ErasureCode.chunk(sent, of: data)
    }

    // MARK: Receiving (section 2.5)

    /// The effect of a message, computed before the message is authenticated.
    enum Effect: Sendable {
        case nothing
        /// One more chunk is stored.
        case chunk(ErasureCode.Chunk)
        /// The next state of the braid, and the secret of an epoch that this completes.
        case step(Braid, secret: SecretBytes?)
    }

    /// The effect of a message of `messageEpoch`. Throws like ``receive(_:epoch:)``.
    func effect(of message: Message, epoch messageEpoch: UInt32) throws(RatchetError) -> Effect {
        if messageEpoch == epoch {
            guard let chunk = message.chunk, message.kind.isTaken(in: state) else { return .nothing }
            if let collector = message.kind.collector(in: state), !collector.isCompleted(by: chunk) {
                return .chunk(chunk)
            }
        } else if messageEpoch < epoch {
            return .nothing
        }
        var next = self
        let secret = try next.receive(message, epoch: messageEpoch)
        return .step(next, secret: secret)
    }

    /// Applies an effect, and returns the secret of an epoch that it completes.
    package mutating func take(_ effect: Effect) -> SecretBytes? {
        switch effect {
        case .nothing: return nil
        case .chunk(let chunk):
            keep(chunk)
            return nil
        case .step(let next, let secret):
            self = next
            return secret
        }
    }

    /// Adds a chunk to its collector. Meanwhile the state is replaced, so that the chunks are uniquely referenced and
    /// need not be copied.
    private mutating func keep(_ chunk: ErasureCode.Chunk) {
        let current = state
        state = .keysUnsampled
        switch consume current {
        case .noHeaderReceived(var collector):
            _ = collector.add(chunk)
            state = .noHeaderReceived(collector)
        case .headerSent(let keys, let sent, var collector):
            _ = collector.add(chunk)
            state = .headerSent(keys, sent: sent, collector)
        case .keySentCiphertext1Received(let keys, let first, var collector):
            _ = collector.add(chunk)
            state = .keySentCiphertext1Received(keys, first: first, collector)
        case .ciphertext1Sampled(let encapsulation, let sent, var collector):
            _ = collector.add(chunk)
            state = .ciphertext1Sampled(encapsulation, sent: sent, collector)
        case .ciphertext1Acknowledged(let encapsulation, var collector):
            _ = collector.add(chunk)
            state = .ciphertext1Acknowledged(encapsulation, collector)
        case let other: state = other
        }
    }

    /// Applies a message of `epoch`; late messages and copies change nothing. Returns the secret of the epoch if this
    /// message completes it; the braid is then in the next epoch.
    ///
    /// - Throws: ``RatchetError/authenticationFailed`` for a wrong MAC, ``RatchetError/invalidKey`` for a key that does
    ///   not belong to its header, ``RatchetError/malformed`` for an impossible epoch.
    package mutating func receive(_ message: Message, epoch messageEpoch: UInt32) throws(RatchetError) -> SecretBytes? {
        guard messageEpoch >= epoch else { return nil }
        guard messageEpoch == epoch else {
            guard case .ciphertext2Sampled = state, messageEpoch == epoch + 1 else { throw .malformed }
            try nextEpoch()
            state = .keysUnsampled
            return nil
        }
        guard let chunk = message.chunk else { return nil }
        switch (state, message.kind) {
        case (.noHeaderReceived(var collector), .header):
            state =
                try collector.add(chunk).map { (data) throws(RatchetError) in try received(header: data) }
                ?? .noHeaderReceived(collector)
        case (.keysSampled(let keys, _), .ciphertext1):
            var collector = ChunkCollector(size: IncrementalKEM.firstSize)
            _ = collector.add(chunk)
            state = .headerSent(keys, sent: 0, collector)
        case (.headerSent(let keys, let sent, var collector), .ciphertext1):
            state =
                collector.add(chunk).map { .ciphertext1Received(keys, sent: sent, first: $0) }
                ?? .headerSent(keys, sent: sent, collector)
        case (.ciphertext1Received(let keys, _, let first), .ciphertext2):
            var collector = ChunkCollector(size: Self.ciphertext2Size)
            _ = collector.add(chunk)
            state = .keySentCiphertext1Received(keys, first: first, collector)
        case (.keySentCiphertext1Received(let keys, let first, var collector), .ciphertext2):
            if let data = collector.add(chunk) { return try received(ciphertext2: data, first: first, keys) }
            state = .keySentCiphertext1Received(keys, first: first, collector)
        case (.ciphertext1Sampled(let encapsulation, let sent, var collector), .key):
            state =
                collector.add(chunk).map { .keyReceivedCiphertext1Sampled(encapsulation, sent: sent, vector: $0) }
                ?? .ciphertext1Sampled(encapsulation, sent: sent, collector)
        case (.ciphertext1Sampled(let encapsulation, _, var collector), .keyAcknowledging),
            (.ciphertext1Acknowledged(let encapsulation, var collector), .key),
            (.ciphertext1Acknowledged(let encapsulation, var collector), .keyAcknowledging):
            state =
                try collector.add(chunk).map { (vector) throws(RatchetError) in
                    try received(vector: vector, encapsulation)
                } ?? .ciphertext1Acknowledged(encapsulation, collector)
        case (.keyReceivedCiphertext1Sampled(let encapsulation, _, let vector), .keyAcknowledging):
            state = try received(vector: vector, encapsulation)
        default: break
        }
        return nil
    }

    private func received(header data: [UInt8]) throws(RatchetError) -> State {
        let header = Array(data[..<IncrementalKEM.headerSize])
        guard
            BraidAuthenticator.isEqual(
                data[IncrementalKEM.headerSize...], authenticator.mac(epoch: epoch, header: header))
        else { throw .authenticationFailed }
        return .headerReceived(header)
    }

    private func received(
        vector: [UInt8], _ encapsulation: BraidEncapsulation
    ) throws(RatchetError) -> State {
        var encapsulation = encapsulation
        let second = try encapsulation.second(vector: vector)
        let mac = authenticator.mac(epoch: epoch, ciphertext: encapsulation.first() + second)
        return .ciphertext2Sampled(second + mac, sent: 0)
    }

    private mutating func received(
        ciphertext2 data: [UInt8], first: [UInt8], _ keys: BraidKeyPair
    ) throws(RatchetError) -> SecretBytes {
        let ciphertext = first + data[..<IncrementalKEM.secondSize]
        let secret = finishEpoch(Primitives.kem768Decapsulate(ciphertext, seed: keys.seed))
        guard
            BraidAuthenticator.isEqual(
                data[IncrementalKEM.secondSize...], authenticator.mac(epoch: epoch, ciphertext: ciphertext))
        else { throw .authenticationFailed }
        try nextEpoch()
        state = Self.awaitingHeader
        return secret
    }

    // MARK: Epochs (section 2.4)

    /// `KDF_OK`, and the update of the authenticator with its result.
    private mutating func finishEpoch(_ shared: SecretBytes) -> SecretBytes {
        var info = Self.secretInfo
        info.append(networkOrder: epoch)
        let salt = SecretBytes(count: 32) { _ in }
        let secret = Primitives.hkdf(salt: salt, secret: shared, info: info, blocks: 1)[0]
        authenticator.update(epoch: epoch, secret: secret)
        return secret
    }

    private mutating func nextEpoch() throws(RatchetError) {
        guard epoch + 1 < Self.maximumEpoch else { throw .exhausted }
        epoch += 1
    }
}

extension Braid.Message.Kind {
    /// Whether a chunk of this kind changes anything in `state`.
    func isTaken(in state: Braid.State) -> Bool {
        switch (state, self) {
        case (.keysSampled, .ciphertext1), (.ciphertext1Received, .ciphertext2),
            (.ciphertext1Sampled, .keyAcknowledging),
            (.keyReceivedCiphertext1Sampled, .keyAcknowledging):
            true
        default: collector(in: state) != nil
        }
    }

    /// The collector that a chunk of this kind is added to in `state`; nil if the chunk has another effect.
    func collector(in state: Braid.State) -> ChunkCollector? {
        switch (state, self) {
        case (.noHeaderReceived(let collector), .header), (.headerSent(_, _, let collector), .ciphertext1),
            (.keySentCiphertext1Received(_, _, let collector), .ciphertext2),
            (.ciphertext1Sampled(_, _, let collector), .key), (.ciphertext1Acknowledged(_, let collector), .key),
            (.ciphertext1Acknowledged(_, let collector), .keyAcknowledging):
            collector
        default: nil
        }
    }
}
