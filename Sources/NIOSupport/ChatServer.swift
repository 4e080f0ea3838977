// The interface of the servers of all protocols.

package import NIOCore

/// A server that accepts clients.
package protocol ChatServer: Sendable {
    /// Listens on all addresses; on none if one fails.
    ///
    /// - Returns: the bound addresses with their ports.
    /// - Throws: ``ListenFailure``.
    func start() async throws -> [SocketAddress]
    /// The number of open connections.
    var connectionCount: Int { get }
    var isDraining: Bool { get }
    /// Stops accepting clients. Open connections stay.
    func drain() async
    /// Ends all connections.
    func stop() async
}

/// Listening on an address has failed.
package struct ListenFailure: Error, Sendable {
    /// A host, or the path of a Unix socket.
    package var host: String
    /// Nil for a Unix socket.
    package var port: Int?
    package var error: any Error

    package init(host: String, port: Int?, error: any Error) {
        self.host = host
        self.port = port
        self.error = error
    }
}
