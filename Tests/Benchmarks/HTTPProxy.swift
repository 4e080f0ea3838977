import ArgumentParser
import GatewayCore
import GatewayNIO
import JSONCodec
import NIOCore
import NIOPosix

/// Pawl's HTTP proxy with a machine that passes everything, for measuring it alone, and for trying it by hand.
struct HTTPProxy: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "http-proxy", abstract: "Passes HTTP and WebSocket on through the gateway's proxy.")

    @Option(help: "The port to listen on, on 127.0.0.1.") var port: Int
    @Option(help: "The port to connect to, on 127.0.0.1.") var upstream: Int
    @Flag(help: "Takes WebSocket messages apart and puts them together again.") var framed = false

    func run() throws {
        try DescriptorLimit.raise()
        var downstream = DownstreamOptions(listeners: [ListenerOptions(host: "127.0.0.1", port: self.port)])
        downstream.connectionLimit = 100_000
        let (options, upstream) = (downstream, UpstreamOptions(host: "127.0.0.1", port: self.upstream))
        let environment = JSONEnvironment(
            mapping: Mapping(
                name: "bench", account: AccountSource(credentials: [], target: "/", name: try JSONPath("$.name"))),
            policies: PolicyTable(PolicySnapshot(everyone: .off)))
        var services = HTTPServices(
            environment: environment,
            clock: { Moment(monotonic: Int64(NIODeadline.now().uptimeNanoseconds), wall: 0) },
            downstream: { options }, upstream: { upstream })
        if self.framed {
            services.makeExchange = { id in
                FramingExchange(
                    session: WebSocketSession(
                        environment: environment, connection: id, account: .services("alice"), credential: nil,
                        host: nil))
            }
        }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
        let server = HTTPServer(services: services, group: group) { UInt64.random(in: 0...UInt64.max) }
        let started = group.next().makeFutureWithTask { _ = try await server.start() }
        try started.wait()
        print("ready")
        flushOutput()
        // Until it is killed.
        while true { pause(.hours(1)) }
    }
}

/// Passes requests, and has the messages of WebSockets looked at.
private struct FramingExchange: ExchangeMachine {
    let session: WebSocketSession

    mutating func take(_ event: ExchangeEvent, at now: Moment, _ actions: inout [ExchangeAction]) {
        switch event {
        case .request(let head): actions.append(.passRequest(head))
        case .response(let head):
            actions.append(head.status == 101 ? .upgrade(head, session) : .passResponse(head))
        default: break
        }
    }
}
