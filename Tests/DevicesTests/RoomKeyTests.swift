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
        func count(_ sender: DeviceID) -> Int {
            rooms.flatMap { keys.received(from: sender, in: $0) }.reduce(0) { $0 + $1.receiver.skippedCount }
        }
        #expect(count(sender) <= RoomKeys.skippedOfSender && count(sender) > 0)
        #expect(count(DeviceID(8)) == Int(RatchetLimits.maximumSkip), "others are not touched")
        #expect(!keys.received(from: sender, in: "#room3").isEmpty)
        #expect(changes.count == rooms.count { keys.received(from: sender, in: $0).isEmpty })
        // What was dropped can be taken again.
        let again = try keys.boundSkipped(of: sender, besides: "#room3", random: &random)
        #expect(again.isEmpty)
        let gone = try #require(rooms.first { keys.received(from: sender, in: $0).isEmpty })
        _ = try receive(in: gone, from: sender)
    }
}
