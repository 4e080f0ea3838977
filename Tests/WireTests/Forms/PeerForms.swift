import Envelope
import TestKit

@testable import DoubleRatchet
@testable import PeerConnection

/// Packets and frames of direct connections, and the machine of a connection against what a network or a peer sends.
enum PeerForms {
    static let readers: [FormProgramme.Reader] = [
        { try packet(&$0) }, { try frame(&$0) }, { try stream(&$0) }, { try handshake(&$0) }, { try connection(&$0) },
        { try hostilePeer(&$0) }, { try hexadecimal(&$0) },
    ]

    // MARK: Forms

    private static func packet(_ input: inout FormInput) throws {
        let signature = [UInt8](repeating: 3, count: PeerPacket.sealedSignature)
        let genuine: PeerPacket =
            switch input.byte() % 4 {
            case 0: .hello(connection: agreement(.initiator).connection, Bytes32([UInt8](repeating: 4, count: 32)))
            case 1: .answer(Bytes32([UInt8](repeating: 4, count: 32)), signature)
            case 2: .finish(signature)
            default: .record([UInt8](repeating: 1, count: 17 + input.byte()))
            }
        try demand((try? PeerPacket(genuine.bytes)) == genuine, "a packet is read as another")
        let bytes = input.changed(genuine.bytes)
        guard let read = try? PeerPacket(bytes) else { return }
        try demand(read.bytes == bytes, "a packet is written in other bytes")
    }

    private static func frame(_ input: inout FormInput) throws {
        let genuine: PeerFrame =
            switch input.byte() % 4 {
            case 0: .message(UInt64(1 + input.number()), input.take(input.byte() % 9))
            case 1: .taken(UInt64(1 + input.number()))
            case 2: .status(flags: UInt8(input.byte()), metadata: input.take(input.byte() % 9))
            default: .end
            }
        try demand((try? PeerFrame(genuine.bytes)) == genuine, "a frame is read as another")
        let bytes = input.changed(genuine.bytes)
        guard let read = try? PeerFrame(bytes) else { return }
        try demand(read.bytes == bytes, "a frame is written in other bytes")
    }

    private static func read(_ bytes: [UInt8], _ size: Int, limit: Int) throws -> (
        packets: [[UInt8]], isMalformed: Bool
    ) {
        var (reader, packets, isMalformed) = (PacketReader(limit: limit), [[UInt8]](), false)
        try FormInput.divide(bytes, size) { piece in
            reader.append(piece)
            do throws(PeerEnd) {
                while let packet = try reader.next() { packets.append(packet) }
            } catch {
                isMalformed = true
            }
            try demand(reader.waiting < limit + PacketReader.headSize, "packets fill the memory")
            return true
        }
        if isMalformed {
            reader.append([0, 0, 0, 1, 7])
            try demand(reader.waiting == 0 && (try? reader.next()) == nil, "a reader that has failed reads on")
        }
        return (packets, isMalformed)
    }

    /// A stream in pieces has the packets of the whole.
    private static func stream(_ input: inout FormInput) throws {
        let limit = 1 + input.byte() % 40
        let packets = (0..<input.byte() % 4).map { _ in
            [UInt8](repeating: UInt8(input.byte()), count: 1 + input.byte() % limit)
        }
        let genuine = packets.flatMap { PacketReader.head(of: $0) + $0 }
        try demand(try read(genuine, 1 + input.byte(), limit: limit) == (packets, false), "packets are read as others")
        let bytes = input.changed(genuine)
        let whole = try read(bytes, bytes.count, limit: limit)
        for size in [1, 5] {
            try demand(try read(bytes, size, limit: limit) == whole, "packets in pieces are other packets")
        }
        let written = whole.packets.flatMap { PacketReader.head(of: $0) + $0 }
        try demand(bytes.starts(with: written), "packets are written in other bytes")
        try demand(whole.packets.allSatisfy { (1...limit).contains($0.count) }, "a packet over its limit")
    }

    private static func hexadecimal(_ input: inout FormInput) throws {
        let bytes = input.take()
        try demand(Hexadecimal.bytes(Hexadecimal.text(bytes)) == bytes, "bytes come back as others")
        let text = String(decoding: bytes, as: UTF8.self)
        guard let read = Hexadecimal.bytes(text) else { return }
        try demand(Hexadecimal.text(read) == text.lowercased(), "digits are read as others")
    }

    // MARK: Machines

