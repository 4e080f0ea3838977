import Foundation
import TestKit
import Testing

@testable import DoubleRatchet

/// Five devices, each talking with each, and a room among them, over a network that loses, delays, reorders and copies.
///
/// The model is the list of what was sent to whom: whatever arrives opens exactly once and to its own text, whatever arrives
/// again or changed is refused and leaves no trace. Devices begin sessions when they have something to say, also two at
/// once, and begin anew at will. Between any two operations a device is nothing but the bytes that it has stored.
@Suite("Five devices and a room over a bad network")
struct FiveDeviceTests {
    private static let seeds: ClosedRange<UInt64> =
        ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? 1...1 : 1...20

    @Test("10,000 messages", arguments: seeds) func conversation(seed: UInt64) throws {
        print("FiveDeviceTests seed \(seed)")
        let model = FiveDevices(seed: seed)
        while model.sent < 10_000 { try model.step() }
        try model.settle()
        print("FiveDeviceTests seed \(seed): \(model.figures)")
        let missing = model.arrived.subtracting(model.opened).count
        #expect(missing == 0, "seed \(seed): something that arrived was never opened")
        #expect(model.isBusy, "seed \(seed), the network was too kind: \(model.figures)")
    }
}

private final class FiveDevices {
    private enum Content {
        case direct([UInt8])
        case several([UInt8])
        case room([UInt8])
    }

    private struct Packet {
        let id: Int
        let from: Int
        let to: Int
        let content: Content
        var due: Int
    }

    /// One message for one reader.
    struct Delivery: Hashable {
        let id: Int
        let to: Int
    }

    private let seed: UInt64
    private let parties: [Party]
    private let rooms = (0..<5).map { _ in RoomMember() }
    private var random: SeededGenerator
    private var members = [0, 1, 2, 3]
    private var network: [Packet] = []
    /// Room messages whose key has not come.
    private var waiting: [Packet] = []
    private var texts: [Int: [UInt8]] = [:]
    private var time = 0
    private var lossUntil = 0
    private var lastBeginning: [Set<Int>: Int] = [:]
    private(set) var sent = 0
    private(set) var opened: Set<Delivery> = []
    private(set) var arrived: Set<Delivery> = []
    // What made it hard.
    private var (lost, copies, corrupted, beginnings, simultaneous, changes, outsiders) = (0, 0, 0, 0, 0, 0, 0)
    private var (largestRecord, largestRoom, mostPreKeys, mostSkipped) = (0, 0, 0, 0)

    init(seed: UInt64) {
        self.seed = seed
        random = SeededGenerator(seed: seed)
        parties = (0..<5).map { Party($0, seed: 7000 + seed) }
    }

    var figures: String {
        "\(sent) sent, \(lost) lost, \(copies) copies and \(corrupted) corrupted ones refused, \(beginnings) sessions begun, "
            + "\(simultaneous) at the same time, \(changes) changes in the room with \(rooms.reduce(0) { $0 + $1.rotations }) "
            + "keys, \(outsiders) tries of outsiders; largest record \(largestRecord) bytes without skipped keys, most skipped "
            + "keys \(mostSkipped), most rows of prekeys \(mostPreKeys), largest room \(largestRoom)"
    }

    var isBusy: Bool {
        lost > 500 && copies > 500 && corrupted > 500 && simultaneous > 5 && beginnings > 50 && changes > 20
            && outsiders > 100
    }

    /// A step is ten minutes, so that prekeys are rotated several times in a run.
    private var now: Int64 { Int64(time) * 600_000 }

    // MARK: Sending

    func step() throws {
        time += 1
        let from = random.below(5)
        switch random.below(40) {
        case 0: changeRoom()
        case 1: try beginAnew()
        case 2 where random.below(20) == 0: lossUntil = time + 50
        case 3..<8: try sendToSeveral(from)
        case 8..<22: if members.contains(from), members.count > 1 { try sendToRoom(from) }
        default: try send([0] + random.bytes(random.below(40)), from, others(of: from)[random.below(4)])
        }
        while let index = network.firstIndex(where: { $0.due <= time }) { try deliver(network.remove(at: index)) }
    }

    private func others(of name: Int) -> [Int] { (0..<5).filter { $0 != name } }

    private func bound(_ id: Int, _ from: Int, _ to: Int) -> [UInt8] {
        var data = [UInt8(from), UInt8(to)]
        data.append(networkOrder: UInt32(id))
        return data
    }

    private func post(_ id: Int, _ from: Int, _ to: Int, _ content: Content) {
        let packet = Packet(id: id, from: from, to: to, content: content, due: time + random.below(40))
        if random.below(12) == 0 || time < lossUntil { lost += 1 } else { network.append(packet) }
        if random.below(10) == 0, time >= lossUntil {
            var copy = packet
            copy.due += random.below(80)
            network.append(copy)
        }
    }

