// Deadlines of clients and of the backend.

import JSONGateway
import NIOCore

extension HTTPConnection {
    /// Sets the connection's only deadline.
    func arm(_ amount: TimeAmount) {
        deadline = .now() + amount
        setTimer()
    }

    func disarm() {
        deadline = .distantFuture
        timer.cancel()
    }

    private func setTimer() { timer.arm(deadline, on: eventLoop) { self.fired() } }

    private func fired() {
        timer.hasFired()
        guard isOpen, deadline < .distantFuture else { return }
        if deadline > .now() { return setTimer() }
        expired()
    }

    package func touch() {
        guard let exchange else { return }
        arm(exchange.patience)
    }

    /// Bytes that the kernel has not accepted yet.
    private var pending: Int { (try? channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0 }

    /// Remembers how much waits for the client after a write that the kernel has not accepted whole.
    func noteUnwritten() { unwritten = channel.isWritable ? 0 : pending }

    /// Whether the client has read a part of what waits for it since the last write, or the last call.
    private func hasClientRead() -> Bool {
        let pending = pending
        defer { unwritten = pending }
        return pending > 0 && pending < unwritten
    }

    private func expired() {
        if hasClientRead() { return arm(limits.stall) }
        if let exchange { return exchange.expired() }
        guard hasBegunRequest, !isLast else {
            channel.close(promise: nil)
            return
        }
        refuse(.requestTimeout)
    }
}
