import PeerKit
import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

/// Our session and a peer's, with a channel between them that a seed drives.
struct OMEMOConversation: ~Copyable {
    private struct Flight {
        let toPeer: Bool
        let message: OMEMOPeer.Message
        let text: [UInt8]
        /// The round in which it is delivered.
        let due: Int
    }

    private let peer: OMEMOPeer
    private let device: OMEMODevice
    private var session: OMEMOSession?
    private var random: SeededGenerator
    private var flights: [Flight]
    /// A peer that has neither begun nor opened anything cannot send.
    private var peerHasSession: Bool
    private var roundNumber = 0
    private let seed: UInt64
    private(set) var (sent, opened, lost, copied, forged) = (0, 0, 0, 0, 0)

    var summary: String {
        "\(sent) sent, \(opened) opened, \(lost) lost, \(copied) copies and \(forged) forgeries refused"
    }

    init(
        _ way: OMEMOPeerTests.Way, seed: UInt64, ourSign: UInt8? = nil, theirSign: UInt8? = nil
    ) throws {
        var random = SeededGenerator(seed: seed)
        var peerSeed = random.bytes(32)
        while let theirSign, try IdentityKeyPair(seed: peerSeed.span).publicKey.bytes[31] >> 7 != theirSign {
            peerSeed = random.bytes(32)
        }
        let peer = try OMEMOPeer(way.implementation, way.profile, seed: peerSeed)
        let device = try OMEMODevice(way.profile, &random, sign: ourSign)
        let text = random.bytes(40)
        let first: OMEMOPeer.Message
        var session: OMEMOSession?
        if way.weInitiate {
            let bundle = try peer.bundle()
            #expect(bundle.preKeys.count >= OMEMOLimits.minimumPreKeys)
            var begun = try OMEMOSession.initiate(
                identity: device.identity, with: bundle, expecting: nil, random: &random)
            first = try begun.seal(text, random: &random)
            session = consume begun
        } else {
            first = try peer.initiate(with: device.bundle, preKey: 2, text)
            session = nil
        }
        flights = [Flight(toPeer: way.weInitiate, message: first, text: text, due: 1)]
        peerHasSession = !way.weInitiate
        sent = 1
        self.seed = seed
        self.random = random
        self.peer = peer
        self.device = device
        self.session = session
    }

    /// Some messages each way, then what is due comes in any order.
    mutating func round() throws {
        roundNumber += 1
        for _ in 0..<1 + random.below(6) { try send(toPeer: true) }
        for _ in 0..<1 + random.below(6) { try send(toPeer: false) }
        let now = roundNumber
        try deliver { $0.due <= now }
    }

    mutating func deliverRest() throws {
        try deliver { _ in true }
    }

    private mutating func send(toPeer: Bool) throws {
        let text = random.bytes(random.below(4) == 0 ? random.below(300) : 48)
        let message: OMEMOPeer.Message
        if toPeer {
            guard try prepareSession() else { return }
            message = try ourMessage(text)
        } else {
            guard peerHasSession else { return }
            message = try peer.encrypt(text)
        }
        sent += 1
        // Before the first delivery nothing is lost, so that both have a session in the end.
        if roundNumber > 1, random.below(10) == 0 {
            lost += 1
            return
        }
        // A peer that keeps five chains can open what is two rounds late.
        flights.append(
            Flight(toPeer: toPeer, message: message, text: text, due: roundNumber + max(0, random.below(6) - 3)))
    }

    private func prepareSession() throws -> Bool {
        switch session {
        case .some: true
        case .none: false
        }
    }

    private mutating func ourMessage(_ text: [UInt8]) throws -> OMEMOPeer.Message {
        guard var session = session.take() else { throw PeerError("no session") }
        let message = try session.seal(text, random: &random)
        self.session = random.below(4) == 0 ? try restoredOMEMO(session.state) : session
        return message
    }

    private mutating func deliver(where isDue: (Flight) -> Bool) throws {
        var due = flights.filter(isDue)
        flights.removeAll(where: isDue)
        while !due.isEmpty {
            let flight = due.remove(at: random.below(due.count))
            try flight.toPeer ? deliverToPeer(flight) : deliverToUs(flight)
        }
    }

    private mutating func deliverToPeer(_ flight: Flight) throws {
        let peer = peer
        if random.below(4) == 0, let changed = changed(flight.message), peerHasSession {
            #expect(throws: OMEMOPeer.Refusal.self, "seed \(seed)") { try peer.decrypt(changed) }
            forged += 1
        }
        #expect(try peer.decrypt(flight.message) == flight.text, "seed \(seed)")
        opened += 1
        peerHasSession = true
        if random.below(10) == 0 {
            #expect(throws: OMEMOPeer.Refusal.self, "seed \(seed)") { try peer.decrypt(flight.message) }
            copied += 1
        }
        if random.below(10) == 0 { try peer.restart() }
    }

