// The two ends of a connection in their pipelines: dispatchers only.

import NIOCore
import NIOTLS

/// The client's end.
final class DownstreamHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let connection: IRCConnection

    init(_ connection: IRCConnection) { self.connection = connection }

    /// Not before: a read that is asked for earlier is never answered.
    func channelActive(context: ChannelHandlerContext) { connection.accepted() }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        connection.downstreamRead(unwrapInboundIn(data))
    }

    func channelReadComplete(context: ChannelHandlerContext) { connection.downstreamReadComplete() }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { connection.readUpstream() }
    }

    func channelInactive(context: ChannelHandlerContext) { connection.downstreamClosed() }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { connection.downstreamInputEnded() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// The backend's end.
final class UpstreamHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let connection: IRCConnection

    init(_ connection: IRCConnection) { self.connection = connection }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        connection.upstreamRead(unwrapInboundIn(data))
    }

    func channelReadComplete(context: ChannelHandlerContext) { connection.upstreamReadComplete() }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { connection.readDownstream() }
    }

    func channelInactive(context: ChannelHandlerContext) { connection.upstreamClosed(context.channel) }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { connection.upstreamInputEnded(context.channel) }
        if case .some(.handshakeCompleted) = event as? TLSUserEvent { connection.upstreamSecured() }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        connection.upstreamFaulted(error, context.channel)
        context.close(promise: nil)
    }
}
