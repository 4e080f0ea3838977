import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import Protection
import Reports
import StorePort
import TestKit
import Testing
import Vault

/// Random numbers of which the first device ids are chosen by a test.
private struct ChosenIDs: RandomSource, Sendable {
    var ids: [UInt64]
    var rest = SeededGenerator(seed: 9)

    mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        guard bytes.count == 8, !ids.isEmpty else { return rest.fill(bytes) }
        bytes.storeBytes(of: ids.removeFirst(), as: UInt64.self)
    }
}

/// A device id is in the clear in each envelope. It stays its owner's, whoever publishes it.
@Suite struct DeviceOwnerTests {
    private func sender(of line: String) throws -> DeviceID {
        let text = Array(String(line.split(separator: " :").last ?? "").utf8)
        guard case .whole(let bytes)? = Armour.parse(text[...]) else { throw EnvelopeError.malformed }
        return try Envelope(bytes).sender
    }

    private func hostedID(_ world: World) throws -> DeviceID {
        try sender(of: try #require(world.backend.seen.last { $0.contains("?PAWL:") }))
    }

    /// The rows of a published device, as a version of before would have stored them.
    private func rows(_ forger: Forger, of account: AccountID) -> [StoreChange] {
        var list: [UInt8] = [0]
        list.append(bigEndian: UInt64(1))
        list += forger.deviceList.bytes
        var device: [UInt8] = []
        device.append(field: Array(account.text.utf8))
        device += forger.published.bytes
        let name = String(forger.device.value, radix: 16)
        return [
            .putRecord(RecordRow(kind: .directoryAccount, name: account.text, value: list)),
            .putRecord(RecordRow(kind: .directoryDevice, name: name, value: device)),
        ]
    }

    @Test(arguments: [0, 1] as [UInt64]) func aHostedIDIsRefused(_ bit: UInt64) throws {
        let world = try World(.hosted)
        let (alice, bob) = (world.connect("alice", account: "alice"), world.connect("bob", account: "bob"))
        let mallory = world.connect("mallory", account: "mallory")
        world.send(alice, "PRIVMSG bob :one")
        let forger = Forger(seed: 5, device: try hostedID(world).value | bit)
        world.pendingJobs.append(forger.publication(as: .services("mallory"), by: mallory.machine.id))
        world.settle()
        #expect(world.environment.directory?[.services("mallory")] == nil)
        world.send(alice, "PRIVMSG bob :two")
        #expect(bob.messages.filter { $0.hasSuffix(":one") || $0.hasSuffix(":two") }.count == 2)
        #expect(try world.store.records(.directoryDevice).isEmpty)
    }

    @Test func aStoredCollisionIsRemovedAtTheStart() throws {
        let store = InMemoryStore()
        let before = try World(.hosted, store: store)
        let first = before.connect("alice", account: "alice")
        before.connect("bob", account: "bob")
        before.send(first, "PRIVMSG bob :one")
        let forger = Forger(seed: 5, device: try hostedID(before).value)
        let harmless = Forger(seed: 6)
        _ = try store.commit([rows(forger, of: .services("mallory")) + rows(harmless, of: .services("carol"))])

        let world = try World(.hosted, store: store)
        #expect(world.participants.warnings.count == 1 && world.participants.warnings[0].contains("mallory"))
        #expect(try store.auditLog(limit: 9).contains { $0.action == "devices" && $0.detail.contains("mallory") })
        #expect(try store.records(.directoryDevice).map(\.name) == [String(harmless.device.value, radix: 16)])
        #expect(world.environment.directory?[.services("mallory")] == nil)
        let (alice, bob) = (world.connect("alice", account: "alice"), world.connect("bob", account: "bob"))
        world.send(alice, "PRIVMSG bob :two")
        #expect(try hostedID(world) == forger.device, "the hosted device and its sessions stay")
        #expect(bob.messages.contains { $0.hasSuffix(":two") })
    }

    /// The backend puts an envelope of alice's own device under another nick: the gateway passes it to nobody.
    @Test func anEnvelopeOfAPublishedDeviceUnderAnotherNickIsWithheld() throws {
        let front = try World(.hosted, offers: SimulatedBackend.modern, seed: 1)
        let alice = try World(.opportunistic, seed: 2, behind: front, sidecar: true)
        let bob = try World(.opportunistic, seed: 3, behind: front, sidecar: true)
        let (first, second) = (alice.connect("alice", account: "alice"), bob.connect("bob", account: "bob"))
        let carol = front.connect("carol", account: "carol")
        front.connect("mallory", account: "mallory")
        alice.send(first, "PRIVMSG bob :one")
        bob.send(second, "PRIVMSG alice :two")
        alice.send(first, "PRIVMSG bob :three")
        let sealed = try #require(front.backend.seen.last { $0.contains("?PAWL:") && $0.contains("PRIVMSG bob") })
        let body = String(sealed.split(separator: " :").last ?? "")
        let before = front.environment.tally[.openWrongSource]
        for (client, nick) in [(second.front, "bob"), (carol, "carol")] {
            let reader = try #require(client)
            front.backend.send(reader.id, ":mallory!m@host.test PRIVMSG \(nick) :\(body)")
            front.settle()
        }
        #expect(front.environment.tally[.openWrongSource] == before + 2)
        #expect(carol.wasNotified(Notices.failure(.wrongSource, from: "mallory")))
        #expect(second.shown(from: "mallory").isEmpty)
    }

    // MARK: New ids

    @Test func aNewHostedDeviceAvoidsPublishedIDs() throws {
        let store = InMemoryStore()
        let (even, odd) = (Forger(seed: 5, device: 0x1234_5670), Forger(seed: 6, device: 0x8765_4321))
        _ = try store.commit([rows(even, of: .services("carol")) + rows(odd, of: .services("dave"))])
        var changes: [StoreChange] = []
        let ids = [1, even.device.value, even.device.value, odd.device.value, odd.device.value, 0x42]
        var vault = try IRCParticipants(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: LatchTable(), rooms: RoomTable(), openedMessages: OpenedMessages(), requestAge: 300_000,
            pendingLimit: 256, now: Timestamp(monotonic: 1, wall: 1), random: ChosenIDs(ids: ids),
            role: .front(DirectoryCache()),
            wasDelivered: { _ in false }, changes: &changes)
        let job = SealJob(
            connection: ConnectionID(1), ticket: 1, sender: .services("alice"), recipient: .services("bob"),
            target: "bob", senderName: "alice", recipientName: "bob", verb: "PRIVMSG", body: Body(text: [1]),
            capacity: 380)
        let batch = vault.prepare([.seal(job)], now: Timestamp(monotonic: 2, wall: 2))
        _ = try store.commit(batch.groups)
        let drawn = Set(try store.load().devices.map(\.id))
        #expect(drawn.count == 2 && drawn.contains(DeviceID(0x42)))
        #expect(!drawn.contains(even.device) && !drawn.contains(DeviceID(odd.device.value & ~1)))
    }
}
