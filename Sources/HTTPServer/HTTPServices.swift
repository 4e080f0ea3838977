// The interface of HTTP connections to the rest of the program.

package import JSONGateway
package import NIOSupport
package import Protection
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
    package var findWrite:
        @Sendable (AccountID, WriteKey, Credential, @escaping @Sendable (WriteMatch) -> Void) -> Void =
            { $3(.new($1)) }
    package var enqueue:
        @Sendable (QueuedWrite, @escaping @Sendable (Result<KnownWrite, WriteRefusal>) -> Void) -> Void =
            { $1(.failure(.unavailable)) }
    package var await: @Sendable (WriteToken, @escaping @Sendable (WriteOutcome) -> Void) -> Void = { _, _ in }
    package var clock: @Sendable () -> Timestamp
    /// Receives the errors of connections to the backend, for the log.
    package var upstreamFailed: @Sendable (any Error) -> Void = { _ in }
    /// Called for each new connection, so that a reload takes effect from the next connection on.
    package var downstream: @Sendable () -> DownstreamOptions
    package var upstream: @Sendable () -> UpstreamOptions
    package var limits = HTTPLimits()
    package var meters = HTTPMeters()

    package init(
        environment: JSONEnvironment, clock: @escaping @Sendable () -> Timestamp,
        downstream: @escaping @Sendable () -> DownstreamOptions, upstream: @escaping @Sendable () -> UpstreamOptions
    ) {
        self.environment = environment
        self.clock = clock
        self.downstream = downstream
        self.upstream = upstream
        makeExchange = { HTTPExchange(environment: environment, connection: $0) }
    }
}
