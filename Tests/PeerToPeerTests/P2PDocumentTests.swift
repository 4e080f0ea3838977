import Foundation
import PawlMessenger
import PawlPeerToPeerTCP
import Synchronization
import TestKit
import Testing

/// The examples of the document about peer-to-peer connections, with these substitutions:
///
/// - `Document`, a BSON value, becomes `P2PMetadata`, which holds any `Codable` value;
/// - `P2PTransportClient?` and the elements of `p2pFactories` say `any`, as Swift 6 demands;
/// - the document's gaps (`...`) are filled, and its `MyCustomP2PTransportFactory` is the type below;
/// - "binary data" is `[UInt8]`;
/// - the delegate is notified of an opened connection as well.
///
/// Names and labels are those of the document.
@Suite struct P2PDocumentTests {
    /// A full-duplex channel of the app's own: it receives binary data, which it gives to its weakly captured delegate,
    /// sends binary data, and supports disconnection.
    private final class MyCustomP2PTransportClient: P2PTransportClient {
        private struct State {
            weak var delegate: (any P2PTransportClientDelegate)?
            weak var other: MyCustomP2PTransportClient?
            var connected = ConnectionState.connecting
            var waiting: [[UInt8]] = []
        }

        let state: P2PFrameworkState
        private let inner = Mutex(State())
        private let queue = DispatchQueue(label: "custom")

        init(state: P2PFrameworkState) { self.state = state }

        var delegate: (any P2PTransportClientDelegate)? {
            get { inner.withLock { $0.delegate } }
            set {
                inner.withLock { $0.delegate = newValue }
                queue.async { self.deliver() }
            }
        }
        var connected: ConnectionState { inner.withLock { $0.connected } }

        func join(_ other: MyCustomP2PTransportClient) {
            for (one, two) in [(self, other), (other, self)] {
                one.inner.withLock { ($0.other, $0.connected) = (two, .connected) }
                one.queue.async { one.delegate?.p2pConnectionOpened(one) }
            }
        }

        func sendMessage(_ message: [UInt8]) async throws {
            guard connected == .connected, let other = inner.withLock({ $0.other }) else {
                throw P2PError.transport("not connected")
            }
            other.inner.withLock { $0.waiting.append(message) }
            other.queue.async { other.deliver() }
        }

        func disconnect() async throws {
            let other = inner.withLock { $0.other }
            for one in [self] + [other].compactMap({ $0 }) {
                let isFirst = one.inner.withLock { state in
                    defer { state.connected = .disconnected }
                    return state.connected != .disconnected
                }
                if isFirst { one.queue.async { one.delegate?.p2pConnectionClosed(one) } }
            }
        }

        private func deliver() {
            while let delegate, let message = inner.withLock({ $0.waiting.isEmpty ? nil : $0.waiting.removeFirst() }) {
                delegate.p2pConnection(self, receivedMessage: message)
            }
        }
    }

    private final class MyCustomP2PTransportFactory: P2PTransportClientFactory {
        /// Where both sides find each other.
        final class Place: Sendable {
            let waiting = Mutex<[String: MyCustomP2PTransportClient]>([:])
        }

        let transportLayerIdentifier = "my-custom"
        private let place: Place

        init(_ place: Place) { self.place = place }

        func createConnection(
            handle: P2PTransportFactoryHandle
        ) async throws -> (any P2PTransportClient)? {
            let client = MyCustomP2PTransportClient(state: handle.state)
            let name = UUID().uuidString
            place.waiting.withLock { $0[name] = client }
            try await handle.sendMessage(name, metadata: P2PMetadata(["anything": 1]))
            return client
        }

        func receiveMessage(
            _ text: String,
            metadata: P2PMetadata,
            handle: P2PTransportFactoryHandle
        ) async throws -> (any P2PTransportClient)? {
            guard let other = place.waiting.withLock({ $0.removeValue(forKey: text) }) else { return nil }
            let client = MyCustomP2PTransportClient(state: handle.state)
            client.join(other)
            return client
        }
    }

    @Test func theExamplesWork() async throws {
        let (server, place) = (SpoofServer(), MyCustomP2PTransportFactory.Place())
        let (adminHandler, otherHandler) = (P2PHandler(), P2PHandler())
        let messenger = try await CypherMessenger.registerMessenger(
            username: "admin",
            authenticationMethod: .password("hunter2"),
            appPassword: "open sesame",
            usingTransport: { server.client(for: $0) },
            p2pFactories: [
                IPv6TCPP2PTransportClientFactory(),
                MyCustomP2PTransportFactory(place),
            ],
            database: .inMemory(),
            eventHandler: adminHandler
        )
        let other = try await CypherMessenger.registerMessenger(
            username: "other", authenticationMethod: .password("hunter2"), appPassword: "open sesame",
            usingTransport: { server.client(for: $0) }, p2pFactories: [MyCustomP2PTransportFactory(place)],
            database: .inMemory(), eventHandler: otherHandler)
        let chat = messenger.createPrivateChat(with: "other")
        try await chat.sendText("hello")
        try await eventuallyAsync("it has come") {
            try await other.createPrivateChat(with: "admin").messages().count == 1
        }
        try await other.createPrivateChat(with: "admin").sendText("hello")
        try await eventuallyAsync("the answer has come") { try await chat.messages().count == 2 }

        let privateChat = try await chat.buildP2PConnections()
        #expect(privateChat.clients.map(\.transportLayerIdentifier) == ["my-custom"])
        #expect(chat.listOpenP2PConnections().count == 1)
        #expect(messenger.listOpenP2PConnections().count == 1)
        let client = try #require(messenger.listOpenP2PConnections().first)
        try await client.updateStatus(flags: .isTyping)
        try await eventuallyAsync("the status has come") {
            other.listOpenP2PConnections().first?.remoteStatus?.flags == .isTyping
        }
        try await client.sendMessage([1, 2, 3])
        #expect(otherHandler.events.messages == [[1, 2, 3]])
        await client.disconnect()
        try await eventuallyAsync("the event handlers are notified") {
            adminHandler.events.opened.count == 1 && adminHandler.events.closed.count == 1
                && otherHandler.events.opened.count == 1 && otherHandler.events.closed.count == 1
        }
        #expect(messenger.listOpenP2PConnections().isEmpty)
        messenger.close()
        other.close()
    }

    /// The connection states that the document names, and `SpoofP2PTransportClient` for tests.
    @Test func theOtherNamesAreThere() async throws {
        let network = SpoofP2PNetwork()
        let factory = SpoofP2PTransportClientFactory(network: network)
        let pair = FactoryPair(factory, factory)
        let (one, other) = try await pair.connect()
        let spoof = try #require(one as? SpoofP2PTransportClient)
        #expect(spoof.connected == .connected && spoof.delegate == nil)
        try await spoof.disconnect()
        #expect(other.connected == .disconnected)
        #expect(ConnectionState.connecting != .disconnecting)
    }
}
