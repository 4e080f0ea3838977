// What a connection becomes after a 101.

import HTTPCodec
import JSONGateway
import NIOCore
import Vault

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
    package var isCancelled: Bool { false }
    func leased(_ upstream: UpstreamConnection) { upstream.release() }
    func leaseFailed(_: any Error) {}
    package func answered(_: ReceivedResponse) {}
    package func answered(_: ByteBuffer) {}
    func answerEnded(_: HeaderFields) {}
}

/// Bytes both ways, each side read as fast as the other takes them.
///
/// Nobody looks into them, so they go on only while nothing is protected anywhere. Then both sides are ended, without a close frame,
/// because nobody knows where one could stand; the client comes back to a connection that is looked into.
final class OpaqueRelay: WebSocketRelay, ReplyTarget {
    private let upstream: UpstreamConnection
    private unowned let connection: HTTPConnection
    private let inbox: ExchangeInbox
    private var isClientOpen = true
    private var isUpstreamOpen = true
    private var isOver = false

    init(upstream: UpstreamConnection, connection: HTTPConnection, ended: ExchangeRunner) {
        (self.upstream, self.connection) = (upstream, connection)
        inbox = ended.inbox
        inbox.target = self
        inbox.watchProtection()
    }

    // MARK: Protection

    /// Ends both sides where it has to be.
    ///
    /// - Returns: whether bytes may go on.
    private func goesOn() -> Bool {
        if !isOver, connection.services.environment.isProtecting {
            isOver = true
            inbox.close()
            upstream.close()
            connection.lingerOut()
        }
        return !isOver
    }

    func protectionRose() { _ = goesOn() }

    /// It asks for nothing.
    package func answered(_: [VaultReply]) {}
    package func heard(_: ExchangeEvent) {}

    // MARK: The client

    package func fromClient(_ bytes: ByteBuffer) {
        if goesOn() { upstream.write(bytes) }
    }

    func clientReadComplete() {
        if goesOn() { upstream.flush() }
        readClient()
    }

    private func readClient() {
        // What comes behind the end is thrown away.
        if isOver || isClientOpen && upstream.isWritable { connection.channel.read() }
    }

    func clientIsWritable() { upstream.readMore() }

    func clientInputEnded() {
        guard isClientOpen, !isOver else { return }
        isClientOpen = false
        upstream.closeOutput()
        closeIfDone()
    }

    func clientClosed() {
        inbox.close()
        upstream.close()
    }

    func flushUpstream() { upstream.flush() }

    package func stop() {
        upstream.close()
        connection.closeWhenWritten()
    }

    // MARK: The backend

    var takesAnswer: Bool { true }
    package var readsAnswer: Bool { connection.isWritable }

    func upstreamBytes(_ bytes: ByteBuffer) {
        if goesOn() { connection.send(bytes) }
    }

    package func upstreamReadComplete() { connection.flush() }

    func upstreamIsWritable() { readClient() }

    package func upstreamInputEnded() {
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
