import DoubleRatchet
import Envelope
import PawlMessenger
import PeerConnection
import TestKit
import TestThreads
import Testing

/// Direct connections with a program that was written from the page.
@Suite(.blocking) struct WireConnectionTests {
    private static let theirID = DeviceID(0xFFEE_DDCC_BBAA_9988)
    private static let (connection, secret) = ([UInt8](repeating: 3, count: 16), [UInt8](repeating: 4, count: 32))
    private static let transport = "TCP"

    private func machine(_ role: PeerRole, _ ours: WireDevice, _ key: [UInt8]) throws -> PeerConnectionMachine {
        let secret = Self.secret.withUnsafeBytes { SecretBytes(copying: $0) }
        var seed: [UInt8] = []
        ours.identity.serialize(into: &seed)
        let identity = seed
        return PeerConnectionMachine(
            PeerAgreement(
                connection: try #require(PeerConnectionID(Self.connection)), secret: secret,
                transport: Self.transport, role: role,
                own: PeerEndpoint(device: ours.id.value, identity: ours.identity.publicKey),
                remote: PeerEndpoint(device: Self.theirID.value, identity: try IdentityKey(key.span))
            ) { message, context in
                (try? IdentityKeyPair(seed: identity.span))?.sign(message.span, context: context) ?? []
            }, now: 0)
    }

    /// The packet that the actions send.
    private static func packet(_ actions: [PeerAction]) throws -> [UInt8] {
        let packets: [[UInt8]] = actions.compactMap { if case .transmit(let packet) = $0 { packet } else { nil } }
        return try #require(packets.first)
    }

    /// Whether an altered packet ends the connection of a copy.
    private func rejects(_ packet: [UInt8], _ machine: PeerConnectionMachine, _ ours: WireDevice) -> Bool {
        var copy = machine
        _ = copy.received(packet, random: &ours.random, now: 1)
        return copy.isEnded
    }

    private func begin(_ peer: WirePeer, _ ours: WireDevice, weInitiate: Bool) throws -> [String] {
        try peer.ask(
            "connection", "c", weInitiate ? 0 : 1, "d", Self.theirID, ours.id, ours.key, Self.connection, Self.secret,
            Array(Self.transport.utf8))
    }

