// A client's connection. It reads one request after the other, and runs each as an exchange. Everything here runs on
// one event loop.

import HTTPCodec
import JSONGateway
import NIOCore
import NIOSSL
import NIOSupport
import Protection
import Reports

/// A client's HTTP/1.1 connection. Confined to its event loop, hence `@unchecked Sendable`.
final class HTTPConnection: ExchangeClient, @unchecked Sendable {
    package let origin: ExchangeOrigin
    package let channel: any Channel
    private var inbound = ByteBuffer()
    private var reader: HeadReader
    /// The rest of the current request's body.
    private var body: BodyReader?
    package private(set) var exchange: ExchangeRunner?
    private(set) var relay: (any ClientRelay)?
    private var isProcessing = false
    package private(set) var isOpen = true
    private(set) var isInputOpen = true
    /// Whether the connection ends with the current answer.
    package private(set) var isLast = false
    /// Whether input is discarded: the last answer is written, perhaps before its request was read.
    private var isLingering = false
    private var thrownAway = 0
    // Output.
    package var output = ByteBuffer()
    var isOutputShared = false
    var needsFlush = false
    /// Bytes that waited for the client after the last write; 0 if the channel was writable.
    var unwritten = 0
    /// Whether the body of the current answer is sent chunked.
    var sendsChunks = false
    // Timing.
    package var deadline = NIODeadline.distantFuture
    package var timer = LazyTimer()
    private(set) var hasBegunRequest = false

    package var services: HTTPServices { origin.services }
    package var eventLoop: any EventLoop { channel.eventLoop }
    package var limits: HTTPLimits { services.limits }
    var upgradable: HTTPConnection? { self }

    init(channel: any Channel, origin: ExchangeOrigin) {
        self.channel = channel
        self.origin = origin
        reader = HeadReader(limits: origin.limits.head)
    }

    /// Whether TLS begins after a PROXY header, so that its handler is added only after the header.
    package var expectsHeaderBeforeTLS: Bool { origin.addressReader.isBeforeTLS }

    package func accepted() {
        arm(limits.headTime)
        channel.read()
    }

    // MARK: Input

    package func read(_ bytes: ByteBuffer) {
        if let relay { return relay.fromClient(bytes) }
        inbound.append(arrived: bytes)
        if !origin.addressReader.isDone {
            guard readAddresses() else { return }
        }
        process()
    }

    /// Reads the PROXY header. Returns whether HTTP follows in the buffer.
    private func readAddresses() -> Bool {
        switch origin.addressReader.take(&inbound) {
        case .waiting: return false
        case .secured:
            guard let tls = services.downstream().tls else {
                channel.close(promise: nil)
                return false
            }
            let rest = inbound
            inbound = ByteBuffer()
            do {
                try channel.pipeline.syncOperations.addBehindGate(NIOSSLServerHandler(context: tls))
            } catch {
                channel.close(promise: nil)
                return false
            }
            // The TLS handler reads an empty buffer as the end of the stream.
            if rest.readableBytes > 0 {
                channel.pipeline.fireChannelRead(rest)
                channel.pipeline.fireChannelReadComplete()
            }
            return false
        case .done: return true
        case .refused:
            services.environment.tally.add(.connectionsRefused)
            refuse(.message(.malformed))
            return false
        }
    }

    func readComplete() {
        if let relay { return relay.clientReadComplete() }
        settle()
    }

    /// Processes as much of the received bytes as possible now.
    package func process() {
        guard !isProcessing, relay == nil else { return }
        isProcessing = true
        defer { isProcessing = false }
        do throws(HTTPFault) {
            while isOpen, relay == nil, try step() {}
        } catch {
            broken(error)
        }
    }

