import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import TestKit
import Testing

/// What a person's own device keeps of the keys of rooms.
@Suite struct RoomKeyTests {
    private let sealer = StorageSealer(key: [UInt8](repeating: 7, count: 32))
    private let store = InMemoryStore()
    private let sender = DeviceID(4)
    private let data: [UInt8] = [1]

    private func state(_ random: inout SeededGenerator) throws -> OwnDeviceState {
        let device = HostedDevice(id: DeviceID(2), account: .own, identity: IdentityKeyPair(random: &random))
        var changes: [StoreChange] = []
        return try OwnDeviceState(device: device, sealer: sealer, store: store, &changes)
    }

    private func open(_ message: [UInt8], _ state: OwnDeviceState) throws -> (text: [UInt8], skipped: Int) {
        var text: [UInt8] = []
        let key = try #require(state.roomKeys.received(from: sender, in: "#room").last)
        let received = try key.receiver.decrypt(message.span, associatedData: data.span, into: &text)
        return (text, received.skipped)
    }

    /// The state of a key with many skipped messages is longer than 64 KiB.
    @Test func aKeyWithManySkippedMessagesOutlivesARestart() throws {
        var random = SeededGenerator(seed: 1)
        var before = try state(&random)
        var key = SenderKey(random: &random)
        var isTaken = before.roomKeys.take(key.distribution, from: sender, in: "#room")
        #expect(isTaken)
        let other = SenderKey(random: &random).distribution
        var messages: [[UInt8]] = []
        for number in UInt16(0)...1500 {
            var message: [UInt8] = []
            let text = [UInt8(number >> 8), UInt8(truncatingIfNeeded: number)]
            try key.encrypt(text.span, associatedData: data.span, into: &message)
            messages.append(message)
        }
        #expect(try open(messages[1500], before).skipped == 1500)
        // One more key in the same row.
        isTaken = before.roomKeys.take(other, from: sender, in: "#room")
        #expect(isTaken)
        let row = try before.roomKeys.row(from: sender, in: "#room", random: &random)
        #expect(try store.commit([[row]]) == [nil])

        let after = try state(&random)
        #expect(after.roomKeys.received(from: sender, in: "#room").count == 2)
        #expect(try open(messages[3], after).text == [0, 3])
        #expect(throws: RatchetError.duplicate) { try open(messages[1500], after) }
    }

    /// A device that has the key keeps it when it asks for it again, and reads nothing more when it has left.
    @Test func aDeviceThatHasAskedIsStillAReader() throws {
        var random = SeededGenerator(seed: 2)
        var state = try state(&random)
        let (bob, carol) = (DeviceID(6), DeviceID(8))
        let first = state.roomKeys.key(for: "#room", readers: [bob, carol], random: &random)
        state.roomKeys.give(to: [bob, carol], in: "#room")
        // One that does not have it may ask as well.
        for reader in [carol, DeviceID(10)] { state.roomKeys.asked(by: reader, in: "#room") }
        #expect(!state.roomKeys.isKeyDue(for: [bob], in: "#room"))
        #expect(state.roomKeys.isKeyDue(for: [carol], in: "#room"))
        #expect(state.roomKeys.isKeyDue(for: [DeviceID(10)], in: "#room"))
        let second = state.roomKeys.key(for: "#room", readers: [bob, carol], random: &random)
        let third = state.roomKeys.key(for: "#room", readers: [bob], random: &random)
        #expect(second === first && third !== first)
        #expect(state.roomKeys.isKeyDue(for: [bob], in: "#room"))
        state.roomKeys.give(to: [bob], in: "#room")
        #expect(!state.roomKeys.isKeyDue(for: [bob], in: "#room"))
    }
}
