import Glibc
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import NIOPosix
import NIOSupport
import PeerKit
import Protection
import TestKit
import TestNetwork
import TestThreads
import Testing

@testable import HTTPServer

/// Who gets which connection of an event loop.
@Suite struct UpstreamPoolTests {
    /// A user of connections, with the answers that it has received. Confined to the event loop.
    private final class User: UpstreamUser, @unchecked Sendable {
        private(set) var connections: [UpstreamConnection] = []
        private(set) var isAnswered = false
        private(set) var hasFailed = false
        var isCancelled = false
        var takesAnswer: Bool { true }
        var readsAnswer: Bool { true }

        func leased(_ upstream: UpstreamConnection) { connections.append(upstream) }

        func ask() {
            isAnswered = false
            var bytes = ByteBuffer()
            bytes.write(RequestHead("GET", "/", headers: ["Host": "a"]))
            connections.last?.begin(bytes, isToHead: false, isWhole: true)
            connections.last?.flush()
        }

        func answerEnded(_: HeaderFields) { isAnswered = true }
        func leaseFailed(_: any Error) { hasFailed = true }
        func answered(_: ReceivedResponse) {}
        func answered(_: ByteBuffer) {}
        func upstreamBroke(_: any Error) {}
        func upstreamReadComplete() {}
        func upstreamIsWritable() {}
        func upstreamBytes(_: ByteBuffer) {}
        func upstreamInputEnded() {}
    }

    private final class Rig: Sendable {
        private let server: RawServer
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        private let pool: UpstreamPool
        private let meters: HTTPMeters

