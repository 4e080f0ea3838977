// The channel handlers of both sides of a connection. They only dispatch to IRCConnection.

import NIOCore
import NIOTLS

/// The handler on the client's side.
final class DownstreamHandler: ChannelInboundHandler, RemovableChannelHandler {
    package typealias InboundIn = ByteBuffer

    private let connection: IRCConnection

    init(_ connection: IRCConnection) { self.connection = connection }

    /// Starts the connection. A read requested before the channel is active would never be answered.
    package func channelActive(context: ChannelHandlerContext) { connection.accepted() }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        connection.downstreamRead(unwrapInboundIn(data))
    }

    package func channelReadComplete(context: ChannelHandlerContext) { connection.downstreamReadComplete() }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { connection.readUpstream() }
    }

    package func channelInactive(context: ChannelHandlerContext) { connection.downstreamClosed() }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { connection.downstreamInputEnded() }
        if case .some(.handshakeCompleted) = event as? TLSUserEvent { connection.downstreamSecured() }
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// The handler on the backend's side.
final class UpstreamHandler: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer

    private let connection: IRCConnection

    init(_ connection: IRCConnection) { self.connection = connection }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        connection.upstreamRead(unwrapInboundIn(data), context.channel)
    }

    package func channelReadComplete(context: ChannelHandlerContext) { connection.upstreamReadComplete() }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable { connection.readDownstream() }
    }

    package func channelInactive(context: ChannelHandlerContext) { connection.upstreamClosed(context.channel) }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { connection.upstreamInputEnded(context.channel) }
        if case .some(.handshakeCompleted) = event as? TLSUserEvent { connection.upstreamSecured() }
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        connection.upstreamFaulted(error, context.channel)
        context.close(promise: nil)
    }
}
