// The server of the control socket: mode 0600, one command per connection.

import Foundation
import Logging
import NIOCore
import NIOPosix

/// Listens on a Unix socket that only its owner may open.
final class AdminServer: Sendable {
    /// Ours: largest request, in bytes.
    static let requestLimit = 64 * 1024

    private let channel: any Channel
    private let path: String

    /// Replaces the socket that a dead process left.
    ///
    /// - Throws: an error of NIO if the socket cannot be created.
    static func start(
        path: String, group: MultiThreadedEventLoopGroup, perform: @escaping @Sendable ([String]) async -> AdminAnswer
    ) async throws -> AdminServer {
        unlink(path)
        let before = umask(0o177)
        defer { umask(before) }
        let channel = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AdminHandler(perform: perform))
                }
            }
            .bind(unixDomainSocketPath: path).get()
        chmod(path, 0o600)
        return AdminServer(channel: channel, path: path)
    }

    private init(channel: any Channel, path: String) { (self.channel, self.path) = (channel, path) }

    func stop() async {
        try? await channel.close()
        unlink(path)
    }
}

/// Reads one line, performs the command, sends the answer and closes the connection.
private final class AdminHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let perform: @Sendable ([String]) async -> AdminAnswer
    private var gathered = ByteBuffer()
    private var isDone = false

    init(perform: @escaping @Sendable ([String]) async -> AdminAnswer) { self.perform = perform }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isDone else { return }
        var bytes = unwrapInboundIn(data)
        gathered.writeBuffer(&bytes)
        guard let end = gathered.readableBytesView.firstIndex(of: 0x0A) else {
            if gathered.readableBytes > AdminServer.requestLimit { context.close(promise: nil) }
            return
        }
        isDone = true
        let line = Data(gathered.readableBytesView[..<end])
        let channel = context.channel
        let perform = perform
        Task {
            let answer: AdminAnswer
            if let request = try? JSONDecoder().decode(AdminRequest.self, from: line) {
                answer = await perform(request.words)
            } else {
                answer = .failure("This is not a command of pawl.", exit: 64)
            }
            let bytes = (try? JSONEncoder().encode(answer)) ?? Data()
            try? await channel.writeAndFlush(ByteBuffer(bytes: bytes))
            try? await channel.close()
        }
    }
}
