// A client's HTTP/2 connection: its streams, their limits and deadlines. RFC 9113.
//
// HTTP/2 ends at the gateway. Clients negotiate it in TLS; frames, HPACK and the windows for answers are NIOHTTP2's.
// Each stream is the client of one exchange (``HTTP2Stream``), so that both versions of HTTP share what follows the
// head. Streams are no channels: a channel costs more than an exchange, and flushes for itself. Here one timer and one
// flush at the end of a turn of the event loop serve all streams.
//
// NIOHTTP2 does not preserve a value that is not UTF-8: a client's is rejected, a backend's is read as ISO 8859-1.
// Until a client has acknowledged the settings, its heads may be 16 KB long. There is no HTTP/2 in the clear, to the
// backend, or for WebSockets (RFC 8441).

import HTTPCodec
import NIOCore
import NIOHPACK
import NIOHTTP2

/// Replaces ``HTTPHandler`` if client and gateway negotiate HTTP/2 in TLS. NIOHTTP2 handles the frames.
///
/// Confined to its event loop, hence `@unchecked Sendable`.
final class HTTP2Connection: ChannelInboundHandler, NIOHTTP2FrameDelegate, @unchecked Sendable {
    package typealias InboundIn = HTTP2Frame
    package typealias OutboundOut = HTTP2Frame

    /// The protocol's name in ALPN. RFC 9113 section 3.2.
    package static let protocolName = "h2"

    let origin: ExchangeOrigin
    private let channel: any Channel
    private var context: ChannelHandlerContext?
    private var streams: [HTTP2StreamID: HTTP2Stream] = [:]
    /// Streams that continue after the current write.
    private var progressed: [HTTP2Stream] = []
    private var window: ReceiveWindow
    private var refused = 0
    private var lastStream = HTTP2StreamID.rootStream
    private var isDraining = false
    private var isEnding = false
    private var needsFlush = false
    private var isFlushScheduled = false
    /// Whether NIOHTTP2 is notifying this connection, perhaps while it sends frames that it had held back.
    private var isNotified = false
    /// The deadline of a connection without streams, or of its end.
    private var deadline = NIODeadline.distantFuture
    private var timer = LazyTimer()

    private var limits: HTTPLimits { origin.limits }
    var isWritable: Bool { channel.isWritable }

    private init(_ origin: ExchangeOrigin, _ channel: any Channel) {
        (self.origin, self.channel) = (origin, channel)
        window = ReceiveWindow(target: origin.limits.connectionWindow)
    }

    package static func begin(
        in context: ChannelHandlerContext, instead handler: HTTPHandler, of connection: HTTPConnection
    ) {
        connection.disarm()
        let streams = HTTP2Connection(connection.origin, context.channel)
        let pipeline = context.pipeline.syncOperations
        do {
            try pipeline.addHandlers([streams.frames(), streams], position: .after(handler))
            pipeline.removeHandler(handler, promise: nil)
            // Flow control and resets have to arrive even if all streams are paused, so the connection always reads.
            // Each stream has its own window for bodies; `pendingControlFrames` bounds replies to a client that reads
            // nothing.
            try context.channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            context.close(promise: nil)
        }
    }

    private func frames() -> NIOHTTP2Handler {
        var whole = NIOHTTP2Handler.ConnectionConfiguration()
        whole.initialSettings = [
            HTTP2Setting(parameter: .maxConcurrentStreams, value: limits.streams),
            HTTP2Setting(parameter: .maxHeaderListSize, value: limits.head.bytes),
        ]
        whole.maximumSequentialContinuationFrames = limits.continuations
        whole.maximumBufferedControlFrames = limits.pendingControlFrames
        whole.controlFrameRateLimit.maximumCount = limits.controlFrames
        whole.controlFrameRateLimit.windowLength = limits.floodTime
        var each = NIOHTTP2Handler.StreamConfiguration()
        each.streamResetFrameRateLimit.maximumCount = limits.streamResets
        each.streamResetFrameRateLimit.windowLength = limits.floodTime
        each.streamErrorRateLimit.maximumCount = limits.streamErrors
        each.streamErrorRateLimit.windowLength = limits.floodTime
        return NIOHTTP2Handler(
            mode: .server, frameDelegate: self, connectionConfiguration: whole, streamConfiguration: each)
    }