    private func newMessage(_ text: [UInt8]) -> Int {
        texts[sent] = text
        sent += 1
        return sent - 1
    }

    private func begin(_ from: Int, _ to: Int) throws {
        beginnings += 1
        lastBeginning[[from, to]] = time
        try parties[from].begin(with: parties[to], at: now)
        if let theirs = parties[to].records[from], try !SessionRecord(serialized: theirs.span).isEstablished {
            simultaneous += 1
        }
    }

    private func establish(_ from: Int, _ to: Int) throws {
        if parties[from].records[to] == nil { try begin(from, to) }
    }

    private func send(_ text: [UInt8], _ from: Int, _ to: Int) throws {
        try establish(from, to)
        let id = newMessage(text)
        let message = try parties[from].seal(text, to: parties[to], data: bound(id, from, to))
        post(id, from, to, .direct(message))
    }

    private func sendToSeveral(_ from: Int) throws {
        let text = [0] + random.bytes(random.below(60))
        let recipients = others(of: from).filter { _ in random.below(3) > 0 }
        for to in recipients { try establish(from, to) }
        let id = newMessage(text)
        let party = parties[from]
        var sealer = MultiRecipientSealer(
            text.span, associatedData: bound(id, from, 255), random: &party.random)
        for to in recipients {
            var record = try party.record(with: parties[to])
            try sealer.add(UInt64(to), &record, associatedData: bound(id, from, to), random: &party.random)
            party.keep(record, with: parties[to])
        }
        var bytes: [UInt8] = []
        sealer.finish().serialize(into: &bytes)
        for to in recipients { post(id, from, to, .several(bytes)) }
    }

