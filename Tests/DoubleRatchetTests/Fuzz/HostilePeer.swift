@testable import DoubleRatchet

#if !ONE_MODULE
    import TestKit
#endif

/// A peer that knows every secret of its session and follows no rule, and the session of its victim.
///
/// The peer takes chain keys, header keys and keys of skipped messages out of the victim's state: a peer that deletes nothing has
/// the same ones. It runs its side of the braid as it should, so that both get through epochs, and claims what it likes in
/// its headers. After every step the victim is stored and restored, which has to give the same state.
final class HostilePeer {
    /// Where a message stands in the chains of the Diffie-Hellman ratchet.
    enum Place {
        case current(gap: UInt32)
        /// In a new chain, with `missing` messages lost in the chain before. With `oldKey` its ratchet key is not new.
        case step(missing: UInt32, number: UInt32, oldKey: Bool)
        /// One of the messages that were skipped, the oldest first.
        case late(Int)
    }

    private struct Skipped {
        let chain: UInt32
        let number: UInt32
        let ratchetKey: Bytes32
        let headerKey: HeaderKey
    }

    private(set) var victim: Session
    /// The peer's side, in step with the victim's unless the peer has lied to it.
    private(set) var braid: Braid
    private var random = SeededGenerator(seed: 77)
    private var pair: AgreementKeyPair
    private var skipped: [Skipped] = []
    private(set) var openedCount = 0
    private(set) var refusedCount = 0

    /// `victim` and `peer` are the states of the two ends of one established session.
    init(victim: [UInt8], peer: [UInt8]) throws(RatchetError) {
        self.victim = try Session(serialized: victim.span)
        braid = try Session(serialized: peer.span).ratchet.postQuantum.braid
        pair = AgreementKeyPair(random: &random)
    }

    private var state: [UInt8] {
        var output: [UInt8] = []
        victim.serialize(into: &output)
        return output
    }

    var skippedCount: Int { skipped.count }

    /// The number of the state that the victim's braid is in, as it is stored.
    var braidState: UInt8 {
        var output: [UInt8] = []
        victim.ratchet.postQuantum.braid.serialize(into: &output)
        return output[0]
    }

    /// The victim stored and restored.
    private func restart() throws {
        let stored = state
        try demand(stored.count <= 2472 + 76 * victim.skippedCount, "a state of \(stored.count) bytes")
        do throws(RatchetError) {
            victim = try Session(serialized: stored.span)
        } catch {
            throw Finding("the stored session cannot be read: \(error)")
        }
        try demand(state == stored, "another state after a restart")
    }

    // MARK: The victim sends

    /// The victim sends a message, and the peer's braid takes what its header carries.
    func victimSends() throws {
        var output: [UInt8] = []
        let (text, data) = ([1, 2, 3] as [UInt8], [] as [UInt8])
        try victim.encrypt(text.span, associatedData: data.span, random: &random, into: &output)
        try restart()
        guard let headerKey = victim.ratchet.sending?.headerKey else { throw Finding("a message without a chain") }
        let part = try output.withUnsafeBytes { bytes in
            let message = try Message(bytes)
            return try CipherContext.withOne { context in
                try headerKey.open(message.sealedHeader, hint: message.hint, first: message.first, with: context)
                    .map {
                        try MessageHeader(
                            $0, message.version, minimumVersion: SparsePostQuantumRatchet.version
                        ).postQuantum
                    }
            }
        }
        guard let part else { throw Finding("the peer cannot open the victim's header") }
        _ = try? braid.receive(part.message, epoch: part.epoch)
    }

    // MARK: The peer sends

    /// What the peer's braid says next, with the epoch that it is in.
    func nextPart() -> (epoch: UInt32, message: Braid.Message) {
        let epoch = braid.epoch
        return (epoch, braid.send(random: &random).0)
    }

