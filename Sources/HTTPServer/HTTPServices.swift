// The interface of HTTP connections to the rest of the program.

package import JSONGateway
package import NIOSupport
package import Protection
import Reports
package import RequestQueue
import Vault

/// Services for all HTTP connections of a gateway.
///
/// Closures may be called from any event loop, and may answer on any thread.
package struct HTTPServices: Sendable {
    package var environment: JSONEnvironment
    /// Creates the machine of an exchange. The id is unique; the participants' replies are delivered by it.
    package var makeExchange: @Sendable (ConnectionID) -> any ExchangeMachine
    package var submit: @Sendable ([JSONJob]) -> Void = { _ in }
    package var register: @Sendable (any CommitClient<JSONReply>, ConnectionID) -> Void = { _, _ in }
    package var unregister: @Sendable (ConnectionID) -> Void = { _ in }
    package var loggedIn: @Sendable (AccountID, Credential) -> Void = { _, _ in }
    /// Looks up an earlier write of the account with this key; ``JSONReply/foundWrite(_:)`` goes to the connection.
    package var findWrite: @Sendable (ConnectionID, AccountID, WriteKey, Credential) -> Void = { _, _, _, _ in }
    /// Queues a write. The waiter gets its outcome; without one, ``JSONReply/queued(_:_:)`` goes to the connection.
    package var enqueue: @Sendable (ConnectionID, QueuedWrite, WriteWaiter?) -> Void = { _, _, _ in }
    /// Notifies the waiter of the outcome of a write that is stored.
    package var await: @Sendable (RequestToken, WriteWaiter) -> Void = { _, _ in }
    package var clock: @Sendable () -> Timestamp
    /// Receives the errors of connections to the backend, for the log.
    package var upstreamFailed: @Sendable (any Error) -> Void = { _ in }
    /// Receives defects of the gateway, for the log.
    package var defect: @Sendable (UnexpectedEvent) -> Void = { _ in }
    /// Called for each new connection, so that a reload takes effect from the next connection on.
    package var downstream: @Sendable () -> DownstreamOptions
    package var upstream: @Sendable () -> UpstreamOptions
    package var limits = HTTPLimits()
    package var meters = HTTPMeters()
    /// The memory for all bodies that are collected.
    package var budget: ByteBudget
    /// The Unix socket for calls of programs on the same machine; nil for none.
    package var controlSocket: ControlSocketOptions?

    package init(
        environment: JSONEnvironment, budget: ByteBudget, clock: @escaping @Sendable () -> Timestamp,
        downstream: @escaping @Sendable () -> DownstreamOptions, upstream: @escaping @Sendable () -> UpstreamOptions
    ) {
        self.environment = environment
        self.budget = budget
        self.clock = clock
        self.downstream = downstream
        self.upstream = upstream
        makeExchange = { HTTPExchange(environment: environment, connection: $0) }
    }

    /// Counts and logs a failure of the backend, or of the connection to it.
    func report(_ error: any Error) {
        environment.tally.add(.upstreamFailures)
        upstreamFailed(error)
    }
}
