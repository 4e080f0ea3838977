import TestKit
import Testing

@testable import DoubleRatchet

/// The offsets that Session's drawing of the state names, and what is kept out of logs.
@Suite("The form of the state, chains at their end, and printing")
struct LayoutTests {
    /// The states that sessions reach: name, bytes.
    private func shapes() throws -> [(name: String, state: [UInt8])] {
        var shapes: [(String, [UInt8])] = []
        for oneTime in [true, false] {
            var random = SeededGenerator(seed: 60)
            let identity = IdentityKeyPair(random: &random)
            let device = Device(&random, oneTime: oneTime)
            var alice = try Session.initiate(identity: identity, with: device.bundle, expecting: nil, random: &random)
            shapes.append(("initiated, one-time \(oneTime)", alice.state))
            let first = try alice.seal([1], random: &random)
            shapes.append(("first sent, one-time \(oneTime)", alice.state))
            var plaintext: [UInt8] = []
            var bob = try device.respond(to: try alice.seal([2], random: &random), into: &plaintext)
            shapes.append(("responded with a gap", bob.state))
            let reply = try bob.seal([3], random: &random)
            shapes.append(("replied", bob.state))
            _ = try alice.open(reply)
            shapes.append(("established", alice.state))
            _ = try bob.open(try alice.seal([4], random: &random))
            shapes.append(("second chain, gap", bob.state))
            shapes.append(("second chain", alice.state))
            _ = try bob.open(first)
            shapes.append(("gap filled", bob.state))
        }
        return shapes
    }

    /// Walks through a state as the drawings say, and returns where it ends.
    private func end(of state: [UInt8]) -> Int {
        let flags = state[1]
        var offset = 230
        if flags & 2 != 0 { offset += 32 + 32 + 32 + 32 + 4 }
        if flags & 4 != 0 { offset += 32 + 4 + 32 + 4 }
        if flags & 8 != 0 { offset += flags & 16 != 0 ? 1644 : 1640 }
        offset += 109
        let braid = state[offset]
        offset += 69
        switch braid {
        case 0: break
        case 1: offset += 64 + 2
        case 5: offset += 1 + 34 * Int(state[offset])
        case 6: offset += 64
        default: Issue.record("no shape here is in state \(braid)")
        }
        offset += 1 + 36 * Int(state[offset])
        return offset + 2 + 40 * (Int(state[offset]) << 8 | Int(state[offset + 1]))
    }

    @Test("each shape ends where its flags and counts say") func sizes() throws {
        var flags: [UInt8] = []
        for (name, state) in try shapes() {
            #expect(state[0] == 2, "\(name)")
            #expect(end(of: state) == state.count, "\(name)")
            flags.append(state[1])
        }
        #expect(flags == [24, 26, 5, 7, 4, 5, 6, 5, 8, 10, 5, 7, 4, 5, 6, 5])
        let counts = try shapes().map(\.state.count)
        // 230 + 178 + 3 for the counts, then 132, 72, 1644 or 1640, 66 for a key pair, 1 and 34 for each chunk or 64 for a
        // header, 36 for a finished chain and 40 for a skipped key.
        #expect(counts[..<8] == [2055, 2253, 558, 690, 549, 628, 681, 583])
        #expect(counts[8...] == [2051, 2249, 558, 690, 549, 628, 681, 583])
    }

