// The tables about writes that participants, exchanges and operators share.

package import Outbox
package import Reports
import Synchronization

/// The shared tables of writes. Each is safe from any thread; none holds texts of messages.
package final class WriteTables: Sendable {
    package let keys: WriteKeys
    /// The keys of all writes that the queue knows.
    package let known = KnownKeys()
    package let tally: Tally
    /// Writes under way, for references to their messages.
    package let waiting = WaitingWrites()
    /// Clients that wait for an outcome.
    package let waiters = WriteWaiters()
    package let traces: WriteTraces
    /// Clients that are notified of messages whose writes were answered at once.
    package let sockets = SocketListeners()
    /// Connections over which queued WebSocket messages are sent.
    package let carriers = SocketWrites()
    package let heldKeys = HeldKeys()

    /// - Parameter opened: the traces in which the participants record openings.
    package init(keys: WriteKeys, opened: RequestTraces = RequestTraces(), tally: Tally = Tally()) {
        (self.keys, self.tally) = (keys, tally)
        traces = WriteTraces(opened)
    }
}

/// Whether the vault may have keys of messages and files at the backend, so that these are opened under every policy.
///
/// Not forgotten with the last key: then the backend's messages are read in vain until the next start.
package final class HeldKeys: Sendable {
    private let exist = Atomic(false)

    package var mayExist: Bool { exist.load(ordering: .relaxed) }

    /// Notes that a message or a file was sealed, in this process or an earlier one.
    package func note() { exist.store(true, ordering: .relaxed) }
}
