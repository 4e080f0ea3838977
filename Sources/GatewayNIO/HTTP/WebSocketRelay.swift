// What a connection becomes after a 101.

import GatewayCore
import NIOCore

/// Both ends of a WebSocket. The backend's end is an ``UpstreamUser``.
protocol WebSocketRelay: UpstreamUser {
    func fromClient(_ bytes: ByteBuffer)
    func clientReadComplete()
    func clientIsWritable()
    func clientInputEnded()
    func clientClosed()
    func flushUpstream()
    /// The gateway is being shut down.
    func stop()
}

extension WebSocketRelay {
    var isCancelled: Bool { false }
    func leased(_ upstream: UpstreamConnection) { upstream.release() }
    func leaseFailed(_: any Error) {}
    func answered(_: ReceivedResponse) {}
    func answered(_: ByteBuffer) {}
    func answerEnded(_: HeaderFields) {}
}

/// Bytes both ways, each side read as fast as the other takes them.
final class OpaqueRelay: WebSocketRelay {
    private let upstream: UpstreamConnection
    private unowned let connection: HTTPConnection
    private var isClientOpen = true
    private var isUpstreamOpen = true

    init(upstream: UpstreamConnection, connection: HTTPConnection) {
        (self.upstream, self.connection) = (upstream, connection)
    }

    // MARK: The client

    func fromClient(_ bytes: ByteBuffer) { upstream.write(bytes) }

    func clientReadComplete() {
        upstream.flush()
        readClient()
    }

    private func readClient() {
        if isClientOpen, upstream.isWritable { connection.channel.read() }
    }

    func clientIsWritable() { upstream.readMore() }

    func clientInputEnded() {
        guard isClientOpen else { return }
        isClientOpen = false
        upstream.closeOutput()
        closeIfDone()
    }

    func clientClosed() { upstream.close() }

    func flushUpstream() { upstream.flush() }

    func stop() {
        upstream.close()
        connection.closeWhenWritten()
    }

    // MARK: The backend

    var takesAnswer: Bool { true }
    var readsAnswer: Bool { connection.isWritable }

    func upstreamBytes(_ bytes: ByteBuffer) { connection.send(bytes) }

    func upstreamReadComplete() { connection.flush() }

    func upstreamIsWritable() { readClient() }

    func upstreamInputEnded() {
        guard isUpstreamOpen else { return }
        isUpstreamOpen = false
        connection.closeOutput()
        closeIfDone()
    }

    func upstreamBroke(_: any Error) { connection.closeWhenWritten() }

    private func closeIfDone() {
        guard !isClientOpen, !isUpstreamOpen else { return }
        upstream.closeWhenWritten()
        connection.closeWhenWritten()
    }
}
