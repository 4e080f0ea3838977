// One stream of HTTP/2, whose handler behind it takes it for a connection of HTTP/1.1 with one request.

import HTTPCodec
import NIOCore
import NIOHPACK
import NIOHTTP2

/// Turns frames into bytes of HTTP/1.1 and back. Limits, time, back-pressure and everything that a request goes through are
/// so the same for both versions.
///
/// What the connection does at its end is said to the stream like this:
/// - closed behind a whole answer: nothing more; or RST_STREAM with NO_ERROR where the request is not whole, which tells
///   the client to stop sending: RFC 9113 section 8.1,
/// - closed before that: RST_STREAM with INTERNAL_ERROR, because a clean end would make the answer look whole,
/// - closed while the client takes nothing of a whole answer: RST_STREAM with CANCEL.
final class HTTP2Stream: ChannelDuplexHandler {
    package typealias InboundIn = HTTP2Frame.FramePayload
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = HTTP2Frame.FramePayload

    private var request = HTTP2Request()
    private var answer: HTTP2Answer
    /// Of the answer, what is not taken apart yet.
    private var pending = ByteBuffer()
    /// The last piece of the body, which may be the one that ends it.
    private var held: ByteBuffer?
    /// The frame that ends the answer, when it is written.
    private var end: EventLoopFuture<Void>?
    /// Whether that has left.
    private var isSent = false
    private var isReset = false
    private let isRefused: Bool
    private let ended: () -> Void

    /// - Parameters:
    ///   - isRefused: whether there are too many streams already.
    ///   - ended: called when it is one of them no more.
    init(limits: HTTPLimits, isRefused: Bool, ended: @escaping () -> Void) {
        answer = HTTP2Answer(limits: limits.head)
        (self.isRefused, self.ended) = (isRefused, ended)
    }

    /// RFC 9113 section 8.7: the client of a refused stream knows that nothing has been done.
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
            // Its memory is used again by who wrote it.
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
            // RFC 7541 section 7.1.3: secrets stay out of tables that others' values can be compared with.
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
