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
        /// Bytes that were sent at once, and that the socket's thread has not written.
        var unwritten = 0
        var inbox = P2PInbox()
    }

    /// From the handle of the factory.
    public let state: P2PFrameworkState
    private let inner = Mutex(State())

    init(state: P2PFrameworkState) { self.state = state }

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
    func use(_ socket: any Channel) -> Bool {
        let others: [any Channel]? = inner.withLock { state in
            guard state.connected == .connecting else { return nil }
            (state.connected, state.channel) = (.connected, socket)
            state.inbox.append(.opened)
            defer { state.sockets = [] }
            return state.sockets.filter { $0 !== socket }
        }
        guard let others else { return false }
        for other in others { other.close(promise: nil) }
        deliver()
        return true
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
            defer { (state.sockets, state.channel) = ([], nil) }
            return state.sockets
        }
        for socket in sockets { socket.close(promise: nil) }
        deliver()
    }

    /// Sends a packet; waits if the other side does not read.
    public func sendMessage(_ message: [UInt8]) async throws {
        let channel = inner.withLock { $0.connected == .connected ? $0.channel : nil }
        guard let channel, (1...P2PSettings.packetLimit).contains(message.count) else {
            throw P2PError.transport("The packet cannot be sent.")
        }
        let buffer = Self.buffer(of: message, channel)
        guard channel.isWritable else { return try await channel.writeAndFlush(buffer) }
        channel.writeAndFlush(buffer, promise: nil)
    }

    private static func buffer(of message: [UInt8], _ channel: any Channel) -> ByteBuffer {
        var buffer = channel.allocator.buffer(capacity: PacketReader.headSize + message.count)
        buffer.writeBytes(PacketReader.head(of: message))
        buffer.writeBytes(message)
        return buffer
    }

    /// Hands a packet to the socket's thread, unless much waits there or the other side does not read.
    public func sendAtOnce(_ message: [UInt8]) -> Bool {
        guard (1...P2PSettings.packetLimit).contains(message.count) else { return false }
        let channel = inner.withLock { state -> (any Channel)? in
            guard state.connected == .connected, let channel = state.channel, channel.isWritable,
                state.unwritten + message.count <= TCPLimits.unwritten
            else { return nil }
            state.unwritten += message.count
            return channel
        }
        guard let channel else { return false }
        let buffer = Self.buffer(of: message, channel)
        // Never within this call: what fails is reported to the delegate.
        channel.eventLoop.execute { [self] in
            channel.writeAndFlush(buffer, promise: nil)
            inner.withLock { $0.unwritten -= message.count }
        }
        return true
    }

    /// Closes the connection after the packets before: with the other side, or after three seconds.
    public func disconnect() async throws {
        let (channel, last) = inner.withLock { state in
            defer { if state.connected == .connected { state.connected = .disconnecting } }
            return (state.channel, state.connected)
        }
        guard let channel, last == .connected else {
            if last == .connecting { ended() }
            return
        }
        // With unread bytes, a closed socket would take back what it has sent.
        channel.writeAndFlush(ByteBuffer()).whenComplete { _ in channel.close(mode: .output, promise: nil) }
        channel.eventLoop.scheduleTask(in: TCPLimits.closingTime) { channel.close(promise: nil) }
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
        guard Self.areEqual(packet, expected), client.use(context.channel) else { return false }
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
