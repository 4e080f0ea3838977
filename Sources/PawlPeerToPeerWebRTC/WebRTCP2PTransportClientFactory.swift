#if WebRTC
    // The side that begins makes the data channel and offers its description; the other side answers with its own.

    import Foundation
    public import PawlMessenger
    import Synchronization

    /// Connects two devices over a data channel of WebRTC.
    ///
    /// Each side learns the network addresses that the other one offers. With ``Relay``s alone
    /// (``init(addresses:stunServer:relays:relayOnly:)``) it learns only those of the relays.
    public struct WebRTCP2PTransportClientFactory: P2PTransportClientFactory {
        /// What a device offers.
        public enum Addresses: Sendable, Hashable {
            /// The addresses of all interfaces but loopback.
            case interfaces
            /// These: numeric IPv6 or IPv4 addresses of this device, at most 8. With a loopback address among them, the
            /// factory also connects to loopback addresses, for tests.
            case listed([String])
        }

        /// A server that is asked for, or relays to, this device. There is none by default.
        public struct Server: Sendable, Hashable {
            /// A name or a numeric address.
            public var host: String
            /// UDP.
            public var port: UInt16

            /// A server.
            public init(host: String, port: UInt16 = 3478) { (self.host, self.port) = (host, port) }

            var isUsable: Bool {
                (1...255).contains(host.utf8.count)
                    && host.utf8.allSatisfy {
                        (0x30...0x3A).contains($0) || (0x41...0x5A).contains($0) || (0x61...0x7A).contains($0)
                            || $0 == 0x2D || $0 == 0x2E
                    }
            }

            var authority: String { (host.contains(":") ? "[\(host)]" : host) + ":\(port)" }
        }

        /// A TURN server with its credentials, which no description of this value shows.
        public struct Relay: Sendable, Hashable, CustomStringConvertible, CustomDebugStringConvertible {
            /// Where it is.
            public var server: Server
            /// The name that it knows.
            public var user: String
            /// The password of that name.
            public var password: String

            /// A relay.
            public init(server: Server, user: String, password: String) {
                (self.server, self.user, self.password) = (server, user, password)
            }

            /// The server alone.
            public var description: String { server.authority }
            /// The server alone.
            public var debugDescription: String { description }

            /// Without the transport, GStreamer asks over TCP too.
            var url: String { "turn://\(Self.coded(user)):\(Self.coded(password))@\(server.authority)?transport=udp" }

            private static func coded(_ text: String) -> String {
                text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
            }
        }

        private struct Key: Hashable {
            var state: P2PFrameworkState
            var session: [UInt8]
        }

        /// Clients whose sessions may still receive packets.
        private final class Sessions: Sendable {
            private struct Entry {
                weak var client: WebRTCP2PTransportClient?
                var awaitsAnswer: Bool
            }

            private let entries = Mutex<[Key: Entry]>([:])

            func add(_ client: WebRTCP2PTransportClient, _ key: Key, awaitsAnswer: Bool) -> Bool {
                entries.withLock { entries in
                    entries = entries.filter { $0.value.client.map { $0.connected == .connecting } ?? false }
                    guard entries[key] == nil else { return false }
                    entries[key] = Entry(client: client, awaitsAnswer: awaitsAnswer)
                    return true
                }
            }

            /// The client of an offer, once.
            func answered(_ key: Key) -> WebRTCP2PTransportClient? {
                entries.withLock { entries in
                    guard entries[key]?.awaitsAnswer == true else { return nil }
                    entries[key]?.awaitsAnswer = false
                    return entries[key]?.client
                }
            }

            func client(_ key: Key) -> WebRTCP2PTransportClient? {
                entries.withLock { $0[key].flatMap { $0.awaitsAnswer ? nil : $0.client } }
            }
        }

        /// Ours: listed addresses that are used.
        private static let addressLimit = 8

        /// The name of the transport.
        public let transportLayerIdentifier = "_webrtc"
        /// False if the factory uses relays only.
        public let disclosesAddress: Bool
        private let addresses: Addresses
        private let stunServer: Server?
        private let relays: [Relay]
        private let relayOnly: Bool
        private let sessions = Sessions()

        /// A factory for one messenger.
        ///
        /// - Parameters:
        ///   - addresses: those that the device uses.
        ///   - stunServer: finds the address that others see behind a NAT. The server learns it too.
        ///   - relays: servers that forward packets; they learn addresses, times and sizes.
        ///   - relayOnly: whether only relays are used and offered. Without a relay there is no connection then.
        public init(
            addresses: Addresses = .interfaces, stunServer: Server? = nil, relays: [Relay] = [], relayOnly: Bool = false
        ) {
            (self.addresses, self.stunServer, self.relays) = (addresses, stunServer, relays)
            (self.relayOnly, disclosesAddress) = (relayOnly, !relayOnly)
        }

        // MARK: Connecting

        /// Offers a session.
        ///
        /// - Throws: ``P2PError/transport(_:)`` if GStreamer lacks an element, or if no address was found.
        public func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
            let session = (0..<WebRTCPacket.sessionSize).map { _ in UInt8.random(in: .min ... .max) }
            let client = try client(handle, session, offers: true)
            return try await describe(client, session, handle) { .offer($0) }
        }

        /// Answers an offer, or takes an answer or candidates.
        ///
        /// - Throws: ``P2PError/transport(_:)`` for a packet of another form, and as ``createConnection(handle:)``.
        public func receiveMessage(
            _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
        ) async throws -> (any P2PTransportClient)? {
            guard let packet = WebRTCPacket(metadata) else { throw P2PError.transport("The packet has another form.") }
            let candidates = packet.candidates.filter(isAllowed)
            let key = Key(state: handle.state, session: packet.session)
            switch packet.kind {
            case .offer(let description):
                let client = try client(handle, packet.session, offers: false)
                try client.setRemote(description, isOffer: true)
                client.add(candidates)
                return try await describe(client, packet.session, handle) { .answer($0) }
            case .answer(let description):
                guard let client = sessions.answered(key) else { return nil }
                try client.setRemote(description, isOffer: false)
                client.add(candidates)
                return nil
            case .candidates:
                sessions.client(key)?.add(candidates)
                return nil
            }
        }

        private func client(
            _ handle: P2PTransportFactoryHandle, _ session: [UInt8], offers: Bool
        ) throws -> WebRTCP2PTransportClient {
            guard relays.allSatisfy({ $0.server.isUsable }), stunServer?.isUsable ?? true else {
                throw P2PError.transport("The name of a server has other characters.")
            }
            var own: [String] = []
            if case .listed(let texts) = addresses {
                own = texts.prefix(Self.addressLimit).compactMap { WebRTCAddress($0)?.text }
                guard !own.isEmpty else { throw P2PError.transport("This device has no address to use.") }
            }
            let client = WebRTCP2PTransportClient(state: handle.state) { [relayOnly] in
                !relayOnly || $0.kind == .relay
            }
            let peer = WebRTCPeer(
                stun: relayOnly ? nil : stunServer.map { "stun://\($0.authority)" }, turn: relays.map(\.url),
                relayOnly: relayOnly, addresses: own, offers: offers
            ) { [weak client] in client?.receive($0) }
            guard let peer else { throw P2PError.transport("GStreamer lacks an element of WebRTC.") }
            client.use(peer)
            guard sessions.add(client, Key(state: handle.state, session: session), awaitsAnswer: offers) else {
                client.ended()
                throw P2PError.transport("The session is not a new one.")
            }
            return client
        }

        /// Sends the own description, and later the candidates that were not found in time.
        private func describe(
            _ client: WebRTCP2PTransportClient, _ session: [UInt8], _ handle: P2PTransportFactoryHandle,
            kind: (WebRTCDescription) -> WebRTCPacket.Kind
        ) async throws -> WebRTCP2PTransportClient {
            do {
                let own = try await client.own(within: WebRTCLimits.gatheringTime)
                guard !own.candidates.isEmpty || !relayOnly else {
                    throw P2PError.transport("No relay has given an address.")
                }
                let packet = WebRTCPacket(
                    session: session, kind: kind(own.description), candidates: own.candidates)
                try await handle.sendMessage("", metadata: packet.metadata())
            } catch {
                client.ended()
                throw error
            }
            let later = client.lateCandidates
            Task {
                for await candidate in later {
                    let packet = WebRTCPacket(session: session, kind: .candidates, candidates: [candidate])
                    try? await handle.sendMessage("", metadata: packet.metadata())
                }
            }
            return client
        }

        /// Candidates of other devices. A peer must not make this device send to services of its own.
        private func isAllowed(_ candidate: WebRTCCandidate) -> Bool {
            guard candidate.host.isLoopback else { return candidate.host.isForOthers }
            guard case .listed(let own) = addresses else { return false }
            return own.contains { WebRTCAddress($0)?.isLoopback == true }
        }
    }
#endif
