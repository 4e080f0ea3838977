import NIOCore
import NIOHTTP1
import NIOWebSocket
import PeerKit

/// Collects whole requests and hands them on.
final class RequestHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    /// In bytes. Longer bodies are refused, and their connection ends.
    static let bodyLimit = 64 << 20
    static let name = "requests"

    private let take: (Request, any Channel, _ keepAlive: Bool) -> Void
    private let nextUpgrade: (() -> HTTPServerUpgradeHandler)?
    private var head: HTTPRequestHead?
    private var body: [UInt8] = []

    /// - Parameter nextUpgrade: Makes what looks whether a request asks for a WebSocket. It looks at one request only, and proxies
    ///   use their connections for many.
    init(
        nextUpgrade: (() -> HTTPServerUpgradeHandler)? = nil,
        _ take: @escaping (Request, any Channel, _ keepAlive: Bool) -> Void
    ) {
        (self.take, self.nextUpgrade) = (take, nextUpgrade)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        lookForUpgrade(context)
    }

    private func lookForUpgrade(_ context: ChannelHandlerContext) {
        guard let nextUpgrade else { return }
        do {
            try context.pipeline.syncOperations.addHandler(nextUpgrade(), position: .before(self))
        } catch {
            context.close(promise: nil)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            self.head = head
            if head.headers["expect"].contains(where: { $0.lowercased() == "100-continue" }) {
                let interim = HTTPResponseHead(version: .http1_1, status: .continue)
                context.writeAndFlush(wrapOutboundOut(.head(interim)), promise: nil)
            }
        case .body(let part):
            guard head != nil else { return }
            body += part.readableBytesView
            if body.count > Self.bodyLimit {
                head = nil
                Answer(Refusal(413, "too_large", "a body has \(Self.bodyLimit) bytes at most"))
                    .write(to: context.channel, keepAlive: false, withBody: true)
            }
        case .end:
            guard let head else { return }
            let request = Request(
                method: head.method.rawValue, target: head.uri,
                headers: head.headers.map { ($0.name, $0.value) }, body: body)
            (self.head, body) = (nil, [])
            lookForUpgrade(context)
            // NIO's decoder reads nothing more behind a request that asks for another protocol.
            take(request, context.channel, head.isKeepAlive && !head.headers.contains(name: "upgrade"))
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // Who may not have a WebSocket is answered like any request.
        if !(error is NIOWebSocketUpgradeError) { context.close(promise: nil) }
    }
}

extension Answer {
    /// Sends the head and one byte, and then either nothing more or a byte now and then.
    func begin(on channel: any Channel, drips: Bool) {
        let headers: HTTPHeaders = ["Content-Type": "application/json", "Content-Length": "100000"]
        let head = HTTPResponseHead(version: .http1_1, status: .init(statusCode: status), headers: headers)
        channel.write(HTTPServerResponsePart.head(head), promise: nil)
        let byte = HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(string: "{")))
        channel.writeAndFlush(byte, promise: nil)
        guard drips else { return }
        channel.eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(100)) { task in
            guard channel.isActive else { return task.cancel() }
            channel.writeAndFlush(byte, promise: nil)
        }
    }

    func write(to channel: any Channel, keepAlive: Bool, withBody: Bool) {
        var headers = HTTPHeaders()
        if let contentType { headers.add(name: "Content-Type", value: contentType) }
        if status != 204 { headers.add(name: "Content-Length", value: "\(body.count)") }
        if let retryAfter { headers.add(name: "Retry-After", value: "\(retryAfter)") }
        if let cookie { headers.add(name: "Set-Cookie", value: cookie) }
        if !keepAlive { headers.add(name: "Connection", value: "close") }
        let head = HTTPResponseHead(version: .http1_1, status: .init(statusCode: status), headers: headers)
        channel.write(HTTPServerResponsePart.head(head), promise: nil)
        if withBody, !body.isEmpty {
            channel.write(HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(bytes: body))), promise: nil)
        }
        let written = channel.writeAndFlush(HTTPServerResponsePart.end(nil))
        if !keepAlive { written.whenComplete { _ in channel.close(promise: nil) } }
    }
}

/// Adds the fields that let pages of one origin, or of all, use the chat.
final class PageHandler: ChannelOutboundHandler, RemovableChannelHandler {
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    private let origin: String

    init(_ origin: String) {
        self.origin = origin
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard case .head(var head) = unwrapOutboundIn(data) else { return context.write(data, promise: promise) }
        head.headers.add(name: "Access-Control-Allow-Origin", value: origin)
        if origin != "*" { head.headers.add(name: "Access-Control-Allow-Credentials", value: "true") }
        head.headers.add(name: "Access-Control-Allow-Methods", value: "GET, POST, PUT, PATCH, DELETE")
        head.headers.add(name: "Access-Control-Allow-Headers", value: "Authorization, Content-Type")
        head.headers.add(name: "Access-Control-Expose-Headers", value: "Retry-After")
        context.write(wrapOutboundOut(.head(head)), promise: promise)
    }
}

/// One client's WebSocket, behind an aggregator of fragments.
final class WebSocketHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    /// In bytes.
    static let messageLimit = 16 << 20

    private let backend: Backend
    /// Whose it is at first; nil if a frame is to say so.
    private let user: String?

    init(_ backend: Backend, _ user: String?) {
        (self.backend, self.user) = (backend, user)
    }

    static func send(_ message: JSONValue, to channel: any Channel) {
        let frame = WebSocketFrame(fin: true, opcode: .text, data: ByteBuffer(bytes: message.bytes))
        channel.writeAndFlush(frame, promise: nil)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        if let user { backend.open(context.channel, of: user) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        let payload = frame.unmaskedData
        switch frame.opcode {
        case .text: backend.take(Array(payload.readableBytesView), from: context.channel)
        case .ping: reply(.pong, payload, context)
        case .connectionClose:
            reply(.connectionClose, payload, context)
            context.close(promise: nil)
        case .binary:
            // 1003: data of a type that is not accepted. RFC 6455 section 7.4.1.
            reply(.connectionClose, ByteBuffer(bytes: [0x03, 0xEB]), context)
            context.close(promise: nil)
        default: break
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    private func reply(_ opcode: WebSocketOpcode, _ payload: ByteBuffer, _ context: ChannelHandlerContext) {
        context.writeAndFlush(wrapOutboundOut(WebSocketFrame(fin: true, opcode: opcode, data: payload)), promise: nil)
    }
}
