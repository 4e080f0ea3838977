// The client's side of exchanges. Everything here runs on one event loop.

import DoubleRatchet
import HTTPCodec
import JSONGateway
import NIOCore
import NIOSupport
import Protection

/// The client of an exchange: an HTTP/1.1 connection or an HTTP/2 stream. It receives heads and bodies as values.
///
/// The order of an answer is: any number of ``inform(_:)``, then either ``respond(_:_:)``, or ``begin(_:framing:)``, the
/// pieces of the body, and ``end(_:)``.
protocol ExchangeClient: AnyObject {
    var origin: ExchangeOrigin { get }
    /// Whether the client accepts more of the answer. If not, the backend is not read.
    var isWritable: Bool { get }
    /// The connection that can become a WebSocket; nil for an HTTP/2 stream.
    var upgradable: HTTPConnection? { get }
    /// Whether only the gateway's own calls are served. Then no request goes to the backend.
    var servesCallsOnly: Bool { get }

    /// Sends an informational response, for instance 100 or 103.
    func inform(_ head: ResponseHead)
    /// Sends the head of the backend's answer.
    func begin(_ head: ResponseHead, framing: BodyFraming)
    /// Sends a piece of the body.
    ///
    /// - Parameter room: released when the piece is written, or dropped; nil if it takes no room.
    func send(_ bytes: ByteBuffer, room: ByteReservation?)
    /// Ends the body.
    func end(_ trailers: HeaderFields)
    /// Sends a complete answer of the gateway.
    ///
    /// - Parameter room: as for a piece of the body.
    func respond(_ head: ResponseHead, _ body: ByteBuffer, room: ByteReservation?)
    /// Ends an incomplete answer, so that the client detects that it is incomplete.
    func abort()
    /// Sends no more requests of this client to the gateway: the deadline for the current one has passed.
    func endAfterThis()

    /// Passes waiting parts of the request's body to the exchange.
    func process()
    /// Flushes output, and reads on if input can be accepted.
    func settle()
    /// Renews the deadline after progress of the exchange.
    func touch()
    func exchangeEnded(_ ended: ExchangeRunner)
}

extension ExchangeClient {
    var servesCallsOnly: Bool { false }
    func send(_ bytes: ByteBuffer) { send(bytes, room: nil) }
    func respond(_ head: ResponseHead, _ body: ByteBuffer) { respond(head, body, room: nil) }
}

/// What the exchanges of one client's connection share. Confined to its event loop.
final class ExchangeOrigin {
    let services: HTTPServices
    let pool: UpstreamPool
    let eventLoop: any EventLoop
    let isSecure: Bool
    var addressReader: ProxiedAddressReader
    /// Why all requests are refused, and what ends the connection after the first; nil if they are served.
    var refusal: (reason: String, end: @Sendable () -> Void)?
    private let peer: SocketAddress?
    private let firstID: UInt64
    private var exchanges: UInt64 = 0
    private var forwarding: Forwarding?
    private var spare = ByteBuffer()
    private var masks: [UInt32] = []
    /// Ours: masks that are drawn at a time.
    private static let masksTogether = 32

    var limits: HTTPLimits { services.limits }

    /// - Parameter firstID: a random number; the ids of exchanges follow it.
    convenience init(
        _ channel: any Channel, services: HTTPServices, pool: UpstreamPool, isSecure: Bool, firstID: UInt64
    ) {
        self.init(
            channel.eventLoop, peer: channel.remoteAddress, services: services, pool: pool, isSecure: isSecure,
            firstID: firstID)
    }

    /// - Parameter peer: nil for a client without an address.
    init(
        _ eventLoop: any EventLoop, peer: SocketAddress?, services: HTTPServices, pool: UpstreamPool, isSecure: Bool,
        firstID: UInt64
    ) {
        (self.services, self.pool, self.isSecure, self.firstID) = (services, pool, isSecure, firstID)
        (self.eventLoop, self.peer) = (eventLoop, peer)
        var options = services.downstream()
        options.webIRCPassword = nil
        addressReader = ProxiedAddressReader(options: options, peer: peer, usesTLS: isSecure)
    }