    /// Processes one part of the input. Returns whether there may be another.
    private func step() throws(HTTPFault) -> Bool {
        if isLingering {
            thrownAway += inbound.readableBytes
            inbound = ByteBuffer()
            if thrownAway > limits.lingerBytes { channel.close(promise: nil) }
            return false
        }
        if let exchange {
            guard exchange.takesRequest, body != nil else { return false }
            guard let piece = try body?.next(&inbound) else { return starved() }
            touch()
            switch piece {
            case .bytes(let bytes): exchange.request(bytes)
            case .end(let trailers):
                body = nil
                exchange.requestEnded(trailers)
            }
            return true
        }
        if body != nil {
            // The rest of a request that has been answered.
            guard let piece = try body?.next(&inbound) else { return starved() }
            if case .end = piece { body = nil }
            return true
        }
        guard !isLast, acceptsRequest else { return false }
        if !hasBegunRequest, inbound.readableBytes > 0 {
            hasBegunRequest = true
            arm(limits.headTime)
        }
        guard inbound.readableBytes > 0, let request = try reader.request(&inbound) else { return starved() }
        begin(request)
        return true
    }

    /// Whether the client has read enough of earlier answers for another request.
    ///
    /// Requests that the gateway answers itself wait for no backend: without this, a client that sends them one after the
    /// other and reads nothing would fill the memory with answers.
    private var acceptsRequest: Bool {
        if output.readableBytes > limits.window || !channel.isWritable { flush() }
        return channel.isWritable
    }

    /// Handles missing input: drops a request, and its answer, if the input has ended before the request is complete.
    private func starved() -> Bool {
        guard !isInputOpen else { return false }
        if exchange == nil {
            isLast = true
            endConnection(lingers: false)
        } else {
            abort()
        }
        return false
    }

    private func begin(_ request: ReceivedRequest) {
        if !request.keepsAlive || !isInputOpen && inbound.readableBytes == 0 { isLast = true }
        body = request.framing == .none ? nil : BodyReader(request.framing, limits: limits.head)
        let exchange = ExchangeRunner(request, client: self)
        self.exchange = exchange
        touch()
        exchange.start()
    }

    /// Answers an invalid request or body.
    private func broken(_ fault: HTTPFault) {
        isLast = true
        if let exchange {
            inbound = ByteBuffer()
            // The body will never be complete, so the connection cannot be used again.
            guard exchange.hasBegunAnswer else { return exchange.fail(.message(fault)) }
            return abort()
        }
        guard !isLingering else { return channel.close(promise: nil) }
        refuse(.message(fault))
    }

    /// Answers a request that did not become an exchange, and ends the connection.
    package func refuse(_ fault: GatewayFault) {
        isLast = true
        let (head, bytes) = fault.answer(services.environment.mapping, to: reader.origins(inbound))
        inbound = ByteBuffer()
        respond(head, bytes)
        endConnection(lingers: isInputOpen)
        settle()
    }

    // MARK: Exchanges

    /// Whether the rest of the request's body is small enough to discard it and keep the connection.
    private var discardsBody: Bool {
        guard let exchange, body != nil else { return true }
        if case .length(let length) = exchange.received.framing, !exchange.received.expectsContinue {
            return length <= limits.window
        }
        return false
    }

    /// Whether the connection stays open after this answer, decided when its head is written.
    func decidesToStay(isOwnAnswer: Bool) -> Bool {
        if isOwnAnswer, !discardsBody { isLast = true }
        return !isLast
    }

    func endAfterThis() { isLast = true }

    func exchangeEnded(_ ended: ExchangeRunner) {
        guard exchange === ended else { return }
        if !discardsBody { isLast = true }
        exchange = nil
        hasBegunRequest = false
        if isLast {
            endConnection(lingers: isInputOpen && (body != nil || inbound.readableBytes > 0))
        } else {
            arm(limits.keepAlive)
            process()
        }
        settle()
    }

    /// Ends the connection after pending writes, so that the client can read the whole answer.
    ///
    /// - Parameter lingers: whether the client may still be sending. A full close would then reset the connection, and
    ///   the client would lose the part that it has not read.
    private func endConnection(lingers: Bool) {
        isLingering = true
        body = nil
        inbound = ByteBuffer()
        arm(lingers ? limits.linger : limits.stall)
        if lingers { closeOutput() } else { closeWhenWritten() }
    }

