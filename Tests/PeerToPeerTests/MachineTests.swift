import DoubleRatchet
import PeerConnection
import TestKit
import Testing

/// The machine of a connection: handshake, messages, acknowledgements and ends.
@Suite struct PeerMachineTests {
    private let alice = TestDevice(1)
    private let bob = TestDevice(2)
    private let mallory = TestDevice(3)

    // MARK: Handshake

    @Test func twoDevicesConnectAndExchangeMessages() throws {
        var pair = try MachinePair()
        pair.connect()
        #expect(!pair.initiator.isOpen && !pair.responder.isOpen)
        pair.deliver()
        #expect(pair.seen == [.initiator: [.opened], .responder: [.opened]])
        #expect(pair.log.map(\.packet.count) == [50, 114, 81])
        try pair.send([1, 2, 3], by: .initiator)
        try pair.send([], by: .responder)
        pair.run(try pair.responder.send(status: 1, metadata: [9], now: pair.now), of: .responder)
        pair.deliver()
        #expect(pair.seen[.responder] == [.opened, .deliver(1, [1, 2, 3])])
        #expect(pair.seen[.initiator] == [.opened, .deliver(1, []), .status(flags: 1, metadata: [9])])
    }

    /// Nothing of the first packets is the same in two connections, apart from kind, version and the signalled id.
    @Test func keysAreFreshInEachConnection() throws {
        var (one, two) = (try MachinePair(seed: 1), try MachinePair(seed: 2))
        one.open()
        two.open()
        for (first, second) in zip(one.log, two.log) {
            #expect(first.packet.dropFirst(18) != second.packet.dropFirst(18))
        }
        try one.send([1], by: .initiator)
        try two.send([1], by: .initiator)
        #expect(one.log.last?.packet != two.log.last?.packet)
    }

    /// What both sides have to agree on: if one part differs, neither the one nor the other opens.
    @Test func everyPartOfTheAgreementIsBound() throws {
        let (alice, bob) = (alice, bob)
        let mallory = mallory
        var changed = bob.endpoint
        changed.device = 77
        let renamed = PeerAgreement(
            connection: try MachinePair.agreement(.responder, bob, alice).connection,
            secret: SecretBytes(copying: [UInt8](repeating: 2, count: 32)), transport: "test", role: .responder,
            own: changed, remote: alice.endpoint, sign: bob.sign)
        let others: [(String, PeerAgreement)] = [
            ("connection", try MachinePair.agreement(.responder, bob, alice, connection: 9)),
            ("secret", try MachinePair.agreement(.responder, bob, alice, secret: 9)),
            ("transport", try MachinePair.agreement(.responder, bob, alice, transport: "tesu")),
            ("own key", try MachinePair.agreement(.responder, mallory, alice)),
            ("remote key", try MachinePair.agreement(.responder, bob, mallory)),
            ("own device", renamed),
        ]
        for (name, responder) in others {
            var pair = try MachinePair(responder: responder)
            pair.open()
            #expect(!pair.initiator.isOpen && !pair.responder.isOpen, "\(name)")
            #expect(pair.ends(.initiator) + pair.ends(.responder) == [.notAuthentic], "\(name)")
        }
    }

    /// A server that offers keys of its own, or another device of the same person, has no signature of the listed one.
    @Test func anotherDeviceUnderTheSameNameIsRefused() throws {
        var impostor = mallory.endpoint
        impostor.device = bob.endpoint.device
        let agreement = PeerAgreement(
            connection: try MachinePair.agreement(.responder, bob, alice).connection,
            secret: SecretBytes(copying: [UInt8](repeating: 2, count: 32)), transport: "test", role: .responder,
            own: bob.endpoint, remote: alice.endpoint, sign: mallory.sign)
        var pair = try MachinePair(responder: agreement)
        pair.open()
        // The transcript is the same, so only the signature differs.
        #expect(pair.ends(.initiator) == [.notAuthentic])
        #expect(impostor.identity != bob.endpoint.identity)
        // The same for the initiator.
        let caller = PeerAgreement(
            connection: agreement.connection, secret: agreement.secret, transport: "test", role: .initiator,
            own: alice.endpoint, remote: bob.endpoint, sign: mallory.sign)
        var other = try MachinePair(initiator: caller)
        other.open()
        #expect(other.ends(.responder) == [.notAuthentic])
        #expect(!other.responder.isOpen)
    }

