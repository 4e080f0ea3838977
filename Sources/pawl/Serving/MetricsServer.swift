// `/metrics`, `/live` and `/ready` on a loopback port.

import NIOCore
import NIOHTTP1
import NIOPosix

/// A small HTTP server for monitoring.
final class MetricsServer: Sendable {
    private let channel: any Channel

    /// - Throws: an error of NIO if the port cannot be bound.
    static func start(
        host: String, port: Int, group: MultiThreadedEventLoopGroup, page: @escaping @Sendable () async -> String,
        readiness: @escaping @Sendable () async -> String?
    ) async throws -> MetricsServer {
        let channel = try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline(withErrorHandling: true)
                    try channel.pipeline.syncOperations.addHandler(MetricsHandler(page: page, readiness: readiness))
                }
            }
            .bind(host: host, port: port).get()
        return MetricsServer(channel: channel)
    }

    private init(channel: any Channel) { self.channel = channel }

    func stop() async { try? await channel.close() }
}

private final class MetricsHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let page: @Sendable () async -> String
    /// Why the gateway is not ready; nil if it is.
    private let readiness: @Sendable () async -> String?
    private var path: String?

    init(page: @escaping @Sendable () async -> String, readiness: @escaping @Sendable () async -> String?) {
        (self.page, self.readiness) = (page, readiness)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): path = head.method == .GET ? head.uri : nil
        case .body: break
        case .end: answer(context.channel)
        }
    }

    private func answer(_ channel: any Channel) {
        switch path {
        case "/metrics": answerPage(channel)
        case "/live": Self.send(.ok, "live\n", channel)
        case "/ready": answerReady(channel)
        default: Self.send(.notFound, "Not found. The paths are /metrics, /live and /ready.\n", channel)
        }
    }

    private func answerPage(_ channel: any Channel) {
        let promise = channel.eventLoop.makePromise(of: String.self)
        promise.completeWithTask(page)
        promise.futureResult.whenSuccess { Self.send(.ok, $0, channel) }
    }

    private func answerReady(_ channel: any Channel) {
        let promise = channel.eventLoop.makePromise(of: String?.self)
        promise.completeWithTask(readiness)
        promise.futureResult.whenSuccess { reason in
            Self.send(reason == nil ? .ok : .serviceUnavailable, (reason ?? "ready") + "\n", channel)
        }
    }

    private static func send(_ status: HTTPResponseStatus, _ text: String, _ channel: any Channel) {
        let body = ByteBuffer(string: text)
        let headers: HTTPHeaders = [
            "content-type": "text/plain; version=0.0.4; charset=utf-8", "content-length": "\(body.readableBytes)",
            "connection": "close",
        ]
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        channel.write(HTTPServerResponsePart.head(head), promise: nil)
        channel.write(HTTPServerResponsePart.body(.byteBuffer(body)), promise: nil)
        channel.writeAndFlush(HTTPServerResponsePart.end(nil)).whenComplete { _ in channel.close(promise: nil) }
    }
}
