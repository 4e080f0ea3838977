import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import PeerKit
import RequestQueue
import RequestQueueClient
import Synchronization

/// A small HTTP server on loopback that answers as a test says.
final class ChatBackend: Sendable {
    struct Received: Sendable {
        var method: String
        var uri: String
        var headers: [(String, String)]
        var body: String
        func header(_ name: String) -> String? { headers.first { $0.0.lowercased() == name.lowercased() }?.1 }
    }

    enum Answer: Sendable {
        case status(Int, headers: [String: String] = [:], body: String = "")
        /// The connection is closed without an answer.
        case hangUp
        /// Nothing is said.
        case silence
        /// The head of an answer and the beginning of its body, and then nothing.
        case stall
        /// The same, and then a byte now and then.
        case drip
        /// Bytes that are no HTTP.
        case nonsense
    }

    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let channel: any Channel
    private let log = Mutex<[Received]>([])
    private let connections: Box<Int>
    let url: String

    /// - Parameters:
    ///   - latency: milliseconds until each answer.
    ///   - certificate: with one, it speaks TLS.
    init(
        latency: Int64 = 0, certificate: Certificate? = nil, _ answer: @escaping @Sendable (Received) -> Answer
    ) async throws {
        let tls = try certificate.map { certificate in
            try NIOSSLContext(
                configuration: .makeServerConfiguration(
                    certificateChain: NIOSSLCertificate.fromPEMFile(certificate.certificatePath).map {
                        .certificate($0)
                    },
                    privateKey: .privateKey(NIOSSLPrivateKey(file: certificate.keyPath, format: .pem))))
        }
        let log = Box<@Sendable (Received) -> Answer>(answer)
        let received = Box<@Sendable (Received) -> Void>({ _ in })
        let connections = Box(0)
        self.connections = connections
        channel = try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 256)
            .childChannelInitializer { channel in
                connections.value.withLock { $0 += 1 }
                channel.closeFuture.whenComplete { _ in connections.value.withLock { $0 -= 1 } }
                return channel.eventLoop.makeCompletedFuture {
                    if let tls {
                        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls))
                    }
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                    try channel.pipeline.syncOperations.addHandler(
                        Handler(latency: latency) { request in
                            received.value.withLock { $0 }(request)
                            return log.value.withLock { $0 }(request)
                        })
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        url = "http\(certificate == nil ? "" : "s")://127.0.0.1:\(channel.localAddress?.port ?? 0)"
        received.value.withLock { $0 = { [weak self] request in self?.log.withLock { $0.append(request) } } }
    }

    var received: [Received] { log.withLock { $0 } }
    /// The connections that are open.
    var openConnections: Int { connections.value.withLock { $0 } }

    func stop() async throws {
        try await channel.close()
        try await group.shutdownGracefully()
    }

    private final class Box<Value: Sendable>: Sendable {
        let value: Mutex<Value>
        init(_ value: Value) { self.value = Mutex(value) }
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = HTTPServerRequestPart
        typealias OutboundOut = HTTPServerResponsePart
        private let answer: @Sendable (Received) -> Answer
        private let latency: Int64
        private var head: HTTPRequestHead?
        private var body = ByteBuffer()

        init(latency: Int64, _ answer: @escaping @Sendable (Received) -> Answer) {
            (self.answer, self.latency) = (answer, latency)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            switch unwrapInboundIn(data) {
            case .head(let head): self.head = head
            case .body(var part): body.writeBuffer(&part)
            case .end:
                guard let head else { return }
                let received = Received(
                    method: head.method.rawValue, uri: head.uri, headers: head.headers.map { ($0.name, $0.value) },
                    body: String(buffer: body))
                body.clear()
                let answer = answer(received)
                guard latency > 0 else { return reply(answer, context) }
                let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
                context.eventLoop.scheduleTask(in: .milliseconds(latency)) {
                    let (handler, context) = bound.value
                    handler.reply(answer, context)
                }
            }
        }

        private func reply(_ answer: Answer, _ context: ChannelHandlerContext) {
            switch answer {
            case .silence: break
            case .stall, .drip:
                let head = HTTPResponseHead(version: .http1_1, status: .ok, headers: ["Content-Length": "1000"])
                context.write(wrapOutboundOut(.head(head)), promise: nil)
                context.writeAndFlush(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: "{\"id\"")))), promise: nil)
                guard case .drip = answer else { return }
                let channel = context.channel
                context.eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(20)) { task in
                    guard channel.isActive else { return task.cancel() }
                    let body = HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(string: " ")))
                    channel.writeAndFlush(body, promise: nil)
                }
            case .hangUp: context.close(promise: nil)
            case .nonsense:
                context.channel.pipeline.context(handlerType: HTTPResponseEncoder.self).whenSuccess { encoder in
                    encoder.writeAndFlush(NIOAny(ByteBuffer(string: "chat, not HTTP\r\n\r\n")), promise: nil)
                }
            case .status(let status, let headers, let body):
                var fields = HTTPHeaders(headers.map { ($0.key, $0.value) })
                fields.add(name: "Content-Length", value: "\(body.utf8.count)")
                let head = HTTPResponseHead(version: .http1_1, status: .init(statusCode: status), headers: fields)
                context.write(wrapOutboundOut(.head(head)), promise: nil)
                // Behind the answer to HEAD it would be the beginning of another answer.
                if self.head?.method != .HEAD {
                    context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: body)))), promise: nil)
                }
                context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
            }
        }
    }
}

/// A client whose backend names what it creates in the field `id`.
struct ChatClient: APIClient {
    var networkClient: any NetworkClient
    var host: String
    let identifier = "chat"
    let deduplicator: any APIRequestDeduplicating = APIRequestDeduplicator()
    /// Long, because other tests may keep every thread for a while.
    var timeoutInterval: Int64 = 600_000

    struct Created: Decodable {
        var id: String
    }

    func prepareRequest(_ requestConfig: APIRequestConfig) async -> APIRequestConfig {
        var config = requestConfig
        config.headers.items.append(.init(name: "X-App", value: "chat"))
        return config
    }

    func errorPayload(from body: Data) -> APIErrorPayload? {
        body.isEmpty ? nil : APIErrorPayload(message: String(decoding: body, as: UTF8.self))
    }

    func identifiers(in response: APIClientResponse<Data>, for request: APIClientQueueRequest) -> [EntityIdentifier] {
        guard let reference = request.creates.first,
            let created = try? response.jsonCoderConfig.decoder.decode(Created.self, from: response.data)
        else { return [] }
        return [.both(type: reference.type, local: reference.local, remote: created.id)]
    }
}

/// Takes note of every outcome.
final class Listener: APIClientQueueResponseHandler {
    struct DeliveredOutcome: Sendable {
        var token: RequestToken
        var result: String
    }
    private let received = Mutex<[DeliveredOutcome]>([])
    private let before: @Sendable () async -> Void

    init(before: @escaping @Sendable () async -> Void = {}) { self.before = before }

    var all: [DeliveredOutcome] { received.withLock { $0 } }

    func clientQueue(
        _ clientQueue: any APIClientQueuing, didReceiveResponse result: APIClientQueueResult<Data, APIError>,
        for request: APIClientQueueRequest
    ) async {
        await before()
        let text =
            switch result {
            case .success(let response): "success \(response.status)"
            case .aborted: "aborted"
            case .failure(let error): "\(error)"
            }
        received.withLock { $0.append(DeliveredOutcome(token: request.token, result: text)) }
    }
}
