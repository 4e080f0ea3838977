// The lifecycle of a gateway as one service: start, announce that it is ready, tick, stop.

import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSupport
import PawlConfiguration
import Protection
import Reports
import ServiceLifecycle
import Vault

/// Runs an assembled gateway until it is stopped.
struct GatewayService: Service {
    /// Ours: seconds between two commits of the counters. A crash loses at most the statistics of this time.
    static let tickSeconds = 5

    let assembled: Assembly.Assembled
    let manager: ServiceManager?
    let announce: @Sendable (String) -> Void

    func run() async throws {
        let gateway = assembled.gateway
        let addresses = try await gateway.server.start()
        let admin = try await AdminServer.start(
            path: assembled.configuration.admin.socket, group: assembled.group, service: AdminService(gateway))
        let metrics = await startMetrics(gateway)
        let listening = zip(assembled.configuration.listen, addresses)
            .map { "\($0.scheme.name)://\($0.host):\($1.port ?? $0.port)" }.joined(separator: " ")
        let place = "\(listening) in front of \(assembled.configuration.upstream.url)"
        announce("pawl is ready: \(place), policy \(gateway.tables.policies.snapshot.everyone.name)")
        manager?.notify(.ready(status: place))
        let loop = Task { try await tick(gateway) }
        let chat = Task { await gateway.serveChat() }
        try? await gracefulShutdown()
        loop.cancel()
        chat.cancel()
        gateway.logger.info("stopping")
        manager?.notify(.stopping)
        gateway.front.dismiss()
        await gateway.server.stop()
        await gateway.front.close()
        await admin.stop()
        await metrics?.stop()
        gateway.front.record(gateway.tables.tally.rows(at: SystemClock.now().wall))
        try? await gateway.front.drain()
        await gateway.front.stop()
        assembled.completeStore()
        try await assembled.group.shutdownGracefully()
    }

    private func startMetrics(_ gateway: Gateway) async -> MetricsServer? {
        guard let address = assembled.configuration.metrics.listen else { return nil }
        let upstream = assembled.configuration.upstream.url
        do {
            return try await MetricsServer.start(
                host: address.host, port: address.port, group: assembled.group,
                page: { await MetricsPage.text(gateway) },
                readiness: {
                    if let problem = gateway.storeProblem { return problem }
                    guard !gateway.server.isDraining else { return "the gateway is draining: no new clients" }
                    let probe = try? await ClientBootstrap(group: .singletonMultiThreadedEventLoopGroup)
                        .connectTimeout(.seconds(2)).connect(host: upstream.host, port: upstream.port).get()
                    try? await probe?.close()
                    return probe == nil ? "the backend cannot be reached" : nil
                })
        } catch {
            // The gateway runs without metrics, so that a second one on the same machine needs no configuration file.
            gateway.logger.warning(
                "no metrics: cannot listen on \(address): \(ErrorWords.text(error)). Set metrics.listen.")
            return nil
        }
    }

    private func tick(_ gateway: Gateway) async throws {
        while !Task.isCancelled {
            try await Task.sleep(for: .seconds(Self.tickSeconds))
            gateway.probeStoreIfFailing()
            gateway.front.tick(gateway.unstored())
        }
    }
}
