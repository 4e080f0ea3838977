import Devices
import DoubleRatchet
import Envelope
import TestKit
import Testing

/// The keys of rooms that others have sent.
@Suite struct RoomKeyTests {
    private var random = SeededGenerator(seed: 50)
    private var keys: RoomKeys
    private let sender = DeviceID(7)

    init() throws { keys = try RoomKeys(sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), rows: []) }

    /// A key arrives, and the message under it before which most others are missing.
    private mutating func receive(in room: String, from sender: DeviceID) throws -> RoomKeys.Received {
        let nothing: [UInt8] = []
        var key = SenderKey(random: &random)
        let isTaken = keys.take(key.distribution, from: sender, in: room)
        #expect(isTaken)
        var message: [UInt8] = []
        for _ in 0...RatchetLimits.maximumSkip {
            message = []
            try key.encrypt(nothing.span, associatedData: nothing.span, into: &message)
        }
        let received = try #require(keys.received(from: sender, in: room).first)
        var plaintext: [UInt8] = []
        let opened = try received.receiver.decrypt(message.span, associatedData: nothing.span, into: &plaintext)
        #expect(opened.skipped == Int(RatchetLimits.maximumSkip))
        return received
    }

    /// The sender claims in each room that messages are missing.
    @Test mutating func keysOfMissingMessagesAreBoundedForEachSender() throws {
        let rooms = (0..<7).map { "#room\($0)" }
        for room in rooms { _ = try receive(in: room, from: sender) }
        _ = try receive(in: "#room0", from: DeviceID(8))
        let changes = try keys.boundSkipped(of: sender, besides: "#room3", random: &random)
        let kept = rooms.map { keys.received(from: sender, in: $0) }
        let count = kept.joined().reduce(0) { $0 + $1.receiver.skippedCount }
        #expect(count <= RoomKeys.skippedOfSender && count > 0)
        #expect(!kept[3].isEmpty)
        #expect(changes.count == kept.count(where: \.isEmpty))
        let others = keys.received(from: DeviceID(8), in: "#room0").map { $0.receiver.skippedCount }
        #expect(others == [Int(RatchetLimits.maximumSkip)], "others are not touched")
        let again = try keys.boundSkipped(of: sender, besides: "#room3", random: &random)
        #expect(again.isEmpty)
        // What was dropped can be taken again.
        let dropped = kept.firstIndex { $0.isEmpty }
        _ = try receive(in: rooms[try #require(dropped)], from: sender)
    }
}
