// `pawl sidecar`

import ArgumentParser
import Foundation
import PawlConfiguration

/// Runs a sidecar, or sends a command to a running one.
struct SidecarCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sidecar",
        abstract: "Give an unmodified client end-to-end encryption: run beside it, between it and the network.",
        discussion: """
            pawl sidecar --listen irc://127.0.0.1:6667 --upstream ircs://irc.example.org --data DIR

            Then connect your client to 127.0.0.1, port 6667. The sidecar keeps your keys in DIR. It finds other people \
            with a sidecar by itself: write to them, and both of you are told when keys have been exchanged. A room is \
            encrypted while everyone in it has a sidecar, and for good if you ask for it: pawl sidecar protect '#ROOM'.

            The commands below work in the client too: write them to the nick *pawl, as in /msg *pawl status. What you \
            write to it never leaves the sidecar.
            """,
        subcommands: [Run.self] + asking, defaultSubcommand: Run.self)

    /// The commands for a running sidecar.
    static let asking: [any ParsableCommand.Type] = [
        SidecarStatus.self, SidecarVerify.self, SidecarCard.self, SidecarScan.self, SidecarAccept.self,
        SidecarForget.self, SidecarAdopt.self,
        SidecarJoin.self, SidecarRevoke.self, SidecarDevices.self, SidecarProtect.self, SidecarPlain.self,
    ]

    /// `pawl sidecar run`, the default of `pawl sidecar`
    struct Run: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Run the sidecar; the same as `pawl sidecar` alone.")

        @Option(help: "A YAML file; see config/sidecar.yaml.") var config: String?
        @Option(help: "Where your client connects, as a URL on loopback; may be given more than once.")
        var listen: [String] = []
        @Option(help: "The network, as a URL: ircs:// for TLS.") var upstream: String?
        @Option(help: "A PEM file with the network's own certificate authority, if it has one.") var ca: String?
        @Option(help: "A PEM file with your certificate, for SASL EXTERNAL and CertFP.") var certificate: String?
        @Option(help: "A PEM file with its private key, if that is not in the same file.") var key: String?
        @Option(help: "The directory for your keys; it is created if it does not exist.") var data: String?
        @Option(help: "How end-to-end encrypted messages are marked: text, tags or off.") var marks: String?
        @Flag(help: "Refuse to send, and withhold, messages that are not end-to-end encrypted.") var require = false
        @Option(name: .customLong("log-level"), help: "trace, debug, info, notice, warning, error or critical.")
        var logLevel: String?
        @Option(name: .customLong("log-format"), help: "The form of a line of the log: text or json.")
        var logFormat: String?

        func run() async throws {
            var running = Running(role: .sidecar, sources: sources)
            if let logFormat { running.logFormat = logFormat }
            try await running.run()
        }

        /// The networks of the configuration file; one without a name if it has none.
        @Sendable private func sources() throws -> [Running.Source] {
            let names = try config.map { try SidecarNetworks.names(in: $0) } ?? []
            guard !names.isEmpty else { return [Running.Source(network: nil) { try load(nil) }] }
            let single = [
                ("--listen", !listen.isEmpty), ("--upstream", upstream != nil), ("--ca", ca != nil),
                ("--certificate", certificate != nil), ("--key", key != nil),
            ].filter(\.1).map(\.0)
            guard single.isEmpty else {
                throw ConfigurationError(problems: [
                    .init(
                        code: .conflict,
                        message:
                            "\(single.joined(separator: ", ")) on the command line is for one network, and \(config ?? "") "
                            + "has \(names.count): \(names.joined(separator: ", "))")
                ])
            }
            return names.map { name in Running.Source(network: name) { try load(name) } }
        }

        @Sendable private func load(_ network: String?) throws -> PawlConfiguration {
            let environment = ProcessInfo.processInfo.environment
            let own = environment["PAWL_DATA"] ?? CommonOptions.personalData(environment, isRoot: geteuid() == 0)
            let home =
                network.map { name in data.map { SidecarNetworks.directory(of: name, in: $0) } }
                ?? (config == nil ? data ?? own : data)
            var overrides = PawlConfiguration.Overrides(
                listen: listen, upstream: upstream, data: home, logLevel: logLevel)
            // Metrics of a person's own machine are not collected.
            overrides.set("metrics.listen", to: .one(""), option: "sidecar")
            if let ca { overrides.set("upstream.tls.ca", to: .one(ca), option: "--ca") }
            if let certificate {
                overrides.set("upstream.tls.certificate", to: .one(certificate), option: "--certificate")
                overrides.set(
                    "upstream.tls.key", to: .one(key ?? certificate), option: key == nil ? "--certificate" : "--key")
            } else if let key {
                overrides.set("upstream.tls.key", to: .one(key), option: "--key")
            }
            if let logFormat { overrides.set("log.format", to: .one(logFormat), option: "--log-format") }
            if let marks { overrides.set("sidecar.marks", to: .one(marks), option: "--marks") }
            if require { overrides.set("sidecar.require", to: .one("true"), option: "--require") }
            return try PawlConfiguration.load(
                file: config, network: network, environment: environment, overrides: overrides,
                protocols: Assembly.protocols)
        }
    }
}

/// A command that only a running sidecar executes.
protocol SidecarAdminCommand: AdminCommand {
    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer
}

extension SidecarAdminCommand {
    func answer(_ gateway: Gateway) async throws -> AdminAnswer { try await answer(gateway.sidecar()) }
}
