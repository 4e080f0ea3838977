import DoubleRatchet
import PeerConnection
import TestKit

/// A device as connections know it.
struct TestDevice: Sendable {
    let endpoint: PeerEndpoint
    private let seed: [UInt8]

    init(_ id: UInt64) {
        var random = SeededGenerator(seed: id)
        let identity = IdentityKeyPair(random: &random)
        endpoint = PeerEndpoint(device: id, identity: identity.publicKey)
        var seed: [UInt8] = []
        identity.serialize(into: &seed)
        self.seed = seed
    }

    func sign(_ message: [UInt8], _ context: String) -> [UInt8] {
        guard let identity = try? IdentityKeyPair(seed: seed.span) else { return [] }
        return identity.sign(message.span, context: context)
    }
}

/// Two machines and the packets between them.
struct MachinePair {
    enum Side: CaseIterable { case initiator, responder }

    var random: SeededGenerator
    var now: Int64 = 1000
    var initiator: PeerConnectionMachine
    var responder: PeerConnectionMachine
    /// Packets on their way to each side.
    var queues: [Side: [[UInt8]]] = [.initiator: [], .responder: []]
    /// What each side was told, without packets.
    var seen: [Side: [PeerAction]] = [.initiator: [], .responder: []]
    /// All packets that were sent.
    var log: [(to: Side, packet: [UInt8])] = []

    static func agreement(
        _ role: PeerRole, _ own: TestDevice, _ remote: TestDevice, connection: UInt8 = 1, secret: UInt8 = 2,
        transport: String = "test"
    ) throws -> PeerAgreement {
        guard let id = PeerConnectionID([UInt8](repeating: connection, count: 16)) else { throw PeerEnd.malformed }
        return PeerAgreement(
            connection: id, secret: SecretBytes(copying: [UInt8](repeating: secret, count: 32)), transport: transport,
            role: role, own: own.endpoint, remote: remote.endpoint, sign: own.sign)
    }

    /// A pair that agrees, except for what the arguments change.
    init(
        seed: UInt64 = 1, initiator: PeerAgreement? = nil, responder: PeerAgreement? = nil,
        limits: PeerLimits = PeerLimits()
    ) throws {
        random = SeededGenerator(seed: seed)
        let (alice, bob) = (TestDevice(1), TestDevice(2))
        self.initiator = PeerConnectionMachine(
            try initiator ?? Self.agreement(.initiator, alice, bob), limits: limits, now: now)
        self.responder = PeerConnectionMachine(
            try responder ?? Self.agreement(.responder, bob, alice), limits: limits, now: now)
    }

    mutating func connect() {
        let first = initiator.connected(random: &random, now: now)
        let second = responder.connected(random: &random, now: now)
        run(first, of: .initiator)
        run(second, of: .responder)
    }

    /// Connects, and brings all packets to their side.
    mutating func open() {
        connect()
        deliver()
    }

    mutating func run(_ actions: [PeerAction], of side: Side) {
        let other: Side = side == .initiator ? .responder : .initiator
        for action in actions {
            if case .transmit(let packet) = action {
                queues[other, default: []].append(packet)
                log.append((other, packet))
            } else {
                seen[side, default: []].append(action)
            }
        }
    }

    mutating func receive(_ packet: [UInt8], at side: Side) {
        let actions =
            side == .initiator
            ? initiator.received(packet, random: &random, now: now)
            : responder.received(packet, random: &random, now: now)
        run(actions, of: side)
    }

    mutating func deliver() {
        while let side = Side.allCases.first(where: { queues[$0]?.isEmpty == false }) {
            let packet = queues[side, default: []].removeFirst()
            receive(packet, at: side)
        }
    }

    mutating func send(_ message: [UInt8], by side: Side) throws {
        let sent =
            side == .initiator
            ? try initiator.send(message, now: now) : try responder.send(message, now: now)
        run(sent.actions, of: side)
    }

    mutating func take(_ number: UInt64, by side: Side) {
        let actions =
            side == .initiator ? initiator.taken(number, now: now) : responder.taken(number, now: now)
        run(actions, of: side)
    }

    mutating func tick() {
        run(initiator.tick(now: now), of: .initiator)
        run(responder.tick(now: now), of: .responder)
    }

    func ends(_ side: Side) -> [PeerEnd] {
        (seen[side] ?? []).compactMap { action in if case .ended(let end) = action { end } else { nil } }
    }

    func isOpen(_ side: Side) -> Bool { side == .initiator ? initiator.isOpen : responder.isOpen }
}

extension SecretBytes {
    convenience init(copying bytes: [UInt8]) {
        self.init(count: bytes.count) { $0.copyBytes(from: bytes) }
    }
}
