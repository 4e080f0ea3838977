// Presents one HTTP/2 stream to the next handler as an HTTP/1.1 connection with one request.

import HTTPCodec
import NIOCore
import NIOHPACK
import NIOHTTP2

/// Converts frames to bytes of HTTP/1.1 and back, so that both versions share all code.
///
/// Limits, deadlines, back-pressure and request handling are therefore the same.
///
/// The end of the connection is mapped to the stream:
/// - Closed after a complete answer: nothing, or RST_STREAM with NO_ERROR if the request is incomplete, so that the
///   client stops sending. RFC 9113 section 8.1.
/// - Closed before that: RST_STREAM with INTERNAL_ERROR, because a clean end would make the answer look complete.
/// - Closed while the client reads nothing of a complete answer: RST_STREAM with CANCEL.
final class HTTP2Stream: ChannelDuplexHandler {
    package typealias InboundIn = HTTP2Frame.FramePayload
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = HTTP2Frame.FramePayload

    private var request = HTTP2Request()
    private var answer: HTTP2Answer
    /// Bytes of the answer that are not parsed yet.
    private var pending = ByteBuffer()
    /// The last piece of the body in this write; its frame may have to end the stream.
    private var held: ByteBuffer?
    /// Completes when the frame that ends the answer is written; nil before that frame.
    private var end: EventLoopFuture<Void>?
    /// Whether the frame that ends the answer is written.
    private var isSent = false
    private var isReset = false
    private let isRefused: Bool
    private let ended: () -> Void

    /// - Parameters:
    ///   - isRefused: whether the connection has too many streams already.
    ///   - ended: called when the stream no longer counts.
    init(limits: HTTPLimits, isRefused: Bool, ended: @escaping () -> Void) {
        answer = HTTP2Answer(limits: limits.head)
        (self.isRefused, self.ended) = (isRefused, ended)
    }

    /// Resets a refused stream, so that the client knows it was not processed. RFC 9113 section 8.7.
    package func channelActive(context: ChannelHandlerContext) {
        if isRefused { reset(.refusedStream, context) } else { context.fireChannelActive() }
    }

    package func channelInactive(context: ChannelHandlerContext) {
        ended()
        context.fireChannelInactive()
    }

    // MARK: The request

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isReset else { return }
        do throws(HTTPFault) {
            var text = ByteBuffer()
            switch unwrapInboundIn(data) {
            case .headers(let frame):
                text = try request.take(
                    HeaderFields(frame.headers.map { .init($0.name, $0.value) }), isEnd: frame.endStream)
            case .data(let frame):
                guard case .byteBuffer(let bytes) = frame.data else { return }
                text = try request.take(bytes, isEnd: frame.endStream)
            default: return
            }
            if text.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(text)) }
        } catch {
            reset(.protocolError, context)
        }
    }

    // MARK: The answer

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if !isReset {
            pending.append(arrived: unwrapOutboundIn(data))
            do throws(HTTPFault) {
                while let part = try answer.next(&pending, isToHead: request.isToHead) { write(part, context) }
            } catch {
                reset(.internalError, context)
            }
            writeHeld(isEnd: false, context)
            // Releases the buffer, because the writer reuses its memory.
            if pending.readableBytes == 0 { pending = ByteBuffer() }
        }
        guard let promise else { return }
        if let end { end.cascade(to: promise) } else { promise.succeed() }
    }

    private func write(_ part: HTTP2Answer.Part, _ context: ChannelHandlerContext) {
        switch part {
        case .informational(let fields): write(fields, isEnd: false, context)
        case .head(let fields, let isEnd): write(fields, isEnd: isEnd, context)
        case .bytes(let bytes):
            writeHeld(isEnd: false, context)
            held = bytes
        case .end(let trailers):
            guard !trailers.fields.isEmpty else { return writeHeld(isEnd: true, context) }
            writeHeld(isEnd: false, context)
            write(trailers, isEnd: true, context)
        }
    }

    private func write(_ fields: HeaderFields, isEnd: Bool, _ context: ChannelHandlerContext) {
        var headers = HPACKHeaders()
        for field in fields.fields {
            // RFC 7541 section 7.1.3: secrets are not indexed, because an attacker could probe the table with guesses.
            headers.add(
                name: field.name, value: field.value,
                indexing: field.name == "set-cookie" ? .neverIndexed : .indexable)
        }
        write(.headers(.init(headers: headers, endStream: isEnd)), isEnd: isEnd, context)
    }

    private func writeHeld(isEnd: Bool, _ context: ChannelHandlerContext) {
        let bytes = held
        held = nil
        guard isEnd || bytes != nil else { return }
        write(.data(.init(data: .byteBuffer(bytes ?? ByteBuffer()), endStream: isEnd)), isEnd: isEnd, context)
    }

    private func write(_ payload: HTTP2Frame.FramePayload, isEnd: Bool, _ context: ChannelHandlerContext) {
        guard isEnd else { return context.write(wrapOutboundOut(payload), promise: nil) }
        let end = context.write(wrapOutboundOut(payload))
        self.end = end
        end.assumeIsolated().whenSuccess { self.isSent = true }
    }

    // MARK: The end

    package func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        if !answer.isOver {
            reset(.internalError, context)
        } else if isSent, !request.isOver {
            reset(.noError, context)
        }
        context.close(promise: promise)
    }

    private func reset(_ code: HTTP2ErrorCode, _ context: ChannelHandlerContext) {
        guard !isReset else { return }
        isReset = true
        held = nil
        context.writeAndFlush(wrapOutboundOut(.rstStream(code)), promise: nil)
    }
}
