#if WebRTC
    import Foundation
    import NIOCore
    import NIOPosix
    import PawlMessenger
    import PeerKit
    import Synchronization
    import TestKit
    import TestThreads
    import Testing

    @testable import PawlPeerToPeerWebRTC

    private typealias Factory = WebRTCP2PTransportClientFactory

    /// Sessions of strangers, and what a factory gives away.
    @Suite struct HostileWebRTCTests {
        private let factory = Factory(addresses: .listed(["127.0.0.1"]))

        private func offer(
            _ factory: Factory, from name: Username = "bob"
        ) async throws -> (client: any P2PTransportClient, packet: WebRTCPacket) {
            let packets = Mutex<[P2PMetadata]>([])
            let made = try await factory.createConnection(
                handle: try webRTCHandle(name) { _, metadata in packets.withLock { $0.append(metadata) } })
            let client = try #require(made)
            let packet = try #require(packets.withLock { $0.first }.flatMap { WebRTCPacket($0) })
            return (client, packet)
        }

        @Test func packetsOfOtherFormsAreRefused() async throws {
            for metadata in [P2PMetadata(), try P2PMetadata(["version": 1]), try P2PMetadata([1])] {
                await #expect(throws: P2PError.transport("The packet has another form.")) {
                    _ = try await factory.receiveMessage("", metadata: metadata, handle: webRTCHandle())
                }
            }
        }

        /// The answer of another person, or to another session, changes nothing.
        @Test func anAnswerOfAnotherSideIsIgnored() async throws {
            let (client, offered) = try await offer(factory)
            guard case .offer(var description) = offered.kind else {
                Issue.record("no offer")
                return
            }
            description.setup = .active
            let answer = WebRTCPacket(session: offered.session, kind: .answer(description), candidates: [])
            let other = WebRTCPacket(
                session: [UInt8](repeating: 0, count: 16), kind: .answer(description), candidates: offered.candidates)
            for (packet, name) in [(answer, "mallory" as Username), (other, "bob")] {
                let made = try await factory.receiveMessage(
                    "", metadata: packet.metadata(), handle: webRTCHandle(name))
                #expect(made == nil)
            }
            #expect(client.connected == .connecting)
            // Candidates before the answer have no session to belong to.
            let early = WebRTCPacket(session: offered.session, kind: .candidates, candidates: offered.candidates)
            #expect(try await factory.receiveMessage("", metadata: early.metadata(), handle: webRTCHandle()) == nil)
            try await client.disconnect()
            #expect(client.connected == .disconnected)
        }

        @Test func anOfferCannotBeRepeated() async throws {
            let (client, offered) = try await offer(factory)
            let other = Factory(addresses: .listed(["127.0.0.1"]))
            let made = try await other.receiveMessage("", metadata: offered.metadata(), handle: webRTCHandle())
            let answerer = try #require(made)
            await #expect(throws: P2PError.transport("The session is not a new one.")) {
                _ = try await other.receiveMessage("", metadata: offered.metadata(), handle: webRTCHandle())
            }
            try await answerer.disconnect()
            try await client.disconnect()
        }

        /// Without a relay nothing is sent, so that no address is disclosed.
        @Test func relayOnlyOffersNoOtherAddress() async throws {
            let hidden = Factory(addresses: .listed(["127.0.0.1"]), relayOnly: true)
            #expect(!hidden.disclosesAddress && factory.disclosesAddress)
            await #expect(throws: P2PError.transport("No relay has given an address.")) {
                _ = try await hidden.createConnection(
                    handle: webRTCHandle { _, _ in Issue.record("a packet was sent") })
            }
        }

        @Test func serversHaveNamesOrAddresses() async throws {
            for host in ["", "a b", "a@b", "a/b", "a?b", "[::1]", String(repeating: "a", count: 256)] {
                let odd = Factory(addresses: .listed(["127.0.0.1"]), stunServer: .init(host: host))
                await #expect(throws: P2PError.transport("The name of a server has other characters."), "\(host)") {
                    _ = try await odd.createConnection(handle: webRTCHandle())
                }
            }
            let relay = Factory.Relay(server: .init(host: "::1"), user: "a:b", password: "p@/\u{e9}")
            #expect(relay.url == "turn://a%3Ab:p%40%2F%C3%A9@[::1]:3478?transport=udp")
            #expect("\(relay)" == "[::1]:3478" && String(reflecting: relay) == "[::1]:3478")
        }

        @Test func withoutAnAddressThereIsNoConnection() async throws {
            let nowhere = Factory(addresses: .listed(["localhost"]))
            await #expect(throws: P2PError.transport("This device has no address to use.")) {
                _ = try await nowhere.createConnection(handle: webRTCHandle())
            }
        }

        /// Senders wait while much waits to be sent, and all arrives.
        @Test func sendersWaitForRoom() async throws {
            let pair = FactoryPair(factory, Factory(addresses: .listed(["127.0.0.1"])))
            let (one, other) = try await pair.connect()
            let counter = Counter()
            other.delegate = counter
            let packet = [UInt8](repeating: 1, count: P2PSettings.packetLimit)
            let client = try #require(one as? WebRTCP2PTransportClient)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        for _ in 0..<25 {
                            try await client.sendMessage(packet)
                            #expect(client.waiting <= WebRTCLimits.highWater)
                        }
                    }
                }
                try await group.waitForAll()
            }
            try await eventuallyAsync("all have come") { counter.count == 100 * packet.count }
            try await one.disconnect()
            try await eventuallyAsync("it is closed") { other.connected == .disconnected }
        }

        /// The end of a process is seen although it sends nothing: requests of ICE are not answered any more.
        @Test(.enabled(if: isLong)) func anotherSideThatVanishesIsSeen() async throws {
            let pair = FactoryPair(factory, Factory(addresses: .listed(["127.0.0.1"])))
            let (one, other) = try await pair.connect()
            let recorder = Recorder()
            other.delegate = recorder
            try #require(one as? WebRTCP2PTransportClient).ended()
            try await eventuallyAsync("it is closed", timeout: .seconds(120)) { recorder.events.closed == 1 }
            #expect(other.connected == .disconnected)
        }

        private final class Counter: P2PTransportClientDelegate {
            private let state = Mutex(0)
            var count: Int { state.withLock { $0 } }
            func p2pConnectionOpened(_ connection: any P2PTransportClient) {}
            func p2pConnection(_ connection: any P2PTransportClient, receivedMessage message: [UInt8]) {
                state.withLock { $0 += message.count }
            }
            func p2pConnectionClosed(_ connection: any P2PTransportClient) {}
        }
    }

    /// Data channels with aiortc. Only with `--long`: `deploy/install-python` installs it into `.build-peers-webrtc`.
    @Suite(.serialized, .blocking, .enabled(if: isLong)) struct WebRTCPeerTests {
        private let factory = Factory(addresses: .listed(["127.0.0.1"]))
        private let scratch: ScratchDirectory
        private let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()

        init() throws { scratch = try ScratchDirectory() }

        private func start(_ role: String) throws -> ChildProcess {
            let root = folder.deletingLastPathComponent().deletingLastPathComponent()
            return try ChildProcess(
                root.appending(path: ".build-peers-webrtc/bin/python").path,
                [folder.appending(path: "Peers/webrtc_peer.py").path, scratch.file("."), role])
        }

        /// The SDP of aiortc, as a packet of another factory.
        private func read(
            _ session: [UInt8], _ peer: ChildProcess, _ kind: (WebRTCDescription) -> WebRTCPacket.Kind
        ) async throws -> P2PMetadata {
            var sdp = ""
            try await eventuallyAsync("aiortc has described itself") {
                sdp = (try? String(contentsOfFile: scratch.file("own.sdp"), encoding: .utf8)) ?? ""
                return !sdp.isEmpty || !peer.isRunning
            }
            let description = try #require(WebRTCDescription(sdp: sdp), "\(sdp) \(peer.stderr)")
            let candidates = sdp.split(whereSeparator: \.isNewline).filter { $0.hasPrefix("a=candidate:") }
                .compactMap { WebRTCCandidate(attribute: String($0.dropFirst(2))) }
            #expect(!candidates.isEmpty)
            return try WebRTCPacket(session: session, kind: kind(description), candidates: candidates).metadata()
        }

        private func write(_ packet: WebRTCPacket) throws {
            switch packet.kind {
            case .offer(let description), .answer(let description):
                let candidates = packet.candidates.enumerated().map {
                    "a=\($0.element.attribute(foundation: $0.offset + 1))\r\n"
                }
                try (description.sdp + candidates.joined()).write(
                    toFile: scratch.file("other.sdp"), atomically: true, encoding: .utf8)
            case .candidates: Issue.record("no description")
            }
        }

        /// Packets of all sizes come back whole, and both sides end.
        private func exchange(_ client: any P2PTransportClient, _ peer: ChildProcess) async throws {
            let recorder = Recorder()
            client.delegate = recorder
            try await eventuallyAsync("it is connected: \(peer.stderr)") { client.connected == .connected }
            var generator = SeededGenerator(seed: 157)
            let packets = ([1, 2, 16_379, 16_380, 16_381, P2PSettings.packetLimit] + (0..<50).map { $0 * 97 + 1 })
                .map { generator.bytes($0) }
            for packet in packets { try await client.sendMessage(packet) }
            try await eventuallyAsync("all have come back") { recorder.events.packets.count == packets.count }
            #expect(recorder.events.packets == packets)
            try await client.disconnect()
            try await eventuallyAsync("both have ended") { recorder.events.closed == 1 && !peer.isRunning }
            #expect(peer.stdout == "text end\ndone\n", "\(peer.stderr)")
        }

        @Test func aiortcAnswers() async throws {
            let peer = try start("answer")
            defer { peer.stop() }
            let sent = Mutex<[P2PMetadata]>([])
            let handle = try webRTCHandle { _, metadata in sent.withLock { $0.append(metadata) } }
            let made = try await factory.createConnection(handle: handle)
            let client = try #require(made)
            let offer = try #require(sent.withLock { $0.first }.flatMap { WebRTCPacket($0) })
            try write(offer)
            let answer = try await read(offer.session, peer) { .answer($0) }
            #expect(try await factory.receiveMessage("", metadata: answer, handle: handle) == nil)
            try await exchange(client, peer)
        }

        @Test func aiortcOffers() async throws {
            let peer = try start("offer")
            defer { peer.stop() }
            let offer = try await read([UInt8](repeating: 7, count: 16), peer) { .offer($0) }
            let sent = Mutex<[P2PMetadata]>([])
            let handle = try webRTCHandle { _, metadata in sent.withLock { $0.append(metadata) } }
            let made = try await factory.receiveMessage("", metadata: offer, handle: handle)
            let client = try #require(made)
            try write(try #require(sent.withLock { $0.first }.flatMap { WebRTCPacket($0) }))
            try await exchange(client, peer)
        }
    }

    /// Connections over a TURN server (coturn). Only with `--long`.
    @Suite(.serialized, .blocking, .enabled(if: isLong)) struct WebRTCRelayTests {
        /// Remembers which addresses have sent something.
        private final class Sources: ChannelInboundHandler, Sendable {
            typealias InboundIn = AddressedEnvelope<ByteBuffer>

            private let state = Mutex<[String]>([])
            var all: [String] { state.withLock { $0 } }

            func channelRead(context: ChannelHandlerContext, data: NIOAny) {
                let address = unwrapInboundIn(data).remoteAddress.ipAddress ?? ""
                state.withLock { $0.append(address) }
            }
        }

        private let scratch: ScratchDirectory

        init() throws { scratch = try ScratchDirectory() }

        private func bind(_ host: String, _ handler: Sources = Sources()) async throws -> any Channel {
            try await DatagramBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .channelInitializer { $0.pipeline.addHandler(handler) }
                .bind(host: host, port: 0).get()
        }

        /// A TURN server on another loopback address, and a factory that uses it alone.
        private func start() async throws -> (server: ChildProcess, factory: Factory) {
            let socket = try await bind("127.0.0.2")
            let port = try #require(socket.localAddress?.port)
            try await socket.close()
            let server = try ChildProcess(
                "turnserver",
                [
                    "-n", "--listening-ip=127.0.0.2", "--relay-ip=127.0.0.2", "--listening-port=\(port)",
                    "--lt-cred-mech",
                    "--user=pawl:a pass", "--realm=test", "--allow-loopback-peers", "--no-cli", "--no-tls", "--no-dtls",
                    "--log-file=stdout", "--simple-log", "--pidfile=\(scratch.file("turn.pid"))",
                ])
            try await eventuallyAsync("the TURN server listens: \(server.stdout) \(server.stderr)") {
                let bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                guard let socket = try? await bootstrap.connect(host: "127.0.0.2", port: port).get() else {
                    return false
                }
                try await socket.close()
                return true
            }
            let relay = Factory.Relay(
                server: .init(host: "127.0.0.2", port: UInt16(port)), user: "pawl", password: "a pass")
            return (server, Factory(addresses: .listed(["127.0.0.1"]), relays: [relay], relayOnly: true))
        }

        @Test func aRelayCarriesPackets() async throws {
            let (server, factory) = try await start()
            defer { server.stop() }
            let pair = FactoryPair(factory, Factory(addresses: .listed(["127.0.0.1"])))
            let (one, other) = try await pair.connect()
            let offer = try #require(pair.packets.withLock { $0.first }.flatMap { WebRTCPacket($0.metadata) })
            #expect(!offer.candidates.isEmpty)
            #expect(offer.candidates.allSatisfy { $0.kind == .relay && $0.host.text == "127.0.0.2" })
            let recorder = Recorder()
            other.delegate = recorder
            let packet = [UInt8](repeating: 3, count: P2PSettings.packetLimit)
            for _ in 0..<5 { try await one.sendMessage(packet) }
            try await one.disconnect()
            try await eventuallyAsync("the end has come") { recorder.events.closed == 1 }
            #expect(recorder.events.packets == [[UInt8]](repeating: packet, count: 5))
        }

        /// The other side's socket receives from the relay, and nothing from this device.
        @Test func theOtherSideReceivesFromTheRelayAlone() async throws {
            let (server, factory) = try await start()
            defer { server.stop() }
            let sent = Mutex<[P2PMetadata]>([])
            let handle = try webRTCHandle { _, metadata in sent.withLock { $0.append(metadata) } }
            let made = try await factory.createConnection(handle: handle)
            let client = try #require(made)
            let metadata = try #require(sent.withLock { $0.first })
            let offer = try #require(WebRTCPacket(metadata))
            let sources = Sources()
            let socket = try await bind("127.0.0.1", sources)
            let port = try #require(socket.localAddress?.port)
            guard case .offer(var description) = offer.kind else {
                Issue.record("no offer")
                return
            }
            description.setup = .active
            let candidate = try #require(WebRTCCandidate(kind: .host, host: "127.0.0.1", port: port, priority: 1 << 30))
            let answer = WebRTCPacket(session: offer.session, kind: .answer(description), candidates: [candidate])
            #expect(try await factory.receiveMessage("", metadata: answer.metadata(), handle: handle) == nil)
            // The socket answers no check of ICE: libnice sends three, and the attempt ends.
            try await eventuallyAsync("the attempt has ended") { client.connected == .disconnected }
            #expect(Set(sources.all) == ["127.0.0.2"])
            try await client.disconnect()
            try await socket.close()
        }
    }

    private let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil

    private func webRTCHandle(
        _ name: Username = "bob", _ send: @escaping @Sendable (String, P2PMetadata) async throws -> Void = { _, _ in }
    ) throws -> P2PTransportFactoryHandle {
        P2PTransportFactoryHandle(
            state: P2PFrameworkState(
                username: name, deviceId: try #require(DeviceId("00000000000000ff")),
                transportLayerIdentifier: "_webrtc"),
            send: send)
    }
#endif
