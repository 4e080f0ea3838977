// Relays of a connection after a 101.

import HTTPCodec
import JSONGateway
import NIOCore
import Vault

/// Takes over a client's connection after a 101.
protocol ClientRelay: AnyObject {
    func fromClient(_ bytes: ByteBuffer)
    func clientReadComplete()
    func clientIsWritable()
    func clientInputEnded()
    func clientClosed()
    func flushUpstream()
    /// The gateway is being shut down.
    func stop()
}

/// Connects both ends of a WebSocket. As an ``UpstreamUser`` it receives the backend's bytes.
protocol WebSocketRelay: ClientRelay, UpstreamUser {}

extension WebSocketRelay {
    package var isCancelled: Bool { false }
    func leased(_ upstream: UpstreamConnection) { upstream.release() }
    func leaseFailed(_: any Error) {}
    package func answered(_: ReceivedResponse) {}
    package func answered(_: ByteBuffer) {}
    func answerEnded(_: HeaderFields) {}
}

/// Relays bytes in both directions without inspection, with back-pressure.
///
/// Allowed only while nothing is protected anywhere. When protection rises, the relay closes both sides. It sends no
/// close frame, because it does not know where frames begin. The client reconnects to a WebSocket that is inspected.
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

    /// Closes both sides if anything is protected.
    ///
    /// - Returns: whether bytes may be relayed.
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

    /// This relay submits no jobs.
    package func answered(_: [JSONReply]) {}
    package func receive(_: ExchangeEvent) {}

    // MARK: The client

    package func fromClient(_ bytes: ByteBuffer) {
        if goesOn() { upstream.write(bytes) }
    }

    func clientReadComplete() {
        if goesOn() { upstream.flush() }
        readClient()
    }

    private func readClient() {
        // After the end, input is read and discarded.
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
        if goesOn() { connection.write(bytes) }
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
