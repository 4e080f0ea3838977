import PawlMessenger
import Testing

/// The examples of the document about server transports, with these substitutions: `EventLoopFuture<X>` becomes
/// `async throws -> X`; `delegate`, blobs and transports are `Sendable` or say `any`, as Swift 6 demands; the events of the
/// server arrive at `receiveServerEvent(_:)`. Names and labels are those of the document.
@Suite struct DocumentTests {
    /// The document's protocol, requirement by requirement. If a name or a label differed, this type would not conform.
    final class DocumentedTransport: CypherServerTransportClient, @unchecked Sendable {
        weak var delegate: (any CypherTransportClientDelegate)?
        var authenticated: AuthenticationState { .authenticated }
        var supportsMultiRecipientMessages: Bool { false }
        var calls: [String] = []

        // Required
        func sendMessage(
            _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId,
            messageId: String
        ) async throws { calls.append("sendMessage") }
        func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
            calls.append("readKeyBundle")
            throw CypherTransportError.notFound
        }
        func publishKeyBundle(_ data: UserConfig) async throws { calls.append("publishKeyBundle") }

        // Optional from here
        func reconnect() async throws { calls.append("reconnect") }
        func disconnect() async throws { calls.append("disconnect") }
        func requestDeviceRegistery(_ config: UserDeviceConfig) async throws { calls.append("requestDeviceRegistery") }
        func sendMessageReadReceipt(byRemoteId remoteId: String, to username: Username) async throws {
            calls.append("sendMessageReadReceipt")
        }
        func sendMessageReceivedReceipt(byRemoteId remoteId: String, to username: Username) async throws {
            calls.append("sendMessageReceivedReceipt")
        }
        func publishBlob<C: Codable & Sendable>(_ blob: C) async throws -> ReferencedBlob<C> {
            calls.append("publishBlob")
            return ReferencedBlob(id: "1", blob: blob)
        }
        func readPublishedBlob<C: Codable & Sendable>(
            byId id: String, as type: C.Type
        ) async throws -> ReferencedBlob<C>? {
            calls.append("readPublishedBlob")
            return nil
        }
        func sendMultiRecipientMessage(_ message: MultiRecipientCypherMessage, messageId: String) async throws {
            calls.append("sendMultiRecipientMessage")
        }
    }

    /// The optional calls, left out.
    final class SmallestTransport: CypherServerTransportClient, @unchecked Sendable {
        weak var delegate: (any CypherTransportClientDelegate)?
        var authenticated: AuthenticationState { .authenticated }
        func sendMessage(
            _ message: RatchetedCypherMessage, toUser username: Username, otherUserDeviceId: DeviceId,
            messageId: String
        ) async throws {}
        func readKeyBundle(forUsername username: Username) async throws -> UserConfig {
            throw CypherTransportError.notFound
        }
        func publishKeyBundle(_ data: UserConfig) async throws {}
    }

    @Test func allElevenCallsAndThreePropertiesAreThere() async throws {
        let transport: any CypherServerTransportClient = DocumentedTransport()
        let user: Username = "bob"
        let device = try #require(DeviceId("00000000000000ff"))
        #expect(transport.delegate == nil && transport.authenticated == .authenticated)
        #expect(!transport.supportsMultiRecipientMessages)
        let message = RatchetedCypherMessage(bytes: [1])
        try await transport.sendMessage(message, toUser: user, otherUserDeviceId: device, messageId: "1")
        _ = try? await transport.readKeyBundle(forUsername: user)
        try await transport.publishKeyBundle(UserConfig(bytes: []))
        try await transport.reconnect()
        try await transport.disconnect()
        try await transport.requestDeviceRegistery(UserDeviceConfig(bytes: []))
        try await transport.sendMessageReadReceipt(byRemoteId: "1", to: user)
        try await transport.sendMessageReceivedReceipt(byRemoteId: "1", to: user)
        #expect(try await transport.publishBlob(["a": 1]).id == "1")
        #expect(try await transport.readPublishedBlob(byId: "1", as: [String: Int].self) == nil)
        try await transport.sendMultiRecipientMessage(
            MultiRecipientCypherMessage(message: message, recipients: []), messageId: "1")
        #expect((transport as? DocumentedTransport)?.calls.count == 11)
    }

    @Test func optionalCallsThrowWithTheirName() async throws {
        let transport: any CypherServerTransportClient = SmallestTransport()
        await #expect(throws: CypherTransportError.unsupported("publishBlob")) {
            try await transport.publishBlob(1)
        }
        await #expect(throws: CypherTransportError.unsupported("readPublishedBlob")) {
            try await transport.readPublishedBlob(byId: "1", as: Int.self)
        }
        await #expect(throws: CypherTransportError.unsupported("requestDeviceRegistery")) {
            try await transport.requestDeviceRegistery(UserDeviceConfig(bytes: []))
        }
        await #expect(throws: CypherTransportError.unsupported("sendMessageReadReceipt")) {
            try await transport.sendMessageReadReceipt(byRemoteId: "1", to: "bob")
        }
        await #expect(throws: CypherTransportError.unsupported("sendMessageReceivedReceipt")) {
            try await transport.sendMessageReceivedReceipt(byRemoteId: "1", to: "bob")
        }
        await #expect(throws: CypherTransportError.unsupported("sendMultiRecipientMessage")) {
            try await transport.sendMultiRecipientMessage(
                MultiRecipientCypherMessage(message: RatchetedCypherMessage(bytes: []), recipients: []),
                messageId: "1")
        }
        try await transport.reconnect()
        try await transport.disconnect()
        #expect(!transport.supportsMultiRecipientMessages)
    }

    /// A messenger goes on with the three required calls.
    @Test func aMessengerNeedsTheRequiredCallsOnly() async throws {
        let messenger = try await CypherMessenger.registerMessenger(
            username: "admin", authenticationMethod: .password("hunter2"), appPassword: "app",
            usingTransport: { _ in SmallestTransport() }, database: .inMemory(), eventHandler: RecordingHandler())
        let message = try await messenger.createPrivateChat(with: "bob").sendText("hello")
        #expect(message.state == .waiting)
        messenger.close()
    }
}
