// The side that begins listens on a new port and sends its addresses; the other side connects to them.
//
// The first packet on a socket is a token that was sent inside the magic packet. It keeps strangers away from the
// handshake; it proves nothing, and the handshake does not rely on it.

public import NIOCore
public import NIOPosix
public import PawlMessenger
import PeerConnection

/// Connects two devices over TCP, by IPv6 or IPv4.
///
/// Each side learns network addresses of the other one: from the magic packet all that were offered, and from the
/// connection one. One of the two has to accept connections from the other's network; there is no STUN and no relay.
public struct IPv6TCPP2PTransportClientFactory: P2PTransportClientFactory {
    /// What a device offers.
    public enum Addresses: Sendable, Hashable {
        /// The addresses of all interfaces, without loopback and link-local ones.
        case interfaces
        /// These: numeric IPv6 or IPv4 addresses of this device, at most 8. With a loopback address among them, the
        /// factory also connects to loopback addresses, for tests.
        case listed([String])
    }

    /// What is sent to the other side.
    struct Offer: Codable, Hashable {
        struct Place: Codable, Hashable {
            var host: String
            var port: Int
        }
        /// In hexadecimal.
        var token: String
        var places: [Place]
    }

    /// The name of the transport.
    public let transportLayerIdentifier = "_ipv6-tcp"
    private let addresses: Addresses
    private let allowsIPv4: Bool
    /// See ``TCPLimits/tokenTime``.
    package var tokenTime = TCPLimits.tokenTime
    private let group: any EventLoopGroup

    /// A factory for one messenger.
    ///
    /// - Parameters:
    ///   - addresses: on which the device listens, and which it offers to other devices.
    ///   - allowsIPv4: whether IPv4 is used as well.
    ///   - group: the threads of the sockets.
    public init(
        addresses: Addresses = .interfaces, allowsIPv4: Bool = true,
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) {
        (self.addresses, self.allowsIPv4, self.group) = (addresses, allowsIPv4, group)
    }

    // MARK: Listening