    private static func agreement(_ role: PeerRole) -> PeerAgreement {
        let (first, second) = (FormDevice.all[0], FormDevice.all[1])
        let devices = role == .initiator ? [first, second] : [second, first]
        let ends = devices.map { PeerEndpoint(device: $0.id.value, identity: $0.identity.publicKey) }
        guard let connection = PeerConnectionID([UInt8](repeating: 1, count: 16)), case let own = devices[0]
        else {
            preconditionFailure("the id has its length")
        }
        return PeerAgreement(
            connection: connection,
            secret: SecretBytes(count: 32) { $0.copyBytes(from: [UInt8](repeating: 2, count: 32)) }, transport: "test",
            role: role, own: ends[0], remote: ends[1], sign: { own.sign($0, $1) })
    }

    private static func packets(_ actions: [PeerAction]) -> [[UInt8]] {
        actions.compactMap { if case .transmit(let packet) = $0 { packet } else { nil } }
    }

    /// What only an authentic packet may do.
    private static func isEffect(_ action: PeerAction) -> Bool {
        switch action {
        case .opened, .deliver, .acknowledged, .status: true
        case .transmit, .ended: false
        }
    }

    fileprivate struct Pair {
        var random = SeededGenerator(seed: 6)
        var machines: [PeerConnectionMachine]
        var sent: [[[UInt8]]] = [[], []]

        init() {
            machines = [.initiator, .responder].map { PeerConnectionMachine(PeerForms.agreement($0), now: 0) }
            for side in 0..<2 {
                sent[side] += PeerForms.packets(machines[side].connected(random: &random, now: 0))
            }
        }

        /// Brings the next packet of a side to the other one; nil if there is none.
        mutating func deliver(from side: Int) -> [PeerAction]? {
            guard !sent[side].isEmpty else { return nil }
            let packet = sent[side].removeFirst()
            return receive(packet, at: 1 - side)
        }

        mutating func receive(_ packet: [UInt8], at side: Int) -> [PeerAction] {
            let actions = machines[side].received(packet, random: &random, now: 1)
            sent[side] += PeerForms.packets(actions)
            return actions
        }
    }

    /// An open pair, made once. The states of a handshake have their keys behind tagged pointers, in which the sanitizer of
    /// leaks finds none (Swift 6.3): they cannot be kept in the same way.
    private static let opened: Pair = {
        var pair = Pair()
        for step in 0..<3 { _ = pair.deliver(from: step % 2) }
        return pair
    }()

    /// A packet that the other side has not sent in this place ends a machine, and has no other effect.
    private static func attack(_ pair: Pair, _ packet: [UInt8], at side: Int, answers: Bool) throws {
        var pair = pair
        let actions = pair.receive(packet, at: side)
        try demand(!actions.contains(where: isEffect), "a packet of another has an effect")
        if pair.machines[side].isEnded {
            guard case .ended? = actions.last, actions.count == 1 else {
                throw FormFinding(description: "an end with other actions")
            }
            try demand(pair.receive(packet, at: side).isEmpty, "an ended connection acts")
            try demand((try? pair.machines[side].send([1], now: 1)) == nil, "an ended connection sends")
        } else {
            // A sender that knows the id of the connection gets an answer, and no more.
            try demand(answers && pair.packetsOnly(actions), "a packet of another is accepted")
            try demand(!pair.machines[side].isOpen, "a packet of another opens a connection")
        }
    }

    /// Each packet of a handshake, changed on its way.
    private static func handshake(_ input: inout FormInput) throws {
        let place = input.byte() % 3
        var pair = Pair()
        for step in 0..<place { _ = pair.deliver(from: step % 2) }
        let goesOn = input.byte() % 8 == 0
        guard let genuine = pair.sent[place % 2].first else { throw FormFinding(description: "a handshake stops") }
        let packet = input.changed(genuine)
        if packet != genuine { try attack(pair, packet, at: 1 - place % 2, answers: place == 0) }
        // The other state goes on.
        guard goesOn else { return }
        for step in place..<3 { _ = pair.deliver(from: step % 2) }
        try demand(pair.machines.allSatisfy(\.isOpen), "a genuine handshake fails")
    }

