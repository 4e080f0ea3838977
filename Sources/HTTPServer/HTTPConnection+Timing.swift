// Deadlines of clients and of the backend.

import JSONGateway
import NIOCore
import Protection

extension HTTPConnection {
    /// Sets the connection's only deadline. Reschedules the timer only if it would fire too late.
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

    /// Renews the deadline after progress of the exchange.
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
        // Otherwise the machine waits for its own event, and has set its own timer.
        touch()
    }

    /// Calls `body` at a monotonic time, in nanoseconds.
    package func schedule(at time: Int64, _ body: @escaping () -> Void) -> Scheduled<Void> {
        let delay = max(time - services.clock().monotonic, 0)
        return eventLoop.assumeIsolated().scheduleTask(in: .nanoseconds(delay), body)
    }
}
