// What connections need from the rest of the program.

package import IRCGateway
package import NIOSupport
package import Protection
package import Vault

/// What all connections of a gateway use.
package struct ConnectionServices: Sendable {
    package var environment: IRCEnvironment
    package var submit: @Sendable ([VaultJob]) -> Void
    package var register: @Sendable (any VaultClient, ConnectionID) -> Void
    package var unregister: @Sendable (ConnectionID) -> Void
    /// Marks a delivery as written to the client's socket; must survive the end of the process.
    package var markDelivered: @Sendable (UInt64) -> Void
    package var clock: @Sendable () -> Moment
    /// Hears why the backend could not be reached, for the log.
    package var upstreamFailed: @Sendable (any Error) -> Void = { _ in }
    /// Asked for each new connection, so that a reload holds from the next one on.
    package var downstream: @Sendable () -> DownstreamOptions
    package var upstream: @Sendable () -> UpstreamOptions

    package init(
        environment: IRCEnvironment, submit: @escaping @Sendable ([VaultJob]) -> Void,
        register: @escaping @Sendable (any VaultClient, ConnectionID) -> Void,
        unregister: @escaping @Sendable (ConnectionID) -> Void, markDelivered: @escaping @Sendable (UInt64) -> Void,
        clock: @escaping @Sendable () -> Moment, downstream: @escaping @Sendable () -> DownstreamOptions,
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
