// Answers a connection that exceeds the connection limit or arrives during shutdown.

import HTTPCodec
import NIOCore
import NIOTLS

/// Refuses a client in the protocol negotiated by ALPN.
final class HTTPRefusal: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    private let answer: ByteBuffer
    private let waitsForTLS: Bool
    private let limit: TimeAmount
    private var timer: Scheduled<Void>?

    /// - Parameters:
    ///   - waitsForTLS: whether the handler sends the answer only after the TLS handshake.
    ///   - limit: maximum time for the handshake and the delivery of the answer.
    init(_ head: ResponseHead, _ body: ByteBuffer, waitsForTLS: Bool, limit: TimeAmount) {
        var head = head
        head.headers.add("Content-Length", "\(body.readableBytes)")
        head.headers.add("Connection", "close")
        var bytes = ByteBuffer()
        bytes.write(head)
        bytes.writeImmutableBuffer(body)
        answer = bytes
        (self.waitsForTLS, self.limit) = (waitsForTLS, limit)
    }

    /// Empty SETTINGS, and GOAWAY with ENHANCE_YOUR_CALM and no last stream. RFC 9113 section 6.
    private static let goAway = ByteBuffer(bytes: [
        0, 0, 0, 4, 0, 0, 0, 0, 0,
        0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0B,
    ])

    package func channelActive(context: ChannelHandlerContext) {
        let channel = context.channel
        timer = context.eventLoop.scheduleTask(in: limit) { channel.close(promise: nil) }
        if waitsForTLS { context.read() } else { sendAndClose(answer, context) }
    }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case TLSUserEvent.handshakeCompleted(let agreed):
            sendAndClose(agreed == HTTP2Connection.protocolName ? Self.goAway : answer, context)
        case ChannelEvent.inputClosed, HTTPServerEvent.stop: context.close(promise: nil)
        default: break
        }
    }

    private func sendAndClose(_ bytes: ByteBuffer, _ context: ChannelHandlerContext) {
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(bytes)).whenComplete { _ in channel.close(promise: nil) }
    }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {}

    package func channelInactive(context: ChannelHandlerContext) { timer?.cancel() }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
