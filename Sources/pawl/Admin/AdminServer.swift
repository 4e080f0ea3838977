// The server of the control socket: mode 0600. It frames the bytes of the admin service and knows nothing of them.
//
// The first bytes say how: a transport begins with the length of its greeting, whose first three bytes are zero. That is
// what `pawl` sends; see AdminExchange.swift. Everything else is a line, for shells and scripts: a request is a line, and an answer ends
// with the connection. A line that begins with `subscribe ` is a subscription, whose events are lines.

import Foundation
import NIOCore
import NIOPosix
import TransportsService

/// Listens on a Unix socket that only its owner may open.
final class AdminServer: Sendable {
    /// The beginning of a line that subscribes.
    static let subscribe = Array("subscribe ".utf8)
    /// Ours: time in which a client has to take its answer or its last events.
    private static let farewell = TimeAmount.seconds(10)

    /// The lowest and the highest length of a transport's greeting: its head, a version, and a protocol's name.
    private static let greetings = UInt8(11)...UInt8(138)

    /// Whether a connection begins with the greeting of a transport.
    fileprivate static func isGreeting(_ bytes: ByteBufferView) -> Bool {
        bytes.count >= 4 && bytes.prefix(3).allSatisfy { $0 == 0 } && greetings.contains(bytes[bytes.startIndex + 3])
    }

    private let channel: any Channel
    private let path: String
    private let clients: Shared<[ObjectIdentifier: any Channel]>
    private let exchange: AdminExchange
    private let transport: StreamService

    /// Replaces the socket that a dead process left.
    ///
    /// - Throws: an error of NIO if the socket cannot be created.
    static func start(path: String, group: MultiThreadedEventLoopGroup, service: AdminService) async throws
        -> AdminServer
    {
        unlink(path)
        let socket = try bind(path)
        let clients = Shared<[ObjectIdentifier: any Channel]>([:])
        let exchange = AdminExchange(service)
        let transport = StreamService(exchange.processor.processing, limits: AdminExchange.limits)
        let channel = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                clients.withLock { $0[ObjectIdentifier(channel)] = channel }
                channel.closeFuture.whenComplete { _ in clients.withLock { $0[ObjectIdentifier(channel)] = nil } }
                return channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AdminHandler(service: service, transport: transport))
                }
            }
            .withBoundSocket(socket).get()
        return AdminServer(channel: channel, path: path, clients: clients, exchange: exchange, transport: transport)
    }

    /// Binds a socket that nobody else may open at any time.
    ///
    /// Linux gives the file the mode of the socket. `umask` would change the mode of files that other threads create
    /// meanwhile.
    private static func bind(_ path: String) throws -> NIOBSDSocket.Handle {
        let address = try SocketAddress(unixDomainSocketPath: path)
        let handle = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard handle >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
        guard fchmod(handle, 0o600) == 0,
            address.withSockAddr({ Foundation.bind(handle, $0, socklen_t($1)) }) == 0, chmod(path, 0o600) == 0
        else {
            let code = errno
            close(handle)
            throw IOError(errnoCode: code, reason: "bind(\(path))")
        }
        return handle
    }

    private init(
        channel: any Channel, path: String, clients: Shared<[ObjectIdentifier: any Channel]>, exchange: AdminExchange,
        transport: StreamService
    ) {
        (self.channel, self.path, self.clients) = (channel, path, clients)
        (self.exchange, self.transport) = (exchange, transport)
    }

    /// Ends all connections, after the answers that are under way, and removes the socket.
    func stop() async {
        try? await channel.close()
        exchange.close()
        let draining = Task { [transport] in await transport.drain() }
        let clients = clients.withLock { Array($0.values) }
        for client in clients {
            client.pipeline.fireUserInboundEventTriggered(AdminHandler.ServerEnds())
            client.eventLoop.scheduleTask(in: Self.farewell) { client.close(promise: nil) }
        }
        for client in clients { try? await client.closeFuture.get() }
        draining.cancel()
        transport.stop()
        unlink(path)
    }

    /// Answers a command. It is carried out even if the client leaves.
    fileprivate static func answer(_ request: [UInt8], _ service: AdminService, _ channel: any Channel) async {
        try? await channel.writeAndFlush(ByteBuffer(bytes: await service.answer(request)))
        try? await channel.close()
    }

    /// Sends events until there are no more, or the client has left.
    fileprivate static func send(_ request: [UInt8], _ service: AdminService, _ channel: any Channel) async {
        let events = service.subscribe(request) {
            channel.eventLoop.scheduleTask(in: farewell) { channel.close(promise: nil) }
        }
        for await event in events {
            guard (try? await channel.writeAndFlush(ByteBuffer(bytes: event + [0x0A]))) != nil else { return }
        }
        try? await channel.close()
    }
}

/// Reads one line and has it served.
private final class AdminHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    /// An event: the server ends. A connection whose answer is under way closes after it.
    struct ServerEnds {}

    private enum State {
        case reading(ByteBuffer)
        case answering
        case sending(Task<Void, Never>)
        /// The next handler reads the frames of a transport.
        case forwarding
    }

    private let service: AdminService
    private let transport: StreamService
    private var state = State.reading(ByteBuffer())

    init(service: AdminService, transport: StreamService) { (self.service, self.transport) = (service, transport) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch state {
        case .forwarding: context.fireChannelRead(data)
        case .reading(var line):
            var bytes = unwrapInboundIn(data)
            line.writeBuffer(&bytes)
            if AdminServer.isGreeting(line.readableBytesView) { return forward(context, line) }
            let end = line.readableBytesView.firstIndex(of: 0x0A)
            // The service refuses a line that is too long.
            guard end != nil || line.readableBytes > AdminService.requestLimit + AdminServer.subscribe.count else {
                state = .reading(line)
                return
            }
            serve(Array(line.readableBytesView[..<(end ?? line.readableBytesView.endIndex)]), context.channel)
        // A connection has one request.
        case .answering, .sending: break
        }
    }

    private func forward(_ context: ChannelHandlerContext, _ bytes: ByteBuffer) {
        guard let handler = transport.accept(context.channel),
            (try? context.pipeline.syncOperations.addHandler(handler, position: .after(self))) != nil
        else { return context.close(promise: nil) }
        state = .forwarding
        context.fireChannelRead(NIOAny(bytes))
    }

    private func serve(_ line: [UInt8], _ channel: any Channel) {
        if line.starts(with: AdminServer.subscribe) {
            let request = Array(line.dropFirst(AdminServer.subscribe.count))
            state = .sending(Task { [service] in await AdminServer.send(request, service, channel) })
        } else {
            state = .answering
            Task { [service] in await AdminServer.answer(line, service, channel) }
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard event is ServerEnds else { return context.fireUserInboundEventTriggered(event) }
        switch state {
        case .reading, .sending: context.close(promise: nil)
        // A transport ends its connections itself.
        case .answering, .forwarding: break
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        switch state {
        case .sending(let task): task.cancel()
        case .reading, .answering, .forwarding: break
        }
        context.fireChannelInactive()
    }
}
