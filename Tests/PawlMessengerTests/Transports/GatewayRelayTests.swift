import Foundation
import PawlMessenger
import PawlPeerToPeerTCP
import PeerKit
import Synchronization
import TestKit
import TestThreads
import Testing

/// Connections of devices over a relay of a real gateway, through a tap that keeps all bytes between them and the gateway.
@Suite(.serialized) struct GatewayRelayTests {
    /// Records what an app is told of connections.
    private final class Handler: CypherMessengerEventHandler {
        private let state = Mutex<[[UInt8]]>([])

        var messages: [[UInt8]] { state.withLock { $0 } }

        func shouldAcceptP2PConnection(_ request: P2PRequest) async -> Bool { true }
        func onP2PMessage(_ message: [UInt8], from client: P2PClient) async { state.withLock { $0.append(message) } }
        func onDeviceRegisteryRequest(_ config: UserDeviceConfig, messenger: CypherMessenger) async {
            try? await messenger.addDevice(config)
        }
    }

    /// Records the packets of a transport client.
    private final class Recorder: P2PTransportClientDelegate {
        private let state = Mutex((packets: [[UInt8]](), closed: 0))

        var packets: [[UInt8]] { state.withLock { $0.packets } }
        var closed: Int { state.withLock { $0.closed } }

        func p2pConnectionOpened(_ connection: any P2PTransportClient) {}
        func p2pConnection(_ connection: any P2PTransportClient, receivedMessage message: [UInt8]) {
            state.withLock { $0.packets.append(message) }
        }
        func p2pConnectionClosed(_ connection: any P2PTransportClient) { state.withLock { $0.closed += 1 } }
    }

    /// A factory whose magic packets are kept.
    private final class KeepingFactory: P2PTransportClientFactory {
        private let inner: any P2PTransportClientFactory
        private let state = Mutex<[String]>([])

        init(_ inner: any P2PTransportClientFactory) { self.inner = inner }

        var packets: [String] { state.withLock { $0 } }
        var transportLayerIdentifier: String { inner.transportLayerIdentifier }
        var disclosesAddress: Bool { inner.disclosesAddress }

        private func keeping(_ handle: P2PTransportFactoryHandle) -> P2PTransportFactoryHandle {
            P2PTransportFactoryHandle(state: handle.state) { text, metadata in
                self.state.withLock { $0.append("\(text) \(metadata)") }
                try await handle.sendMessage(text, metadata: metadata)
            }
        }

