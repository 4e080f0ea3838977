import Foundation
import PawlMessenger
import PawlMessengerWebSocket
import PeerKit
import RequestQueue
import RequestQueueClient
import Synchronization
import TestKit
import TestThreads
import Testing

/// Messages over the WebSocket of a gateway: a real one whose connections are cut, and scripts in its place.
@Suite(.serialized) struct GatewaySocketTests {
    private static func id(_ number: Int) -> String { String(format: "%016x", number) }

    private func connect(_ device: KeyedDevice, _ client: GatewayTransportClient) async throws -> Connected {
        let delegate = RecordingDelegate()
        client.delegate = delegate
        try await untilAnswered("\(device.user) is online") { try await client.reconnect() }
        try await untilAnswered("\(device.user)'s keys are published") {
            try await client.publishKeyBundle(KeyedDevice.config(device.list(), of: [device]))
        }
        return Connected(device: device, client: client, delegate: delegate)
    }

    /// Makes a call again while the server does not answer it, as the messenger does.
    private func untilAnswered(_ what: String, _ call: () async throws -> Void) async throws {
        try await eventuallyAsync(what, every: .milliseconds(200)) {
            do {
                try await call()
                return true
            } catch CypherTransportError.offline {
                return false
            }
        }
    }

    // MARK: A real gateway

