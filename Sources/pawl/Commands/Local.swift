// `pawl version` and `pawl config`, which the shell executes at least in part.

import ArgumentParser
import Foundation
import MappingFile
import PawlConfiguration
import Protection

/// `pawl version`
struct Version: AdminCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show the version of this program and of the running gateway.")
    @OptionGroup var common: CommonOptions

    struct Report: Codable {
        var program: String
        /// The version of the running gateway, if one runs.
        var gateway: String?
    }

    func run() async throws {
        // The socket of a gateway that was killed stays, and the program has its version all the same.
        let gateway = try? await AdminClient(common).answer(to: ["version"]).out
        if common.json {
            print(try AdminAnswer.json(Report(program: ProgramVersion.text, gateway: gateway)).out)
        } else {
            print(ProgramVersion.text)
            if let gateway { print("gateway at \(common.socketPath): \(gateway)") }
        }
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer { try answer() }

    /// The answer of any process.
    func answer() throws -> AdminAnswer {
        common.json ? try .json(Report(program: ProgramVersion.text)) : .text(ProgramVersion.text)
    }
}

/// `pawl config`
struct Config: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config", abstract: "Check a configuration, or make the gateway read its own again.",
        subcommands: [Check.self, Reload.self, Keys.self])

    /// `pawl config check`
    struct Check: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Report the errors of a file, or its values that are not the default.",
            discussion: "With --mapping, show how a mapping handles samples of raw HTTP, as copied from a terminal.")
        @Argument(help: "The YAML file.") var file: String?
        @OptionGroup var samples: MappingSamples

        func validate() throws {
            guard file != nil || samples.mapping != nil else {
                throw ValidationError("Name a configuration, or a mapping with --mapping FILE.")
            }
            try samples.check()
        }

        func run() async throws {
            do {
                let trials = try samples.trials()
                if !samples.json, let trials { print(trials.text) }
                if let file, samples.mapping == nil, try checksNetworks(of: file) { return }
                let report = try file.map { file in
                    let report = try ConfigurationReport(
                        file: file, environment: ProcessInfo.processInfo.environment, overrides: .init(),
                        protocols: Assembly.protocols)
                    try Assembly.checkFiles(report.configuration)
                    return report
                }
                if samples.json {
                    print(try Self.json(report, trials?.trials))
                } else if let report {
                    print(report)
                }
                guard trials?.trials.allSatisfy(\.isGood) != false else { throw ExitCode(ExitStatus.failed) }
            } catch let error where error is ConfigurationError || error is AdminFailure {
                if let file, samples.mapping == nil, (try? MappingFile.read(path: file)) != nil {
                    let failure = AdminFailure(
                        .configurationRefused,
                        "\(file) is a mapping, not a configuration. Check it with: "
                            + "pawl config check --mapping \(file)")
                    throw Failures.write(failure, exit: ExitStatus.configuration)
                }
                throw Failures.write(error, exit: ExitStatus.configuration)
            }
        }

        /// A network of a sidecar's file for several.
        private struct Network: Encodable {
            var network: String
            var configuration: ConfigurationReport
        }

        /// Checks each network of a sidecar's file, and prints the reports.
        ///
        /// - Returns: whether the file has several networks.
        private func checksNetworks(of file: String) throws -> Bool {
            let names = try SidecarNetworks.names(in: file)
            guard !names.isEmpty else { return false }
            let reports = try names.map { name in
                let report = try ConfigurationReport(
                    file: file, network: name, environment: ProcessInfo.processInfo.environment, overrides: .init(),
                    protocols: Assembly.protocols)
                try Assembly.checkFiles(report.configuration)
                return Network(network: name, configuration: report)
            }
            try SidecarNetworks.check(reports.map { ($0.network, $0.configuration.configuration) })
            if samples.json {
                print(try AdminAnswer.json(reports).out)
            } else {
                print(reports.map { "Network \($0.network)\n\($0.configuration)" }.joined(separator: "\n\n"))
            }
            return true
        }

        /// Both reports, if a configuration and a mapping are checked at once.
        private struct Both: Encodable {
            var configuration: ConfigurationReport
            var mapping: [MappingTrial]
        }

        private static func json(_ report: ConfigurationReport?, _ trials: [MappingTrial]?) throws -> String {
            guard let report else { return try AdminAnswer.json(trials ?? []).out }
            guard let trials else { return try AdminAnswer.json(report).out }
            return try AdminAnswer.json(Both(configuration: report, mapping: trials)).out
        }
    }

    /// `pawl config keys`
    struct Keys: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List every key with its default and its reason.")

        @Flag(help: "Print JSON for scripts.") var json = false

        func run() throws {
            print(json ? try AdminAnswer.json(ConfigurationKey.listed).out : ConfigurationKey.describe())
        }
    }

    /// `pawl config reload`
    struct Reload: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Read the configuration again. A wrong one is refused and the old one kept.",
            discussion: """
                Asks before a stricter policy protects conversations for good. A signal (SIGHUP, `systemctl reload`) cannot ask: it \
                applies everything else and leaves such a policy for this command.
                """)
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @Flag(help: "Apply the policy without asking.") var yes = false
        @OptionGroup var common: CommonOptions

        struct Report: Codable {
            var changes: [String]
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            do {
                let reload = try gateway.prepareReload()
                let words = "reload \(reload.policy.name)"
                let question = try gateway.question(
                    reload.forecast, words, asJSON: common.json,
                    unless: yes || gateway.confirmations.accept(confirm, for: words))
                if let question { return question }
                let changes = try gateway.reload(reload, isAgreed: true)
                if common.json { return try .json(Report(changes: changes)) }
                return .text(changes.isEmpty ? "Nothing has changed." : changes.joined(separator: "\n"))
            } catch let error where error is ConfigurationError || error is AdminFailure {
                let text = "Not reloaded, the old configuration stays:\n\(Assembly.message(of: error))"
                return .failure(.init(.configurationRefused, text), exit: ExitStatus.configuration)
            }
        }
    }
}