    /// Listens, and offers the addresses.
    ///
    /// - Throws: ``P2PError/transport(_:)`` if there is no address to listen on.
    public func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
        let loop = group.next()
        let client = IPv6TCPP2PTransportClient(state: handle.state, on: loop)
        let token = (0..<TCPLimits.tokenSize).map { _ in UInt8.random(in: .min ... .max) }
        var places: [Offer.Place] = []
        for host in ownAddresses().prefix(TCPLimits.addresses) {
            guard let port = try? await listen(on: host, loop, client, token) else { continue }
            places.append(Offer.Place(host: host, port: port))
        }
        do {
            guard !places.isEmpty else { throw P2PError.transport("This device has no address to listen on.") }
            try await handle.sendMessage(
                "", metadata: P2PMetadata(Offer(token: Hexadecimal.text(token), places: places)))
        } catch {
            client.ended()
            throw error
        }
        return client
    }

    private func listen(
        on host: String, _ loop: any EventLoop, _ client: IPv6TCPP2PTransportClient, _ token: [UInt8]
    ) async throws -> Int {
        let socket = try await ServerBootstrap(group: loop)
            .serverChannelOption(.backlog, value: Int32(TCPLimits.waitingSockets))
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { [weak client, tokenTime] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let client else { throw ChannelError.ioOnClosedChannel }
                    try channel.pipeline.syncOperations.addHandler(
                        TCPPacketHandler(client, token: token, within: tokenTime))
                }
            }
            .bind(to: try SocketAddress(ipAddress: host, port: 0)).get()
        guard client.listen(on: socket), let port = socket.localAddress?.port else {
            try await socket.close()
            throw ChannelError.ioOnClosedChannel
        }
        return port
    }

    private func ownAddresses() -> [String] {
        switch addresses {
        case .listed(let hosts): return hosts.filter { isUsable($0, own: true) }
        case .interfaces:
            let devices = (try? System.enumerateDevices()) ?? []
            let hosts = devices.compactMap { $0.address?.ipAddress }.filter { isUsable($0, own: true) }
            // IPv6 first: it passes more often.
            return hosts.filter { $0.contains(":") } + hosts.filter { !$0.contains(":") }
        }
    }

    // MARK: Connecting

    /// Connects to the addresses of an offer, to all at once; the first socket counts.
    ///
    /// - Throws: ``P2PError/transport(_:)`` if none can be reached, or a `DecodingError`.
    public func receiveMessage(
        _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
    ) async throws -> (any P2PTransportClient)? {
        let offer = try metadata.decode(Offer.self)
        guard let token = Hexadecimal.bytes(offer.token), token.count == TCPLimits.tokenSize else {
            throw P2PError.transport("The offer has no token.")
        }
        let places = offer.places.prefix(TCPLimits.addresses).filter { isAllowed($0) }
        let loop = group.next()
        let client = IPv6TCPP2PTransportClient(state: handle.state, on: loop)
        let (results, sink) = AsyncStream.makeStream(of: Bool.self)
        // No group: it would wait for addresses that do not answer.
        for place in places {
            Task { sink.yield((try? await connect(to: place, loop, client, token)) ?? false) }
        }
        var left = places.count
        if left > 0 {
            for await isConnected in results {
                if isConnected { return client }
                left -= 1
                if left == 0 { break }
            }
        }
        // Sockets that come later are closed.
        client.ended()
        throw P2PError.transport("None of \(places.count) addresses can be reached.")
    }

    /// - Returns: whether the client uses the new socket.
    private func connect(
        to place: Offer.Place, _ loop: any EventLoop, _ client: IPv6TCPP2PTransportClient, _ token: [UInt8]
    ) async throws -> Bool {
        let socket = try await ClientBootstrap(group: loop)
            .connectTimeout(TCPLimits.connectTime)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.autoRead, value: false)
            .connect(to: try SocketAddress(ipAddress: place.host, port: place.port)).get()
        return try await socket.eventLoop.submit { try use(socket, by: client, token) }.get()
    }

    /// Uses a new socket, on its thread.
    ///
    /// - Returns: false if the client uses another one, or if the other side has reset this one already: nothing would report
    ///   its end, and another address may still answer.
    func use(_ socket: any Channel, by client: IPv6TCPP2PTransportClient, _ token: [UInt8]) throws -> Bool {
        guard socket.isActive, client.use(socket) else {
            socket.close(promise: nil)
            return false
        }
        try socket.pipeline.syncOperations.addHandler(TCPPacketHandler(client, token: nil))
        let writer = SocketWriter(socket)
        socket.writeAndFlush(ByteBuffer(bytes: PacketReader.head(of: token) + token)).whenSuccess {
            client.write(by: writer)
        }
        _ = socket.setOption(.autoRead, value: true)
        return true
    }

    /// Addresses of other devices. A peer must not make this device connect to services of its own, or to well-known
    /// ports.
    private func isAllowed(_ place: Offer.Place) -> Bool {
        (1024...65_535).contains(place.port) && isUsable(place.host, own: false)
    }

    private func isUsable(_ host: String, own: Bool) -> Bool {
        guard let address = try? SocketAddress(ipAddress: host, port: 0) else { return false }
        var allowsLoopback = false
        if case .listed(let hosts) = addresses { allowsLoopback = hosts.contains(where: Self.isLoopback) }
        // The canonical text of the address, whatever form came.
        guard let text = address.ipAddress else { return false }
        if Self.isLoopback(text) { return allowsLoopback && (allowsIPv4 || text.contains(":")) }
        switch address {
        case .v4:
            let octets = text.split(separator: ".").compactMap { UInt8($0) }
            guard allowsIPv4, octets.count == 4 else { return false }
            // This network, link-local, and multicast with all above (RFC 6890).
            return octets[0] != 0 && !(octets[0] == 169 && octets[1] == 254) && octets[0] < 224
        case .v6:
            // 0::/8, which has the mapped addresses, fe80::/10, and multicast.
            guard let first = UInt16(text.prefix { $0 != ":" }, radix: 16), first >= 0x100 else { return false }
            return first & 0xFFC0 != 0xFE80 && first < 0xFF00
        case .unixDomainSocket: return false
        }
    }

    private static func isLoopback(_ host: String) -> Bool { host == "::1" || host.hasPrefix("127.") }
}
