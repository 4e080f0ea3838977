// A connection over TCP, direct or over a relay: packets with their length before them.

import NIOCore
public import PawlMessenger
import PeerConnection
import Synchronization

/// A connection over TCP, by IPv6 or IPv4: direct, or over a relay of the gateway.
public final class IPv6TCPP2PTransportClient: P2PTransportClient {
    private struct State {
        var connected = ConnectionState.connecting
        var channel: (any Channel)?
        /// Sockets that listen for the other side, and those that have not shown the token.
        var sockets: [any Channel] = []
        var waiting = 0
        var inbox = P2PInbox()
    }

    /// What senders need: under a lock of its own, because a packet that comes does not wait for one that is written.
    private struct Outgoing {
        /// nil if nothing can be sent.
        var channel: (any Channel)?
        /// Writes to the socket on the caller's thread; nil if every packet has to go through the channel.
        var writer: SocketWriter?
        /// Bytes that the channel has to write. While there are some, all others follow them.
        var unwritten = 0
    }

    /// From the handle of the factory.
    public let state: P2PFrameworkState
    /// The event loop of the socket: what a packet brings about changes no thread.
    public var executor: (any TaskExecutor)? { loopExecutor }
    private let loopExecutor: LoopExecutor
    private let inner = Mutex(State())
    /// Locked after ``inner`` if both are.
    private let outgoing = Mutex(Outgoing())

    /// - Parameter loop: of the sockets.
    init(state: P2PFrameworkState, on loop: any EventLoop) {
        (self.state, loopExecutor) = (state, LoopExecutor(loop))
    }

    deinit {
        let (channel, sockets) = inner.withLock { ($0.channel, $0.sockets) }
        for socket in [channel].compactMap(\.self) + sockets { socket.close(promise: nil) }
    }

    /// Receives the packets.
    public var delegate: (any P2PTransportClientDelegate)? {
        get { inner.withLock { $0.inbox.delegate } }
        set {
            inner.withLock { $0.inbox.delegate = newValue }
            deliver()
        }
    }

    /// Whether packets can be sent.
    public var connected: ConnectionState { inner.withLock { $0.connected } }

    // MARK: Sockets

    /// Adds a socket that listens; false if it is too late.
    func listen(on socket: any Channel) -> Bool {
        inner.withLock { state in
            guard state.connected == .connecting else { return false }
            state.sockets.append(socket)
            return true
        }
    }

    /// Adds a socket of an unknown side; false if there are too many, or if it is too late.
    func accept(_ socket: any Channel) -> Bool {
        inner.withLock { state in
            guard state.connected == .connecting, state.waiting < TCPLimits.waitingSockets else { return false }
            state.waiting += 1
            state.sockets.append(socket)
            return true
        }
    }

    /// A socket of an unknown side was closed.
    func forget(_ socket: any Channel) {
        inner.withLock { state in
            let count = state.sockets.count
            state.sockets.removeAll { $0 === socket }
            if state.sockets.count < count { state.waiting -= 1 }
        }
    }

    /// Takes the socket of the other side, and closes all others; false if there is one, or if it is too late.
    ///
    /// - Parameter writer: of the socket, if the channel has nothing to write before packets.
    func use(_ socket: any Channel, writer: SocketWriter? = nil) -> Bool {
        let others: [any Channel]? = inner.withLock { state in
            guard state.connected == .connecting else { return nil }
            (state.connected, state.channel) = (.connected, socket)
            outgoing.withLock { ($0.channel, $0.writer) = (socket, writer) }
            state.inbox.append(.opened)
            defer { state.sockets = [] }
            return state.sockets.filter { $0 !== socket }
        }
        guard let others else { return false }
        for other in others { other.close(promise: nil) }
        deliver()
        return true
    }

    /// Packets need not go through the channel any more: it has written what comes before them.
    func write(by writer: SocketWriter?) {
        outgoing.withLock { if $0.channel != nil { $0.writer = writer } }
    }

    // MARK: Packets

    /// A packet has come; false if it cannot be taken.
    func received(_ packet: [UInt8]) -> Bool {
        let isTaken = inner.withLock { state in
            let limit = state.inbox.delegate == nil ? TCPLimits.unobservedInbox : TCPLimits.inbox
            guard state.inbox.count < limit else { return false }
            state.inbox.append(.packet(packet))
            return true
        }
        deliver()
        return isTaken
    }

    /// The socket was closed, or there will be none.
    func ended() {
        let sockets: [any Channel] = inner.withLock { state in
            guard state.connected != .disconnected else { return [] }
            state.connected = .disconnected
            state.inbox.append(.closed)
            outgoing.withLock { ($0.channel, $0.writer) = (nil, nil) }
            defer { (state.sockets, state.channel) = ([], nil) }
            return state.sockets
        }
        for socket in sockets { socket.close(promise: nil) }
        deliver()
    }

