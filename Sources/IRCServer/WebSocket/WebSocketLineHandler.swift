// The handler between the frames of a WebSocket and the handler of a connection.

import NIOCore
import NIOWebSocket

/// Turns whole messages into lines, and lines into messages. It answers pings and the client's close.
final class WebSocketLineHandler: ChannelDuplexHandler {
    typealias InboundIn = WebSocketFrame
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = WebSocketFrame

    private var lines: WebSocketLines
    private var hasSentClose = false
    private var hasEnded = false

    init(_ subprotocol: LineSubprotocol) { lines = WebSocketLines(subprotocol) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasEnded else { return }
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .text, .binary:
            do throws(WebSocketLineFault) {
                guard let line = try WebSocketLines.line(frame.unmaskedData, isText: frame.opcode == .text) else {
                    return
                }
                context.fireChannelRead(wrapInboundOut(line))
            } catch {
                end(context, code: error.rawValue)
            }
        case .ping:
            // A client that sends pings and reads nothing fills no memory.
            guard context.channel.isWritable, !hasSentClose else { return }
            let pong = WebSocketFrame(fin: true, opcode: .pong, data: frame.unmaskedData)
            context.writeAndFlush(wrapOutboundOut(pong), promise: nil)
        case .connectionClose:
            var payload = frame.unmaskedData
            end(context, code: payload.readInteger(as: UInt16.self) ?? 1000)
        default: break
        }
    }

    /// An error of the aggregator of fragments: a message that is too long, or fragments out of order.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error as? NIOWebSocketFrameAggregator.Error {
        case .tooManyFragments, .accumulatedFrameSizeIsTooLarge:
            end(context, code: WebSocketLineFault.tooLong.rawValue)
        case .some: end(context, code: WebSocketLineFault.malformed.rawValue)
        case nil: context.fireErrorCaught(error)
        }
    }

    /// A second end, that of the socket, follows the client's close.
    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if hasEnded, case .some(.inputClosed) = event as? ChannelEvent { return }
        context.fireUserInboundEventTriggered(event)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var messages = hasSentClose ? [] : lines.messages(unwrapOutboundIn(data))
        let last = messages.popLast()
        let opcode: WebSocketOpcode = lines.subprotocol == .text ? .text : .binary
        for message in messages {
            context.write(wrapOutboundOut(WebSocketFrame(fin: true, opcode: opcode, data: message)), promise: nil)
        }
        guard let last else {
            promise?.fail(ChannelError.outputClosed)
            return
        }
        context.write(wrapOutboundOut(WebSocketFrame(fin: true, opcode: opcode, data: last)), promise: promise)
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        if mode != .input { sendClose(context, code: 1000) }
        context.close(mode: mode, promise: promise)
    }

    /// The client says nothing more: to the connection this is the end of its input.
    private func end(_ context: ChannelHandlerContext, code: UInt16) {
        sendClose(context, code: code)
        hasEnded = true
        context.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
    }

    private func sendClose(_ context: ChannelHandlerContext, code: UInt16) {
        guard !hasSentClose else { return }
        hasSentClose = true
        var payload = ByteBuffer()
        payload.writeInteger(code)
        context.writeAndFlush(
            wrapOutboundOut(WebSocketFrame(fin: true, opcode: .connectionClose, data: payload)), promise: nil)
    }
}
