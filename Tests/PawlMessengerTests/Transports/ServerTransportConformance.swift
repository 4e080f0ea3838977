import Devices
import Foundation
import PawlMessenger
import PawlMessengerWebSocket
import PeerKit
import TestKit
import Testing

/// A server with a transport of its own; all promise the same.
enum ServerKind: String, CaseIterable, Sendable {
    case spoof, gateway
    /// Messages come over a WebSocket.
    case gatewaySocket

    func start() async throws -> ServerUnderTest {
        switch self {
        case .spoof:
            let server = SpoofServer()
            return ServerUnderTest(makeClient: { server.client(for: $0) }, stop: {})
        case .gateway, .gatewaySocket:
            let lab = try await GatewayLab.start()
            let sockets = self == .gatewaySocket ? WebSocketGatewayClient() : nil
            return ServerUnderTest(
                makeClient: { try await lab.client(for: $0, sockets: sockets) }, stop: { lab.stop() })
        }
    }
}

struct ServerUnderTest: Sendable {
    let makeClient: @Sendable (TransportCreationRequest) async throws -> any CypherServerTransportClient
    let stop: @Sendable () -> Void

    /// A device that is online.
    func connect(_ device: KeyedDevice) async throws -> Connected {
        let client = try await makeClient(device.request())
        let delegate = RecordingDelegate()
        client.delegate = delegate
        if client.authenticated != .authenticated { try await client.reconnect() }
        return Connected(device: device, client: client, delegate: delegate)
    }

    /// The first device of an account, with its keys published.
    func account(_ name: Username, _ id: UInt64) async throws -> (first: Connected, list: DeviceList) {
        let device = KeyedDevice(name, id)
        let connected = try await connect(device)
        let list = device.list()
        try await connected.client.publishKeyBundle(KeyedDevice.config(list, of: [device]))
        return (connected, list)
    }
}

/// A device at a server.
struct Connected: Sendable {
    let device: KeyedDevice
    let client: any CypherServerTransportClient
    let delegate: RecordingDelegate

    func send(_ bytes: [UInt8], id: String, to other: Connected) async throws {
        try await client.sendMessage(
            RatchetedCypherMessage(bytes: bytes), toUser: other.device.user,
            otherUserDeviceId: other.device.deviceId, messageId: id)
    }

    func message(_ bytes: [UInt8], id: String) -> String {
        "message \(id) \(bytes) from \(device.user) \(device.deviceId)"
    }

    func expect(_ events: [String]) async throws {
        try await eventuallyAsync("\(events.count) events for \(device.user), not \(delegate.events)") {
            delegate.events.count >= events.count
        }
        #expect(delegate.events == events)
    }
}

/// What every server transport does, over a server in memory and over a real gateway.
@Suite(.serialized) struct ServerTransportConformance {
    private static func id(_ number: Int) -> String { String(format: "%016x", number) }

