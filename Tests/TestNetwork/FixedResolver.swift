package import NIOCore
import NIOPosix

/// Returns the same addresses for every host, so that a test can say which of them answers.
package struct FixedResolver: Resolver, Sendable {
    private let addresses: [SocketAddress]
    private let eventLoop: any EventLoop

    package init(_ addresses: [SocketAddress], on eventLoop: any EventLoop) {
        (self.addresses, self.eventLoop) = (addresses, eventLoop)
    }

    package func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeSucceededFuture(addresses)
    }

    package func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeSucceededFuture([])
    }

    package func cancelQueries() {}
}
