// One end of a relay between two devices. The other end is another connection, perhaps on another event loop.

import HTTPCodec
import JSONGateway
import NIOCore
import Protection

/// Relays bytes between a client and the client of another account, without looking at them.
///
/// An end sends one piece, and reads on after the other client has accepted it, so that what waits is bounded. It ends
/// with its client, with the other end, after the idle time, and when the device may not relay any more.
final class DeviceRelay: ClientRelay, ReplyTarget {
    /// Ours: how often times and the device are checked. A revoked device is cut off after this time at most.
    private static let pause = TimeAmount.seconds(1)

    private unowned let connection: HTTPConnection
    private let inbox: ExchangeInbox
    private let call: RelayCall
    private let limits: RelayLimits
    private let begin: Int64
    private var lastUse: Int64
    private var allowance: RelayAllowance
    /// Bytes of one read.
    private var arrived = ByteBuffer()
    /// Whether the other client has not accepted the last piece.
    private var awaitsOther = false
    /// Whether the own client has not accepted the last piece.
    private var awaitsClient = false
    private var isClientOpen = true
    private var isOtherOpen = true
    private var isOver = false
    private var check: Scheduled<Void>?
    private var delay: Scheduled<Void>?

    init(_ call: RelayCall, connection: HTTPConnection, ended: ExchangeRunner) {
        (self.call, self.connection, inbox) = (call, connection, ended.inbox)
        limits = connection.services.environment.settings.relays
        begin = connection.services.clock().monotonic
        lastUse = begin
        allowance = RelayAllowance(bytesPerSecond: limits.bytesPerSecond, now: begin)
        inbox.target = self
        scheduleCheck()
    }

    private var now: Int64 { connection.services.clock().monotonic }

    private func scheduleCheck() {
        check = connection.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) { [weak self] in
            self?.checkNow()
        }
    }

    private func checkNow() {
        guard !isOver else { return }
        let now = now
        guard now - lastUse < limits.idle, now - begin < RelayLimits.longest,
            connection.services.environment.mayRelay(call)
        else { return end() }
        scheduleCheck()
    }

    private func finish() {
        guard !isOver else { return }
        isOver = true
        check?.cancel()
        delay?.cancel()
        inbox.close()
    }

    /// Ends both sides. What was written before is still sent.
    private func end() {
        guard !isOver else { return }
        finish()
        connection.lingerOut()
    }

    // MARK: The client

    package func fromClient(_ bytes: ByteBuffer) {
        guard !isOver else { return }
        if arrived.readableBytes == 0 { arrived = bytes } else { arrived.writeImmutableBuffer(bytes) }
    }

    func clientReadComplete() {
        passOn()
        readClient()
    }

    private func passOn() {
        guard !isOver, arrived.readableBytes > 0 else { return }
        let now = now
        lastUse = now
        let count = arrived.readableBytes
        inbox.send(.bytes(arrived))
        arrived = ByteBuffer()
        awaitsOther = true
        let wait = allowance.use(count, now: now)
        guard wait > 0 else { return }
        delay = connection.origin.schedule(at: now + wait) { [weak self] in
            self?.delay = nil
            self?.readClient()
        }
    }

    private func readClient() {
        if isOver || (isClientOpen && !awaitsOther && delay == nil) { connection.channel.read() }
    }

    func clientIsWritable() { acceptIfWritten() }

    func clientInputEnded() {
        guard !isOver, isClientOpen else { return }
        passOn()
        isClientOpen = false
        inbox.send(.inputEnded)
        closeIfDone()
    }

    func clientClosed() { finish() }

    func flushUpstream() {}

    package func stop() { end() }

    // MARK: The other end

    package func receive(_ event: RelayLink.Event) {
        guard !isOver else { return }
        switch event {
        case .bytes(let bytes):
            lastUse = now
            connection.write(bytes)
            connection.flush()
            awaitsClient = true
            acceptIfWritten()
        case .taken:
            awaitsOther = false
            readClient()
        case .inputEnded:
            isOtherOpen = false
            connection.closeOutput()
            closeIfDone()
        case .closed: end()
        }
    }

    private func acceptIfWritten() {
        guard awaitsClient, !isOver, connection.isWritable else { return }
        awaitsClient = false
        inbox.send(.taken)
    }

    private func closeIfDone() {
        guard !isClientOpen, !isOtherOpen else { return }
        finish()
        connection.closeWhenWritten()
    }

    /// A relay has no jobs and no exchange.
    package func answered(_: [JSONReply]) {}
    package func receive(_: ExchangeEvent) {}
}