    /// Sends a packet; waits if the other side does not read.
    public func sendMessage(_ message: [UInt8]) async throws {
        if sendAtOnce(message) { return }
        let written: EventLoopFuture<Void>? = outgoing.withLock { state in
            guard let channel = state.channel, (1...P2PSettings.packetLimit).contains(message.count) else { return nil }
            return write((PacketReader.head(of: message) + message)[...], channel, &state)
        }
        guard let written else { throw P2PError.transport("The packet cannot be sent.") }
        try await written.get()
    }

    /// Writes a packet to the socket, or hands it to the channel, unless much waits there or the other side does not read.
    public func sendAtOnce(_ message: [UInt8]) -> Bool {
        guard (1...P2PSettings.packetLimit).contains(message.count) else { return false }
        let packet = PacketReader.head(of: message) + message
        // Under the lock: packets of several threads go one after the other, and the writer is not closed meanwhile.
        return outgoing.withLock { state in
            guard let channel = state.channel else { return false }
            let taken = state.unwritten == 0 ? state.writer?.write(packet) ?? 0 : 0
            guard taken < packet.count else { return true }
            // A packet that was begun has to be finished.
            guard taken > 0 || channel.isWritable && state.unwritten + packet.count <= TCPLimits.unwritten else {
                return false
            }
            _ = write(packet[taken...], channel, &state)
            return true
        }
    }

    /// Hands bytes to the channel. It is not called within this call: what fails is reported to the delegate.
    private func write(
        _ bytes: ArraySlice<UInt8>, _ channel: any Channel, _ state: inout Outgoing
    ) -> EventLoopFuture<Void> {
        state.unwritten += bytes.count
        let written = channel.eventLoop.makePromise(of: Void.self)
        channel.eventLoop.execute { [self, buffer = ByteBuffer(bytes: bytes)] in
            written.futureResult.whenComplete { _ in self.outgoing.withLock { $0.unwritten -= buffer.readableBytes } }
            channel.writeAndFlush(buffer, promise: written)
        }
        return written.futureResult
    }

    /// Closes the connection after the packets before: with the other side, or after three seconds.
    public func disconnect() async throws {
        let (channel, last) = inner.withLock { state in
            defer { if state.connected == .connected { state.connected = .disconnecting } }
            outgoing.withLock { ($0.channel, $0.writer) = (nil, nil) }
            return (state.channel, state.connected)
        }
        guard let channel, last == .connected else {
            if last == .connecting { ended() }
            return
        }
        channel.eventLoop.execute {
            // With unread bytes, a closed socket would take back what it has sent.
            channel.writeAndFlush(ByteBuffer()).whenComplete { _ in channel.close(mode: .output, promise: nil) }
            channel.eventLoop.scheduleTask(in: TCPLimits.closingTime) { channel.close(promise: nil) }
        }
    }

    /// Delivers what waits, one item after the other, if there is a delegate.
    private func deliver() {
        guard inner.withLock({ $0.inbox.begins() }) else { return }
        while let (item, delegate) = inner.withLock({ $0.inbox.next() }) { item.deliver(to: delegate, by: self) }
    }
}

/// Reads the packets of a socket; on the listening side the token first.
final class TCPPacketHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let client: IPv6TCPP2PTransportClient
    /// What the first packet has to be; nil once it was, and on the side that has connected.
    private var token: [UInt8]?
    private let tokenTime: TimeAmount
    private var reader: PacketReader
    private var deadline: Scheduled<Void>?

    init(_ client: IPv6TCPP2PTransportClient, token: [UInt8]?, within tokenTime: TimeAmount = TCPLimits.tokenTime) {
        (self.client, self.token, self.tokenTime) = (client, token, tokenTime)
        reader = PacketReader(limit: token?.count ?? P2PSettings.packetLimit)
    }

    func channelActive(context: ChannelHandlerContext) {
        if token != nil {
            let channel = context.channel
            guard client.accept(channel) else { return context.close(promise: nil) }
            deadline = context.eventLoop.scheduleTask(in: tokenTime) { channel.close(promise: nil) }
        }
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        reader.append(unwrapInboundIn(data).readableBytesView)
        do {
            while let packet = try reader.next() {
                guard take(packet, context) else { return end(context) }
            }
        } catch {
            end(context)
        }
    }

    private func take(_ packet: [UInt8], _ context: ChannelHandlerContext) -> Bool {
        guard let expected = token else { return client.received(packet) }
        guard Self.areEqual(packet, expected),
            client.use(context.channel, writer: SocketWriter(context.channel))
        else { return false }
        token = nil
        reader.limit = P2PSettings.packetLimit
        deadline?.cancel()
        return true
    }

    /// Compares in time that depends on the lengths only.
    private static func areEqual(_ one: [UInt8], _ other: [UInt8]) -> Bool {
        one.count == other.count && zip(one, other).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
    }

    private func end(_ context: ChannelHandlerContext) { context.close(promise: nil) }

    func channelInactive(context: ChannelHandlerContext) {
        deadline?.cancel()
        if token == nil { client.ended() } else { client.forget(context.channel) }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { end(context) }
}