    /// Connections are cut in the middle of messages, and the gateway is killed: nothing is lost or overtaken.
    @Test func nothingIsLostWhenConnectionsAreCut() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let tap = try WireTap(backend: lab.gateway.port)
        defer { tap.stop() }
        let (first, second) = (KeyedDevice("alice", 1), KeyedDevice("bob", 2))
        let alice = try await connect(first, try await lab.client(for: first.request()))
        let address = try #require(URL(string: "http://127.0.0.1:\(tap.port)"))
        let client = try await lab.client(for: second.request(), at: address, sockets: WebSocketGatewayClient())
        let bob = try await connect(second, client)
        let all = (1...60).map { alice.message([UInt8($0)], id: Self.id($0)) }
        func send(_ numbers: ClosedRange<Int>) async throws {
            for number in numbers {
                try await untilAnswered("message \(number) is taken") {
                    try await alice.send([UInt8(number)], id: Self.id(number), to: bob)
                }
            }
        }
        try await send(1...20)
        try await bob.expect(Array(all.prefix(20)))
        // Over the WebSocket alone.
        let requests = tap.recordings.map { String(decoding: $0.fromClient, as: UTF8.self) }
        #expect(requests.contains { $0.contains("GET /_pawl/v1/socket ") })
        #expect(!requests.contains { $0.contains("GET /_pawl/v1/messages") })
        for number in 21...40 {
            try await send(number...number)
            if number.isMultiple(of: 4) { tap.resetAll() }
        }
        lab.gateway.crash()
        try await blocking { try lab.gateway.start() }
        try await send(41...60)
        try await eventuallyAsync("all have come") { Set(bob.delegate.events).count == all.count }
        // What was stored and not acknowledged may come again; nothing comes before what was sent before it.
        var seen: [String] = []
        for event in bob.delegate.events where !seen.contains(event) { seen.append(event) }
        #expect(seen == all)
    }

    /// A client that cannot open one uses calls.
    @Test func withoutAWebSocketCallsAreUsed() async throws {
        struct None: GatewaySocketClient {
            func open(_ request: GatewaySocketRequest) async throws -> any GatewaySocket {
                throw WebSocketError.timedOut
            }
        }
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let (first, second) = (KeyedDevice("alice", 1), KeyedDevice("bob", 2))
        let alice = try await connect(first, try await lab.client(for: first.request()))
        let bob = try await connect(second, try await lab.client(for: second.request(), sockets: None()))
        for number in 1...3 { try await alice.send([1], id: Self.id(number), to: bob) }
        try await bob.expect((1...3).map { alice.message([1], id: Self.id($0)) })
    }

    /// Messengers, with everything that they send over their transport.
    @Test func messengersTalkOverWebSockets() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        func register(_ name: Username) async throws -> App {
            let handler = RecordingHandler(adopts: true)
            let messenger = try await CypherMessenger.registerMessenger(
                username: name, authenticationMethod: .identity, appPassword: "open sesame",
                usingTransport: { try await lab.client(for: $0, sockets: WebSocketGatewayClient()) },
                database: .inMemory(), eventHandler: handler)
            return App(messenger: messenger, handler: handler, database: .inMemory())
        }
        let (alice, bob) = (try await register("alice"), try await register("bob"))
        try await alice.chat("bob").sendText("over the WebSocket")
        try await eventuallyAsync("it has come") { try await bob.texts(with: "alice") == ["over the WebSocket"] }
        try await eventuallyAsync("the receipt has come") {
            try await alice.chat("bob").messages().first?.state == .received
        }
        #expect(try lab.backend.knows("over the WebSocket") == false)
        alice.close()
        bob.close()
    }

    // MARK: Scripts

    /// A WebSocket that is a script.
    private final class Script: GatewaySocketClient, GatewaySocket {
        private let state: Mutex<(pages: [[UInt8]], sent: [String], isClosed: Bool, opened: Int)>

        init(_ pages: [String]) { state = Mutex((pages.map { Array($0.utf8) }, [], false, 0)) }

        var sent: [String] { state.withLock { $0.sent } }
        var opened: Int { state.withLock { $0.opened } }

        func open(_ request: GatewaySocketRequest) async throws -> any GatewaySocket {
            #expect(request.url.path() == "/_pawl/v1/socket" && request.credential == .bearer("t"))
            state.withLock { ($0.opened, $0.isClosed) = ($0.opened + 1, false) }
            return self
        }
        func receive() async -> [UInt8]? {
            while true {
                let (page, isClosed) = state.withLock { state in
                    (state.pages.isEmpty ? nil : state.pages.removeFirst(), state.isClosed)
                }
                if page != nil || isClosed { return page }
                try? await Task.sleep(for: .milliseconds(5))
            }
        }
        func send(_ text: [UInt8]) async throws {
            state.withLock { $0.sent.append(String(decoding: text, as: UTF8.self)) }
        }
        func close() { state.withLock { $0.isClosed = true } }
        func add(_ page: String) { state.withLock { $0.pages.append(Array(page.utf8)) } }
    }

    private final class Calls: Sendable {
        private let all = Mutex<[String]>([])
        var list: [String] { all.withLock { $0 } }
        func add(_ call: String) { all.withLock { $0.append(call) } }
    }

    private func client(_ script: Script, _ calls: Calls) throws -> GatewayTransportClient {
        let own = KeyedDevice("alice", 1)
        let url = try #require(URL(string: "http://gateway.example"))
        let network = InMemoryNetworkClient { (request: NetworkRequest) throws(NetworkFailure) -> NetworkResponse in
            let path = request.url.replacing("http://gateway.example/_pawl/v1/", with: "")
            calls.add("\(path) \(String(decoding: request.body, as: UTF8.self))")
            let answer =
                switch path {
                case "me": #"{"account":"alice","device":"\#(own.deviceId)"}"#
                case "messages/acknowledged": "{}"
                default: #"{"messages":[],"more":false}"#
                }
            return NetworkResponse(status: 200, body: Array(answer.utf8))
        }
        return GatewayTransportClient(url: url, for: own.request(), network: network, sockets: script) { _ in
            .bearer("t")
        }
    }

    private static func page(_ numbers: [Int]) -> String {
        let entries = numbers.map {
            #"{"sequence":\#($0),"kind":"message","from":"bob","device":"00000000000000b0","id":"m\#($0)","at":1,"message":"AQ"}"#
        }
        return #"{"messages":[\#(entries.joined(separator: ","))],"more":false}"#
    }

    @Test func pagesAreAcknowledgedWhenTheyAreStored() async throws {
        let script = Script([Self.page([]), Self.page([4, 5]), Self.page([7])])
        let (calls, delegate) = (Calls(), RecordingDelegate())
        let client = try client(script, calls)
        client.delegate = delegate
        try await client.reconnect()
        try await eventuallyAsync("both are acknowledged") { script.sent == [#"{"through":5}"#, #"{"through":7}"#] }
        #expect(delegate.events.count == 3)
        #expect(!calls.list.contains { $0.hasPrefix("messages") })
        // The gateway may not have read the last one.
        try await client.disconnect()
        try await eventuallyAsync("it is said again") { calls.list.last == #"messages/acknowledged {"through":7}"# }
    }

    /// What the messenger does not store is not acknowledged, and what came before it is.
    @Test func whatIsNotStoredIsNotAcknowledged() async throws {
        let script = Script([Self.page([4]), Self.page([5, 6])])
        let (calls, delegate) = (Calls(), RecordingDelegate())
        let client = try client(script, calls)
        client.delegate = delegate
        try await client.reconnect()
        try await eventuallyAsync("all have come") { script.sent.count == 2 }
        delegate.fail(1)
        script.add(Self.page([8]))
        try await eventuallyAsync("it is opened again") { script.opened == 2 }
        #expect(script.sent.count == 2 && delegate.events.count == 3)
        #expect(calls.list.filter { $0.hasPrefix("messages") } == [#"messages/acknowledged {"through":6}"#])
        try await client.disconnect()
    }

    /// A server that is no gateway of this version is asked by calls.
    @Test(arguments: ["", "{}", "hello", #"{"messages":[{}],"more":false}"#])
    func withoutAPageCallsAreUsed(_ text: String) async throws {
        let script = Script([text])
        let calls = Calls()
        let client = try client(script, calls)
        client.delegate = RecordingDelegate()
        try await client.reconnect()
        try await eventuallyAsync("it calls") { calls.list.contains { $0.hasPrefix("messages?after=0") } }
        #expect(script.sent.isEmpty && script.opened == 1)
        try await client.disconnect()
    }
}