    @Test("each field is at its offset") func offsets() throws {
        var pair = try Pair(seed: 61)
        _ = try pair.alice.seal([], random: &pair.random)
        _ = try pair.alice.seal([], random: &pair.random)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        _ = try pair.bob.seal([], random: &pair.random)
        let state = pair.bob.state
        let chains = (pair.bob.ratchet.sending, pair.bob.ratchet.receiving)
        let sending = try #require(chains.0)
        let receiving = try #require(chains.1)
        let headers = (pair.bob.ratchet.nextSendingHeader, pair.bob.ratchet.nextReceivingHeader)
        let postQuantum = pair.bob.ratchet.postQuantum
        let finished = pair.bob.ratchet.finished.chains
        let peerKey = pair.bob.ratchet.peerKey.array
        #expect(state[..<2] == [2, 7])
        #expect(Array(state[2..<34]) == pair.alice.peerIdentity.bytes)
        #expect(Array(state[34..<66]) == pair.bob.peerIdentity.bytes)
        #expect(Array(state[66..<98]) == pair.alice.id)
        #expect(Array(state[98..<130]) == pair.bob.ratchet.root.secret.array)
        #expect(Array(state[130..<162]) == peerKey)
        #expect(state[162..<166] == [0, 0, 0, 1])
        #expect(Array(state[166..<198]) == headers.0.secret.array)
        #expect(Array(state[198..<230]) == headers.1.secret.array)
        #expect(Array(state[230..<262]) == sending.pair.secret.array)
        #expect(Array(state[262..<294]) == sending.pair.publicKey.bytes.array)
        #expect(Array(state[294..<326]) == sending.headerKey.secret.array)
        #expect(Array(state[326..<358]) == sending.key.secret.array)
        #expect(state[358..<362] == [0, 0, 0, 1])
        #expect(Array(state[362..<394]) == receiving.headerKey.secret.array)
        #expect(state[394..<398] == [0, 0, 0, 1])
        #expect(Array(state[398..<430]) == receiving.key.secret.array)
        #expect(state[430..<434] == [0, 0, 0, 3])
        #expect(state[434] == 1)
        #expect(Array(state[435..<467]) == postQuantum.root.array)
        #expect(Array(state[467..<499]) == postQuantum.sending.key.secret.array)
        #expect(state[499..<503] == [0, 0, 0, 2])
        #expect(Array(state[503..<535]) == postQuantum.receiving.key.secret.array)
        #expect(state[535..<539] == [0, 0, 0, 4])
        #expect(state[539..<543] == [0, 0, 0, 0])
        #expect(state[543..<548] == [5, 0, 0, 0, 1])
        // Two chunks of the header: the first message's and, two lost, the last one's.
        #expect(state[612] == 2 && state[613..<615] == [0, 0] && state[647..<649] == [0, 3])
        #expect(state[681] == 1 && finished.count == 1)
        #expect(state[682..<686] == [0, 0, 0, 0])
        #expect(Array(state[686..<718]) == finished[0].headerKey.secret.array)
        #expect(state[718..<720] == [0, 2])
        for (index, record) in [720, 760].enumerated() {
            #expect(Array(state[record..<record + 8]) == [0, 0, 0, 1, 0, 0, 0, UInt8(index)], "record \(index)")
        }
        #expect(state.count == 800)
    }

