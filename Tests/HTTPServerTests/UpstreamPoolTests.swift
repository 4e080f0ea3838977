import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import NIOPosix
import NIOSupport
import PeerKit
import Protection
import TestKit
import TestThreads
import Testing

@testable import HTTPServer

/// Who gets which connection of an event loop.
@Suite struct UpstreamPoolTests {
    /// A user of connections, with the answers that it has received. Confined to the event loop.
    private final class User: UpstreamUser, @unchecked Sendable {
        private(set) var connections: [UpstreamConnection] = []
        private(set) var isAnswered = false
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
        func leaseFailed(_: any Error) {}
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

        init(limit: Int) throws {
            server = try RawServer { socket, _ in
                while (try? socket.message()) != nil { try socket.send("HTTP/1.1 204 No Content\r\n\r\n") }
            }
            let account = AccountSource(credentials: [], target: "/whoami", name: try JSONPath("$.name"))
            let environment = JSONEnvironment(
                mapping: Mapping(name: "test", account: account),
                policies: PolicyTable(PolicySnapshot(everyone: .off)),
                writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))),
                answerLimit: 64 << 20)
            let upstream = UpstreamOptions(
                host: "127.0.0.1", port: server.port, serverName: "localhost", connectTimeout: .seconds(10))
            let downstream = DownstreamOptions(listeners: [], connectionLimit: 200)
            var services = HTTPServices(
                environment: environment, budget: ByteBudget(limit: 1 << 20),
                clock: { Timestamp(monotonic: 0, wall: 0) }, downstream: { downstream },
                upstream: { upstream })
            services.limits.upstreamConnections = limit
            pool = UpstreamPool(services: services, eventLoop: group.next())
        }

        var connections: Int { server.connections }

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
