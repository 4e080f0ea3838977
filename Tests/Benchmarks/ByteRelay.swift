import ArgumentParser
import NIOCore
import NIOPosix

/// The least that a proxy can do on SwiftNIO: bytes from one socket to the other. It knows no back-pressure and no
/// half-close, so it is a mark to compare with and nothing to use.
struct ByteRelay: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "byte-relay", abstract: "Copies bytes between two sockets.")

    @Option(help: "The port to listen on, on 127.0.0.1.") var port: Int
    @Option(help: "The port to connect to, on 127.0.0.1.") var upstream: Int

    func run() throws {
        try DescriptorLimit.raise()
        let upstream = self.upstream
        let group = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
        let server = try ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelOption(.autoRead, value: false)
            .childChannelInitializer { Self.join($0, upstream) }
            .bind(host: "127.0.0.1", port: self.port).wait()
        print("ready")
        flushOutput()
        try server.closeFuture.wait()
    }

    private static func join(_ client: any Channel, _ port: Int) -> EventLoopFuture<Void> {
        ClientBootstrap(group: client.eventLoop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { upstream in
                upstream.eventLoop.makeCompletedFuture {
                    try upstream.pipeline.syncOperations.addHandler(ByteCopier(to: client))
                }
            }
            .connect(host: "127.0.0.1", port: port)
            .flatMapThrowing { upstream in
                try client.pipeline.syncOperations.addHandler(ByteCopier(to: upstream))
            }
            .flatMap { client.setOption(.autoRead, value: true) }
    }
}

/// Writes to another channel what this one reads.
private final class ByteCopier: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let other: any Channel

    init(to other: any Channel) {
        self.other = other
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.other.write(Self.unwrapInboundIn(data), promise: nil)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        self.other.flush()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.other.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
