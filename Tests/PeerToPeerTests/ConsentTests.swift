import PawlMessenger
import PawlPeerToPeerTCP
import PeerConnection
import Synchronization
import TestKit
import Testing

/// Who may connect, over what, and how many.
@Suite struct ConsentTests {
    /// Counts the calls of a factory.
    private final class CountingFactory: P2PTransportClientFactory {
        let transportLayerIdentifier: String
        let disclosesAddress: Bool
        private let inner: (any P2PTransportClientFactory)?
        private let state = Mutex((created: 0, received: 0))
        /// Runs with each `createConnection`.
        let onCreate = Mutex<(@Sendable () -> Void)?>(nil)

        /// Without an inner factory, every call fails.
        init(_ name: String, _ inner: (any P2PTransportClientFactory)? = nil, disclosesAddress: Bool = false) {
            (transportLayerIdentifier, self.inner, self.disclosesAddress) = (name, inner, disclosesAddress)
        }

        var calls: (created: Int, received: Int) { state.withLock { $0 } }

        func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
            state.withLock { $0.created += 1 }
            onCreate.withLock { $0 }?()
            guard let inner else { throw P2PError.transport("out of order") }
            return try await inner.createConnection(handle: handle)
        }

        func receiveMessage(
            _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
        ) async throws -> (any P2PTransportClient)? {
            state.withLock { $0.received += 1 }
            guard let inner else { throw P2PError.transport("out of order") }
            return try await inner.receiveMessage(text, metadata: metadata, handle: handle)
        }
    }

    private let network = SpoofP2PNetwork()

    private func spoof(_ name: String, disclosesAddress: Bool = false) -> CountingFactory {
        CountingFactory(
            name,
            SpoofP2PTransportClientFactory(
                network: network, transportLayerIdentifier: name, disclosesAddress: disclosesAddress),
            disclosesAddress: disclosesAddress)
    }

    // MARK: Consent

    /// A person to whom one has never written gets no answer, and no factory is asked for addresses.
    @Test func strangersGetNoAnswer() async throws {
        let (server, factory) = (SpoofServer(), spoof("_spoof"))
        let alice = try await Person.register("alice", at: server, [spoof("_spoof")], impatient)
        let bob = try await Person.register("bob", at: server, [factory])
        try await alice.chat("bob").sendText("hello")
        try await bob.waitForText(from: "alice")
        try await eventuallyAsync("the server is quiet") { server.waitingEvents == 0 }
        let result = try await alice.chat("bob").buildP2PConnections()
        #expect(result.clients.isEmpty && result.failures.values.map(\.self) == [.timedOut])
        try await eventuallyAsync("bob was asked") { bob.handler.events.requests.count == 1 }
        #expect(bob.handler.events.requests.map(\.isUsedChat) == [false])
        #expect(factory.calls == (0, 0))
        #expect(alice.open.isEmpty && bob.open.isEmpty)
        #expect(network.waitingClients == 0)
        alice.messenger.close()
        bob.messenger.close()
    }

    @Test func theAppDecides() async throws {
        let couple = try await Couple(.memory, alice: impatient)
        couple.bob.handler.change { $0.accepts = false }
        let result = try await couple.alice.chat("bob").buildP2PConnections()
        #expect(result.failures == [couple.bob.messenger.deviceId: .timedOut])
        #expect(couple.bob.open.isEmpty)
        couple.close()
    }

    /// The side that has ignored a request calls while the other one still waits for the answer, with either order of the
    /// device ids, which decides between two calls at once.
    @Test(arguments: [false, true]) func aCallAfterAnIgnoredRequestIsTaken(_ lowerCallsFirst: Bool) async throws {
        let couple = try await Couple(.memory)
        let sorted = [couple.alice, couple.bob].sorted { $0.messenger.deviceId < $1.messenger.deviceId }
        let (first, second) = lowerCallsFirst ? (sorted[0], sorted[1]) : (sorted[1], sorted[0])
        second.handler.change { $0.accepts = false }
        let waiting = Task { try await first.chat(second.messenger.username).buildP2PConnections() }
        try await eventuallyAsync("the second was asked") { second.handler.events.requests.count == 1 }
        try await eventuallyAsync("the second has called, and the first has answered") {
            // A call that comes before the refusal shares its end.
            try await second.chat(first.messenger.username).buildP2PConnections().clients.count == 1
        }
        #expect(try await waiting.value.clients.count == 1)
        try await eventuallyAsync("both have one") { first.open.count == 1 && second.open.count == 1 }
        // Neither was asked again: the second has called itself, and the first had asked.
        #expect(second.handler.events.requests.count == 1 && first.handler.events.requests.isEmpty)
        try await first.open[0].sendMessage([1])
        #expect(second.handler.events.messages == [[1]])
        couple.close()
    }

    @Test func aPersonWithoutKeysCannotBeReached() async throws {
        let server = SpoofServer()
        let alice = try await Person.register("alice", at: server, [spoof("_spoof")])
        await #expect(throws: P2PError.keysMissing) { try await alice.chat("bob").buildP2PConnections() }
        alice.messenger.close()
    }

    /// The refused attempt has the keys read. No text was sent before.
    @Test func keysAreReadForALaterAttempt() async throws {
        let server = SpoofServer()
        let alice = try await Person.register("alice", at: server, [spoof("_spoof")])
        let bob = try await Person.register("bob", at: server, [spoof("_spoof")])
        bob.handler.change { $0.accepts = true }
        let chat = alice.chat("bob")
        await #expect(throws: P2PError.keysMissing) { try await chat.buildP2PConnections() }
        try await eventuallyAsync("both are connected") {
            (try? await chat.buildP2PConnections())?.clients.count == 1
        }
        #expect(try await bob.chat("alice").messages().isEmpty)
        alice.messenger.close()
        bob.messenger.close()
    }

    /// A removed device loses its connections.
    @Test func aRevokedDeviceIsDisconnected() async throws {
        let couple = try await Couple(.memory)
        let phone = try await Person.register("bob", at: couple.server, [TransportKind.memory.factory(couple.network)])
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        try await couple.alice.chat("bob").sendText("to both")
        try await phone.waitForText(from: "alice")
        try await phone.chat("alice").sendText("from the phone")
        try await eventuallyAsync("both are connected") {
            try await couple.alice.chat("bob").buildP2PConnections().clients.count == 2
        }
        let lost = try #require(couple.alice.open.first { $0.deviceId == phone.messenger.deviceId })
        try await couple.bob.messenger.revokeDevice(phone.messenger.deviceId)
        // Alice learns of it with the next message.
        try await couple.bob.chat("alice").sendText("I have lost my phone")
        try await eventuallyAsync("the connection is closed") { lost.closeReason != nil }
        #expect(lost.closeReason == .keysChanged)
        #expect(couple.alice.open.map(\.deviceId) == [couple.bob.messenger.deviceId])
        couple.close()
        phone.messenger.close()
    }

    // MARK: Choice

    @Test func factoriesAreTriedInTheirOrderOrByPreference() async throws {
        let alice = [spoof("_one"), spoof("_two"), spoof("_three")]
        let couple = try await Couple(alice, [spoof("_three"), spoof("_two"), spoof("_one")])
        let (client, _) = try await couple.connect()
        #expect(client.transportLayerIdentifier == "_one")
        await client.disconnect()
        try await eventuallyAsync("bob has seen it") { couple.bob.open.isEmpty }
        let preferred = try await couple.alice.chat("bob").buildP2PConnections(preferredTransportIdentifier: "_three")
        #expect(preferred.clients.map(\.transportLayerIdentifier) == ["_three"])
        #expect(alice.map(\.calls.created) == [1, 0, 1])
        couple.close()
    }

    /// A factory that fails here, one that fails there, and one that the other side does not have.
    @Test func theNextFactoryIsTriedAfterAFailure() async throws {
        let alice = [CountingFactory("_broken"), spoof("_unknown"), spoof("_refused"), spoof("_good")]
        let bob = [CountingFactory("_refused"), spoof("_good")]
        let couple = try await Couple(alice, bob)
        let (client, _) = try await couple.connect()
        #expect(client.transportLayerIdentifier == "_good")
        #expect(alice.map(\.calls.created) == [1, 1, 1, 1])
        #expect(bob[0].calls.received == 1)
        couple.close()
    }

    @Test func withoutAFactoryThereIsNoConnection() async throws {
        let couple = try await Couple([], [spoof("_spoof")])
        await #expect(throws: P2PError.noTransport) { try await couple.alice.chat("bob").buildP2PConnections() }
        // Requests of others are dropped.
        let other = try await Couple([spoof("_spoof")], [], impatient)
        let result = try await other.alice.chat("bob").buildP2PConnections()
        #expect(result.failures == [other.bob.messenger.deviceId: .timedOut])
        couple.close()
        other.close()
    }

    /// In relay-only mode a factory that discloses addresses is used by neither side's request.
    @Test func relayOnlyUsesNoFactoryThatDisclosesAddresses() async throws {
        var settings = patient
        settings.mode = .relayOnly
        let (direct, relay) = (spoof("_direct", disclosesAddress: true), spoof("_relay"))
        let couple = try await Couple(
            [spoof("_direct", disclosesAddress: true), spoof("_relay")], [direct, relay], patient, settings)
        let (client, _) = try await couple.connect()
        #expect(client.transportLayerIdentifier == "_relay")
        #expect(direct.calls == (0, 0) && relay.calls == (0, 1))
        await client.disconnect()
        try await eventuallyAsync("bob has seen it") { couple.bob.open.isEmpty }
        let bobs = try await couple.bob.chat("alice").buildP2PConnections()
        #expect(bobs.clients.map(\.transportLayerIdentifier) == ["_relay"])
        #expect(direct.calls == (0, 0))
        #expect(couple.alice.handler.events.requests.map(\.disclosesAddress) == [false])
        couple.close()
        #expect(IPv6TCPP2PTransportClientFactory().disclosesAddress)
    }

    /// The mode of a chat counts in both directions, and closes what was open over another transport.
    @Test func theModeOfAChatIsAsStrict() async throws {
        let alice = [spoof("_direct", disclosesAddress: true), spoof("_relay")]
        let bob = [spoof("_direct", disclosesAddress: true), spoof("_relay")]
        let couple = try await Couple(alice, bob)
        let (first, _) = try await couple.connect()
        #expect(first.transportLayerIdentifier == "_direct")
        couple.bob.handler.change { $0.mode = .relayOnly }
        let bobs = try await couple.bob.chat("alice").buildP2PConnections(preferredTransportIdentifier: "_direct")
        #expect(bobs.clients.map(\.transportLayerIdentifier) == ["_relay"])
        try await eventuallyAsync("the relay has replaced it") {
            couple.alice.open.map(\.transportLayerIdentifier) == ["_relay"] && first.closeReason != nil
        }
        await bobs.clients.first?.disconnect()
        try await eventuallyAsync("alice has seen it") { couple.alice.open.isEmpty }
        let alices = try await couple.alice.chat("bob").buildP2PConnections()
        #expect(alices.clients.map(\.transportLayerIdentifier) == ["_relay"])
        #expect(alice.map(\.calls.created) == [2, 1] && alice.map(\.calls.received) == [0, 1])
        #expect(bob.map(\.calls.created) == [0, 1] && bob.map(\.calls.received) == [1, 1])
        #expect(couple.bob.handler.events.requests.map(\.disclosesAddress) == [true, false, false])
        couple.close()
    }

    /// A chat that becomes relay-only while a factory tries does not get to a factory that discloses addresses.
    @Test func theModeIsAskedBeforeEachFactory() async throws {
        let (broken, direct) = (CountingFactory("_broken"), spoof("_direct", disclosesAddress: true))
        let couple = try await Couple([broken, direct], [spoof("_direct", disclosesAddress: true)])
        broken.onCreate.withLock { $0 = { couple.alice.handler.change { $0.mode = .relayOnly } } }
        let result = try await couple.alice.chat("bob").buildP2PConnections()
        #expect(result.failures == [couple.bob.messenger.deviceId: .transport("out of order")])
        #expect(broken.calls.created == 1 && direct.calls == (0, 0))
        couple.close()
    }

    /// A person makes a chat relay-only while they are asked whether the other one may connect.
    @Test func theModeIsAskedAfterTheConsent() async throws {
        let (direct, relay) = (spoof("_direct", disclosesAddress: true), spoof("_relay"))
        let couple = try await Couple([spoof("_direct", disclosesAddress: true), spoof("_relay")], [direct, relay])
        couple.bob.handler.change { $0.isHoldingRequests = true }
        let call = Task { try await couple.alice.chat("bob").buildP2PConnections() }
        try await eventuallyAsync("bob is asked") { couple.bob.handler.events.requests.count == 1 }
        couple.bob.handler.change { ($0.mode, $0.isHoldingRequests) = (.relayOnly, false) }
        #expect(try await call.value.clients.map(\.transportLayerIdentifier) == ["_relay"])
        #expect(direct.calls == (0, 0) && relay.calls == (0, 1))
        #expect(couple.bob.handler.events.requests.map(\.disclosesAddress) == [true, false])
        couple.close()
    }

    // MARK: Limits

    @Test func tooManyConnectionsAreRefused() async throws {
        var one = patient
        one.openLimit = 1
        let couple = try await Couple(.memory, bob: one)
        _ = try await couple.connect()
        let factory = TransportKind.memory.factory(couple.network)
        let carol = try await Person.register("carol", at: couple.server, [factory], impatient)
        try await carol.chat("bob").sendText("hello")
        try await couple.bob.waitForText(from: "carol")
        try await couple.bob.chat("carol").sendText("hello")
        try await carol.waitForText(from: "bob")
        let result = try await carol.chat("bob").buildP2PConnections()
        #expect(result.failures.values.map(\.self) == [.timedOut])
        #expect(couple.bob.open.map(\.username) == ["alice"])
        let own = try await couple.bob.chat("carol").buildP2PConnections()
        #expect(own.failures == [carol.messenger.deviceId: .tooMany])
        couple.close()
        carol.messenger.close()
    }

    /// Requests that wait for the app's answer keep this device from no call of its own.
    @Test func requestsOfOthersLeaveRoomForOwnCalls() async throws {
        var one = patient
        one.attemptLimit = 1
        let couple = try await Couple(.memory, bob: one)
        let carol = try await Person.register(
            "carol", at: couple.server, [TransportKind.memory.factory(couple.network)])
        try await carol.chat("bob").sendText("hello")
        try await couple.bob.waitForText(from: "carol")
        couple.bob.handler.change { $0.isHoldingRequests = true }
        let calling = Task { try await carol.chat("bob").buildP2PConnections() }
        try await eventuallyAsync("bob was asked") { couple.bob.handler.events.requests.count == 1 }
        let own = try await couple.bob.chat("alice").buildP2PConnections()
        #expect(own.clients.map(\.username) == ["alice"] && own.failures.isEmpty)
        couple.bob.handler.change { $0.isHoldingRequests = false }
        carol.messenger.close()
        couple.close()
        _ = try? await calling.value
    }

    /// Requests of one device are bounded before the app is asked.
    @Test func aDeviceCannotAskWithoutEnd() async throws {
        var settings = patient
        settings.connectTime = .milliseconds(20)
        var counting = patient
        counting.requestTime = .seconds(3600)
        let couple = try await Couple(.memory, alice: settings, bob: counting)
        couple.bob.handler.change { $0.accepts = false }
        for _ in 0..<P2PSettings.requestLimit + 10 {
            #expect(try await couple.alice.chat("bob").buildP2PConnections().clients.isEmpty)
        }
        try await eventuallyAsync("the server is quiet") { couple.server.waitingEvents == 0 }
        #expect((1...P2PSettings.requestLimit).contains(couple.bob.handler.events.requests.count))
        couple.close()
    }

    @Test func theLimitsOfAppsAreThoseOfTheMachine() {
        #expect(P2PSettings.packetLimit == PeerLimits.packetLimit)
        #expect(P2PSettings.messageLimit == PeerLimits.messageLimit)
    }
}
