// What the program asks of a server, whatever it speaks.

package import NIOCore

/// Takes clients and ends them.
package protocol ChatServer: Sendable {
    /// Begins to listen everywhere, or nowhere.
    ///
    /// - Returns: the addresses, ports filled in.
    func start() async throws -> [SocketAddress]
    /// Connections that are open.
    var connectionCount: Int { get }
    var isDraining: Bool { get }
    /// Takes no more clients; those that are here stay.
    func drain() async
    /// Ends all connections.
    func stop() async
}

/// Listening on an address has failed.
package struct ListenFailure: Error, Sendable {
    package var host: String
    package var port: Int
    package var error: any Error

    package init(host: String, port: Int, error: any Error) {
        self.host = host
        self.port = port
        self.error = error
    }
}