    private func sendToRoom(_ from: Int) throws {
        let readers = members.filter { $0 != from }
        for (reader, distribution) in try rooms[from].distributions(to: readers, random: &parties[from].random) {
            try send([1] + distribution, from, reader)
        }
        let text = random.bytes(random.below(40))
        let id = newMessage(text)
        let message = try rooms[from].seal(text, data: bound(id, from, 254))
        for to in readers { post(id, from, to, .room(message)) }
        // Whoever has left, or has not come yet, gets hold of it.
        for outsider in others(of: from) where !members.contains(outsider) && random.below(3) == 0 {
            outsiders += 1
            #expect(throws: RatchetError.unknownSenderKey, "seed \(seed), message \(id)") {
                _ = try rooms[outsider].open(message, from: from, data: bound(id, from, 254))
            }
        }
    }

    private func changeRoom() {
        changes += 1
        let name = random.below(5)
        if let index = members.firstIndex(of: name) { members.remove(at: index) } else { members.append(name) }
    }

    /// Somebody wants a fresh session with somebody, or two want one at once. Not so often that what is on its way belongs to
    /// a session that is not kept any more.
    private func beginAnew() throws {
        let (one, two) = (random.below(5), random.below(5))
        guard one != two, time - (lastBeginning[[one, two]] ?? 0) > 300 else { return }
        try begin(one, two)
        try send([0, 1], one, two)
        if random.below(2) == 0 {
            try begin(two, one)
            try send([0, 2], two, one)
        }
    }

    // MARK: Receiving

    private func deliver(_ packet: Packet) throws {
        let delivery = Delivery(id: packet.id, to: packet.to)
        arrived.insert(delivery)
        if opened.contains(delivery) {
            copies += 1
            #expect(try isRefused(packet), "seed \(seed): message \(packet.id) opened twice")
            return
        }
        if random.below(4) == 0 {
            corrupted += 1
            #expect(try isRefused(changed(packet)), "seed \(seed): a changed message \(packet.id) was opened")
        }
        do {
            let text = try open(packet)
            #expect(text == texts[packet.id], "seed \(seed), message \(packet.id)")
            opened.insert(delivery)
            if case .direct = packet.content, text.first == 1 { try take(Array(text.dropFirst()), packet) }
        } catch RatchetError.unknownSenderKey {
            waiting.append(packet)
            try askAgain(packet)
        } catch {
            Issue.record("seed \(seed), message \(packet.id) from \(packet.from) to \(packet.to): \(error)")
        }
        try measure(packet.to, packet.from)
    }

    private func open(_ packet: Packet) throws -> [UInt8] {
        let (to, from) = (parties[packet.to], parties[packet.from])
        let data = bound(packet.id, packet.from, packet.to)
        switch packet.content {
        case .direct(let message): return try to.open(message, from: from, data: data, at: now)
        case .several(let bytes):
            let message = try MultiRecipientMessage(serialized: bytes.span)
            let wrapped = message.message(for: UInt64(packet.to)) ?? []
            let key = try to.open(wrapped, from: from, data: message.authenticated(data), at: now)
            var text: [UInt8] = []
            try message.openBody(
                contentKey: key.span, associatedData: bound(packet.id, packet.from, 255), into: &text)
            return text
        case .room(let message):
            return try rooms[packet.to].open(message, from: packet.from, data: bound(packet.id, packet.from, 254))
        }
    }

    private func isRefused(_ packet: Packet) throws -> Bool {
        let before = (parties[packet.to].records, parties[packet.to].preKeys)
        do {
            _ = try open(packet)
            return false
        } catch is RatchetError {
            return parties[packet.to].records == before.0 && parties[packet.to].preKeys == before.1
        }
    }

    private func changed(_ packet: Packet) -> Packet {
        func flipped(_ bytes: [UInt8]) -> [UInt8] {
            var bytes = bytes
            // What is in front may be the copy of the key for somebody else.
            bytes[bytes.count - 1 - random.below(17)] ^= UInt8(1 << random.below(8))
            return bytes
        }
        let content: Content =
            switch packet.content {
            case .direct(let bytes): .direct(flipped(bytes))
            case .several(let bytes): .several(flipped(bytes))
            case .room(let bytes): .room(flipped(bytes))
            }
        return Packet(id: packet.id, from: packet.from, to: packet.to, content: content, due: packet.due)
    }

    /// A key for the room has come: what has waited for it can be read.
    private func take(_ distribution: [UInt8], _ packet: Packet) throws {
        try rooms[packet.to].take(distribution, from: packet.from)
        let mine = waiting.filter { $0.to == packet.to && $0.from == packet.from }
        waiting.removeAll { $0.to == packet.to && $0.from == packet.from }
        for message in mine where !opened.contains(Delivery(id: message.id, to: message.to)) { try deliver(message) }
    }

    private func askAgain(_ packet: Packet) throws {
        guard case .room(let message) = packet.content else { return }
        let id = try message.withUnsafeBytes { (bytes) throws(RatchetError) in try SenderKeyMessage(bytes).keyID }
        guard let distribution = rooms[packet.from].distribution(of: id, to: packet.to) else {
            Issue.record("seed \(seed): message \(packet.id) went to somebody without its key")
            return
        }
        try send([1] + distribution, packet.from, packet.to)
    }

    /// What is stored is bounded but for the keys of messages that have not come and the chains that those wait in.
    private func measure(_ name: Int, _ peer: Int) throws {
        if let state = parties[name].records[peer] {
            let skipped = try SessionRecord(serialized: state.span).skippedCount
            // A chain of which only the keys of late messages are left takes 36 bytes.
            let chains = 3 * (RatchetLimits.maximumWaitingChains - RatchetLimits.maximumRememberedChains)
            let size = state.count - FinishedChains.keySize * skipped
            #expect(size <= 3 * 2472 + 16 + 36 * chains, "seed \(seed)")
            (largestRecord, mostSkipped) = (max(largestRecord, size), max(mostSkipped, skipped))
        }
        let room = try rooms[name].size
        #expect(room <= 105 + 4 * 4 * 79, "seed \(seed)")
        largestRoom = max(largestRoom, room)
        mostPreKeys = max(mostPreKeys, parties[name].preKeys.count)
        #expect(parties[name].preKeys.count < 50, "seed \(seed): prekeys that nobody uses any more")
    }

    // MARK: The end

    /// Everything arrives, then each says something to each a few times: all sessions have come to one for each pair.
    func settle() throws {
        lossUntil = 0
        func drain() throws {
            for _ in 0..<20 where !(network.isEmpty && waiting.isEmpty) {
                time += 200
                while !network.isEmpty { try deliver(network.removeFirst()) }
                for packet in waiting { try askAgain(packet) }
            }
        }
        try drain()
        #expect(network.isEmpty && waiting.isEmpty)
        for _ in 0..<3 {
            for from in 0..<5 {
                for to in others(of: from) {
                    try establish(from, to)
                    let message = try parties[from].seal([9], to: parties[to])
                    #expect(try parties[to].open(message, from: parties[from], at: now) == [9], "seed \(seed)")
                }
            }
        }
        for one in 0..<5 {
            for two in others(of: one) {
                let (mine, theirs) = (
                    try parties[one].session(with: parties[two]), try parties[two].session(with: parties[one])
                )
                #expect(mine == theirs, "seed \(seed): \(one) and \(two) speak in different sessions")
            }
        }
    }
}