    /// Closes after pending writes, which closing at once would discard. A relay has no other timer at its end, and its
    /// client may read nothing any more.
    func closeWhenWritten() {
        if relay != nil {
            isLast = true
            arm(limits.stall)
        }
        close(.all)
    }

    func closeOutput() { close(.output) }

    private func close(_ mode: CloseMode) {
        flush()
        let channel = channel
        channel.writeAndFlush(ByteBuffer()).whenComplete { _ in channel.close(mode: mode, promise: nil) }
    }

    /// Ends a WebSocket: the client reads the close frame, and closes the connection.
    func lingerOut() {
        arm(limits.linger)
        isLast = true
        closeOutput()
        channel.read()
    }

    /// Closes the connection without ending the answer, so that the client detects that it is incomplete.
    func abort() {
        flush()
        channel.close(promise: nil)
    }

    package func upgrade(
        _ head: ResponseHead, _ socketMachine: WebSocketMachine?, _ upstream: UpstreamConnection,
        _ ended: ExchangeRunner
    ) {
        exchange = nil
        body = nil
        var head = Forwarding.response(head, isChunked: false, upgrades: true)
        head.headers.remove("content-length")
        write(head)
        disarm()
        let relay: any WebSocketRelay
        if let socketMachine {
            relay = FramedRelay(socketMachine, upstream: upstream, connection: self, ended: ended)
        } else {
            relay = OpaqueRelay(upstream: upstream, connection: self, ended: ended)
        }
        self.relay = relay
        upstream.becomeRaw()
        upstream.user = relay
        passInput(to: relay)
        upstream.resume()
        relay.clientReadComplete()
        if !isInputOpen { relay.clientInputEnded() }
    }

    /// Passes on what has come before the relay.
    private func passInput(to relay: any ClientRelay) {
        guard inbound.readableBytes > 0 else { return }
        let early = inbound
        inbound = ByteBuffer()
        relay.fromClient(early)
    }

    /// Becomes one end of a relay between two devices.
    package func beginRelay(_ head: ResponseHead, _ call: RelayCall, _ ended: ExchangeRunner) {
        become(DeviceRelay(call, connection: self, ended: ended), head)
    }

    /// Becomes the WebSocket over which a device gets its messages.
    package func beginMailSocket(_ head: ResponseHead, _ machine: MailSocketMachine, _ ended: ExchangeRunner) {
        let socket = MailSocket(machine, connection: self, ended: ended)
        become(socket, head)
        socket.begin()
    }

    /// Answers 101, and hands the connection over.
    private func become(_ relay: any ClientRelay, _ head: ResponseHead) {
        exchange = nil
        body = nil
        write(head)
        flush()
        disarm()
        self.relay = relay
        passInput(to: relay)
        relay.clientReadComplete()
        if !isInputOpen { relay.clientInputEnded() }
    }

    // MARK: Ends

    func inputEnded() {
        isInputOpen = false
        if let relay { return relay.clientInputEnded() }
        process()
        settle()
    }

    package func closed() {
        isOpen = false
        isInputOpen = false
        disarm()
        exchange?.cancel()
        exchange = nil
        relay?.clientClosed()
        relay = nil
    }

    func writabilityChanged() {
        guard channel.isWritable else { return touch() }
        if let relay { return relay.clientIsWritable() }
        touch()
        if let exchange {
            exchange.upstream?.readMore()
        } else {
            // Requests may have waited for this.
            process()
            settle()
        }
    }

    /// Accepts no more requests, because the gateway is being shut down.
    package func drain() {
        isLast = true
        if exchange == nil, relay == nil, !hasBegunRequest, !isLingering { return channel.close(promise: nil) }
        exchange?.endWaiting()
    }

    package func stop() {
        drain()
        relay?.stop()
    }

    /// Flushes output, and requests a read if input can be accepted.
    package func settle() {
        guard !isProcessing, isOpen else { return }
        flush()
        if let relay { return relay.flushUpstream() }
        exchange?.upstream?.flush()
        guard isInputOpen else { return }
        if let exchange {
            if exchange.readsRequest { channel.read() }
        } else if isLingering || channel.isWritable {
            channel.read()
        }
    }
}
