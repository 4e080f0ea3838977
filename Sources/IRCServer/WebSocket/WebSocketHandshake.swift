// The handshake of a WebSocket in front of an IRC connection. RFC 6455 section 4.2; IRCv3 "WebSocket".

import NIOCore
import NIOHTTP1
import NIOSupport
import NIOWebSocket

/// Answers the request of a client, and puts the handlers of the WebSocket into its channel.
enum WebSocketHandshake {
    /// Adds the handlers of the handshake. What the client sends is read until the handshake is over.
    ///
    /// - Parameters:
    ///   - early: bytes that have been read already.
    ///   - patience: how long the client may take for its request.
    ///   - opened: called once with the request, after all handlers of the WebSocket are in place.
    ///   - closed: called if the client has gone before.
    static func begin(
        _ channel: any Channel, early: ByteBuffer, origins: WebOrigins, patience: TimeAmount,
        opened: @escaping @Sendable (HTTPRequestHead) throws -> Void, closed: @escaping @Sendable () -> Void
    ) throws {
        let pipeline = channel.pipeline.syncOperations
        let injector = EarlyBytes(early)
        let request = HandshakeRequestHandler(origins: origins, patience: patience, closed: closed)
        let (loopInjector, loopRequest) = (
            NIOLoopBound(injector, eventLoop: channel.eventLoop), NIOLoopBound(request, eventLoop: channel.eventLoop)
        )
        let upgrader = NIOWebSocketServerUpgrader(
            maxFrameSize: WebSocketLines.limit,
            shouldUpgrade: { channel, head in
                channel.eventLoop.makeSucceededFuture(origins.refusal(of: head) == nil ? fields(for: head) : nil)
            },
            upgradePipelineHandler: { channel, head in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    for handler in [loopInjector.value, loopRequest.value] as [any RemovableChannelHandler] {
                        pipeline.removeHandler(handler, promise: nil)
                    }
                    try pipeline.addHandler(
                        NIOWebSocketFrameAggregator(
                            minNonFinalFragmentSize: 0, maxAccumulatedFrameCount: 64,
                            maxAccumulatedFrameSize: WebSocketLines.limit))
                    try pipeline.addHandler(WebSocketLineHandler(subprotocol(of: head) ?? .text))
                    try opened(head)
                }
            })
        try pipeline.addHandler(injector)
        try pipeline.configureHTTPServerPipeline(
            withPipeliningAssistance: false, withServerUpgrade: ([upgrader], { _ in }))
        try pipeline.addHandler(request)
        channel.setOption(.autoRead, value: true).whenSuccess { loopInjector.value.release() }
    }

    /// The answer to a request while the gateway accepts nobody.
    static func refusal(_ words: String) -> ByteBuffer {
        ByteBuffer(
            string: """
                HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r
                Content-Length: \(words.utf8.count)\r\n\r\n\(words)
                """)
    }

    private static func subprotocol(of head: HTTPRequestHead) -> LineSubprotocol? {
        LineSubprotocol.chosen(from: head.headers[canonicalForm: "sec-websocket-protocol"].map(String.init))
    }

    private static func fields(for head: HTTPRequestHead) -> HTTPHeaders {
        subprotocol(of: head).map { ["Sec-WebSocket-Protocol": $0.rawValue] } ?? [:]
    }
}

extension WebOrigins {
    /// Why a page may not connect; nil if it may, or if the client is no page.
    fileprivate func refusal(of head: HTTPRequestHead) -> String? {
        let origins = head.headers["origin"]
        guard origins.allSatisfy(allows), origins.count <= 1 else {
            return "Pages of this site may not connect. The operator lists them in websocket.origins."
        }
        return nil
    }
}

/// Passes on bytes that were read before the handlers of the handshake were there.
private final class EarlyBytes: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private var bytes: ByteBuffer
    private var context: ChannelHandlerContext?

    init(_ bytes: ByteBuffer) { self.bytes = bytes }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func release() {
        guard bytes.readableBytes > 0, let context else { return }
        let early = bytes
        bytes = ByteBuffer()
        context.fireChannelRead(wrapInboundOut(early))
        context.fireChannelReadComplete()
    }
}

/// Refuses requests that are no handshake, and clients that take too long for one.
private final class HandshakeRequestHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let origins: WebOrigins
    private let patience: TimeAmount
    private let closed: @Sendable () -> Void
    private var timeout: Scheduled<Void>?
    private var hasAnswered = false

    init(origins: WebOrigins, patience: TimeAmount, closed: @escaping @Sendable () -> Void) {
        (self.origins, self.patience, self.closed) = (origins, patience, closed)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        let channel = context.channel
        timeout = context.eventLoop.scheduleTask(in: patience) { channel.close(promise: nil) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { timeout?.cancel() }

    func channelInactive(context: ChannelHandlerContext) {
        timeout?.cancel()
        closed()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(let head) = unwrapInboundIn(data), !hasAnswered else { return }
        if let words = origins.refusal(of: head) { return refuse(context, .forbidden, words) }
        refuse(
            context, .upgradeRequired,
            "This port is IRC over WebSocket (version 13, subprotocol text.ircv3.net or binary.ircv3.net).")
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !hasAnswered, !(error is NIOWebSocketUpgradeError) else { return }
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { context.close(promise: nil) }
    }

    private func refuse(_ context: ChannelHandlerContext, _ status: HTTPResponseStatus, _ words: String) {
        hasAnswered = true
        var head = HTTPResponseHead(
            version: .http1_1, status: status,
            headers: [
                "Content-Type": "text/plain; charset=utf-8", "Connection": "close",
                "Content-Length": String(words.utf8.count),
            ])
        if status == .upgradeRequired {
            head.headers.add(name: "Upgrade", value: "websocket")
            head.headers.add(name: "Sec-WebSocket-Version", value: "13")
        }
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: words)))), promise: nil)
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in channel.close(promise: nil) }
    }
}