    /// Sends the next message as an honest peer would: in a new chain if the victim has sent since the last one.
    func sendsHonestly() throws {
        let part = nextPart()
        let place = victim.ratchet.sending == nil ? Place.current(gap: 0) : .step(missing: 0, number: 0, oldKey: false)
        _ = try sends(place, epoch: part.epoch, message: part.message)
    }

    /// Sends a message with a header of the peer's choice, sealed under the keys that the victim will derive for it.
    ///
    /// - Parameter number: the place in the chain of the post-quantum ratchet; nil for the one that fits.
    /// - Returns: the error of the victim, nil if it has opened the message.
    /// - Throws: ``Finding`` if a refusal leaves a trace or the victim's state cannot be restored.
    func sends(
        _ place: Place, epoch: UInt32, number: UInt32? = nil, message: Braid.Message
    ) throws -> RatchetError? {
        switch place {
        case .current(let gap):
            guard let chain = victim.ratchet.receiving else { return .authenticationFailed }
            let (at, overflow) = chain.next.addingReportingOverflow(gap)
            guard !overflow else { return .tooFarAhead }
            let part = part(epoch, number, gap: gap, message)
            let header = MessageHeader(
                ratchetKey: victim.ratchet.peerKey, number: at, previousCount: 0, postQuantum: part)
            let key = key(of: part, gap: gap) { $0.classical.take(chain.key, gap) }
            let error = try deliver(header, chain.headerKey, key)
            if error == nil { skip(chain, header.ratchetKey, to: at) }
            return error
        case .step(let missing, let start, let oldKey):
            guard let sending = victim.ratchet.sending else { return .authenticationFailed }
            if !oldKey { pair = AgreementKeyPair(random: &random) }
            let ratchetKey = oldKey ? victim.ratchet.peerKey : pair.publicKey.bytes
            let (root, headerKey) = (victim.ratchet.root, victim.ratchet.nextReceivingHeader)
            let before = victim.ratchet.receiving
            let (_, first, _) = root.step(try sending.pair.agree(with: AgreementPublicKey(checked: ratchetKey)))
            let (gap, last) = (missing &+ start, (before?.next ?? 0) &+ missing)
            let part = part(epoch, number, gap: gap, message)
            let header = MessageHeader(ratchetKey: ratchetKey, number: start, previousCount: last, postQuantum: part)
            let oldRatchetKey = victim.ratchet.peerKey
            let error = try deliver(header, headerKey, key(of: part, gap: gap) { $0.classical.take(first, start) })
            guard error == nil else { return error }
            try demand(!oldKey, "a new chain with the ratchet key of the chain before is accepted")
            if let before { skip(before, oldRatchetKey, to: last) }
            guard var chain = victim.ratchet.receiving else { throw Finding("a step without a chain") }
            chain.next = 0
            skip(chain, ratchetKey, to: start)
            return nil
        case .late(let index):
            guard !skipped.isEmpty else { return .duplicate }
            let index = max(0, index) % skipped.count
            let late = skipped[index]
            let header = MessageHeader(
                ratchetKey: late.ratchetKey, number: late.number, previousCount: 0,
                postQuantum: part(epoch, number, gap: 0, message))
            let kept = victim.ratchet.finished.index(of: late.chain, number: late.number)
            let key = kept.map { Array(victim.ratchet.finished.messageKey(at: $0)) }
            let error = try deliver(header, late.headerKey, key ?? [UInt8](repeating: 0, count: 32))
            if error == nil { skipped.remove(at: index) }
            return error
        }
    }

    private func part(
        _ epoch: UInt32, _ number: UInt32?, gap: UInt32, _ message: Braid.Message
    ) -> PostQuantumPart {
        let ratchet = victim.ratchet.postQuantum
        let fitting = epoch == ratchet.receivingEpoch + 1 ? ratchet.receiving.next &+ gap : 0
        return PostQuantumPart(epoch: epoch, number: number ?? fitting, message: message)
    }

