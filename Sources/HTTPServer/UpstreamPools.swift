// The connections to the backend of all event loops.

package import NIOCore
package import NIOPosix

/// One pool for each event loop. Requests of clients, lookups and requests of the queue share it.
package final class UpstreamPools: Sendable {
    package let group: MultiThreadedEventLoopGroup
    private let pools: [ObjectIdentifier: UpstreamPool]

    package init(services: HTTPServices, group: MultiThreadedEventLoopGroup) {
        self.group = group
        var pools: [ObjectIdentifier: UpstreamPool] = [:]
        for loop in group.makeIterator() {
            pools[ObjectIdentifier(loop)] = UpstreamPool(services: services, eventLoop: loop)
        }
        self.pools = pools
    }

    /// The pool of an event loop; nil if that is not one of ``group``.
    subscript(eventLoop: any EventLoop) -> UpstreamPool? { pools[ObjectIdentifier(eventLoop)] }

    /// A sender of the queue's requests on an event loop; nil if that is not one of ``group``.
    package func sender(on eventLoop: any EventLoop) -> UpstreamSender? {
        self[eventLoop].map { UpstreamSender($0, on: eventLoop) }
    }

    /// Applies new upstream options: closes idle connections at once, others after use.
    func renew() {
        for loop in group.makeIterator() {
            guard let pool = self[loop] else { continue }
            loop.execute { pool.renew() }
        }
    }

    /// Keeps no connection any more.
    func stop() async {
        for loop in group.makeIterator() {
            guard let pool = self[loop] else { continue }
            try? await loop.submit { pool.stop() }.get()
        }
    }
}