        /// - Parameter addresses: those of the backend; nil for that of the rig's own server.
        init(limit: Int, addresses: [SocketAddress]? = nil) throws {
            server = try RawServer { socket, _ in
                while (try? socket.message()) != nil { try socket.send("HTTP/1.1 204 No Content\r\n\r\n") }
            }
            let account = AccountSource(credentials: [], target: "/whoami", name: try JSONPath("$.name"))
            let environment = JSONEnvironment(
                mapping: Mapping(name: "test", account: account),
                policies: PolicyTable(PolicySnapshot(everyone: .off)),
                writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))),
                answerLimit: 64 << 20)
            var upstream = UpstreamOptions(
                host: "127.0.0.1", port: server.port, serverName: "localhost", connectTimeout: .seconds(120))
            if let addresses {
                upstream.host = "two.example"
                upstream.resolver = FixedResolver(addresses, on: group.next())
            }
            let options = upstream
            let downstream = DownstreamOptions(listeners: [], connectionLimit: 200)
            var services = HTTPServices(
                environment: environment, budget: ByteBudget(limit: 1 << 20),
                clock: { Timestamp(monotonic: 0, wall: 0) }, downstream: { downstream },
                upstream: { options })
            services.limits.upstreamConnections = limit
            meters = services.meters
            pool = UpstreamPool(services: services, eventLoop: group.next())
        }

        var connections: Int { server.connections }
        /// Connections that the pool counts as open.
        var open: Int { meters.upstreamConnections }

        func run<Value: Sendable>(_ body: @escaping @Sendable (UpstreamPool) -> Value) async throws -> Value {
            try await group.next().submit { [pool] in body(pool) }.get()
        }

        /// A user with a connection.
        func user(isFresh: Bool = false) async throws -> User {
            let user = User()
            try await run { $0.lease(user, isFresh: isFresh) }
            try await wait("it has a connection") { !user.connections.isEmpty }
            return user
        }

        func wait(_ what: String, _ isSo: @escaping @Sendable () -> Bool) async throws {
            try await eventuallyAsync(what) { (try? await self.run { _ in isSo() }) == true }
        }

        /// Sends a request and awaits its answer.
        func ask(_ user: User) async throws {
            try await run { _ in user.ask() }
            try await wait("it is answered") { user.isAnswered }
        }

        func stop() async throws {
            try await run { $0.stop() }
            try await group.shutdownGracefully()
        }
    }

    /// The first connection is in use, or idle, when a request asks for a new one. One connection is the limit.
    @Test(arguments: [false, true]) func aNewConnectionIsNewAlsoAtTheLimit(isIdle: Bool) async throws {
        let rig = try Rig(limit: 1)
        let first = try await rig.user()
        try await rig.ask(first)
        let second = User()
        if isIdle { try await rig.run { _ in first.connections[0].release() } }
        try await rig.run { $0.lease(second, isFresh: true) }
        if !isIdle { try await rig.run { _ in first.connections[0].release() } }
        try await rig.wait("it has a connection") { !second.connections.isEmpty }
        #expect(try await rig.run { _ in second.connections[0] !== first.connections[0] })
        try await rig.ask(second)
        #expect(rig.connections == 2)
        try await rig.stop()
    }

    /// The pool keeps nothing of a user that leaves, even if no connection is released for long.
    @Test func aUserThatLeavesIsNotKept() async throws {
        let rig = try Rig(limit: 1)
        let first = try await rig.user()
        let isKept = try await rig.run { pool in
            var gone: User? = User()
            weak let kept = gone
            if let user = gone {
                pool.lease(user, isFresh: false)
                pool.withdraw(user)
            }
            gone = nil
            return kept != nil
        }
        #expect(!isKept)
        try await rig.run { _ in first.connections[0].close() }
        try await rig.stop()
    }

    /// The first address of a backend answers after the second was tried, which refuses.
    @Test func theFirstAddressAnswersLate() async throws {
        let slow = try FullListener()
        let dead = try FreePort()
        let rig = try Rig(
            limit: 1,
            addresses: try [slow.port, Int(dead.number)].map { try SocketAddress(ipAddress: "127.0.0.1", port: $0) })
        let first = User()
        try await rig.run { $0.lease(first, isFresh: false) }
        try await eventuallyAsync("the kernel has dropped the first packet") {
            SocketTable.isAwaited(UInt16(slow.port))
        }
        // The kernel sends it again after a second. The pool tries the second address after a quarter of one.
        slow.makeRoom()
        try await rig.wait("it has a connection") { !first.connections.isEmpty || first.hasFailed }
        #expect(try await rig.run { _ in !first.hasFailed && first.connections.first?.isUsable == true })
        #expect(rig.open == 1)
        try await rig.run { _ in first.connections.first?.close() }
        try await rig.wait("it is closed") { rig.open == 0 }
        withExtendedLifetime(dead) {}
        try await rig.stop()
    }

    /// A connection to the backend of earlier options goes to no request that waits.
    @Test func aConnectionWithEarlierOptionsServesNoOtherRequest() async throws {
        let rig = try Rig(limit: 1)
        let first = try await rig.user()
        try await rig.ask(first)
        let second = User()
        try await rig.run { pool in
            pool.lease(second, isFresh: false)
            pool.renew()
            first.connections[0].release()
        }
        try await rig.wait("it has a connection") { !second.connections.isEmpty }
        #expect(try await rig.run { _ in second.connections[0] !== first.connections[0] })
        try await rig.ask(second)
        #expect(rig.connections == 2)
        try await rig.stop()
    }

    /// Others that wait get a used connection, in their order.
    @Test func aReleasedConnectionGoesToTheNextThatWaits() async throws {
        let rig = try Rig(limit: 1)
        let first = try await rig.user()
        try await rig.ask(first)
        let (gone, second) = (User(), User())
        try await rig.run { pool in
            for user in [gone, second] { pool.lease(user, isFresh: false) }
            gone.isCancelled = true
            pool.withdraw(gone)
            first.connections[0].release()
        }
        try await rig.wait("it has a connection") { !second.connections.isEmpty }
        #expect(try await rig.run { _ in gone.connections.isEmpty && second.connections[0] === first.connections[0] })
        #expect(rig.connections == 1)
        try await rig.stop()
    }
}

/// A listener on loopback whose queue of connections is full, so that the kernel drops the first packet of another one.
private final class FullListener: Sendable {
    let port: Int
    private let descriptor: Int32
    private let filler: RawSocket

    init() throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = RawSocket.loopback(0)
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && listen(descriptor, 0) == 0
                    && getsockname(descriptor, $0, &size) == 0
            }
        }
        guard status else { throw RawError("listen: \(String(cString: strerror(errno)))") }
        self.descriptor = descriptor
        port = Int(in_port_t(bigEndian: address.sin_port))
        // Linux queues one more connection than the backlog says.
        filler = try RawSocket(port: port)
    }

    deinit { close(descriptor) }

    /// Accepts the connection that fills the queue.
    func makeRoom() { close(accept(descriptor, nil, nil)) }
}
