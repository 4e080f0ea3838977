import Testing

@testable import DoubleRatchet

/// The offsets that Session's drawing of the state names, and what is kept out of logs.
@Suite("The form of the state, chains at their end, and printing")
struct LayoutTests {
    /// The states that sessions reach: name, bytes.
    private func shapes() throws -> [(name: String, state: [UInt8])] {
        var shapes: [(String, [UInt8])] = []
        for oneTime in [true, false] {
            var random = SeededRandomSource(60)
            let identity = IdentityKeyPair(random: &random)
            let device = Device(&random, oneTime: oneTime)
            var alice = try Session.initiate(identity: identity, with: device.bundle, random: &random)
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

    /// Walks through a state as the drawing says, and returns where it ends.
    private func end(of state: [UInt8]) -> Int {
        let flags = state[1]
        var offset = 166
        if flags & 2 != 0 { offset += 32 + 32 + 32 + 4 }
        if flags & 4 != 0 { offset += 32 + 4 }
        if flags & 8 != 0 { offset += flags & 16 != 0 ? 1644 : 1640 }
        offset += 1 + 8 * Int(state[offset])
        return offset + 2 + 68 * (Int(state[offset]) << 8 | Int(state[offset + 1]))
    }

    @Test("each shape ends where its flags and counts say") func sizes() throws {
        var flags: [UInt8] = []
        for (name, state) in try shapes() {
            #expect(state[0] == 1, "\(name)")
            #expect(end(of: state) == state.count, "\(name)")
            flags.append(state[1])
        }
        #expect(flags == [24, 26, 5, 7, 4, 5, 6, 5, 8, 10, 5, 7, 4, 5, 6, 5])
        let counts = try shapes().map(\.state.count)
        // 166 + 3 for the counts, then 100, 36, 1644 or 1640, 8 for a past key and 68 for a skipped one.
        #expect(counts[..<8] == [1813, 1913, 273, 373, 205, 281, 305, 213])
        #expect(counts[8...] == [1809, 1909, 273, 373, 205, 281, 305, 213])
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
        let past = pair.bob.ratchet.pastKeys
        let peerKey = pair.bob.ratchet.peerKey.array
        #expect(state[..<2] == [1, 7])
        #expect(Array(state[2..<34]) == pair.alice.peerIdentity.bytes)
        #expect(Array(state[34..<66]) == pair.bob.peerIdentity.bytes)
        #expect(Array(state[66..<98]) == pair.alice.id)
        #expect(Array(state[98..<130]) == pair.bob.ratchet.root.secret.array)
        #expect(Array(state[130..<162]) == peerKey)
        #expect(state[162..<166] == [0, 0, 0, 1])
        #expect(Array(state[166..<198]) == sending.pair.secret.array)
        #expect(Array(state[198..<230]) == sending.pair.publicKey.bytes.array)
        #expect(Array(state[230..<262]) == sending.key.secret.array)
        #expect(state[262..<266] == [0, 0, 0, 1])
        #expect(Array(state[266..<298]) == receiving.key.secret.array)
        #expect(state[298..<302] == [0, 0, 0, 3])
        #expect(state[302] == 1 && past.count == 1)
        #expect(state[303..<311].reduce(0) { $0 << 8 | UInt64($1) } == past[0])
        #expect(state[311..<313] == [0, 2])
        for (index, record) in [313, 381].enumerated() {
            #expect(Array(state[record..<record + 32]) == peerKey, "record \(index)")
            #expect(Array(state[record + 32..<record + 36]) == [0, 0, 0, UInt8(index)], "record \(index)")
        }
        #expect(state.count == 449)
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
                _ = try restored([2] + state.dropFirst())
            }
        }
    }

    // MARK: Chains at their end

    private func chain(_ byte: UInt8) -> ChainKey { ChainKey(secret: SecretBytes([UInt8](repeating: byte, count: 32))) }

    private func ratchet(sending: UInt32, receiving: UInt32, _ random: inout SeededRandomSource) -> DoubleRatchet {
        DoubleRatchet(
            root: RootKey(secret: chain(1).secret), peerKey: AgreementKeyPair(random: &random).publicKey.bytes,
            sending: DoubleRatchet.SendingChain(
                pair: AgreementKeyPair(random: &random), key: chain(2), next: sending),
            receiving: DoubleRatchet.ReceivingChain(key: chain(3), next: receiving))
    }

    @Test("a sending chain ends at UInt32.max, one before it still goes") func sendingEnds() throws {
        var random = SeededRandomSource(62)
        var last = ratchet(sending: .max - 1, receiving: 0, &random)
        let (used, root) = try last.chainForSending(random: &random)
        #expect(used.next == UInt32.max - 1)
        last.sent(used, root: root)
        #expect(last.sending?.next == .max)
        #expect(throws: RatchetError.exhausted) { _ = try last.chainForSending(random: &random) }
        #expect(last.sending?.next == .max)
    }

    @Test("a receiving chain ends at UInt32.max, one before it still goes") func receivingEnds() throws {
        var random = SeededRandomSource(63)
        var last = ratchet(sending: 0, receiving: .max - 1, &random)
        func sealed(_ place: UInt32) -> [UInt8] {
            var bytes: [UInt8] = []
            chain(3).advanced(by: place).messageKey.seal(
                UnsafeRawBufferPointer(start: nil, count: 0),
                authenticating: [], into: &bytes)
            return bytes
        }
        func receive(_ number: UInt32, _ message: [UInt8]) throws(RatchetError) -> Int {
            let header = MessageHeader(
                preKeyPart: nil, ratchetKey: last.peerKey, number: number, previousCount: 0)
            var output: [UInt8] = []
            return try message.span.withUnsafeBytes { (bytes) throws(RatchetError) in
                try last.receive(header, bytes, authenticating: [], into: &output)
            }
        }
        // A genuine message with the last number of all, and one at its place.
        #expect(throws: RatchetError.exhausted) { _ = try receive(.max, sealed(1)) }
        #expect(last.receiving?.next == UInt32.max - 1)
        #expect(last.skipped.count == 0)
        let gap = try receive(.max - 1, sealed(0))
        #expect(gap == 0)
        #expect(last.receiving?.next == .max)
        #expect(throws: RatchetError.exhausted) { _ = try receive(.max, sealed(1)) }
        #expect(throws: RatchetError.duplicate) { _ = try receive(.max - 1, sealed(0)) }
    }

    // MARK: Printing

    private struct Container {
        let name = "container"
        let secret: SecretBytes
        let root: RootKey
        let pair: AgreementKeyPair
        let sending: DoubleRatchet.SendingChain
        let receiving: DoubleRatchet.ReceivingChain
        let many: [SecretBytes]
    }

    @Test("no container prints a secret that it holds") func printing() {
        // Four bytes in a row of the secret, in any of the usual ways to write them.
        let bytes = (0..<32).map { UInt8(truncatingIfNeeded: 0xC0 + 5 * $0) }
        let secret = SecretBytes(bytes)
        let pair = AgreementKeyPair(secret: secret)
        let chain = ChainKey(secret: secret)
        let container = Container(
            secret: secret, root: RootKey(secret: secret), pair: pair,
            sending: DoubleRatchet.SendingChain(pair: pair, key: chain, next: 1),
            receiving: DoubleRatchet.ReceivingChain(key: chain, next: 1), many: [secret])
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