    private func skip(_ chain: TripleRatchet.ReceivingChain, _ ratchetKey: Bytes32, to end: UInt32) {
        guard chain.next < end else { return }
        for number in chain.next..<end {
            skipped.append(
                Skipped(chain: chain.number, number: number, ratchetKey: ratchetKey, headerKey: chain.headerKey))
        }
        skipped.removeFirst(max(0, skipped.count - RatchetLimits.maximumSkippedKeys))
    }

    /// The key that the victim derives for a message with `part`; another one if the victim refuses to derive any.
    private func key(of part: PostQuantumPart, gap: UInt32, _ classical: (MessageKeys) -> Void) -> [UInt8] {
        CipherContext.withOne { context in
            // Beyond this the victim refuses the header, and the work would be for nothing.
            guard gap <= 2 * RatchetLimits.maximumSkip else { return [UInt8](repeating: 0, count: 32) }
            classical(context.keys)
            try? victim.ratchet.postQuantum.derive(part, gap: gap, into: context.keys.postQuantum)
            return Array(context.keys.combine())
        }
    }

    private func deliver(_ header: MessageHeader, _ headerKey: HeaderKey, _ key: [UInt8]) throws -> RatchetError? {
        let text: [UInt8] = [9, 8, 7]
        let bytes = sealed(text, header, headerKey, key)
        var output: [UInt8] = [5]
        let (before, data) = (state, [] as [UInt8])
        do throws(RatchetError) {
            _ = try victim.decrypt(bytes.span, associatedData: data.span, into: &output)
        } catch {
            try demand(state == before && output == [5], "a refusal (\(error)) left a trace")
            refusedCount += 1
            return error
        }
        try demand(output == [5] + text, "a message opens to another text")
        openedCount += 1
        try restart()
        return nil
    }

    /// A message as ``Session/encrypt(_:associatedData:random:into:)-(_,_,_,[UInt8])`` makes one, without a prekey part.
    private func sealed(
        _ text: [UInt8], _ header: MessageHeader, _ headerKey: HeaderKey, _ key: [UInt8]
    ) -> [UInt8] {
        let isInitiator = victim.role == .initiator
        var data: [UInt8] = []
        (isInitiator ? victim.ownIdentity : victim.peerIdentity).rawBytes.append(to: &data)
        (isInitiator ? victim.peerIdentity : victim.ownIdentity).rawBytes.append(to: &data)
        let start = data.count
        return CipherContext.withOne { context in
            Message.writeHead(victim.version, nil, header, key: headerKey, with: context, into: &data)
            var bytes = Array(data[start...])
            let head = bytes.count
            bytes += text + [UInt8](repeating: 0, count: KeySize.tag)
            key.withUnsafeBytes { context.setKey($0) }
            bytes.withUnsafeMutableBytes { bytes in
                let body = UnsafeMutableRawBufferPointer(rebasing: bytes[head...])
                data.withUnsafeBytes { data in
                    CipherContext.zeroNonce.withUnsafeBytes { context.seal(body, nonce: $0, authenticating: data) }
                }
            }
            return bytes
        }
    }
}

extension MessageKeys.Place {
    /// Derives the place `distance` further on than `chain`, if a header may skip that far.
    fileprivate func take(_ chain: ChainKey, _ distance: UInt32) {
        guard distance <= RatchetLimits.maximumSkip else { return }
        chain.derive(distance, into: self)
    }
}

/// A conversation with a ``HostilePeer`` that bytes direct.
///
/// Whatever the peer sends, the victim's stored state can be read again, a refusal leaves no trace, and the victim can send.
struct HostileProgramme {
    private var programme: Programme
    private var random = SeededGenerator(seed: 78)
    private let peer: HostilePeer
    /// Parts that the peer has sent before.
    private var sent: [(epoch: UInt32, message: Braid.Message)] = []

    private init(_ bytes: [UInt8]) throws {
        programme = Programme(bytes)
        let (states, choice) = (try FuzzStates.shared.get(), programme.byte())
        let ends = choice & 2 == 0 ? states.padded.established : states.exact.established
        let isAlice = choice % 2 == 0
        peer = try HostilePeer(
            victim: isAlice ? ends.alice : ends.bob, peer: isAlice ? ends.bob : ends.alice)
    }

