// `pawl serve`

import ArgumentParser
import Foundation
import Logging
import PawlConfiguration
import ServiceLifecycle
import UnixSignals

/// Runs a gateway.
struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run the gateway in front of a backend.",
        discussion: """
            Without a file the options below are enough. With --config FILE they win over the file; environment \
            variables (PAWL_POLICY, PAWL_UPSTREAM_URL, ...) stand between. SIGHUP reads the configuration again, \
            SIGTERM stops.
            """)

    @Option(help: "A YAML file; see config/pawl.yaml for every key.") var config: String?
    @Option(help: "Where clients connect, as a URL; may be given more than once.") var listen: [String] = []
    @Option(help: "The backend, as a URL.") var upstream: String?
    @Option(help: "off, observe, opportunistic, hosted or required.") var policy: String?
    @Option(help: "The data directory; it is made if it is not there.") var data: String?
    @Option(help: "Where /metrics, /live and /ready are served, host:port; an empty text turns them off.")
    var metrics: String?
    @Option(name: .customLong("log-level"), help: "trace, debug, info, notice, warning, error or critical.")
    var logLevel: String?

    func run() async throws {
        let configuration: PawlConfiguration
        do {
            configuration = try load()
        } catch let error as ConfigurationError {
            FileHandle.standardError.write(Data("\(error)\n".utf8))
            throw ExitCode(ExitStatus.configuration)
        }
        LoggingSystem.bootstrap { label in
            var handler = StreamLogHandler.standardError(label: label)
            handler.logLevel = Logger.Level(rawValue: configuration.log.level.rawValue) ?? .info
            return handler
        }
        let logger = Logger(label: "pawl")
        let stop = StopSignal()
        let assembled: Assembly.Assembled
        do {
            assembled = try Assembly.assemble(
                configuration, logger: logger, reload: { try load() }, requestStop: { stop.send() })
        } catch {
            FileHandle.standardError.write(Data("pawl does not start: \(Assembly.message(of: error))\n".utf8))
            throw ExitCode(ExitStatus.failed)
        }
        let service = GatewayService(assembled: assembled) { line in
            print(line)
            fflush(nil)
        }
        let group = ServiceGroup(
            configuration: .init(
                services: [
                    .init(service: service, successTerminationBehavior: .gracefullyShutdownGroup),
                    .init(service: HangupService(gateway: assembled.gateway), successTerminationBehavior: .ignore),
                    .init(service: stop, successTerminationBehavior: .gracefullyShutdownGroup),
                ], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        do {
            try await group.run()
        } catch {
            FileHandle.standardError.write(Data("pawl stopped: \(Assembly.message(of: error))\n".utf8))
            throw ExitCode(ExitStatus.failed)
        }
    }

    private func load() throws -> PawlConfiguration {
        var overrides = PawlConfiguration.Overrides(
            listen: listen, upstream: upstream, policy: policy, data: data, logLevel: logLevel)
        if let metrics { overrides.set("metrics.listen", to: .one(metrics), option: "--metrics") }
        return try PawlConfiguration.load(
            file: config, environment: ProcessInfo.processInfo.environment, overrides: overrides)
    }
}

/// Reads the configuration again when the process is told to (SIGHUP).
private struct HangupService: Service {
    let gateway: Gateway

    func run() async throws {
        await withGracefulShutdownHandler {
            for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
                do {
                    _ = try gateway.reload()
                } catch {
                    gateway.logger.error(
                        "configuration not reloaded, the old one stays: \(Assembly.message(of: error))")
                }
            }
        } onGracefulShutdown: {
        }
    }
}

/// Ends the group when a command asks for it (`pawl drain`).
private final class StopSignal: Service, Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: Void.self)

    func send() { continuation.finish() }

    func run() async throws {
        for await _ in stream.cancelOnGracefulShutdown() {}
    }
}
