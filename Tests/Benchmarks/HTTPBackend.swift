import ArgumentParser
import NIOCore
import NIOPosix

/// A chat backend that costs little: as much of the API of config/mappings/generic.yaml as the load uses. Everybody is who the
/// token says, a conversation is one of three, and frames come back to their sender as messages.
struct HTTPBackend: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "http-backend", abstract: "A small chat over HTTP and WebSocket, in memory, for one loop.")

    @Option(help: "The port to listen on, on 127.0.0.1.") var port: Int
    @Flag(help: "Acknowledge each frame, as the mapping says.") var acknowledges = false

    /// How a frame begins that acknowledges another.
    static let acknowledgement = "{\"type\":\"ack\",\"id\":\""

    func run() throws {
        try DescriptorLimit.raise()
        let loop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()
        let acknowledges = self.acknowledges
        let messages = try loop.submit { NIOLoopBound(BackendMessages(), eventLoop: loop) }.wait()
        let server = try ServerBootstrap(group: loop)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        HTTPBackendConnection(messages.value, acknowledges: acknowledges))
                }
            }
            .bind(host: "127.0.0.1", port: self.port).wait()
        print("ready")
        flushOutput()
        try server.closeFuture.wait()
    }
}

/// What was written. Belongs to the one loop.
private final class BackendMessages {
    static let page = 20

    private var conversations: [Substring: [String]] = [:]
    private var lastNumber = 0

    /// An id for a message.
    func next() -> String {
        self.lastNumber += 1
        return "m\(self.lastNumber)"
    }

    /// Keeps a message, and only the newest of a conversation.
    func add(_ body: String, to conversation: Substring, from sender: Substring) -> String {
        let id = self.next()
        var kept = self.conversations[conversation] ?? []
        if kept.count == Self.page { kept.removeFirst() }
        kept.append(
            "{\"message_id\":\"\(id)\",\"conversation\":\"\(conversation)\",\"sender\":\"\(sender)\","
                + Substring(body.utf8.dropFirst()))
        self.conversations[conversation] = kept
        return id
    }

    func read(_ conversation: Substring) -> String {
        "{\"messages\":[" + (self.conversations[conversation] ?? []).joined(separator: ",") + "]}"
    }
}

private final class HTTPBackendConnection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The answer to requests that have nothing to do with text.
    private static let profile =
        "{\"about\":\"" + String(repeating: "a", count: WebLoad.answerSize - 12) + "\"}"

    private static let sending = "{\"type\":\"send\""

    private let messages: BackendMessages
    private let acknowledges: Bool
    private var unread = ByteBuffer()
    private var outbound = ByteBuffer()
    private var isWebSocket = false
    /// Who opened the WebSocket.
    private var sender: Substring = ""

    init(_ messages: BackendMessages, acknowledges: Bool) {
        (self.messages, self.acknowledges) = (messages, acknowledges)
    }

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
        guard let request = WebMessage(&self.unread) else { return false }
        let words = request.words
        guard words.count == 3 else { return false }
        let path = words[1].utf8.split(separator: 47).map { Substring($0) }
        let person = request.field("authorization")?.dropFirst("Bearer ".utf8.count) ?? ""
        switch (words[0], path.first, path.count) {
        case ("GET", "socket", 1):
            (self.isWebSocket, self.sender) = (true, person)
            self.outbound.writeString(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    + "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
        case ("GET", "me", 1): self.write("{\"id\":\"\(person)\"}")
        case ("GET", "users", 2): self.write(Self.profile)
        case ("GET", "conversations", 2): self.write(Self.conversation(path[1]))
        case ("GET", "conversations", 3): self.write(self.messages.read(path[1]))
        case ("POST", "conversations", 3):
            self.write("{\"message_id\":\"\(self.messages.add(request.body, to: path[1], from: person))\"}")
        default: self.write("{}", status: "404 Not Found")
        }
        return true
    }

    /// Conversation c7 has its owner, a7, and two others in it.
    private static func conversation(_ name: Substring) -> String {
        let number = Int(name.dropFirst()) ?? 0
        let members = (0..<3).map { "\"a\((number + $0) % WebLoad.people)\"" }.joined(separator: ",")
        return "{\"id\":\"\(name)\",\"members\":[\(members)]}"
    }

    private func write(_ body: String, status: String = "200 OK") {
        self.outbound.writeString(
            "HTTP/1.1 \(status)\r\nServer: bench\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
                + "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n"
                + "Cache-Control: no-cache\r\nAccess-Control-Allow-Origin: *\r\n\r\n\(body)")
    }

    /// What somebody sends comes back as a message of theirs.
    private func echo() -> Bool {
        guard let frame = WebFrame.read(&self.unread) else { return false }
        guard frame.isText else { return true }
        let text = Substring(frame.text.utf8.dropFirst(Self.sending.utf8.count))
        let number = self.messages.next()
        WebFrame.write(
            "{\"type\":\"message\",\"message_id\":\"\(number)\",\"sender\":\"\(self.sender)\"" + text,
            isMasked: false, to: &self.outbound)
        if self.acknowledges, let name = text.firstRange(of: "\"id\":\"") {
            let id = text[name.upperBound...].prefix { $0 != "\"" }
            WebFrame.write(
                HTTPBackend.acknowledgement + id + "\",\"message_id\":\"\(number)\"}", isMasked: false,
                to: &self.outbound)
        }
        return true
    }
}