    @Test func weInitiate() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        var machine = try machine(.initiator, ours, try peer.bytes("device", "d"))
        _ = try begin(peer, ours, weInitiate: true)
        let hello = try Self.packet(machine.connected(random: &ours.random, now: 0))
        // An altered key shows when the other side's signature does not fit.
        for other in hello.prefix(18).map({ $0 }).altered { #expect(try peer.refuses("connection_hello", "c", other)) }
        var otherKey = hello
        otherKey[40] ^= 1
        #expect(rejects(try peer.bytes("connection_hello", "c", otherKey), machine, ours))
        let answer = try peer.bytes("connection_hello", "c", hello)
        for other in answer.altered { #expect(rejects(other, machine, ours)) }
        let actions = machine.received(answer, random: &ours.random, now: 1)
        #expect(actions.contains(.opened))
        let finish = try Self.packet(actions)
        for other in finish.altered { #expect(try peer.refuses("connection_finish", "c", other)) }
        try peer.ask("connection_finish", "c", finish)
        try talk(peer, ours, &machine)
    }

    @Test func theyInitiate() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        var machine = try machine(.responder, ours, try peer.bytes("device", "d"))
        let hello = try WirePeer.bytes(try begin(peer, ours, weInitiate: false)[0])
        #expect(machine.connected(random: &ours.random, now: 0).isEmpty)
        for other in Array(hello.prefix(18)).altered { #expect(rejects(other, machine, ours)) }
        var (forged, otherKey) = (machine, hello)
        otherKey[40] ^= 1
        let wrong = try Self.packet(forged.received(otherKey, random: &ours.random, now: 1))
        #expect(try peer.refuses("connection_answer", "c", wrong))
        let answer = try Self.packet(machine.received(hello, random: &ours.random, now: 1))
        for other in answer.altered { #expect(try peer.refuses("connection_answer", "c", other)) }
        let finish = try peer.bytes("connection_answer", "c", answer)
        for other in finish.altered { #expect(rejects(other, machine, ours)) }
        #expect(machine.received(finish, random: &ours.random, now: 1) == [.opened])
        try talk(peer, ours, &machine)
    }

    /// Frames of every kind in both directions.
    private func talk(_ peer: WirePeer, _ ours: WireDevice, _ machine: inout PeerConnectionMachine) throws {
        for number in 1...3 {
            let (count, actions) = try machine.send([UInt8(number)], now: 2)
            #expect(count == UInt64(number))
            let record = try Self.packet(actions)
            for other in record.altered { #expect(try peer.refuses("connection_open", "c", other)) }
            #expect(try peer.ask("connection_open", "c", record) == ["1", "\(number)", [UInt8(number)].word])
            let taken = try peer.bytes("connection_seal", "c", 2, number, [UInt8]())
            #expect(rejects(record, machine, ours))
            for other in taken.altered { #expect(rejects(other, machine, ours)) }
            #expect(machine.received(taken, random: &ours.random, now: 2) == [.acknowledged(UInt64(number))])
        }
        let status = try Self.packet(machine.send(status: 1, metadata: Array("{}".utf8), now: 2))
        #expect(try peer.ask("connection_open", "c", status) == ["3", "1", Array("{}".utf8).word])
        for number in 1...3 {
            let record = try peer.bytes("connection_seal", "c", 1, number, [UInt8(number)])
            let delivered = machine.received(record, random: &ours.random, now: 2)
            #expect(delivered == [.deliver(UInt64(number), [UInt8(number)])])
            let taken = try Self.packet(machine.taken(UInt64(number), now: 2))
            #expect(try peer.ask("connection_open", "c", taken) == ["2", "\(number)", "-"])
        }
        let typing = try peer.bytes("connection_seal", "c", 3, 1, Array("{}".utf8))
        let shown = machine.received(typing, random: &ours.random, now: 2)
        #expect(shown == [.status(flags: 1, metadata: Array("{}".utf8))])
        var copy = machine
        let end = try peer.bytes("connection_seal", "c", 4, 0, [UInt8]())
        #expect(copy.received(end, random: &ours.random, now: 2) == [.ended(.closedByPeer)])
        #expect(try peer.ask("connection_open", "c", try Self.packet(machine.close()))[0] == "4")
    }

    @Test func magicPacketsAreTheSame() throws {
        let peer = try WirePeer()
        let connection = try #require(PeerConnectionID(Self.connection))
        let other = try #require(PeerConnectionID([UInt8](repeating: 9, count: 16)))
        for (secret, instead) in [(Self.secret, nil), (nil, other)] as [([UInt8]?, PeerConnectionID?)] {
            let signal = P2PSignal(
                connection: connection, transport: Self.transport,
                kind: .packet(text: "a/\"b\"", metadata: P2PMetadata(json: #"{"version":1}"#), secret: secret),
                instead: instead)
            let words: [any WireWord] = [
                Self.connection, secret ?? [], Array(Self.transport.utf8), Array("a/\"b\"".utf8),
                Array(#"{"version":1}"#.utf8), instead?.bytes ?? [],
            ]
            #expect(try peer.ask("magic_read", Array(signal.text.utf8)) == ["packet"] + words.map(\.word))
            #expect(try P2PSignal(WirePeer.text(try peer.ask("magic_make", words)[0])) == signal)
        }
        let refused = P2PSignal(connection: connection, transport: Self.transport, kind: .refused)
        let words: [any WireWord] = [Self.connection, Array(Self.transport.utf8)]
        #expect(try peer.ask("magic_read", Array(refused.text.utf8)) == ["refused"] + words.map(\.word))
        #expect(try P2PSignal(WirePeer.text(try peer.ask("magic_refusal", words)[0])) == refused)
    }
}