    /// An open connection: messages and their acknowledgements, of which one packet is changed, left out or sent twice.
    private static func connection(_ input: inout FormInput) throws {
        var pair = opened
        try demand(pair.machines.allSatisfy(\.isOpen), "a genuine handshake fails")
        var (delivered, taken): ([UInt64], [UInt64]) = ([0, 0], [0, 0])
        for _ in 0..<input.byte() % 6 {
            let side = input.byte() % 2
            switch input.byte() % 3 {
            case 0: pair.sent[side] += packets(try pair.machines[side].send(input.take(3), now: 1).actions)
            case 1:
                for action in pair.deliver(from: side) ?? [] {
                    guard case .deliver(let number, _) = action else { continue }
                    try demand(number == delivered[1 - side] + 1, "a message twice or too early")
                    delivered[1 - side] = number
                }
            default:
                taken[side] = delivered[side]
                pair.sent[side] += packets(pair.machines[side].taken(taken[side], now: 1))
            }
            try demand(pair.machines.allSatisfy(\.isOpen), "a genuine packet ends a connection")
        }
        let side = input.byte() % 2
        if pair.sent[side].isEmpty { pair.sent[side] += packets(try pair.machines[side].send([9], now: 1).actions) }
        let genuine = pair.sent[side][0]
        switch input.byte() % 3 {
        case 0:
            let packet = input.changed(genuine)
            if packet != genuine { try attack(pair, packet, at: 1 - side, answers: false) }
        case 1:
            _ = pair.deliver(from: side)
            try attack(pair, genuine, at: 1 - side, answers: false)
        default:
            if pair.sent[side].count > 1 { try attack(pair, pair.sent[side][1], at: 1 - side, answers: false) }
        }
    }

    /// A machine that is open, and the keys of its peer.
    private static let hostile = Result { () throws -> (machine: PeerConnectionMachine, keys: PeerKeys) in
        var random = SeededGenerator(seed: 7)
        let agreement = Self.agreement(.initiator)
        var machine = PeerConnectionMachine(Self.agreement(.responder), now: 0)
        _ = machine.connected(random: &random, now: 0)
        let key = AgreementKeyPair(random: &random)
        let hello = PeerPacket.hello(connection: agreement.connection, key.publicKey.bytes)
        guard let answer = packets(machine.received(hello.bytes, random: &random, now: 0)).first,
            case .answer(let remote, let signature) = try PeerPacket(answer)
        else { throw FormFinding(description: "no answer") }
        let keys = try PeerKeys(agreement, own: key, remote: remote)
        try keys.verify(signature, agreement)
        let finish = PeerPacket.finish(keys.signature(agreement))
        try demand(machine.received(finish.bytes, random: &random, now: 0) == [.opened], "no connection")
        return (machine, keys)
    }

    /// A listed device that has all keys and seals frames of its own making.
    private static func hostilePeer(_ input: inout FormInput) throws {
        var random = SeededGenerator(seed: 7)
        let (opened, keys) = try hostile.get()
        var machine = opened
        for number in 0..<3 { try demand(try machine.send([9], now: 0).number == UInt64(number + 1), "other numbers") }
        var (records, last, taken, acknowledged): (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
        for _ in 0..<100 where !input.isAtEnd {
            let frame: [UInt8] =
                switch input.byte() % 5 {
                case 0: PeerFrame.message(last + 1, [1]).bytes
                case 1: PeerFrame.message(UInt64(1 + input.byte()), [1]).bytes
                case 2: PeerFrame.taken(UInt64(1 + input.byte() % 5)).bytes
                case 3: PeerFrame.status(flags: 1, metadata: input.take(3)).bytes
                default: input.take(input.byte() % 14)
                }
            var (nonce, sealed): ([UInt8], [UInt8]) = ([0, 0, 0, 0], [])
            nonce.append(networkOrder: records)
            records += 1
            frame.withUnsafeBytes {
                Primitives.seal($0, key: keys.fromInitiator, nonce: nonce, authenticating: [4], into: &sealed)
            }
            let actions = machine.received(PeerPacket.record(sealed).bytes, random: &random, now: 1)
            try demand(actions.count == 1, "a frame has several effects")
            switch actions[0] {
            case .deliver(let number, _):
                try demand(number == last + 1 && number - taken <= UInt64(PeerLimits.window), "a message in no place")
                last = number
                if input.byte() % 2 == 0 {
                    taken = last
                    try demand(machine.taken(last, now: 1).count == 1, "no acknowledgement")
                }
            case .acknowledged(let number):
                try demand(number > acknowledged && number <= 3, "a message that was not sent is acknowledged")
                acknowledged = number
            case .status: break
            case .ended: return try demand(machine.isEnded, "an end that is none")
            case .transmit, .opened: throw FormFinding(description: "an open connection opens or answers")
            }
        }
    }
}

extension PeerForms.Pair {
    fileprivate func packetsOnly(_ actions: [PeerAction]) -> Bool {
        actions.allSatisfy { if case .transmit = $0 { true } else { false } }
    }
}