    /// Both sides believe to be the initiator, or both the responder.
    @Test func swappedEndsAreRefused() throws {
        var pair = try MachinePair(responder: try MachinePair.agreement(.initiator, bob, alice))
        pair.open()
        #expect(pair.ends(.initiator) == [.malformed] && pair.ends(.responder) == [.malformed])
        var silent = try MachinePair(initiator: try MachinePair.agreement(.responder, alice, bob))
        silent.open()
        #expect(silent.log.isEmpty)
        silent.now += 10_000
        silent.tick()
        #expect(silent.ends(.initiator) == [.handshakeTimeout] && silent.ends(.responder) == [.handshakeTimeout])
    }

    /// A recorded connection, played to either side of a new one with the same id and secret.
    @Test func aReplayedHandshakeIsRefused() throws {
        var recorded = try MachinePair(seed: 1)
        recorded.open()
        try recorded.send([1], by: .initiator)
        for side in MachinePair.Side.allCases {
            var pair = try MachinePair(seed: 2)
            pair.connect()
            pair.queues = [:]
            for (to, packet) in recorded.log where to == side { pair.receive(packet, at: side) }
            #expect(!pair.isOpen(side))
            #expect(pair.ends(side) == [.notAuthentic])
            let delivered = pair.seen[side]?.contains { if case .deliver = $0 { true } else { false } }
            #expect(delivered != true)
        }
    }

    /// A side that receives its own packets back opens nothing and shows none of its messages as the other person's.
    @Test func reflectedPacketsAreRefused() throws {
        var pair = try MachinePair()
        pair.connect()
        pair.receive(pair.log[0].packet, at: .initiator)
        #expect(pair.ends(.initiator) == [.malformed])
        var open = try MachinePair()
        open.open()
        try open.send([1, 2, 3], by: .initiator)
        let own = try #require(open.log.last?.packet)
        open.receive(own, at: .initiator)
        #expect(open.ends(.initiator) == [.notAuthentic])
        #expect(open.seen[.initiator]?.count == 2)
    }

    /// The handshake in the middle of a connection does not reset its keys.
    @Test func aSecondHandshakeEndsTheConnection() throws {
        for place in 0..<3 {
            var pair = try MachinePair()
            pair.open()
            let (side, packet) = pair.log[place]
            pair.receive(packet, at: side)
            #expect(pair.ends(side) == [.malformed])
        }
    }

    @Test func anotherVersionIsRefused() throws {
        for (place, side) in [(0, MachinePair.Side.responder), (1, .initiator)] {
            for version: UInt8 in [0, 2, 255] {
                var pair = try MachinePair()
                pair.open()
                var packet = pair.log[place].packet
                packet[1] = version
                var fresh = try MachinePair()
                fresh.connect()
                fresh.receive(packet, at: side)
                #expect(fresh.ends(side) == [.otherVersion])
            }
        }
    }

    @Test func keysThatYieldNoSecretAreRefused() throws {
        for key in [
            [UInt8](repeating: 0, count: 32), [1] + [UInt8](repeating: 0, count: 31),
            [UInt8](repeating: 255, count: 32),
        ] {
            var pair = try MachinePair()
            pair.connect()
            var hello = pair.log[0].packet
            hello.replaceSubrange(18..<50, with: key)
            pair.receive(hello, at: .responder)
            #expect(pair.ends(.responder) == [.notAuthentic])
        }
    }

