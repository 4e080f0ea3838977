import ArgumentParser
import NIOCore
import NIOPosix

/// A chat backend that costs little: every request has the same answer, and every WebSocket frame comes back.
struct HTTPBackend: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "http-backend", abstract: "Answers HTTP requests, and echoes WebSocket frames.")

    @Option(help: "The port to listen on, on 127.0.0.1.") var port: Int

    func run() throws {
        try DescriptorLimit.raise()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(HTTPBackendConnection())
                }
            }
            .bind(host: "127.0.0.1", port: self.port).wait()
        print("ready")
        flushOutput()
        try server.closeFuture.wait()
    }
}

/// Requests come without bodies, and frames in the one size that ``WebLoad`` sends.
private final class HTTPBackendConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let answer: ByteBuffer = {
        var head = "HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
        head += "Content-Type: application/json\r\nContent-Length: \(WebLoad.answerSize)\r\n"
        head += "Cache-Control: no-cache\r\nAccess-Control-Allow-Origin: *\r\n\r\n"
        return ByteBuffer(string: head + String(repeating: "a", count: WebLoad.answerSize))
    }()
    private static let upgrade = ByteBuffer(
        string: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")

    private var unread = ByteBuffer()
    private var outbound = ByteBuffer()
    private var isWebSocket = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = Self.unwrapInboundIn(data)
        self.unread.writeBuffer(&bytes)
        self.outbound.clear()
        while self.isWebSocket ? self.echo() : self.answer() {}
        if self.outbound.readableBytes > 0 { context.write(Self.wrapOutboundOut(self.outbound), promise: nil) }
        self.unread.discardReadBytes()
    }

    func channelReadComplete(context: ChannelHandlerContext) { context.flush() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    private func answer() -> Bool {
        guard let length = self.unread.lengthOfHead else { return false }
        let head = self.unread.readSlice(length: length)
        self.isWebSocket = head.map { String(buffer: $0).lowercased().contains("upgrade: websocket") } ?? false
        self.outbound.writeImmutableBuffer(self.isWebSocket ? Self.upgrade : Self.answer)
        return true
    }

    /// The payload goes back as it came, still masked: nobody looks at it.
    private func echo() -> Bool {
        guard self.unread.readableBytes >= 6 + WebLoad.frameSize else { return false }
        self.unread.moveReaderIndex(forwardBy: 6)
        guard var payload = self.unread.readSlice(length: WebLoad.frameSize) else { return false }
        self.outbound.writeMultipleIntegers(UInt8(0x82), UInt8(WebLoad.frameSize))
        self.outbound.writeBuffer(&payload)
        return true
    }
}

extension ByteBuffer {
    /// Bytes up to and with the first empty line.
    var lengthOfHead: Int? {
        self.withUnsafeReadableBytes { bytes in
            var index = 3
            while index < bytes.count {
                if bytes[index] == 10, bytes[index - 1] == 13, bytes[index - 2] == 10, bytes[index - 3] == 13 {
                    return index + 1
                }
                index += 1
            }
            return nil
        }
    }
}