    // MARK: Frames

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        idle(for: limits.headTime)
    }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        switch frame.payload {
        case .headers(let head):
            let fields = HeaderFields(head.headers.map { .init($0.name, $0.value) })
            if let stream = streams[frame.streamID] {
                stream.receive(trailers: fields, isEnd: head.endStream)
            } else {
                open(frame.streamID, fields, isEnd: head.endStream)
            }
        case .data(let data):
            guard case .byteBuffer(let bytes) = data.data else { return }
            streams[frame.streamID]?.receive(bytes, isEnd: data.endStream)
        // NIOHTTP2 handles these, and reports the end of a stream and changes of windows as events.
        case .rstStream, .settings, .ping, .goAway, .windowUpdate, .priority, .pushPromise, .alternativeService,
            .origin:
            break
        }
    }

    package func channelReadComplete(context: ChannelHandlerContext) {
        flush()
        advance()
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        advance()
        for stream in Array(streams.values) { stream.writabilityChanged() }
    }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        notified { take(event, context) }
    }

    private func take(_ event: Any, _ context: ChannelHandlerContext) {
        switch event {
        case let event as NIOHTTP2WindowUpdatedEvent:
            guard let size = event.inboundWindowSize else { return }
            guard event.streamID == .rootStream else { return streams[event.streamID]?.windowChanged(size) ?? () }
            window.changed(to: size)
            // A paused stream does not pause the others: each has a window of its own for what it holds.
            if let increment = window.increment(holding: 0) {
                write(.windowUpdate(windowSizeIncrement: increment), on: .rootStream)
            }
        case let event as StreamClosedEvent: closed(event.streamID)
        case HTTPServerEvent.drain, HTTPServerEvent.stop: drain()
        case ChannelEvent.inputClosed: context.close(promise: nil)
        default: break
        }
    }

    func wroteFrame(_ frame: HTTP2Frame) {
        switch frame.payload {
        case .data(let data): streams[frame.streamID]?.wrote(data.data.readableBytes, isEnd: data.endStream)
        case .headers(let head): streams[frame.streamID]?.wrote(0, isEnd: head.endStream)
        default: break
        }
    }

    private func notified(_ body: () -> Void) {
        let wasNotified = isNotified
        isNotified = true
        body()
        isNotified = wasNotified
    }

    /// Writes a frame, and requests its flush.
    ///
    /// NIOHTTP2 holds frames other than DATA back while the channel is not writable, and behind others that it holds
    /// back. As soon as the channel is writable it sends the flushed ones and then DATA, and stops the process of a debug
    /// build if one is left that was not flushed. A frame that it may hold back is therefore flushed at once: while the
    /// channel is not writable, and while NIOHTTP2 notifies this connection in the middle of sending.
    func write(_ payload: HTTP2Frame.FramePayload, on stream: HTTP2StreamID) {
        guard let context else { return }
        context.write(wrapOutboundOut(HTTP2Frame(streamID: stream, payload: payload)), promise: nil)
        flushLater()
        if isNotified || !channel.isWritable { flush() }
    }

    /// Flushes at the end of this turn of the event loop, so that the answers of several streams are one write.
    private func flushLater() {
        needsFlush = true
        guard !isFlushScheduled else { return }
        isFlushScheduled = true
        channel.eventLoop.assumeIsolated().execute {
            self.isFlushScheduled = false
            self.flush()
            self.advance()
        }
    }

    private func flush() {
        guard needsFlush else { return }
        needsFlush = false
        context?.flush()
    }

    /// Registers a stream that continues after the current write.
    func hasProgressed(_ stream: HTTP2Stream) { progressed.append(stream) }

    private func advance() { while let stream = progressed.popLast() { stream.advance() } }

    // MARK: Streams

    private func open(_ id: HTTP2StreamID, _ fields: HeaderFields, isEnd: Bool) {
        guard !isEnding else { return }
        lastStream = max(lastStream, id)
        // The client obeys the setting only after it has acknowledged it; this check applies earlier. A refused stream
        // is reset, so that the client knows it was not processed. Section 8.7.
        guard streams.count < limits.streams else {
            refused += 1
            write(.rstStream(.refusedStream), on: id)
            return refused > limits.streams ? end(.enhanceYourCalm) : ()
        }
        do throws(HTTPFault) {
            let request = try HTTP2Request(fields, isEnd: isEnd, limits: limits.head)
            let stream = HTTP2Stream(id, request, connection: self)
            streams[id] = stream
            deadline = .distantFuture
            stream.begin()
        } catch {
            write(.rstStream(.protocolError), on: id)
        }
    }

    private func closed(_ id: HTTP2StreamID) {
        guard let stream = streams.removeValue(forKey: id) else { return }
        stream.closed()
        guard streams.isEmpty, !isEnding else { return }
        if isDraining { end(.noError) } else { idle(for: limits.keepAlive) }
    }

    // MARK: The connection

    package func channelInactive(context: ChannelHandlerContext) {
        isEnding = true
        timer.cancel()
        progressed = []
        let open = streams.values
        streams = [:]
        for stream in open { stream.closed() }
    }

    /// Closes the connection, except after stream errors, which end their stream only. NIOHTTP2 notifies the client.
    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        // NIOHTTP2 has not sent a frame of an answer.
        case let error as NIOHTTP2Errors.StreamError: notified { streams[error.streamID]?.abort() }
        case is NIOHTTP2Errors.StreamClosed,
            is NIOHTTP2Errors.DuplicatePseudoHeader, is NIOHTTP2Errors.PseudoHeaderAfterRegularHeader,
            is NIOHTTP2Errors.UnknownPseudoHeader, is NIOHTTP2Errors.UnsupportedPseudoHeader,
            is NIOHTTP2Errors.InvalidPseudoHeaders, is NIOHTTP2Errors.InvalidPseudoHeaderValue,
            is NIOHTTP2Errors.EmptyPathHeader, is NIOHTTP2Errors.ForbiddenHeaderField,
            is NIOHTTP2Errors.InvalidHTTP2HeaderFieldName, is NIOHTTP2Errors.InvalidHTTP2HeaderFieldValue,
            is NIOHTTP2Errors.TrailersWithoutEndStream, is NIOHTTP2Errors.ContentLengthViolated,
            is NIOHTTP2Errors.ContentLengthHeadersMismatch, is NIOHTTP2Errors.ContentLengthHeaderNegative,
            is NIOHTTP2Errors.ContentLengthHeaderMalformedValue:
            break
        // Frames after the last one of a closing connection are ignored.
        case is NIOHTTP2Errors.IOOnClosedConnection where isDraining || isEnding: break
        default:
            isEnding = true
            context.close(promise: nil)
        }
    }

    /// Stops accepting requests, and completes those in progress. RFC 9113 section 6.8.
    private func drain() {
        guard !isDraining else { return }
        isDraining = true
        if streams.isEmpty { return end(.noError) }
        write(.goAway(lastStreamID: .maxID, errorCode: .noError, opaqueData: nil), on: .rootStream)
        for stream in Array(streams.values) { stream.endWaiting() }
    }

    /// Closes the connection of a client that does not even read the reset of a stream.
    func abandon() {
        isEnding = true
        channel.close(promise: nil)
    }

    private func end(_ code: HTTP2ErrorCode) {
        guard !isEnding else { return }
        isEnding = true
        idle(for: limits.stall)
        let channel = channel
        let goAway = HTTP2Frame.FramePayload.goAway(lastStreamID: lastStream, errorCode: code, opaqueData: nil)
        channel.writeAndFlush(HTTP2Frame(streamID: .rootStream, payload: goAway)).whenComplete { _ in
            channel.close(promise: nil)
        }
    }

    // MARK: Deadlines

    private func idle(for time: TimeAmount) {
        deadline = .now() + time
        arm(deadline)
    }

    /// Sets the timer of all deadlines.
    func arm(_ deadline: NIODeadline) { timer.arm(deadline, on: channel.eventLoop) { self.fired() } }

    private func fired() {
        timer.hasFired()
        guard channel.isActive else { return }
        let now = NIODeadline.now()
        for stream in Array(streams.values) where stream.deadline <= now { stream.expired() }
        if deadline <= now {
            guard !isEnding else { return channel.close(promise: nil) }
            end(.noError)
        }
        let next = streams.values.reduce(deadline) { min($0, $1.deadline) }
        if next < .distantFuture { arm(next) }
    }
}

/// A window that the client may fill with bodies. RFC 9113 section 6.9.
struct ReceiveWindow {
    /// The size that increments restore.
    private let target: Int
    /// Bytes that the client may send; nil if it has sent none yet.
    private var size: Int?

    init(target: Int) { self.target = target }

    mutating func changed(to size: Int) { self.size = size }

    /// Returns the increment to send; nil if it is too small for a frame.
    ///
    /// - Parameter held: received bytes that the window must not replace yet.
    mutating func increment(holding held: Int) -> Int? {
        guard let size, size + held <= target / 2 else { return nil }
        let increment = target - size - held
        self.size = size + increment
        return increment
    }
}
