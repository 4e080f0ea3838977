// The lifecycle of a gateway as one service: start, announce that it is ready, tick, stop.

import Foundation
import Logging
import NIOCore
import NIOPosix
import NIOSupport
import PawlConfiguration
import PostgresStore
import Protection
import Reports
import ServiceLifecycle
import StorePort
import Vault

/// Runs a gateway until it is stopped.
struct GatewayService: Service {
    enum Start: Sendable {
        case assembled(Assembly.Assembled)
        /// Assembled when the shards of the database are its own.
        case standby(Standby, assemble: @Sendable () throws -> Assembly.Assembled)
    }

    /// A gateway that stood by could not be assembled.
    struct Failure: Error {
        let cause: any Error
    }

    /// Ours: seconds between two commits of the counters. A crash loses at most the statistics of this time.
    static let tickSeconds = 5

    let start: Start
    let manager: ServiceManager?
    let announce: @Sendable (String) -> Void

    func run() async throws {
        let failure: StoreError?
        switch start {
        case .assembled(let assembled):
            try await serve(assembled, nil)
            failure = assembled.failure()
        case .standby(let standby, let assemble):
            do { failure = try await run(standby, assemble)?.failure() } catch {
                standby.membership.leave()
                throw error
            }
        }
        // A service manager starts a process again that has failed, and leaves one that was stopped.
        if let failure { throw failure }
    }

    /// Stands by, and serves when the shards are its own.
    ///
    /// - Returns: what has served and is stopped; nil if the shards were never its own.
    private func run(
        _ standby: Standby, _ assemble: @Sendable () throws -> Assembly.Assembled
    ) async throws -> Assembly.Assembled? {
        standby.begin()
        let configuration = standby.configuration
        let ports = try await ControlPorts.open(
            configuration, standby.group, standby.logger, AdminService(standby)
        ) {
            await standby.metrics()
        } readiness: {
            if let reason = standby.unreadiness { return reason }
            guard let gateway = standby.gateway else { return nil }
            return await Self.unreadiness(gateway, configuration)
        }
        do {
            let isOwner = try await standby.waitForShards { name in
                announce("pawl stands by: \(name) serves")
                standby.logger.notice("this gateway stands by", metadata: ["serving": .string(name)])
                manager?.notify(.ready(status: "Stands by: \(name) serves"))
            }
            guard isOwner else {
                manager?.notify(.stopping)
                await ports.close()
                standby.membership.leave()
                try await standby.group.shutdownGracefully()
                return nil
            }
            let assembled: Assembly.Assembled
            do { assembled = try assemble() } catch { throw Failure(cause: error) }
            for notice in assembled.notices { announce(notice) }
            standby.serve(assembled.gateway)
            try assembled.gateway.commit([.audit(standby.auditRow)])
            try await serve(assembled, (standby, ports))
            return assembled
        } catch {
            await ports.close()
            throw error
        }
    }

    private func serve(_ assembled: Assembly.Assembled, _ opened: (standby: Standby, ports: ControlPorts)?) async throws
    {
        let gateway = assembled.gateway
        let addresses = try await gateway.server.start()
        let ports: ControlPorts
        if let opened {
            ports = opened.ports
            opened.standby.isReady()
        } else {
            let configuration = assembled.configuration
            ports = try await ControlPorts.open(configuration, assembled.group, gateway.logger, AdminService(gateway)) {
                await MetricsPage.text(gateway)
            } readiness: {
                await Self.unreadiness(gateway, configuration)
            }
        }
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
        opened?.standby.endServing()
        gateway.front.dismiss()
        await gateway.server.stop()
        await gateway.front.close()
        await ports.close()
        gateway.front.record(gateway.tables.tally.rows(at: SystemClock.now().wall))
        try? await gateway.front.drain()
        await gateway.front.stop()
        assembled.completeStore()
        try await assembled.group.shutdownGracefully()
    }

    /// Why a serving gateway is not ready; nil if it is.
    private static func unreadiness(_ gateway: Gateway, _ configuration: PawlConfiguration) async -> String? {
        if let problem = gateway.storeProblem { return problem }
        guard !gateway.server.isDraining else { return "the gateway is draining: no new clients" }
        let upstream = configuration.upstream.url
        let probe = try? await ClientBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .connectTimeout(.seconds(2)).connect(host: upstream.host, port: upstream.port).get()
        try? await probe?.close()
        return probe == nil ? "the backend cannot be reached" : nil
    }

    private func tick(_ gateway: Gateway) async throws {
        while !Task.isCancelled {
            try await Task.sleep(for: .seconds(Self.tickSeconds))
            gateway.probeStoreIfFailing()
            gateway.front.tick(gateway.unstored())
        }
    }
}

/// What operators and monitoring connect to.
private struct ControlPorts: Sendable {
    private let admin: AdminServer
    private let metrics: MetricsServer?

    /// - Throws: an error of NIO if the control socket cannot be created.
    static func open(
        _ configuration: PawlConfiguration, _ group: MultiThreadedEventLoopGroup, _ logger: Logger,
        _ service: AdminService, page: @escaping @Sendable () async -> String,
        readiness: @escaping @Sendable () async -> String?
    ) async throws -> ControlPorts {
        let admin = try await AdminServer.start(path: configuration.admin.socket, group: group, service: service)
        guard let address = configuration.metrics.listen else { return ControlPorts(admin: admin, metrics: nil) }
        do {
            let metrics = try await MetricsServer.start(
                host: address.host, port: address.port, group: group, page: page, readiness: readiness)
            return ControlPorts(admin: admin, metrics: metrics)
        } catch {
            // The gateway runs without metrics, so that a second one on the same machine needs no configuration file.
            logger.warning("no metrics: cannot listen on \(address): \(ErrorWords.text(error)). Set metrics.listen.")
            return ControlPorts(admin: admin, metrics: nil)
        }
    }

    private init(admin: AdminServer, metrics: MetricsServer?) { (self.admin, self.metrics) = (admin, metrics) }

    func close() async {
        await admin.stop()
        await metrics?.stop()
    }
}
