// A WebSocket of a device, over which the gateway sends the messages of its mailbox.

import HTTPCodec
import JSONGateway
import NIOCore
import Protection

/// Executes the actions of one ``MailSocketMachine``.
///
/// A device that does not read is sent no more than the machine's window, and is not read. It ends with the device's
/// connection or close frame, and when the machine ends it.
final class MailSocket: ClientRelay, ReplyTarget {
    private unowned let connection: HTTPConnection
    private let inbox: ExchangeInbox
    private let lookups: Lookups
    private var machine: MailSocketMachine
    private var reader = FrameReader(isMasked: true, limit: MailSocketMachine.messageLimit)
    /// Bytes of a message that has not arrived whole.
    private var arrived = ByteBuffer()
    private var wake: Scheduled<Void>?
    private var isOver = false

    init(_ machine: MailSocketMachine, connection: HTTPConnection, ended: ExchangeRunner) {
        (self.machine, self.connection, inbox) = (machine, connection, ended.inbox)
        lookups = Lookups(connection.origin)
        inbox.target = self
        inbox.openSocket(of: machine.device)
    }

    /// Begins to send, after the upgrade was answered.
    func begin() { take(.begun) }

    private func take(_ event: MailSocketMachine.Event) {
        guard !isOver else { return }
        var actions: [MailSocketMachine.Action] = []
        machine.take(event, at: connection.services.clock(), &actions)
        for action in actions where !isOver { perform(action) }
        if !isOver { connection.flush() }
    }

    private func perform(_ action: MailSocketMachine.Action) {
        switch action {
        case .send(let bytes): write(.data(bytes, isText: true))
        case .ping: write(.ping(ByteBuffer()))
        case .look(let lookup):
            lookups.send(lookup, for: machine.account) { [weak self] event in
                switch event {
                case .found(let id, let head, let body): self?.take(.found(id, head, body))
                case .notFound(let id): self?.take(.notFound(id))
                default: break
                }
            }
        case .submit(let job): inbox.submit(job)
        case .wake(let time):
            wake?.cancel()
            wake = connection.origin.schedule(at: time) { [weak self] in self?.take(.woken) }
        case .close(let code, let reason): close(code, reason)
        }
    }

    private func write(_ message: WebSocketMessage) {
        var bytes = connection.origin.scratch()
        bytes.write(message, mask: nil)
        defer { connection.origin.giveBack(&bytes) }
        guard bytes.readableBytes > connection.limits.window else { return connection.write(bytes) }
        // A page counts in the budget until the device has taken it. Without room it comes on the next WebSocket.
        let room = connection.services.budget.reservation(of: machine.account)
        guard room.resize(to: bytes.readableBytes, for: .webSocket) else {
            return close(1013, ControlAnswer.Fault.noRoom.code)
        }
        connection.write(bytes, room: room)
    }

    // MARK: Ends

    /// Sends a close frame, and ends the connection.
    private func close(_ code: UInt16, _ reason: String) {
        guard !isOver else { return }
        var bytes = ByteBuffer(integer: code)
        bytes.writeString(reason)
        end(bytes)
    }

    private func end(_ bytes: ByteBuffer) {
        write(.close(bytes))
        finish()
        connection.lingerOut()
    }

    private func finish() {
        guard !isOver else { return }
        isOver = true
        wake?.cancel()
        lookups.cancel()
        inbox.close()
        arrived = ByteBuffer()
    }

    package func stop() { close(1001, "The gateway is being shut down.") }

    // MARK: The device

    package func fromClient(_ bytes: ByteBuffer) {
        guard !isOver else { return }
        arrived.append(arrived: bytes)
        do throws(FrameFault) {
            while !isOver, let message = try reader.next(&arrived) {
                switch message {
                case .data(let text, isText: true): take(.text(text))
                case .data(_, isText: false): close(1003, "Texts only.")
                case .ping(let bytes):
                    write(.pong(bytes))
                    take(.heard)
                case .pong: take(.heard)
                case .close(let bytes): end(bytes)
                }
            }
        } catch {
            close(error.rawValue, "The gateway does not understand this frame.")
        }
    }

    func clientReadComplete() {
        connection.flush()
        readClient()
    }

    private func readClient() {
        // After the end, input is read and discarded.
        if isOver || connection.isWritable { connection.channel.read() }
    }

    func clientIsWritable() { readClient() }

    func clientInputEnded() {
        guard !isOver else { return }
        finish()
        connection.closeWhenWritten()
    }

    func clientClosed() { finish() }

    func flushUpstream() { connection.flush() }

    // MARK: The gateway

    package func answered(_ replies: [JSONReply]) {
        for reply in replies { take(.reply(reply)) }
    }

    func socketReplaced() { take(.replaced) }

    /// A WebSocket uses no exchange events.
    package func receive(_: ExchangeEvent) {}
}
