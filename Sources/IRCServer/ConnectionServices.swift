// The parts of the program that connections use.

package import IRCGateway
package import NIOCore
package import NIOSupport
package import Protection
import Vault

/// The services that all connections of a gateway share.
package struct ConnectionServices: Sendable {
    package var environment: IRCEnvironment
    package var submit: @Sendable ([IRCJob]) -> Void
    package var register: @Sendable (any CommitClient<IRCReply>, ConnectionID) -> Void
    package var unregister: @Sendable (ConnectionID) -> Void
    /// Marks a delivery as written to the client's socket; must survive the end of the process.
    package var markDelivered: @Sendable (UInt64) -> Void
    package var clock: @Sendable () -> Timestamp
    /// Called with the reason if the backend cannot be reached, for the log.
    package var upstreamFailed: @Sendable (any Error) -> Void = { _ in }
    /// Called with a command that the person has written to the sidecar itself.
    package var command: @Sendable (ConnectionID, String) -> Void = { _, _ in }
    /// Called for each new connection, so that a reload applies from the next connection on.
    package var downstream: @Sendable () -> DownstreamOptions
    package var upstream: @Sendable () -> UpstreamOptions
    /// Ours: how long a client may take for what comes before its first line: the header of a proxy and TLS, and then as
    /// long again for the handshake of a WebSocket. A server's own bound for a registration begins when the gateway
    /// connects to it, which is after that.
    package var patience: TimeAmount = .seconds(60)
    /// Ours: how long a backend that was reached again after an outage may take to register a client. Then another
    /// attempt begins. Longer than servers take to look up a client's host and identity.
    package var registrationPatience: TimeAmount = .seconds(60)

    package init(
        environment: IRCEnvironment, submit: @escaping @Sendable ([IRCJob]) -> Void,
        register: @escaping @Sendable (any CommitClient<IRCReply>, ConnectionID) -> Void,
        unregister: @escaping @Sendable (ConnectionID) -> Void, markDelivered: @escaping @Sendable (UInt64) -> Void,
        clock: @escaping @Sendable () -> Timestamp, downstream: @escaping @Sendable () -> DownstreamOptions,
        upstream: @escaping @Sendable () -> UpstreamOptions
    ) {
        self.environment = environment
        self.submit = submit
        self.register = register
        self.unregister = unregister
        self.markDelivered = markDelivered
        self.clock = clock
        self.downstream = downstream
        self.upstream = upstream
    }
}