    @Test(arguments: ServerKind.allCases) func keysArePublishedByteForByte(_ kind: ServerKind) async throws {
        let server = try await kind.start()
        defer { server.stop() }
        let (alice, bob) = (KeyedDevice("alice", 1), KeyedDevice("bob", 2))
        let own = try await server.connect(alice)
        await #expect(throws: CypherTransportError.notFound) {
            _ = try await own.client.readKeyBundle(forUsername: "alice")
        }
        let config = KeyedDevice.config(alice.list(), of: [alice])
        try await own.client.publishKeyBundle(config)
        // A call whose answer was lost is made again.
        try await own.client.publishKeyBundle(config)
        #expect(try await own.client.readKeyBundle(forUsername: "alice") == config)
        let other = try await server.connect(bob)
        try await other.client.publishKeyBundle(KeyedDevice.config(bob.list(), of: [bob]))
        #expect(try await other.client.readKeyBundle(forUsername: "alice") == config)
        await #expect(throws: CypherTransportError.notFound) {
            _ = try await other.client.readKeyBundle(forUsername: "carol")
        }
        for name: Username in ["\u{1}x", "a b", "..", "a/b"] {
            await #expect(throws: CypherTransportError.notFound) {
                _ = try await other.client.readKeyBundle(forUsername: name)
            }
        }
        // Another list under the same account does not take the place of the first one.
        let thief = KeyedDevice("alice", 3)
        let third = try await server.connect(thief)
        await #expect(throws: CypherTransportError.conflict) {
            try await third.client.publishKeyBundle(KeyedDevice.config(thief.list(), of: [thief]))
        }
        #expect(try await other.client.readKeyBundle(forUsername: "alice") == config)
    }

    @Test(arguments: ServerKind.allCases) func messagesWaitInOrderAndComeOnce(_ kind: ServerKind) async throws {
        let server = try await kind.start()
        defer { server.stop() }
        let (alice, _) = try await server.account("alice", 1)
        let (bob, _) = try await server.account("bob", 2)
        try await alice.send([1, 2, 3], id: Self.id(1), to: bob)
        try await bob.expect([alice.message([1, 2, 3], id: Self.id(1))])
        try await bob.client.disconnect()
        #expect(bob.client.authenticated == .unauthenticated)
        for number in 2...5 { try await alice.send([UInt8(number)], id: Self.id(number), to: bob) }
        // What the messenger has not stored comes again, and nothing overtakes it.
        bob.delegate.fail(1)
        try await bob.client.reconnect()
        let all =
            [alice.message([1, 2, 3], id: Self.id(1))]
            + (2...5).map { alice.message([UInt8($0)], id: Self.id($0)) }
        try await bob.expect(all)
        #expect(bob.delegate.states.contains(.unauthenticated) && bob.delegate.states.last == .authenticated)
        // What it has taken does not come again.
        try await bob.client.disconnect()
        try await bob.client.reconnect()
        try await alice.send([6], id: Self.id(6), to: bob)
        try await bob.expect(all + [alice.message([6], id: Self.id(6))])
        // Long ones, up to what a messenger sends.
        let long = [UInt8](repeating: 7, count: 65_000)
        try await alice.send(long, id: Self.id(7), to: bob)
        try await eventuallyAsync("the long one has come") { bob.delegate.events.count == 7 }
        #expect(bob.delegate.events[6].contains("\(long)"))
    }

    @Test(arguments: ServerKind.allCases) func oneMessageForSeveralDevices(_ kind: ServerKind) async throws {
        let server = try await kind.start()
        defer { server.stop() }
        let (alice, _) = try await server.account("alice", 1)
        let (bob, _) = try await server.account("bob", 2)
        let (carol, _) = try await server.account("carol", 3)
        try await alice.client.sendMultiRecipientMessage(
            MultiRecipientCypherMessage(
                message: RatchetedCypherMessage(bytes: [9, 9]),
                recipients: [bob.device.recipient, carol.device.recipient]), messageId: Self.id(1))
        for reader in [bob, carol] {
            try await reader.expect(["shared \(Self.id(1)) [9, 9] from alice \(alice.device.deviceId)"])
        }
        // For all or for none.
        await #expect(throws: CypherTransportError.notFound) {
            try await alice.client.sendMultiRecipientMessage(
                MultiRecipientCypherMessage(
                    message: RatchetedCypherMessage(bytes: [8]),
                    recipients: [bob.device.recipient, KeyedDevice("carol", 99).recipient]), messageId: Self.id(2))
        }
        try await alice.send([1], id: Self.id(3), to: bob)
        try await eventuallyAsync("the next one has come") { bob.delegate.events.count == 2 }
        #expect(bob.delegate.events[1] == alice.message([1], id: Self.id(3)))
    }

    /// A message is sealed again under its id: for another device, for more members of a group, in a new session.
    @Test(arguments: ServerKind.allCases) func envelopesWithOneIdAllCome(_ kind: ServerKind) async throws {
        let server = try await kind.start()
        defer { server.stop() }
        let (alice, _) = try await server.account("alice", 1)
        let (bob, _) = try await server.account("bob", 2)
        let (carol, _) = try await server.account("carol", 3)
        let id = Self.id(1)
        for byte: UInt8 in 1...2 { try await alice.send([byte], id: id, to: bob) }
        for (byte, recipients) in [(3, [bob]), (4, [bob, carol]), (5, [carol])] as [(UInt8, [Connected])] {
            try await alice.client.sendMultiRecipientMessage(
                MultiRecipientCypherMessage(
                    message: RatchetedCypherMessage(bytes: [byte]), recipients: recipients.map(\.device.recipient)),
                messageId: id)
        }
        // The server in memory leaves it to the messenger to drop these.
        if kind != .spoof { try await alice.send([2], id: id, to: bob) }
        try await alice.send([6], id: Self.id(2), to: bob)
        let device = alice.device.deviceId
        try await bob.expect(
            [alice.message([1], id: id), alice.message([2], id: id)]
                + [3, 4].map { "shared \(id) [\($0)] from alice \(device)" } + [alice.message([6], id: Self.id(2))])
        try await carol.expect([4, 5].map { "shared \(id) [\($0)] from alice \(device)" })
    }

    /// The same message to two devices of a person is two calls with one id.
    @Test(arguments: ServerKind.allCases) func devicesAreAdoptedAndRemoved(_ kind: ServerKind) async throws {
        let server = try await kind.start()
        defer { server.stop() }
        let (alice, _) = try await server.account("alice", 1)
        let (bob, list) = try await server.account("bob", 2)
        let tablet = try await server.connect(KeyedDevice("bob", 3))
        // Until it is adopted, it can ask for that and do nothing else.
        await #expect(throws: CypherTransportError.self) { try await tablet.send([1], id: Self.id(1), to: alice) }
        await #expect(throws: CypherTransportError.self) { try await alice.send([1], id: Self.id(1), to: tablet) }
        try await tablet.client.requestDeviceRegistery(tablet.device.registration(to: list))
        try await bob.expect(["request of \(tablet.device.deviceId)"])
        let longer = try bob.device.adding(tablet.device, to: list)
        try await bob.client.publishKeyBundle(KeyedDevice.config(longer, of: [bob.device, tablet.device]))
        #expect(try await alice.client.readKeyBundle(forUsername: "bob").devices.count == 2)
        // The device takes part as soon as it knows of it: an error until then means that the call is made again.
        try await eventuallyAsync("the tablet sends", every: .milliseconds(200)) {
            (try? await tablet.send([2], id: Self.id(2), to: alice)) != nil
        }
        try await eventuallyAsync("alice sends to the tablet", every: .milliseconds(200)) {
            do {
                try await alice.send([3], id: Self.id(3), to: tablet)
                return true
            } catch {
                #expect(error as? CypherTransportError == .offline)
                return false
            }
        }
        try await alice.send([3], id: Self.id(3), to: bob)
        try await tablet.expect([alice.message([3], id: Self.id(3))])
        try await bob.expect(["request of \(tablet.device.deviceId)", alice.message([3], id: Self.id(3))])
        try await alice.expect([tablet.message([2], id: Self.id(2))])
        // Removed: it neither sends nor receives.
        let last = try bob.device.removing(tablet.device, from: longer)
        try await bob.client.publishKeyBundle(KeyedDevice.config(last, of: [bob.device]))
        await #expect(throws: CypherTransportError.notFound) { try await alice.send([4], id: Self.id(4), to: tablet) }
        await #expect(throws: CypherTransportError.self) { try await tablet.send([5], id: Self.id(5), to: alice) }
        // An earlier list is not published again.
        await #expect(throws: CypherTransportError.conflict) {
            try await bob.client.publishKeyBundle(KeyedDevice.config(longer, of: [bob.device, tablet.device]))
        }
        #expect(tablet.delegate.events.count == 1 && alice.delegate.events.count == 1)
    }

    @Test(arguments: ServerKind.allCases) func receiptsAndBlobs(_ kind: ServerKind) async throws {
        let server = try await kind.start()
        defer { server.stop() }
        let (alice, _) = try await server.account("alice", 1)
        let (bob, _) = try await server.account("bob", 2)
        try await bob.client.sendMessageReceivedReceipt(byRemoteId: Self.id(1), to: "alice")
        try await bob.client.sendMessageReadReceipt(byRemoteId: Self.id(1), to: "alice")
        let device = bob.device.deviceId
        try await alice.expect(["received \(Self.id(1)) by bob \(device)", "read \(Self.id(1)) by bob \(device)"])
        let blob = try await alice.client.publishBlob(["title": "the group", "members": "2"])
        let read = try await bob.client.readPublishedBlob(byId: blob.id.uppercased(), as: [String: String].self)
        #expect(read?.blob == blob.blob)
        for id in ["no such blob", "../me", String(repeating: "0", count: 32)] {
            #expect(try await bob.client.readPublishedBlob(byId: id, as: [String: String].self) == nil)
        }
    }
}