    private mutating func deliverToUs(_ flight: Flight) throws {
        guard var session = session.take() else {
            var text: [UInt8] = []
            self.session = try device.respond(to: flight.message.bytes, into: &text)
            #expect(text == flight.text, "seed \(seed)")
            opened += 1
            return
        }
        if random.below(4) == 0, let changed = changed(flight.message) {
            #expect(session.refusal(of: changed) != nil, "seed \(seed)")
            forged += 1
        }
        #expect(try session.open(flight.message) == flight.text, "seed \(seed)")
        opened += 1
        if random.below(10) == 0 {
            #expect(session.refusal(of: flight.message) == .duplicate, "seed \(seed)")
            copied += 1
        }
        self.session = random.below(4) == 0 ? try restoredOMEMO(session.state) : session
    }

    /// One bit is changed. In a key exchange some fields mean nothing, so those are left alone.
    private mutating func changed(_ message: OMEMOPeer.Message) -> OMEMOPeer.Message? {
        guard !message.isKeyExchange else { return nil }
        var bytes = message.bytes
        bytes[random.below(bytes.count)] ^= 1 << UInt8(random.below(8))
        return OMEMOPeer.Message(isKeyExchange: false, bytes: bytes)
    }

    // MARK: Set pieces, each after `round` and `deliverRest`

    mutating func backwards(count: Int) throws {
        for toPeer in [true, false] {
            var messages: [(OMEMOPeer.Message, [UInt8])] = []
            for _ in 0..<count {
                let text = random.bytes(48)
                messages.append((toPeer ? try ourMessage(text) : try peer.encrypt(text), text))
            }
            for (message, text) in messages.reversed() { #expect(try open(message, atPeer: toPeer) == text) }
        }
    }

    mutating func lateLast() throws {
        for toPeer in [true, false] {
            // A chain of three, the last of which stays on the way until the chain after it is in use.
            var messages: [OMEMOPeer.Message] = []
            for number: UInt8 in 0..<3 {
                messages.append(toPeer ? try ourMessage([number]) : try peer.encrypt([number]))
            }
            #expect(try open(messages[0], atPeer: toPeer) == [0])
            #expect(try open(messages[1], atPeer: toPeer) == [1])
            let reply = toPeer ? try peer.encrypt([9]) : try ourMessage([9])
            #expect(try open(reply, atPeer: !toPeer) == [9])
            let next = toPeer ? try ourMessage([10]) : try peer.encrypt([10])
            #expect(try open(next, atPeer: toPeer) == [10])
            #expect(try open(messages[2], atPeer: toPeer) == [2])
        }
    }

    /// Instead of all others: before anything has arrived, the peer begins a session too.
    mutating func bothBegin() throws {
        let theirs = try peer.initiate(with: device.bundle, preKey: 1, [1])
        // Each end takes the other's session, and says so in it.
        let ours = flights.removeFirst()
        #expect(try peer.decrypt(ours.message) == ours.text)
        var text: [UInt8] = []
        var second = try device.respond(to: theirs.bytes, into: &text)
        #expect(text == [1])
        let reply = try peer.encrypt([2])
        #expect(try open(reply, atPeer: false) == [2])
        #expect(second.refusal(of: reply) == .authenticationFailed)
        for number: UInt8 in 3..<20 {
            #expect(try open(try ourMessage([number]), atPeer: true) == [number])
            #expect(try open(try peer.encrypt([number]), atPeer: false) == [number])
        }
        #expect(session?.isEstablished == true)
    }

    mutating func limits() throws {
        // A reply first, so that the chain begins at 0.
        #expect(try open(try ourMessage([0]), atPeer: true) == [0])
        guard var session = session.take() else { throw PeerError("no session") }
        var heartbeats: [Int] = []
        for number in 0..<60 where try session.received(try peer.encrypt([1])).isHeartbeatDue {
            heartbeats.append(number)
        }
        #expect(heartbeats == [53])
        for _ in 0..<1000 { _ = try peer.encrypt([2]) }
        let last = try peer.encrypt([3])
        #expect(try session.received(last) == .init(skipped: 1000, isHeartbeatDue: false))
        for _ in 0..<1001 { _ = try peer.encrypt([4]) }
        #expect(session.refusal(of: try peer.encrypt([5])) == .tooFarAhead)
        #expect(session.skippedCount == OMEMOLimits.maximumSkippedKeys)
        self.session = consume session
    }

    private mutating func open(_ message: OMEMOPeer.Message, atPeer: Bool) throws -> [UInt8] {
        if atPeer { return try peer.decrypt(message) }
        guard var session = session.take() else { throw PeerError("no session") }
        let text = try session.open(message)
        self.session = consume session
        return text
    }
}
