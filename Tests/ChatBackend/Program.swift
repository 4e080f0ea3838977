// A chat such as people in a hurry build: accounts, conversations and messages over REST and a WebSocket, all in memory. It
// stands in for the backends that nobody can install here. Its API is written down in config/mappings/generic.yaml.
//
//     ChatBackend --port 8080 --control-port 8081
//     curl -X POST localhost:8080/accounts -d '{"user":"alice","password":"secret"}'
//     curl localhost:8081/_control/received                                 what has ever come
//     curl localhost:8081/_control/messages                                 what there is now
//     curl -X PUT localhost:8081/_control/faults -d '{"loses":1}'           the next write has its effect and no answer
//     curl -X PUT localhost:8081/_control/faults -d '{"refuses":3,"status":429,"retry_after":1}'
//     curl -X PUT localhost:8081/_control/faults -d '{"away":true}'         nobody listens; {} ends all faults
//     curl -X POST localhost:8081/_control/tear                             all connections end

import ArgumentParser
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOWebSocket

@main struct Program: ParsableCommand {
    enum Choice: String, ExpressibleByArgument {
        case yes, no
    }

    static let configuration = CommandConfiguration(
        commandName: "ChatBackend", abstract: "A chat over REST and WebSocket on loopback, in memory, for tests.")

    @Option(help: "The port of the API; 0 takes a free one.") var port = 0
    @Option(help: "The port of the control endpoint; 0 takes a free one.") var controlPort = 0
    @Option(help: "Whether the same id of the same sender is the same message.") var deduplicate = Choice.yes
    @Option(help: "Whether members of a message that it does not know are kept.") var keepUnknown = Choice.yes
    @Option(help: "The longest text, in characters.") var textLimit: Int?
    @Option(help: "Whether frames about messages are JSON in a string of another frame.") var wrapFrames = Choice.no

    @Option(help: "The origin whose pages may use the chat, or *.") var pages: String?

    func run() throws {
        let loop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
        let settings = Chat.Settings(
            deduplicates: deduplicate == .yes, keepsUnknown: keepUnknown == .yes, textLimit: textLimit,
            wrapsFrames: wrapFrames == .yes)
        let backend = Backend(settings, on: loop) { [pages] backend, port in
            Self.listen(on: port, loop) { try Self.serve(backend, $0, pages: pages) }
        }
        let control = try Self.listen(on: controlPort, loop) { channel in
            try channel.pipeline.syncOperations.configureHTTPServerPipeline()
            try channel.pipeline.syncOperations.addHandler(
                RequestHandler { request, channel, keepAlive in
                    backend.control(request).whenSuccess { $0.write(to: channel, keepAlive: keepAlive, withBody: true) }
                })
        }.wait()
        report("control on \(control.localAddress?.port ?? 0)")
        report("listening on \(try backend.start(port: port).wait())")
        try control.closeFuture.wait()
    }

    private func report(_ line: String) {
        FileHandle.standardOutput.write(Data((line + "\n").utf8))
    }

    private static func listen(
        on port: Int, _ loop: any EventLoop, _ configure: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<any Channel> {
        ServerBootstrap(group: loop)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try configure(channel) }
            }
            .bind(host: "127.0.0.1", port: port)
    }

    private static func serve(_ backend: Backend, _ channel: any Channel, pages: String?) throws {
        backend.connected(channel)
        let upgrader = NIOWebSocketServerUpgrader(
            maxFrameSize: WebSocketHandler.messageLimit,
            shouldUpgrade: { channel, head in
                let request = Request(head)
                let token = request.socketToken
                let isWelcome = request.path == ["socket"] && (token == nil || backend.account(token) != nil)
                if isWelcome { backend.note(request) }
                return channel.eventLoop.makeSucceededFuture(isWelcome ? [:] : nil)
            },
            upgradePipelineHandler: { channel, head in
                channel.eventLoop.makeCompletedFuture {
                    let user = backend.account(Request(head).socketToken)
                    try channel.pipeline.syncOperations.addHandlers([
                        NIOWebSocketFrameAggregator(
                            minNonFinalFragmentSize: 0, maxAccumulatedFrameCount: 1 << 20,
                            maxAccumulatedFrameSize: WebSocketHandler.messageLimit),
                        WebSocketHandler(backend, user),
                    ])
                }
            })
        let encoder = HTTPResponseEncoder()
        // An upgrade to a WebSocket removes them.
        var removed: [any RemovableChannelHandler] = [
            ByteToMessageHandler(HTTPRequestDecoder(leftOverBytesStrategy: .forwardBytes)), HTTPServerPipelineHandler(),
            HTTPServerProtocolErrorHandler(),
        ]
        if let pages { removed.append(PageHandler(pages)) }
        let handlers = removed
        let requests = RequestHandler(
            nextUpgrade: {
                HTTPServerUpgradeHandler(
                    upgraders: [upgrader], httpEncoder: encoder, extraHTTPHandlers: handlers,
                    upgradeCompletionHandler: {
                        $0.pipeline.syncOperations.removeHandler(name: RequestHandler.name, promise: nil)
                    })
            }
        ) { request, channel, keepAlive in
            guard pages != nil, request.method == "OPTIONS" else {
                return backend.take(request, from: channel, keepAlive: keepAlive)
            }
            backend.note(request)
            Answer.done.write(to: channel, keepAlive: keepAlive, withBody: false)
        }
        try channel.pipeline.syncOperations.addHandler(encoder)
        for handler in handlers { try channel.pipeline.syncOperations.addHandler(handler) }
        try channel.pipeline.syncOperations.addHandler(requests, name: RequestHandler.name)
    }
}

extension Request {
    fileprivate init(_ head: HTTPRequestHead) {
        self.init(
            method: head.method.rawValue, target: head.uri, headers: head.headers.map { ($0.name, $0.value) }, body: [])
    }

    /// Browsers cannot give a header to a WebSocket.
    fileprivate var socketToken: String? { token ?? query("token") }
}