    /// Returns the id of a new exchange.
    func nextID() -> ConnectionID {
        exchanges &+= 1
        return ConnectionID(firstID &+ exchanges)
    }

    /// Returns the head for the backend, with the fields about the client.
    func forwarded(_ head: RequestHead, isChunked: Bool) -> RequestHead {
        if forwarding == nil {
            // After a PROXY header the peer is the client that the header names; that address decides about trust.
            let client = addressReader.addresses?.source ?? peer
            forwarding = Forwarding(
                address: client?.ipAddress, isSecure: isSecure,
                trustsPeer: client.map(services.downstream().trusts) ?? false)
        }
        var head = forwarding?.request(head, isChunked: isChunked) ?? head
        head.addHost(services.upstream().authority)
        return head
    }

    /// Calls `body` at a monotonic time, in nanoseconds.
    func schedule(at time: Int64, _ body: @escaping () -> Void) -> Scheduled<Void> {
        let delay = max(time - services.clock().monotonic, 0)
        return eventLoop.assumeIsolated().scheduleTask(in: .nanoseconds(delay), body)
    }

    /// Returns an empty buffer for a head.
    func scratch() -> ByteBuffer {
        var bytes = ByteBuffer()
        swap(&bytes, &spare)
        bytes.clear()
        return bytes
    }

    /// Takes the buffer of ``scratch()`` back, after its bytes were passed to a channel. A large one is not kept.
    func giveBack(_ bytes: inout ByteBuffer) {
        guard bytes.storageCapacity <= ByteBuffer.keptStorage else { return }
        swap(&bytes, &spare)
    }

    /// Returns a new random mask for a WebSocket frame. Several are drawn at a time, because a call of the kernel costs
    /// as much as a short frame.
    func nextMask() -> UInt32 {
        if masks.isEmpty {
            var random = SystemRandomSource()
            masks = Array(repeating: 0, count: Self.masksTogether)
            masks.withUnsafeMutableBytes { random.fill($0) }
        }
        return masks.removeLast()
    }
}

/// The lookups of one exchange, or of one WebSocket, that the backend has not answered.
final class Lookups {
    private let origin: ExchangeOrigin
    private var requests: [WholeRequest] = []

    init(_ origin: ExchangeOrigin) { self.origin = origin }

    /// Sends a lookup to the backend, always with the `Host` of the upstream unless the lookup has one.
    ///
    /// The client's `Host` could select a tenant of the backend, and people of two tenants would share one account
    /// here.
    ///
    /// - Parameter payer: the account for which the answer is collected; nil if it is unknown.
    func send(_ lookup: Lookup, for payer: AccountID?, _ receive: @escaping (ExchangeEvent) -> Void) {
        var head = lookup.head
        head.addHost(origin.services.upstream().authority)
        head = origin.forwarded(head, isChunked: false)
        // A lookup does not wait for a connection: its exchange may hold one already, and waiting could deadlock.
        let rules = WholeRequest.Rules(
            timeout: origin.limits.lookup, limit: lookup.limit, cuts: false, waits: false, retries: true)
        let id = lookup.id
        let request = WholeRequest(
            head, rules: rules, payer: payer, pool: origin.pool, eventLoop: origin.eventLoop
        ) { [weak self] request, result in
            self?.requests.removeAll { $0 === request }
            switch result {
            case .success(let answer): receive(.found(id, answer.head, answer.body))
            case .failure: receive(.notFound(id))
            }
        }
        requests.append(request)
        request.start()
    }

    func cancel() {
        for request in requests { request.cancel() }
        requests = []
    }
}

extension ResponseHead {
    /// Whether a response with this status never has a body. RFC 9110 sections 15.2, 15.3.5 and 15.4.5.
    var hasNoBody: Bool { status < 200 || status == 204 || status == 304 }

    /// Returns the gateway's own answer as it is sent: without hop-by-hop fields, and with the length of its body.
    func complete(with body: ByteBuffer) -> ResponseHead {
        var head = Forwarding.response(self, isChunked: false)
        if !hasNoBody {
            head.headers.set("Content-Length", to: "\(body.readableBytes)")
        } else if status != 304 {
            head.headers.remove("content-length")
        }
        return head
    }
}