        func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
            try await inner.createConnection(handle: keeping(handle))
        }
        func receiveMessage(
            _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
        ) async throws -> (any P2PTransportClient)? {
            try await inner.receiveMessage(text, metadata: metadata, handle: keeping(handle))
        }
    }

    private struct Device {
        let messenger: CypherMessenger
        let handler: Handler
        let factory: KeepingFactory
    }

    /// A gateway behind a tap.
    private final class Rig: Sendable {
        let lab: GatewayLab
        let tap: WireTap

        init(_ settings: [String: String] = [:]) async throws {
            lab = try await GatewayLab.start(settings: settings)
            tap = try WireTap(backend: lab.gateway.port)
        }

        /// A device with a login of its own, which uses nothing but the relay although it has another factory.
        func register(_ name: Username) async throws -> Device {
            let (login, handler) = (try await lab.login(name), Handler())
            guard let url = URL(string: "http://127.0.0.1:\(tap.port)") else { throw CypherTransportError.notFound }
            let factory = KeepingFactory(GatewayRelayP2PTransportClientFactory(url: url) { _ in login })
            var settings = P2PSettings()
            settings.mode = .relayOnly
            (settings.connectTime, settings.idleTime, settings.acknowledgementTime) =
                (.seconds(120), .seconds(600), .seconds(600))
            let lab = lab
            let messenger = try await CypherMessenger.registerMessenger(
                username: name, authenticationMethod: .identity, appPassword: "open sesame",
                usingTransport: { request in
                    GatewayTransportClient(url: try lab.url, for: request) { _ in login }
                }, p2pFactories: [IPv6TCPP2PTransportClientFactory(addresses: .listed(["127.0.0.1"])), factory],
                p2pSettings: settings, database: .inMemory(), eventHandler: handler)
            return Device(messenger: messenger, handler: handler, factory: factory)
        }

        /// Two people who have exchanged keys.
        func couple() async throws -> (alice: Device, bob: Device) {
            let (alice, bob) = (try await register("alice"), try await register("bob"))
            for (one, other) in [(alice, bob), (bob, alice)] {
                try await one.messenger.createPrivateChat(with: other.messenger.username).sendText("hello")
                try await eventuallyAsync("it has come") {
                    try await other.messenger.createPrivateChat(with: one.messenger.username).messages()
                        .contains { !$0.isOwn }
                }
            }
            return (alice, bob)
        }

        func stop() {
            tap.stop()
            lab.stop()
        }
    }

    private func handle(
        to device: Device, _ send: @escaping @Sendable (P2PMetadata) -> Void = { _ in }
    ) -> P2PTransportFactoryHandle {
        P2PTransportFactoryHandle(
            state: P2PFrameworkState(
                username: device.messenger.username, deviceId: device.messenger.deviceId,
                transportLayerIdentifier: device.factory.transportLayerIdentifier)
        ) { send($1) }
    }

    /// Connects two devices by their factories alone.
    private func connect(
        _ one: Device, _ other: Device
    ) async throws -> (one: any P2PTransportClient, other: any P2PTransportClient) {
        let (offers, sink) = AsyncStream.makeStream(of: P2PMetadata.self)
        let towards = handle(to: other) { sink.yield($0) }
        async let first = one.factory.createConnection(handle: towards)
        var iterator = offers.makeAsyncIterator()
        let offer = try #require(await iterator.next())
        let second = try await other.factory.receiveMessage("", metadata: offer, handle: handle(to: one))
        return (try #require(try await first), try #require(second))
    }

    // MARK: Messengers

    /// Neither a packet nor the gateway tells one device an address of the other, and the gateway cannot read anything.
    @Test func noAddressIsDisclosed() async throws {
        let rig = try await Rig()
        defer { rig.stop() }
        let (alice, bob) = try await rig.couple()
        let chat = alice.messenger.createPrivateChat(with: "bob")
        try await eventuallyAsync("they are connected") { try await chat.buildP2PConnections().clients.count == 1 }
        let client = try #require(chat.listOpenP2PConnections().first)
        #expect(client.transportLayerIdentifier == "_pawl-relay")
        try await eventuallyAsync("bob has it") { bob.messenger.listOpenP2PConnections().count == 1 }
        let secret = "a secret over the relay"
        try await client.sendMessage(Array(secret.utf8))
        try await bob.messenger.listOpenP2PConnections()[0].sendMessage(Array(secret.utf8.reversed()))
        #expect(bob.handler.messages == [Array(secret.utf8)])
        #expect(alice.handler.messages == [Array(secret.utf8.reversed())])
        let longest = [UInt8](repeating: 7, count: P2PSettings.messageLimit)
        try await client.sendMessage(longest)
        #expect(bob.handler.messages.last == longest)
        // Magic packets have a version and a session.
        let packets = alice.factory.packets + bob.factory.packets
        #expect(!packets.isEmpty)
        for packet in packets { #expect(!Self.hasAddress(packet), "\(packet)") }
        #expect(Self.hasAddress("127.0.0.1") && Self.hasAddress("fe80::1") && Self.hasAddress("2001:db8:0:0:0:0:0:1"))
        // What the gateway sends to a device before the other one's bytes has none either, and the rest is sealed.
        let relayed = rig.tap.recordings.filter {
            String(decoding: $0.fromServer.prefix(12), as: UTF8.self) == "HTTP/1.1 101"
        }
        #expect(relayed.count == 2)
        for recording in relayed {
            let bytes = recording.fromServer
            let end = try #require(Self.place(of: Array("\r\n\r\n".utf8), in: bytes))
            #expect(!Self.hasAddress(String(decoding: bytes[..<end], as: UTF8.self)))
            #expect(Self.place(of: Array("127.0.0.1".utf8), in: bytes) == nil)
            #expect(bytes.count > 100)
        }
        #expect(!rig.tap.shows(secret))
        await client.disconnect()
        try await eventuallyAsync("both have ended") { bob.messenger.listOpenP2PConnections().isEmpty }
        alice.messenger.close()
        bob.messenger.close()
    }

    private static func hasAddress(_ text: String) -> Bool {
        text.contains(/[0-9]+(\.[0-9]+){3}/) || text.contains(/[0-9a-fA-F]*::[0-9a-fA-F]*|([0-9a-fA-F]{1,4}:){3}/)
    }

    private static func place(of part: [UInt8], in bytes: [UInt8]) -> Int? {
        guard bytes.count >= part.count else { return nil }
        return (0...bytes.count - part.count).first {
            bytes[$0] == part[0] && bytes[$0..<$0 + part.count].elementsEqual(part)
        }
    }

    // MARK: Transport

    /// What every transport promises: packets whole, once and in order, and an end on both sides.
    @Test func packetsArriveWholeOnceAndInOrder() async throws {
        let rig = try await Rig()
        defer { rig.stop() }
        let (alice, bob) = try await rig.couple()
        let (one, other) = try await connect(alice, bob)
        #expect(one.connected == .connected && other.connected == .connected)
        let (first, second) = (Recorder(), Recorder())
        (one.delegate, other.delegate) = (first, second)
        var generator = SeededGenerator(seed: 165)
        let sizes =
            [1, 2, 1000, 65_535, 65_536, P2PSettings.packetLimit] + (0..<100).map { _ in 1 + generator.below(900) }
        let packets = sizes.map { generator.bytes($0) }
        async let forth: Void = {
            for packet in packets { try await one.sendMessage(packet) }
        }()
        async let back: Void = {
            for packet in packets.reversed() { try await other.sendMessage(packet) }
        }()
        _ = try await (forth, back)
        try await one.disconnect()
        try await eventuallyAsync("both have seen the end") { first.closed == 1 && second.closed == 1 }
        #expect(second.packets == packets)
        #expect(one.connected == .disconnected && other.connected == .disconnected)
        // The other side's packets come until it has seen the end.
        #expect(first.packets == Array(packets.reversed().prefix(first.packets.count)))
        alice.messenger.close()
        bob.messenger.close()
    }

    /// A device that was revoked is cut off although it keeps its login and its connection.
    @Test func aRevokedDeviceIsCutOff() async throws {
        let rig = try await Rig()
        defer { rig.stop() }
        let (alice, bob) = try await rig.couple()
        let phone = try await rig.register("bob")
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        let (one, other) = try await connect(alice, phone)
        let (first, second) = (Recorder(), Recorder())
        (one.delegate, other.delegate) = (first, second)
        try await one.sendMessage([1])
        try await eventuallyAsync("it has come") { second.packets == [[1]] }
        try await bob.messenger.revokeDevice(phone.messenger.deviceId)
        try await eventuallyAsync("the gateway has closed it") { first.closed == 1 && second.closed == 1 }
        // And it gets no other one.
        await #expect(throws: P2PError.self) { _ = try await phone.factory.createConnection(handle: handle(to: alice)) }
        for device in [alice, bob, phone] { device.messenger.close() }
    }

    @Test func relaysOfAnAccountAreCountedAndIdleOnesEnd() async throws {
        let rig = try await Rig(["PAWL_LIMITS_RELAYS_PER_ACCOUNT": "1", "PAWL_LIMITS_RELAY_IDLE": "2"])
        defer { rig.stop() }
        let (alice, bob) = try await rig.couple()
        let (one, other) = try await connect(alice, bob)
        let (first, second) = (Recorder(), Recorder())
        (one.delegate, other.delegate) = (first, second)
        await #expect(throws: P2PError.self) { _ = try await alice.factory.createConnection(handle: handle(to: bob)) }
        try await eventuallyAsync("the gateway has closed it") { first.closed == 1 && second.closed == 1 }
        alice.messenger.close()
        bob.messenger.close()
    }

    /// A sender is slowed down, and loses nothing.
    @Test func aFastSenderIsSlowedDown() async throws {
        let rig = try await Rig(["PAWL_LIMITS_RELAY_BYTES_PER_SECOND": "50000"])
        defer { rig.stop() }
        let (alice, bob) = try await rig.couple()
        let (one, other) = try await connect(alice, bob)
        let recorder = Recorder()
        other.delegate = recorder
        let packets = (0..<8).map { [UInt8](repeating: UInt8($0), count: 50_000) }
        let begin = ContinuousClock.now
        for packet in packets { try await one.sendMessage(packet) }
        try await eventuallyAsync("all have come") { recorder.packets == packets }
        // One second's bytes are free.
        #expect(begin.duration(to: .now) > .seconds(2))
        try await one.disconnect()
        alice.messenger.close()
        bob.messenger.close()
    }

    @Test func withoutALoginThereIsNoRelay() async throws {
        let rig = try await Rig(["PAWL_LIMITS_RELAYS_PER_ACCOUNT": "0"])
        defer { rig.stop() }
        let (alice, bob) = try await rig.couple()
        // Relays are off.
        await #expect(throws: P2PError.transport("The gateway answers 404.")) {
            _ = try await alice.factory.createConnection(handle: handle(to: bob))
        }
        // Another login of the same person stands for no device, and an unknown one for nobody.
        let login = try await rig.lab.login("alice")
        for (credential, words) in [
            (login, "The gateway answers 403."), (.bearer("wrong"), "The gateway does not accept the login."),
        ] {
            let factory = GatewayRelayP2PTransportClientFactory(url: try rig.lab.url) { _ in credential }
            await #expect(throws: P2PError.transport(words)) {
                _ = try await factory.createConnection(handle: handle(to: bob))
            }
        }
        alice.messenger.close()
        bob.messenger.close()
    }
}