    /// Every bit of every packet of handshake and record counts.
    @Test func everyFlippedBitIsRefused() throws {
        var model = try MachinePair()
        model.open()
        try model.send([1, 2, 3], by: .initiator)
        for (place, entry) in model.log.enumerated() {
            for bit in 0..<entry.packet.count * 8 where place == 3 || bit.isMultiple(of: 5) || bit < 32 {
                var pair = try MachinePair()
                pair.connect()
                // The packets before the altered one arrive as they are.
                while pair.log.count <= place {
                    guard let side = MachinePair.Side.allCases.first(where: { pair.queues[$0]?.isEmpty == false })
                    else {
                        try pair.send([1, 2, 3], by: .initiator)
                        break
                    }
                    pair.receive(pair.queues[side, default: []].removeFirst(), at: side)
                }
                var packet = pair.log[place].packet
                packet[bit / 8] ^= 1 << (bit % 8)
                // The altered packet takes the place of the original.
                let (to, packets) = (entry.to, pair.queues[entry.to] ?? [])
                for earlier in packets.dropLast() { pair.receive(earlier, at: to) }
                pair.queues[to] = []
                pair.receive(packet, at: to)
                // The responder cannot know the initiator's ephemeral key; the initiator finds the change.
                pair.deliver()
                #expect(
                    (pair.ends(.initiator) + pair.ends(.responder)).count == 1, "packet \(place), bit \(bit)")
                #expect(!pair.isOpen(to), "packet \(place), bit \(bit)")
                let delivered = pair.seen[to]?.contains { if case .deliver = $0 { true } else { false } }
                #expect(delivered == false)
            }
        }
    }

    @Test func aPeerThatNeverFinishesIsCutOff() throws {
        for count in 0..<3 {
            var pair = try MachinePair()
            pair.connect()
            for _ in 0..<count {
                guard let side = MachinePair.Side.allCases.first(where: { pair.queues[$0]?.isEmpty == false }) else {
                    break
                }
                pair.receive(pair.queues[side, default: []].removeFirst(), at: side)
            }
            pair.now += 9_999
            pair.tick()
            #expect(pair.ends(.responder).isEmpty)
            pair.now += 1
            pair.tick()
            #expect(pair.ends(.responder) == [.handshakeTimeout])
            #expect(pair.ends(.initiator) == (count == 2 ? [] : [.handshakeTimeout]))
        }
    }

    // MARK: Messages

    @Test func acknowledgementsAreThoseOfTheApp() throws {
        var pair = try MachinePair()
        pair.open()
        for number in 1...3 { try pair.send([UInt8(number)], by: .initiator) }
        pair.deliver()
        // Delivered is not taken.
        #expect(pair.seen[.initiator] == [.opened])
        pair.take(2, by: .responder)
        pair.deliver()
        #expect(pair.seen[.initiator] == [.opened, .acknowledged(2)])
        for number: UInt64 in [0, 1, 2, 4, .max] { pair.take(number, by: .responder) }
        pair.take(3, by: .responder)
        pair.deliver()
        #expect(pair.seen[.initiator] == [.opened, .acknowledged(2), .acknowledged(3)])
    }

    @Test func aMessageThatIsNotTakenEndsTheConnection() throws {
        var pair = try MachinePair()
        pair.open()
        try pair.send([1], by: .initiator)
        pair.deliver()
        // The status keeps the connection in use.
        for _ in 0..<3 {
            pair.now += 9_999
            pair.run(try pair.responder.send(status: 1, metadata: [], now: pair.now), of: .responder)
            pair.deliver()
            pair.tick()
        }
        #expect(pair.isOpen(.initiator))
        pair.now += 3
        pair.tick()
        #expect(pair.ends(.initiator) == [.notTaken])
        pair.deliver()
        #expect(pair.ends(.responder) == [.closedByPeer])
    }

    @Test func theWindowBoundsASender() throws {
        var pair = try MachinePair()
        pair.open()
        for _ in 0..<PeerLimits.window { try pair.send([1], by: .initiator) }
        #expect(throws: PeerRefusal.windowFull) { try pair.send([1], by: .initiator) }
        pair.deliver()
        pair.take(1, by: .responder)
        pair.deliver()
        try pair.send([1], by: .initiator)
        #expect(throws: PeerRefusal.windowFull) { try pair.send([1], by: .initiator) }
    }

    @Test func messagesHaveABoundedLength() throws {
        var pair = try MachinePair()
        pair.open()
        let longest = [UInt8](repeating: 7, count: PeerLimits.messageLimit)
        try pair.send(longest, by: .initiator)
        #expect((pair.log.last?.packet.count ?? 0) <= PeerLimits.packetLimit)
        pair.deliver()
        #expect(pair.seen[.responder] == [.opened, .deliver(1, longest)])
        #expect(throws: PeerRefusal.tooLong) { try pair.send(longest + [1], by: .initiator) }
        let metadata = [UInt8](repeating: 7, count: PeerLimits.metadataLimit + 1)
        #expect(throws: PeerRefusal.tooLong) {
            _ = try pair.initiator.send(status: 0, metadata: metadata, now: pair.now)
        }
    }

    /// A transport that loses, repeats or reorders packets ends the connection; no message is lost without a notice.
    @Test func lostRepeatedAndReorderedPacketsEndTheConnection() throws {
        let orders: [[Int]] = [[1], [0, 0], [1, 0], [0, 2]]
        for order in orders {
            var pair = try MachinePair()
            pair.open()
            for number in 0..<3 { try pair.send([UInt8(number)], by: .initiator) }
            let packets = pair.log.suffix(3).map(\.packet)
            for place in order { pair.receive(packets[place], at: .responder) }
            #expect(pair.ends(.responder) == [.notAuthentic], "\(order)")
        }
    }

    // MARK: Ends

    @Test func aCleanEndIsToldFromALoss() throws {
        var pair = try MachinePair()
        pair.open()
        pair.run(pair.initiator.close(), of: .initiator)
        pair.deliver()
        #expect(pair.ends(.initiator) == [.closed] && pair.ends(.responder) == [.closedByPeer])
        var lost = try MachinePair()
        lost.open()
        lost.run(lost.responder.disconnected(), of: .responder)
        #expect(lost.ends(.responder) == [.lost])
    }

    @Test func idleConnectionsAreClosedAndBusyOnesAreNot() throws {
        var pair = try MachinePair()
        pair.open()
        for number: UInt64 in 1...20 {
            pair.now += 20_000
            try pair.send([1], by: .initiator)
            pair.deliver()
            pair.take(number, by: .responder)
            pair.deliver()
            pair.tick()
        }
        #expect(pair.isOpen(.initiator) && pair.isOpen(.responder))
        pair.now += 30_000
        pair.run(pair.responder.tick(now: pair.now), of: .responder)
        pair.deliver()
        #expect(pair.ends(.responder) == [.idle] && pair.ends(.initiator) == [.closedByPeer])
    }

    @Test func anEndedConnectionDoesNothing() throws {
        var pair = try MachinePair()
        pair.open()
        try pair.send([1], by: .initiator)
        let packet = try #require(pair.log.last?.packet)
        pair.run(pair.responder.close(), of: .responder)
        let count = pair.log.count
        pair.receive(packet, at: .responder)
        pair.take(1, by: .responder)
        pair.run(pair.responder.close(), of: .responder)
        pair.run(pair.responder.disconnected(), of: .responder)
        pair.now += 1_000_000
        pair.run(pair.responder.tick(now: pair.now), of: .responder)
        pair.run(pair.responder.connected(random: &pair.random, now: pair.now), of: .responder)
        #expect(pair.log.count == count && pair.ends(.responder) == [.closed])
        #expect(throws: PeerRefusal.notOpen) { try pair.send([1], by: .responder) }
        #expect(throws: PeerRefusal.notOpen) { _ = try pair.responder.send(status: 0, metadata: [], now: 0) }
    }

    /// A peer with the right keys that does not keep to the protocol: its own machine is replaced by packets.
    @Test func randomPacketsEndTheConnectionAndNothingElse() throws {
        var generator = SeededGenerator(seed: 151)
        for round in 0..<3000 {
            var pair = try MachinePair(seed: UInt64(round))
            pair.connect()
            let isOpen = round.isMultiple(of: 2)
            if isOpen { pair.deliver() }
            let side: MachinePair.Side = round % 3 == 0 ? .initiator : .responder
            var packet = generator.bytes(generator.below(130))
            if !packet.isEmpty { packet[0] = UInt8(generator.below(6)) }
            if packet.count > 1 { packet[1] = UInt8(generator.below(3)) }
            pair.receive(packet, at: side)
            #expect(pair.ends(side).count == 1 && !pair.isOpen(side))
        }
    }

    /// The agreement and the packets show no secret in their description.
    @Test func secretsAreNotDescribed() throws {
        let agreement = try MachinePair.agreement(.initiator, alice, bob, secret: 0xAB)
        var pair = try MachinePair(initiator: agreement)
        pair.open()
        for text in ["\(agreement)", "\(pair.initiator)", String(reflecting: pair.initiator)] {
            #expect(!text.contains("171, 171") && !text.contains("abab"))
        }
    }
}
