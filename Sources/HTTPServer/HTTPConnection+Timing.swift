// How long a client, and a backend, may take.

import JSONGateway
import NIOCore
import Protection

extension HTTPConnection {
    /// Sets the one deadline of the connection. It moves with every piece; the timer behind it only when it has to.
    func arm(_ amount: TimeAmount) {
        deadline = .now() + amount
        if let timer, timer.at <= deadline { return }
        setTimer()
    }

    func disarm() {
        deadline = .distantFuture
        timer?.scheduled.cancel()
        timer = nil
    }

    private func setTimer() {
        timer?.scheduled.cancel()
        let scheduled = eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { self.fired() }
        timer = (deadline, scheduled)
    }

    private func fired() {
        timer = nil
        guard isOpen, deadline < .distantFuture else { return }
        if deadline > .now() { return setTimer() }
        expired()
    }

    /// The exchange has moved.
    package func touch() {
        guard let exchange else { return }
        arm(exchange.readsRequest || !isWritable ? limits.stall : limits.answer)
    }

    private func expired() {
        guard let exchange else {
            guard hasBegunRequest, !isLast else {
                channel.close(promise: nil)
                return
            }
            return refuse(.requestTimeout)
        }
        if !isWritable { return abort() }
        if exchange.readsRequest {
            guard !exchange.hasBegunAnswer else { return abort() }
            endAfterThis()
            exchange.fail(.requestTimeout)
            return settle()
        }
        if exchange.awaitsUpstream { exchange.timedOut() }
        // Else the machine waits for something of its own, and knows for how long.
        touch()
    }

    /// Calls back at a monotonic time.
    package func schedule(at time: Int64, _ body: @escaping () -> Void) -> Scheduled<Void> {
        let delay = max(time - services.clock().monotonic, 0)
        return eventLoop.assumeIsolated().scheduleTask(in: .nanoseconds(delay), body)
    }
}
