// The byte stream of frames inside binary WebSocket messages (RFC 6455). Where a message begins means nothing, so
// intermediaries may fragment.

package import NIOCore
package import NIOWebSocket

/// Makes a stream of bytes of WebSocket frames.
package final class WebSocketStreamHandler: ChannelDuplexHandler {
    package typealias InboundIn = WebSocketFrame
    package typealias InboundOut = ByteBuffer
    package typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = WebSocketFrame

    /// Ours: payload of one outbound WebSocket frame, 1 MiB; the same bound holds for inbound ones.
    package static let frameLimit = 1 << 20

    private let isClient: Bool

    /// - Parameter isClient: Whether outbound frames are masked (RFC 6455, section 5.3).
    package init(isClient: Bool) { self.isClient = isClient }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .binary, .continuation: context.fireChannelRead(wrapInboundOut(frame.unmaskedData))
        case .ping: write(.pong, frame.unmaskedData, context, nil)
        case .pong: break
        case .connectionClose:
            write(.connectionClose, frame.unmaskedData, context, nil)
            context.close(promise: nil)
        default: context.close(promise: nil)
        }
    }

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var bytes = unwrapOutboundIn(data)
        while bytes.readableBytes > Self.frameLimit, let part = bytes.readSlice(length: Self.frameLimit) {
            context.write(wrapOutboundOut(frame(.binary, part)), promise: nil)
        }
        context.write(wrapOutboundOut(frame(.binary, bytes)), promise: promise)
    }

    private func write(
        _ opcode: WebSocketOpcode, _ data: ByteBuffer, _ context: ChannelHandlerContext,
        _ promise: EventLoopPromise<Void>?
    ) {
        context.writeAndFlush(wrapOutboundOut(frame(opcode, data)), promise: promise)
    }

    private func frame(_ opcode: WebSocketOpcode, _ data: ByteBuffer) -> WebSocketFrame {
        WebSocketFrame(fin: true, opcode: opcode, maskKey: isClient ? .random() : nil, data: data)
    }
}
