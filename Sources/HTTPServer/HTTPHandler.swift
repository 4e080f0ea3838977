// The channel handler of a client's connection. It only dispatches.

import NIOCore
import NIOTLS

/// An event from the server to all its connections.
enum HTTPServerEvent: Sendable {
    case drain
    case stop
}

final class HTTPHandler: ChannelInboundHandler, RemovableChannelHandler {
    package typealias InboundIn = ByteBuffer

    private let connection: HTTPConnection

    init(_ connection: HTTPConnection) { self.connection = connection }

    /// Starts the connection here, because a read requested before the channel is active is never answered.
    package func channelActive(context: ChannelHandlerContext) { connection.accepted() }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) { connection.read(unwrapInboundIn(data)) }

    package func channelReadComplete(context: ChannelHandlerContext) { connection.readComplete() }

    package func channelWritabilityChanged(context: ChannelHandlerContext) { connection.writabilityChanged() }

    package func channelInactive(context: ChannelHandlerContext) { connection.closed() }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case ChannelEvent.inputClosed: connection.inputEnded()
        case HTTPServerEvent.drain: connection.drain()
        case HTTPServerEvent.stop: connection.stop()
        case TLSUserEvent.handshakeCompleted(let agreed) where agreed == HTTP2Connection.protocolName:
            HTTP2Connection.begin(in: context, instead: self, of: connection)
        default: break
        }
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
