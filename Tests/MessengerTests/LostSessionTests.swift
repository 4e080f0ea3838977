import CommitLoop
import DeviceSessions
import Devices
import Envelope
import Protection
import StorePort
import Testing

@testable import Messenger

/// Devices with which new sessions are to be begun.
@Suite struct LostSessionTests {
    private let world = World(seed: 90)

    /// Forged messages name devices that do not exist.
    @Test func unknownDevicesMakeRoomForLaterOnes() throws {
        let (alice, bob) = (try world.person("alice"), try world.person("bob"))
        alice.send("one", to: "bob")
        world.deliver()
        let limit = MessengerParticipants.unknownDeviceLimit
        for number in 1...UInt64(limit) + 1 {
            let forged = Envelope(
                kind: .direct, sender: DeviceID(number), messageID: MessageID(number),
                ratchetMessage: [0x20] + [UInt8](repeating: 1, count: 200))
            bob.receive(forged.bytes, from: "alice", hasKeys: true)
        }
        #expect(bob.machine.memory.lost.count == limit)
        #expect(bob.machine.memory.lost.contains(DeviceID(UInt64(limit) + 1)))
    }

    @Test func theEarliestPauseCounts() throws {
        let (alice, bob, carol) = (try world.person("alice"), try world.person("bob"), try world.person("carol"))
        for device in [alice, carol] { device.send("one", to: "bob") }
        world.deliver()
        var (machine, now) = (bob.machine, bob.now)
        var unit = MessengerParticipants.Unit(in: .shard(.only))
        func uptime() -> Int64 { now.monotonic / 1_000_000 }
        machine.noteLost(alice.id, after: 300_000, now, &unit)
        #expect(machine.nextLostWake == uptime() + 300_000)
        machine.noteLost(carol.id, after: 60_000, now, &unit)
        #expect(machine.nextLostWake == uptime() + 60_000)
        // Each time that they are asked for, the pause gets longer.
        for pause in [120_000, 240_000] as [Int64] {
            now.monotonic += pause / 2 * 1_000_000
            machine.askForLost(now, &unit)
            #expect(machine.nextLostWake == uptime() + pause)
        }
        for device in [alice, carol] { machine.noteRenewed(device.id, &unit) }
        #expect(machine.nextLostWake == nil)
        // A later one does not take over the longer pause, and none is asked for all the time.
        machine.noteLost(alice.id, after: 0, now, &unit)
        #expect(machine.nextLostWake == uptime())
        machine.askForLost(now, &unit)
        #expect(machine.nextLostWake == uptime() + 60_000)
    }
}
