import DoubleRatchet
import Messenger
import PeerConnection
import TestKit
import Testing

@testable import PawlMessenger

/// Requests that a device sends again under the same id, as a hostile one does, and packets that come late.
@Suite struct RepeatedRequestTests {
    /// A factory that cannot connect.
    private struct BrokenFactory: P2PTransportClientFactory {
        let transportLayerIdentifier = "_broken"

        func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
            throw P2PError.transport("out of order")
        }

        func receiveMessage(
            _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
        ) async throws -> (any P2PTransportClient)? { throw P2PError.transport("out of order") }
    }

    /// Sends a request past the own attempts.
    private func send(
        _ connection: PeerConnectionID, _ transport: String, from person: Person, to other: Person
    ) async throws {
        let kind = P2PSignal.Kind.packet(
            text: "", metadata: P2PMetadata(), secret: [UInt8](repeating: 1, count: PeerAgreement.secretSize))
        try await person.messenger.send(
            SignalJob(
                to: other.messenger.username.raw, device: other.messenger.deviceId.id, kind: P2PConnections.signalKind,
                text: P2PSignal(connection: connection, transport: transport, kind: kind).text, lifetime: 30))
    }

    private func newID() -> PeerConnectionID {
        var random = SystemRandomSource()
        return PeerConnectionID(random: &random)
    }

    /// With a second connection under the id of the first, one of them would be in no list: idle or of a removed device,
    /// it would stay. Whichever side has begun it.
    @Test(arguments: [false, true]) func theIDOfAnOpenConnectionBeginsNoAttempt(_ bobsOwn: Bool) async throws {
        let couple = try await Couple(.memory)
        let (alice, bob) = try await couple.connect()
        let (caller, called) = bobsOwn ? (couple.bob, couple.alice) : (couple.alice, couple.bob)
        #expect(alice.id == bob.id)
        let before = called.handler.events.requests.count
        try await send(alice.id, "_spoof", from: caller, to: called)
        try await send(newID(), "_other", from: caller, to: called)
        try await eventuallyAsync("the server is quiet") { couple.server.waitingEvents == 0 }
        try await eventuallyAsync("the app was asked") { called.handler.events.requests.count > before }
        #expect(called.handler.events.requests.dropFirst(before).map(\.transportLayerIdentifier) == ["_other"])
        #expect(couple.alice.open.map(\.id) == [alice.id] && couple.bob.open.map(\.id) == [bob.id])
        try await alice.sendMessage([1])
        #expect(couple.bob.handler.events.messages == [[1]])
        couple.close()
    }

    /// Packets that come after the end of their attempt ask for no other one.
    @Test func aLatePacketAsksNotAgain() async throws {
        let couple = try await Couple([], [BrokenFactory()])
        let bob = couple.bob.handler
        let id = newID()
        try await send(id, "_broken", from: couple.alice, to: couple.bob)
        try await eventuallyAsync("bob was asked") { bob.events.requests.count == 1 }
        try await eventuallyAsync("his factory has failed") { couple.bob.messenger.p2p.attemptCount == 0 }
        try await send(id, "_broken", from: couple.alice, to: couple.bob)
        try await send(newID(), "_other", from: couple.alice, to: couple.bob)
        try await eventuallyAsync("the server is quiet") { couple.server.waitingEvents == 0 }
        try await eventuallyAsync("bob was asked again") { bob.events.requests.count > 1 }
        #expect(bob.events.requests.map(\.transportLayerIdentifier) == ["_broken", "_other"])
        couple.close()
    }

    /// A device that is removed while its request waits does not connect.
    @Test func aDeviceThatWasRemovedMeanwhileIsNotConnected() async throws {
        let couple = try await Couple(.memory)
        let phone = try await Person.register("bob", at: couple.server, [TransportKind.memory.factory(couple.network)])
        try await eventuallyAsync("the phone is adopted") { await phone.messenger.isAdopted() }
        try await couple.alice.chat("bob").sendText("to both")
        try await phone.waitForText(from: "alice")
        try await phone.chat("alice").sendText("from the phone")
        let id = phone.messenger.deviceId
        try await eventuallyAsync("alice knows the phone") { couple.alice.chat("bob").devices.contains(id) }
        couple.alice.handler.change { $0.isHoldingRequests = true }
        let calling = Task {
            // A request that comes too late is dropped.
            while couple.alice.handler.events.requests.isEmpty, !Task.isCancelled {
                _ = try? await phone.chat("alice").buildP2PConnections()
                try? await Task.sleep(for: .milliseconds(50))
            }
        }
        defer { calling.cancel() }
        try await eventuallyAsync("alice was asked") { !couple.alice.handler.events.requests.isEmpty }
        try await couple.bob.messenger.revokeDevice(id)
        try await couple.bob.chat("alice").sendText("I have lost my phone")
        try await eventuallyAsync("alice has the new list") { !couple.alice.chat("bob").devices.contains(id) }
        couple.alice.handler.change { $0.isHoldingRequests = false }
        try await eventuallyAsync("the attempt has ended") { couple.alice.messenger.p2p.attemptCount == 0 }
        #expect(couple.alice.handler.events.opened.isEmpty && couple.alice.open.isEmpty)
        couple.close()
        phone.messenger.close()
        await calling.value
    }
}
