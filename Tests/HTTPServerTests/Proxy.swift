import HTTPServer
import JSONCodec
import JSONGateway
import NIOCore
import NIOPosix
import NIOSSL
import NIOSupport
import Protection
import Synchronization

/// A machine that does what a test says.
struct ScriptedExchange: ExchangeMachine {
    var script: @Sendable (ExchangeEvent) -> [ExchangeAction]

    mutating func take(_ event: ExchangeEvent, at now: Timestamp, _ actions: inout [ExchangeAction]) {
        actions += script(event)
    }
}

/// A gateway in front of a backend, both on loopback.
final class Proxy: Sendable {
    let port: Int
    let server: HTTPServer
    let environment: JSONEnvironment
    private let group: MultiThreadedEventLoopGroup

    /// A session that lets everything through.
    static func socketMachine(
        _ policies: PolicyTable = PolicyTable(PolicySnapshot(everyone: .off)), frames: [FrameRoute] = []
    ) throws -> WebSocketMachine {
        let environment = try environment(nil, policies, frames: frames)
        return WebSocketMachine(
            environment: environment, connection: ConnectionID(1), account: .services("alice"), credential: nil)
    }

    static func environment(
        _ crossOrigin: CrossOrigin? = nil, _ policies: PolicyTable = PolicyTable(PolicySnapshot(everyone: .off)),
        frames: [FrameRoute] = []
    ) throws -> JSONEnvironment {
        var mapping = try mapping()
        mapping.frames = frames
        mapping.crossOrigin = crossOrigin
        return JSONEnvironment(
            mapping: mapping, policies: policies,
            writes: WriteTables(keys: WriteKeys(secret: [UInt8](repeating: 3, count: 32))),
            answerLimit: 64 << 20)
    }

    private static func mapping() throws -> Mapping {
        Mapping(name: "test", account: AccountSource(credentials: [], target: "/whoami", name: try JSONPath("$.name")))
    }

    init(
        to backend: Int, threads: Int = 1, listenerTLS: NIOSSLContext? = nil, upstreamTLS: NIOSSLContext? = nil,
        serverName: String? = "localhost", _ adjust: (inout HTTPServices) -> Void = { _ in }
    ) async throws {
        group = MultiThreadedEventLoopGroup(numberOfThreads: threads)
        environment = try Self.environment()
        let down = DownstreamOptions(
            listeners: [ListenerOptions(host: "127.0.0.1", port: 0, usesTLS: listenerTLS != nil)], tls: listenerTLS,
            connectionLimit: 200)
        let up = UpstreamOptions(
            host: "127.0.0.1", port: backend, tls: upstreamTLS, serverName: serverName, connectTimeout: .seconds(10))
        var services = HTTPServices(
            environment: environment, budget: ByteBudget(limit: 512 << 20),
            clock: { Timestamp(monotonic: Int64(NIODeadline.now().uptimeNanoseconds), wall: 0) }, downstream: { down },
            upstream: { up })
        adjust(&services)
        let next = Mutex<UInt64>(0)
        server = HTTPServer(services: services, pools: UpstreamPools(services: services, group: group)) {
            next.withLock { next in
                next += 1 << 32
                return next
            }
        }
        port = try await server.start().first?.port ?? 0
    }

    /// With a machine that does what a test says.
    convenience init(
        to backend: Int, script: @escaping @Sendable (ExchangeEvent) -> [ExchangeAction],
        _ adjust: (inout HTTPServices) -> Void = { _ in }
    ) async throws {
        try await self.init(to: backend) { services in
            services.makeExchange = { _ in ScriptedExchange(script: script) }
            adjust(&services)
        }
    }

    func client() throws -> RawSocket { try RawSocket(port: port) }

    func stop() async {
        await server.stop()
        try? await group.shutdownGracefully()
    }
}
