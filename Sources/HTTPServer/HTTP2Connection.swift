// A client's HTTP/2 connection: its streams, their limits and deadlines. RFC 9113.
//
// HTTP/2 ends at the gateway. Clients negotiate it in TLS; frames and HPACK are NIOHTTP2's. Each stream is converted to
// HTTP/1.1 for a connection of its own (``HTTP2Stream``), so that limits, deadlines, back-pressure and refusals are the
// same code.
//
// NIOHTTP2 does not preserve a value that is not UTF-8: a client's is rejected, a backend's is read as ISO 8859-1.
// Until a client has acknowledged the settings, its heads may be 16 KB long. There is no HTTP/2 in the clear, to the
// backend, or for WebSockets (RFC 8441).

import HTTPCodec
import NIOCore
import NIOHTTP2

/// Replaces ``HTTPHandler`` if client and gateway negotiate HTTP/2 in TLS. NIOHTTP2 handles the frames.
///
/// Confined to its event loop, hence `@unchecked Sendable`.
final class HTTP2Connection: ChannelInboundHandler, @unchecked Sendable {
    package typealias InboundIn = HTTP2Frame

    /// The protocol's name in ALPN. RFC 9113 section 3.2.
    package static let protocolName = "h2"

    /// The client's HTTP/1.1 connection before the switch; holds its address, the pool, the limits and the ids.
    private let connection: HTTPConnection
    private var streams = 0
    private var opened: UInt64 = 0
    private var refused = 0
    private var lastStream = HTTP2StreamID.rootStream
    private var isDraining = false
    private var isEnding = false
    private var timer: Scheduled<Void>?

    private var channel: any Channel { connection.channel }
    private var limits: HTTPLimits { connection.limits }

    private init(_ connection: HTTPConnection) { self.connection = connection }

    package static func begin(
        in context: ChannelHandlerContext, instead handler: HTTPHandler, of connection: HTTPConnection
    ) {
        connection.disarm()
        let streams = HTTP2Connection(connection)
        let pipeline = context.pipeline.syncOperations
        let channel = context.channel
        do {
            try pipeline.addHandlers([streams.frames(channel.eventLoop), streams], position: .after(handler))
            pipeline.removeHandler(handler, promise: nil)
            // Flow control and resets have to arrive even if all streams are paused, so the connection always reads.
            // Each stream has its own window for bodies; `pendingControlFrames` bounds replies to a client that reads
            // nothing.
            try channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            channel.close(promise: nil)
        }
    }

    private func frames(_ eventLoop: any EventLoop) -> NIOHTTP2Handler {
        var whole = NIOHTTP2Handler.ConnectionConfiguration()
        whole.initialSettings = [
            HTTP2Setting(parameter: .maxConcurrentStreams, value: limits.streams),
            HTTP2Setting(parameter: .maxHeaderListSize, value: limits.head.bytes),
        ]
        whole.targetWindowSize = limits.connectionWindow
        whole.maximumSequentialContinuationFrames = limits.continuations
        whole.maximumBufferedControlFrames = limits.pendingControlFrames
        whole.controlFrameRateLimit.maximumCount = limits.controlFrames
        whole.controlFrameRateLimit.windowLength = limits.floodTime
        var each = NIOHTTP2Handler.StreamConfiguration()
        each.targetWindowSize = limits.window
        each.outboundBufferSizeHighWatermark = limits.window
        each.outboundBufferSizeLowWatermark = limits.window / 2
        each.streamResetFrameRateLimit.maximumCount = limits.streamResets
        each.streamResetFrameRateLimit.windowLength = limits.floodTime
        each.streamErrorRateLimit.maximumCount = limits.streamErrors
        each.streamErrorRateLimit.windowLength = limits.floodTime
        return NIOHTTP2Handler(
            mode: .server, eventLoop: eventLoop, connectionConfiguration: whole, streamConfiguration: each
        ) { stream in
            stream.eventLoop.makeCompletedFuture { try self.accept(stream) }
        }
    }

    // MARK: Streams

    private func accept(_ stream: any Channel) throws {
        try stream.syncOptions?.setOption(.autoRead, value: false)
        if let id = try stream.syncOptions?.getOption(HTTP2StreamChannelOptions.streamID) {
            lastStream = max(lastStream, id)
        }
        timer?.cancel()
        streams += 1
        opened += 1
        stream.closeFuture.assumeIsolated().whenComplete { _ in self.settle() }
        // The client obeys the setting only after it has acknowledged it; this check applies earlier.
        let isRefused = streams > limits.streams
        let pipeline = stream.pipeline.syncOperations
        try pipeline.addHandler(HTTP2Stream(limits: limits, isRefused: isRefused) { self.streams -= 1 })
        guard !isRefused else {
            refused += 1
            return refused > limits.streams ? end(.enhanceYourCalm) : ()
        }
        let request = HTTPConnection(
            channel: stream, services: connection.services, pool: connection.pool, isSecure: true,
            firstID: connection.firstID &+ opened,
            known: connection.addressReader)
        try pipeline.addHandler(HTTPHandler(request))
    }

    /// Called after a stream's channel has closed.
    private func settle() {
        guard streams == 0, !isEnding else { return }
        if isDraining { end(.noError) } else { arm(limits.keepAlive) }
    }

    // MARK: The connection

    func handlerAdded(context: ChannelHandlerContext) { arm(limits.headTime) }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case HTTPServerEvent.drain, HTTPServerEvent.stop: drain()
        case ChannelEvent.inputClosed: context.close(promise: nil)
        default: break
        }
    }

    package func channelInactive(context: ChannelHandlerContext) {
        isEnding = true
        timer?.cancel()
    }

    /// Closes the connection, except after stream errors, which end their stream only. NIOHTTP2 notifies the client.
    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case is NIOHTTP2Errors.StreamError, is NIOHTTP2Errors.StreamClosed,
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
        if streams == 0 { return end(.noError) }
        send(.goAway(lastStreamID: .maxID, errorCode: .noError, opaqueData: nil)).whenComplete { _ in }
    }

    private func end(_ code: HTTP2ErrorCode) {
        guard !isEnding else { return }
        isEnding = true
        arm(limits.stall)
        let channel = channel
        send(.goAway(lastStreamID: lastStream, errorCode: code, opaqueData: nil)).whenComplete { _ in
            channel.close(promise: nil)
        }
    }

    private func send(_ payload: HTTP2Frame.FramePayload) -> EventLoopFuture<Void> {
        channel.writeAndFlush(HTTP2Frame(streamID: .rootStream, payload: payload))
    }

    private func arm(_ time: TimeAmount) {
        timer?.cancel()
        timer = channel.eventLoop.assumeIsolated().scheduleTask(in: time) {
            if self.isEnding { self.channel.close(promise: nil) } else { self.end(.noError) }
        }
    }
}