    @Test("every shape comes back as it was, and no part of it does") func everyShape() throws {
        for (name, state) in try shapes() {
            #expect(try restored(state).state == state, "\(name)")
            // The count of skipped keys is the last field that another length could be read from.
            for length in state.indices {
                #expect(throws: RatchetError.malformed, "\(name), \(length) bytes") {
                    _ = try restored(Array(state[..<length]))
                }
            }
            #expect(throws: RatchetError.malformed, "\(name)") { _ = try restored(state + [0]) }
            #expect(throws: RatchetError.unsupportedVersion, "\(name)") {
                _ = try restored([1] + state.dropFirst())
            }
        }
    }

    // MARK: Chains at their end

    private func chain(_ byte: UInt8) -> ChainKey { ChainKey(secret: SecretBytes([UInt8](repeating: byte, count: 32))) }

    private func ratchet(sending: UInt32, receiving: UInt32, _ random: inout SeededGenerator) -> TripleRatchet {
        TripleRatchet(
            root: RootKey(secret: chain(1).secret), peerKey: AgreementKeyPair(random: &random).publicKey.bytes,
            sending: TripleRatchet.SendingChain(
                pair: AgreementKeyPair(random: &random), headerKey: HeaderKey(secret: chain(4).secret), key: chain(2),
                next: sending),
            receiving: TripleRatchet.ReceivingChain(
                headerKey: HeaderKey(secret: chain(5).secret), number: 0, key: chain(3), next: receiving),
            nextSendingHeader: HeaderKey(secret: chain(6).secret),
            nextReceivingHeader: HeaderKey(secret: chain(7).secret),
            postQuantum: SparsePostQuantumRatchet(isInitiator: true, secret: chain(8).secret))
    }

    @Test("a sending chain ends at UInt32.max, one before it still goes") func sendingEnds() throws {
        var random = SeededGenerator(seed: 62)
        var last = ratchet(sending: .max - 1, receiving: 0, &random)
        let used = try last.nextHeader(random: &random)
        #expect(used.number == UInt32.max - 1)
        #expect(last.sending?.next == .max)
        #expect(throws: RatchetError.exhausted) { _ = try last.nextHeader(random: &random) }
        #expect(last.sending?.next == .max)
        // So does a chain of the post-quantum ratchet.
        last.sending?.next = 0
        last.postQuantum.sending.next = .max
        #expect(throws: RatchetError.exhausted) { _ = try last.nextHeader(random: &random) }
        #expect(last.sending?.next == 0)
        #expect(last.postQuantum.sending.next == .max)
    }

    @Test("a receiving chain ends at UInt32.max, one before it still goes") func receivingEnds() throws {
        var random = SeededGenerator(seed: 63)
        var last = ratchet(sending: 0, receiving: .max - 1, &random)
        // The other side's post-quantum ratchet: what it sends is what this one receives.
        var other = SparsePostQuantumRatchet(isInitiator: false, secret: chain(8).secret)
        let (part, key) = other.send(random: &random)
        func message(_ number: UInt32, _ place: UInt32, _ part: PostQuantumPart) -> [UInt8] {
            var clear: [UInt8] = []
            MessageHeader(ratchetKey: last.peerKey, number: number, previousCount: 0, postQuantum: part)
                .write(.exactHeader, into: &clear)
            var bytes = sealedHeader(clear, HeaderKey(secret: chain(5).secret), first: 0x20)
            Primitives.seal(
                UnsafeRawBufferPointer(start: nil, count: 0),
                key: combined(chain(3).advanced(by: place).messageKey.secret, key), authenticating: [], into: &bytes)
            return bytes
        }
        func receive(_ bytes: [UInt8]) throws(RatchetError) -> Int {
            try bytes.span.withUnsafeBytes { (bytes) throws(RatchetError) in try last.receive(try Message(bytes)) }
        }
        let skipping = PostQuantumPart(epoch: part.epoch, number: 1, message: part.message)
        // A message with the last number of all, and one at its place.
        #expect(throws: RatchetError.exhausted) { _ = try receive(message(.max, 1, skipping)) }
        #expect(last.receiving?.next == UInt32.max - 1)
        #expect(last.finished.keyCount == 0)
        let gap = try receive(message(.max - 1, 0, part))
        #expect(gap == 0)
        #expect(last.receiving?.next == .max)
        #expect(throws: RatchetError.exhausted) { _ = try receive(message(.max, 1, skipping)) }
        #expect(throws: RatchetError.duplicate) { _ = try receive(message(.max - 1, 0, part)) }
    }

    // MARK: Printing

    private struct Container {
        let name = "container"
        let secret: SecretBytes
        let root: RootKey
        let pair: AgreementKeyPair
        let sending: TripleRatchet.SendingChain
        let receiving: TripleRatchet.ReceivingChain
        let postQuantum: SparsePostQuantumRatchet
        let many: [SecretBytes]
    }

    @Test("no container prints a secret that it holds") func printing() {
        // Four bytes in a row of the secret, in any of the usual ways to write them.
        let bytes = (0..<32).map { UInt8(truncatingIfNeeded: 0xC0 + 5 * $0) }
        let secret = SecretBytes(bytes)
        let pair = AgreementKeyPair(secret: secret)
        let chain = ChainKey(secret: secret)
        var encapsulating = SparsePostQuantumRatchet(isInitiator: false, secret: secret)
        encapsulating.nextSending = chain
        encapsulating.braid.state = .keysSampled(BraidKeyPair(seed: secret), sent: 0)
        let container = Container(
            secret: secret, root: RootKey(secret: secret), pair: pair,
            sending: TripleRatchet.SendingChain(
                pair: pair, headerKey: HeaderKey(secret: secret), key: chain, next: 1),
            receiving: TripleRatchet.ReceivingChain(
                headerKey: HeaderKey(secret: secret), number: 0, key: chain, next: 1),
            postQuantum: encapsulating, many: [secret])
        var dumped = ""
        dump(container, to: &dumped)
        var control = ""
        dump(bytes, to: &control)
        #expect(Self.shows(bytes, in: control) && Self.shows(bytes, in: "\(bytes)"))
        #expect(Self.shows(bytes, in: text(bytes).uppercased()))
        for shown in [String(describing: container), String(reflecting: container), "\(container)", dumped] {
            #expect(shown.contains("container") && shown.contains("SecretBytes(32 bytes)"))
            #expect(!Self.shows(bytes, in: shown), "\(shown)")
        }
        #expect(Mirror(reflecting: secret).children.isEmpty)
    }

    /// Whether four bytes in a row of `secret` can be read in `shown`.
    private static func shows(_ secret: [UInt8], in shown: String) -> Bool {
        let decimals = shown.split { !$0.isNumber }.compactMap { UInt64($0) }
        let packed = shown.lowercased().filter(\.isHexDigit)
        return (0...secret.count - 4).contains { start in
            let part = Array(secret[start..<start + 4])
            let numbers = part.map(UInt64.init)
            let row = decimals.indices.contains { index in decimals[index...].starts(with: numbers) }
            return row || packed.contains(text(part))
        }
    }

    @Test("errors and results of a session say nothing of its secrets") func errors() {
        for error in RatchetError.allCases {
            #expect(Mirror(reflecting: error).children.isEmpty, "\(error)")
        }
    }
}
