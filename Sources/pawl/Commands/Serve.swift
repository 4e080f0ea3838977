// `pawl serve`

import ArgumentParser
import Foundation
import PawlConfiguration
import Protection

/// Runs a gateway.
struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run the gateway in front of a backend.",
        discussion: """
            Without a file the options below are enough. With --config FILE, environment variables (PAWL_POLICY, \
            PAWL_UPSTREAM_URL, ...) override the file, and the options override both. SIGHUP reads the configuration \
            again, SIGTERM stops the gateway.
            """)

    @Option(help: "A YAML file; see config/pawl.yaml for every key.") var config: String?
    @Option(help: "Where clients connect, as a URL; may be given more than once.") var listen: [String] = []
    @Option(help: "The backend, as a URL.") var upstream: String?
    @Option(help: "\(Policy.choices).") var policy: String?
    @Option(help: "The data directory; it is created if it does not exist.") var data: String?
    @Option(help: "Where /metrics, /live and /ready are served, host:port; an empty text turns them off.")
    var metrics: String?
    @Option(name: .customLong("log-level"), help: "trace, debug, info, notice, warning, error or critical.")
    var logLevel: String?
    @Option(name: .customLong("log-format"), help: "The form of a line of the log: text or json.")
    var logFormat: String?

    func run() async throws {
        var running = Running(role: .front, load: load)
        if let logFormat { running.logFormat = logFormat }
        try await running.run()
    }

    @Sendable private func load() throws -> PawlConfiguration {
        var overrides = PawlConfiguration.Overrides(
            listen: listen, upstream: upstream, policy: policy, data: data, logLevel: logLevel)
        if let logFormat { overrides.set("log.format", to: .one(logFormat), option: "--log-format") }
        if let metrics { overrides.set("metrics.listen", to: .one(metrics), option: "--metrics") }
        return try PawlConfiguration.load(
            file: config, environment: ProcessInfo.processInfo.environment, overrides: overrides,
            protocols: Assembly.protocols)
    }
}
