import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import IRCGateway
import NIOCore
import Protection
import TestKit
import Testing

/// Everything that reads bytes of strangers: whole, cut, altered, and bytes without sense.
@Suite struct AttackParserTests {
    private static let forger = Forger(seed: 90, lists: [ListedDevice(id: DeviceID(77), identity: other.publicKey)])
    private static let other: IdentityKeyPair = {
        var random = SeededGenerator(seed: 91)
        return IdentityKeyPair(random: &random)
    }()

    private static var peer: Peer {
        var peer = Peer(name: .nick("eve"), deviceList: forger.deviceList, since: 5)
        peer.offered = Forger(seed: 92).deviceList
        peer.note(forger.device, introducedAt: 12)
        return peer
    }

    private static var published: PublishedDevice {
        let once = forger.bundle.oneTimePreKey.map { [$0, $0] } ?? []
        let bundle = PreKeyBundle(
            identity: forger.bundle.identity, signedPreKey: forger.bundle.signedPreKey,
            kemPreKey: forger.bundle.kemPreKey, oneTimePreKey: nil)
        return PublishedDevice(id: forger.device, bundle: bundle, oneTime: once)
    }

    private static var distribution: SenderKeyDistribution {
        var random = SeededGenerator(seed: 93)
        return SenderKey(random: &random).distribution
    }

    /// What a parser makes of bytes, written again; nothing where it throws.
    typealias Parser = @Sendable ([UInt8]) -> [UInt8]?

    /// By name: the parser, bytes that it takes, and whether all of them are signed.
    private static var cases: [String: (parse: Parser, samples: [[UInt8]], isSigned: Bool)] {
        let device = forger.device
        let control: [ControlMessage] = [
            .ready(forger.deviceList), .acknowledge(forger.deviceList),
            .senderKey(room: "#room", distribution, ended: [EndedKey(id: 7, count: 9)]),
            .senderKeyWanted(room: "#room"), .adopted(forger.deviceList),
        ]
        let directory: [DirectoryMessage] = [
            .challenge(nonce: [UInt8](repeating: 1, count: 32), account: "eve"), .low,
            .proof(nonce: [], account: "eve", forger.deviceList, published, signedBy: forger.identity),
            .find(nick: "eve"),
            .replenish(published.oneTime), .list(forger.deviceList), .done(oneTime: 4), .refused("no"),
            .found(.outsider),
            .found(.legacy), .found(.capable(account: "eve", forger.deviceList, [published])),
        ]
        return [
            "chain": ({ try? DeviceList($0).bytes }, [forger.deviceList.bytes], true),
            "introduction": (
                { bytes in (try? Introduction(bytes, from: device)).map { _ in bytes } },
                [forger.introduction(time: 7).ratchetMessage], true
            ),
            "peer": ({ try? Peer(name: .nick("eve"), bytes: $0).bytes }, [peer.bytes], false),
            "control": ({ (try? ControlMessage($0)).map { $0.body.text } }, control.map { $0.body.text }, false),
            "directory": ({ try? DirectoryMessage($0).bytes }, directory.map(\.bytes), false),
        ]
    }

    @Test(arguments: ["chain", "introduction", "peer", "control", "directory"])
    func bytesOfStrangersAreRefusedOrRead(_ name: String) throws {
        let (parse, samples, isSigned) = try #require(Self.cases[name])
        var random = SeededGenerator(seed: 94)
        func number(_ limit: Int) -> Int {
            var bytes: [UInt8] = [0, 0, 0, 0]
            bytes.withUnsafeMutableBytes { random.fill($0) }
            return bytes.reduce(0) { $0 << 8 | Int($1) } % limit
        }
        for sample in samples {
            #expect(parse(sample) == sample)
            for length in 0..<sample.count where length < 150 || length % 7 == 0 {
                let taken = parse(Array(sample[..<length]))
                #expect(taken == nil || !isSigned, "cut at \(length)")
            }
            for place in sample.indices where place < 150 || place % 7 == 0 {
                var altered = sample
                altered[place] ^= UInt8(1 << number(8))
                let taken = parse(altered)
                #expect(taken == nil || !isSigned, "altered at \(place)")
            }
            #expect(parse(sample + [0]) == nil || !isSigned)
            // Numbers of things that are not there.
            for place in sample.indices.prefix(60) {
                var altered = sample
                altered[place] = 0xFF
                _ = parse(altered)
            }
        }
        for _ in 0..<400 {
            var bytes = (0..<number(300)).map { _ in UInt8(number(256)) }
            _ = parse(bytes)
            let sample = samples[number(samples.count)]
            bytes = Array(sample.prefix(number(sample.count + 1))) + bytes
            _ = parse(bytes)
        }
    }