    /// Runs the programme to its end and returns how many messages the victim opened and refused.
    /// - Throws: ``Finding``, or what should not have been thrown.
    @discardableResult
    static func run(_ bytes: [UInt8]) throws -> (opened: Int, refused: Int) {
        var conversation = try HostileProgramme(bytes)
        while !conversation.programme.isAtEnd { try conversation.step() }
        try conversation.peer.victimSends()
        return (conversation.peer.openedCount, conversation.peer.refusedCount)
    }

    private mutating func step() throws {
        let code = programme.byte()
        switch code & 7 {
        case 0, 1:
            // Until the victim's braid gets further, with a lost message now and then.
            let before = peer.braidState
            for round in 0..<60 where peer.braidState == before {
                try peer.victimSends()
                if round % 8 == code >> 5 {
                    let part = peer.nextPart()
                    _ = try peer.sends(
                        .step(missing: 0, number: 1, oldKey: false), epoch: part.epoch, message: part.message)
                } else {
                    try peer.sendsHonestly()
                }
            }
        case 2: try peer.victimSends()
        case 3: try peer.sendsHonestly()
        default: try lie(code >> 3)
        }
    }

    private mutating func lie(_ code: Int) throws {
        let (gap, choice) = (gap(), programme.byte())
        let place: HostilePeer.Place =
            switch code & 7 {
            case 0...3: .late(peer.skippedCount - 1 - choice % 4)
            case 4: .current(gap: gap)
            case 5: .step(missing: gap, number: UInt32(choice % 3), oldKey: false)
            case 6: .step(missing: 0, number: gap, oldKey: false)
            default: .step(missing: gap, number: 0, oldKey: true)
            }
        var part = choice & 1 == 0 ? peer.nextPart() : claimed(choice >> 1)
        sent.append(part)
        switch programme.byte() % 8 {
        case 0...2: break
        case 3: part.epoch &+= 1
        case 4: part.epoch = max(1, part.epoch &- 1)
        case 5, 6: part.epoch = peer.victim.ratchet.postQuantum.receivingEpoch + 2
        default: part.epoch = Braid.maximumEpoch - 1
        }
        let number = programme.byte()
        _ = try peer.sends(
            place, epoch: min(max(1, part.epoch), Braid.maximumEpoch - 1),
            number: number & 3 == 0 ? UInt32(number) : nil,
            message: part.message)
    }

    /// Mostly a few; at times as many as may be, and one more.
    private mutating func gap() -> UInt32 {
        let byte = programme.byte()
        switch byte {
        case 254: return RatchetLimits.maximumSkip
        case 255: return RatchetLimits.maximumSkip + 1
        default: return UInt32(byte % 5)
        }
    }

    /// A part that is not the braid's next: an earlier one, a kind that does not fit, or a header that the peer makes for the
    /// epoch that the victim is in.
    private mutating func claimed(_ choice: Int) -> (epoch: UInt32, message: Braid.Message) {
        let victim = peer.victim.ratchet.postQuantum.braid
        switch choice % 4 {
        case 0 where !sent.isEmpty: return sent[programme.byte() % sent.count]
        case 1:
            let kind = Braid.Message.Kind(rawValue: UInt8(1 + programme.byte() % 5)) ?? .header
            let chunk = ErasureCode.Chunk(index: UInt16(programme.byte()), bytes: Bytes32(random.bytes(32)))
            return (victim.epoch, Braid.Message(kind: kind, chunk: chunk))
        case 2:
            var own = Braid(epoch: victim.epoch, authenticator: victim.authenticator, state: .keysUnsampled)
            var part = own.send(random: &random).0
            for _ in 0..<programme.byte() % 3 { part = own.send(random: &random).0 }
            return (victim.epoch, part)
        default: return (victim.epoch, Braid.Message(kind: .none, chunk: nil))
        }
    }
}
