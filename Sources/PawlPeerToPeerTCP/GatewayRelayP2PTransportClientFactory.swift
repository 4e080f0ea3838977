// Both sides connect to the gateway and name the same session; the gateway forwards bytes between the two.
//
// The session is drawn by the side that begins, and sent in the magic packet. It is all that a packet has: neither side
// tells the other one an address, and neither connects to anything but the gateway.

public import Foundation
import HTTPCodec
public import NIOCore
public import NIOPosix
public import PawlMessenger
import PawlMessengerWebSocket
import PeerConnection

/// Connects two devices over a relay of the Pawl gateway that both use.
///
/// Neither side learns a network address of the other one. The gateway learns which devices are connected, when, and how
/// much they send; it cannot read or change it. Both devices have to be proven by their logins, which
/// `GatewayTransportClient` does: give both the same credential.
public struct GatewayRelayP2PTransportClientFactory: P2PTransportClientFactory {
    /// What is sent to the other side.
    struct Offer: Codable, Hashable {
        static let version = 1

        var version = Self.version
        /// In hexadecimal.
        var session: String

        init(_ session: [UInt8]) { self.session = Hexadecimal.text(session) }

        /// The bytes of the session.
        ///
        /// - Throws: ``P2PError/transport(_:)`` for another version or length.
        func bytes() throws -> [UInt8] {
            guard version == Self.version, let bytes = Hexadecimal.bytes(session),
                bytes.count == TCPLimits.relaySessionSize
            else { throw P2PError.transport("The offer has another form.") }
            return bytes
        }
    }

    /// The name of the transport.
    public let transportLayerIdentifier = "_pawl-relay"
    /// False.
    public var disclosesAddress: Bool { false }
    private let url: URL
    private let group: any EventLoopGroup
    private let credential: @Sendable (_ isRefused: Bool) async throws -> GatewayCredential

    /// A factory for one messenger.
    ///
    /// - Parameters:
    ///   - url: the root of the gateway, with `http` or `https`, as for `GatewayTransportClient`.
    ///   - group: the threads of the sockets.
    ///   - credential: the login that has proven this device. Called again, with true, after the gateway has refused it.
    public init(
        url: URL, group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton,
        credential: @escaping @Sendable (_ isRefused: Bool) async throws -> GatewayCredential
    ) {
        (self.url, self.group, self.credential) = (url, group, credential)
    }

    // MARK: Connecting

    /// Waits at the gateway for the other side, after its packet was sent.
    ///
    /// - Throws: ``P2PError/transport(_:)`` if the gateway cannot be reached or refuses the relay.
    public func createConnection(handle: P2PTransportFactoryHandle) async throws -> (any P2PTransportClient)? {
        let session = (0..<TCPLimits.relaySessionSize).map { _ in UInt8.random(in: .min ... .max) }
        return try await join(session, handle) {
            try await handle.sendMessage("", metadata: P2PMetadata(Offer(session)))
        }
    }

    /// Goes to the gateway, where the other side waits.
    ///
    /// - Throws: as ``createConnection(handle:)``, or a `DecodingError`.
    public func receiveMessage(
        _ text: String, metadata: P2PMetadata, handle: P2PTransportFactoryHandle
    ) async throws -> (any P2PTransportClient)? {
        let session = try metadata.decode(Offer.self).bytes()
        return try await join(session, handle) {}
    }

    /// - Parameter waits: called when the gateway was reached, before it has answered.
    private func join(
        _ session: [UInt8], _ handle: P2PTransportFactoryHandle, _ waits: @escaping () async throws -> Void
    ) async throws -> IPv6TCPP2PTransportClient {
        for isRefused in [false, true] {
            do throws(RelayRefusal) {
                // The packet is sent once, also if the login has to be renewed.
                return try await join(session, handle, isRefused: isRefused, isRefused ? {} : waits)
            } catch {
                if case .failed(let reason) = error { throw reason }
            }
        }
        throw P2PError.transport("The gateway does not accept the login.")
    }