    @Test func frames() throws {
        var random = SeededGenerator(seed: 95)
        func number(_ limit: Int) -> Int {
            var bytes: [UInt8] = [0, 0, 0, 0]
            bytes.withUnsafeMutableBytes { random.fill($0) }
            return bytes.reduce(0) { $0 << 8 | Int($1) } % limit
        }
        let message = DirectoryMessage.found(.capable(account: "eve", Self.forger.deviceList, [Self.published])).bytes
        var frames = ControlFrames()
        let lines = ControlFrames.lines(message, id: 7)
        #expect(lines.count > 3 && lines.allSatisfy { $0.utf8.count <= 400 })
        for line in lines.dropLast() { #expect(frames.take(try Self.line(line), now: 0) == .waiting) }
        #expect(frames.take(try Self.line(lines[0]), now: 0) == .waiting)
        #expect(frames.take(try Self.line(lines[lines.count - 1]), now: 0) == .whole(id: 7, bytes: message))
        let words = [
            "*", "0", "1", "-1", "+1", "128", "129", "4294967296", "9223372036854775808", "x", "", "QQ==", "?",
        ]
        for round in 0..<5000 {
            let text = "PAWL " + (0..<number(6)).map { _ in words[number(words.count)] }.joined(separator: " ")
            _ = frames.take(try Self.line(text), now: Int64(round))
        }
        // Frames that never end take no more than their limit, and are given up.
        let long = String(repeating: "QUJD", count: 1000)
        for id in 1..<200 {
            _ = frames.take(try Self.line("PAWL \(id) \(id % 100) 128 :\(long)"), now: 10_000)
        }
        #expect(frames.take(try Self.line(lines[0]), now: 10_001) == .malformed)
        let later: Int64 = 100_000_000_000
        #expect(frames.take(try Self.line(lines[0]), now: later) == .waiting)
    }

    private static func line(_ text: String) throws -> IRCLine { try IRCLine(ByteBuffer(string: text)) }

    // MARK: Inside a conversation

    private func flipped(_ envelope: Envelope) -> [Envelope] {
        envelope.bytes.indices.compactMap { place in
            var bytes = envelope.bytes
            bytes[place] ^= 0x10
            // The number of an introduction is nobody's business: its time is what counts.
            if envelope.kind == .introduction, (9..<17).contains(place) { return nil }
            return try? Envelope(bytes)
        }
    }

    /// Every byte of every kind of envelope is altered once: nothing is shown, nothing changes, and the genuine one is
    /// taken afterwards.
    @Test(arguments: ["NOTICE", "PRIVMSG bob", "PRIVMSG #room"]) func alteredEnvelopesChangeNothing(_ kind: String)
        throws
    {
        let alice = try World(.opportunistic, offers: nil, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        for (world, client) in [(alice, first), (bob, second)] where kind.contains("#") {
            world.send(client, "JOIN #room")
        }
        if kind != "NOTICE" {
            alice.send(first, "PRIVMSG bob :hello")
            alice.send(first, "PRIVMSG bob :established")
            bob.send(second, "PRIVMSG alice :established")
        }
        // Of a NOTICE that is the introduction, then the first message of the session.
        var assembler = FragmentAssembler()
        var envelopes: [Envelope] = []
        alice.backend.relay = { line in
            guard line.contains(":alice!"), let body = line.split(separator: " :").last, body.hasPrefix("?PAWL") else {
                return [line]
            }
            switch Armour.parse(Array(body.utf8)[...]) {
            case .whole(let bytes): if let whole = try? Envelope(bytes) { envelopes.append(whole) }
            case .fragment(let id, let index, let count, let bytes):
                if case .complete(let whole) = assembler.add(
                    source: "", target: "", id: id, index: index, count: count, bytes: bytes, now: 0),
                    let envelope = try? Envelope(whole)
                {
                    envelopes.append(envelope)
                }
            default: break
            }
            return []
        }
        if kind == "NOTICE" {
            bob.send(second, "PRIVMSG alice :hello")
        } else {
            alice.send(first, "PRIVMSG \(kind.dropFirst(8)) :genuine")
        }
        let target = kind == "NOTICE" ? "bob" : String(kind.dropFirst(8))
        #expect(!envelopes.isEmpty)
        var verbs = envelopes.map { $0.kind == .room ? "PRIVMSG #room" : "NOTICE bob" }
        if kind == "PRIVMSG bob" { verbs = ["PRIVMSG bob"] }
        let shown = second.shown()
        for (envelope, verb) in zip(envelopes, verbs) {
            let words = verb.split(separator: " ").map(String.init)
            let before = bob.environment.peers?.all
            let forgeries = flipped(envelope).enumerated().filter { envelope.bytes.count < 600 || $0.offset % 11 == 0 }
            for (_, forgery) in forgeries {
                bob.forge(second, Forger.lines(forgery, "alice!alice@host.test", words[0], words[1]))
            }
            #expect(bob.environment.peers?.all == before)
            #expect(second.shown() == shown)
            bob.forge(second, Forger.lines(envelope, "alice!alice@host.test", words[0], words[1]))
        }
        if kind == "NOTICE" {
            #expect(bob.environment.peers?[.nick("alice")] != nil)
        } else {
            #expect(second.shown(to: target).last == "[e2e] genuine")
        }
    }

    /// The lines of a conversation come in pieces of one byte.
    @Test func byteByByte() throws {
        let alice = try World(.opportunistic, offers: nil, seed: 1, sidecar: true)
        let bob = try World(.opportunistic, seed: 2, beside: alice, sidecar: true)
        let (first, second) = (alice.connect("alice"), bob.connect("bob"))
        var forBob: [String] = []
        alice.backend.relay = { line in
            guard line.contains(" bob :") else { return [line] }
            forBob.append(line)
            return []
        }
        func deliver() {
            while !forBob.isEmpty {
                let bytes = Array((forBob.removeFirst() + "\r\n").utf8)
                for byte in bytes {
                    bob.run(second) { second.machine.fromUpstream(ByteBuffer(bytes: [byte]), at: bob.now, $0) }
                }
                bob.settle()
            }
        }
        alice.send(first, "PRIVMSG bob :hello")
        deliver()
        alice.send(first, "PRIVMSG bob :secret " + String(repeating: "and more ", count: 30))
        deliver()
        bob.send(second, "PRIVMSG alice :well")
        deliver()
        #expect(second.shown().contains { $0.hasPrefix("[e2e] secret and more") })
        #expect(first.shown() == ["[e2e] well"])
    }
}