    private func join(
        _ session: [UInt8], _ handle: P2PTransportFactoryHandle, isRefused: Bool, _ waits: () async throws -> Void
    ) async throws(RelayRefusal) -> IPv6TCPP2PTransportClient {
        let loop = group.next()
        let client = IPv6TCPP2PTransportClient(state: handle.state, on: loop)
        do {
            let login = try await credential(isRefused)
            let (request, place) = try request(session, handle.state, login)
            let promise = loop.makePromise(of: Void.self)
            let channel: any Channel
            do {
                let upgrade = RelayUpgrade(request: request, client: client, promise: promise)
                channel = try await place.connect(on: loop, within: TCPLimits.connectTime) { channel in
                    try channel.pipeline.syncOperations.addHandler(RelayUpgradeHandler(upgrade))
                }
            } catch {
                promise.fail(error)
                throw P2PError.transport("The gateway cannot be reached.")
            }
            try await withTaskCancellationHandler {
                do {
                    try await waits()
                } catch {
                    try? await channel.close()
                    throw error
                }
                try await promise.futureResult.get()
            } onCancel: {
                channel.close(promise: nil)
            }
            return client
        } catch {
            client.ended()
            if let refusal = error as? RelayRefusal { throw refusal }
            throw .failed((error as? P2PError) ?? .transport("The gateway has refused the relay."))
        }
    }

    // MARK: The gateway

    /// The request for a relay.
    ///
    /// - Throws: ``P2PError/transport(_:)`` if the address or the login cannot be written.
    private func request(
        _ session: [UInt8], _ state: P2PFrameworkState, _ login: GatewayCredential
    ) throws -> (RequestHead, GatewayAddress) {
        do throws(GatewayAddress.Malformed) {
            let address = try GatewayAddress(url)
            let target =
                address.path + "/_pawl/v1/relays/\(Hexadecimal.text(session))?account="
                + GatewayCredential.segment(state.username.raw) + "&device=\(state.deviceId.raw)"
            return (try address.request(target, upgrade: RelayUpgrade.name, login), address)
        } catch {
            switch error {
            case .address: throw P2PError.transport("The gateway has no address.")
            case .login: throw P2PError.transport("The login cannot be sent.")
            }
        }
    }
}

/// Why there is no relay.
enum RelayRefusal: Error {
    /// The backend does not accept the login.
    case notLoggedIn
    case failed(any Error)
}

/// What a connection to the gateway asks for, and where its answer goes.
struct RelayUpgrade: Sendable {
    static let name = "pawl-relay"

    var request: RequestHead
    var client: IPv6TCPP2PTransportClient
    /// Succeeds when the client uses the connection.
    var promise: EventLoopPromise<Void>
}

/// Asks for the relay, reads the answer, and hands the connection over to the client.
final class RelayUpgradeHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let upgrade: RelayUpgrade
    private var reader = HeadReader()
    private var buffer = ByteBuffer()
    private var isAnswered = false

    init(_ upgrade: RelayUpgrade) { self.upgrade = upgrade }

    func channelActive(context: ChannelHandlerContext) {
        var bytes = context.channel.allocator.buffer(capacity: 512)
        bytes.write(upgrade.request)
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isAnswered else { return context.fireChannelRead(data) }
        buffer.writeImmutableBuffer(unwrapInboundIn(data))
        do {
            guard let answer = try reader.response(&buffer, isToHead: false)?.head else { return }
            isAnswered = true
            try take(answer, context)
        } catch {
            fail(error, context)
        }
    }

    private func take(_ answer: ResponseHead, _ context: ChannelHandlerContext) throws {
        guard answer.status == 101, answer.headers.tokens("Upgrade") == [RelayUpgrade.name] else {
            if answer.status == 401 { throw RelayRefusal.notLoggedIn }
            let words =
                answer.status == 504 ? "The other device has not come." : "The gateway answers \(answer.status)."
            throw P2PError.transport(words)
        }
        guard upgrade.client.use(context.channel) else { throw P2PError.timedOut }
        try context.pipeline.syncOperations.addHandler(
            TCPPacketHandler(upgrade.client, token: nil), position: .after(self))
        upgrade.promise.succeed()
        if buffer.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(buffer)) }
        context.pipeline.syncOperations.removeHandler(self, promise: nil)
    }

    private func fail(_ error: any Error, _ context: ChannelHandlerContext) {
        isAnswered = true
        upgrade.promise.fail(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        upgrade.promise.fail(P2PError.transport("The gateway has closed the connection."))
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { fail(error, context) }
}
