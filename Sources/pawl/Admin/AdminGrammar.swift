// One grammar: the shell and the gateway parse commands with the same definitions.

import ArgumentParser
import Foundation
import PawlConfiguration
import StorePort

/// A command that a running gateway executes.
protocol AdminCommand: AsyncParsableCommand {
    var common: CommonOptions { get }
    func answer(_ gateway: Gateway) async throws -> AdminAnswer
}

extension AdminCommand {
    /// In a shell: sends the words to the gateway.
    func run() async throws {
        try await AdminClient(common).perform(Array(CommandLine.arguments.dropFirst()))
    }
}

/// Options of every command that connects to a gateway.
struct CommonOptions: ParsableArguments {
    @Option(name: .long, help: "The data directory of the gateway or sidecar, which has its control socket.")
    var data: String = CommonOptions.defaultData

    @Option(name: .long, help: "The control socket, if it is not DIR/pawl.sock.")
    var socket: String?

    @Option(name: .long, help: "Of a sidecar with several networks: the name of one in its configuration file.")
    var network: String?

    @Flag(name: .long, help: "Print JSON for scripts.")
    var json = false

    static let serviceData = "/var/lib/pawl"

    /// The data directory that commands use by default.
    static var defaultData: String {
        dataDirectory(ProcessInfo.processInfo.environment, isRoot: geteuid() == 0) { path in
            access(path, R_OK | W_OK) == 0
        }
    }

    /// `PAWL_DATA`; else the directory of the system service, if this user may use it; else the user's own.
    ///
    /// With `sudo -u pawl` the user may use that of the system service.
    static func dataDirectory(
        _ environment: [String: String], isRoot: Bool, canUse: (String) -> Bool
    ) -> String {
        if let data = environment["PAWL_DATA"] { return data }
        let isService = ["pawl.sock", "pawl.sqlite"].contains { canUse("\(serviceData)/\($0)") }
        return isService ? serviceData : personalData(environment, isRoot: isRoot)
    }

    /// The data directory of a user's own sidecar.
    static func personalData(_ environment: [String: String], isRoot: Bool) -> String {
        guard !isRoot, let home = environment["HOME"] else { return serviceData }
        return (environment["XDG_DATA_HOME"] ?? home + "/.local/share") + "/pawl"
    }

    var socketPath: String {
        let directory = network.map { SidecarNetworks.directory(of: $0, in: data) } ?? data
        return socket ?? directory + "/pawl.sock"
    }
}

/// The commands that a gateway executes.
enum AdminGrammar {
    static let commands: [any ParsableCommand.Type] = [
        Status.self, Users.self, Clients.self, DevicesCommand.self, ConversationsCommand.self, PolicyCommand.self,
        QueueCommand.self, Trace.self, Unmatched.self, Audit.self,
        Drain.self, Gateways.self, Shards.self, SidecarCommand.self,
    ]

    /// The root command for words from the control socket.
    struct Root: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "pawl",
            subcommands: AdminGrammar.commands + [RunningConfig.self, BackupCommand.self, Version.self])
    }

    /// The part of `pawl config` that a gateway executes. The other subcommands run in the operator's shell.
    struct RunningConfig: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "config", abstract: "Make the gateway read its configuration again.",
            subcommands: [Config.Reload.self])
    }

    /// Parses words and executes the command on a gateway.
    static func perform(_ words: [String], on gateway: Gateway) async -> AdminAnswer {
        await perform(words) { try await $0.answer(gateway) }
    }

    /// Parses words, and has the command executed.
    static func perform(
        _ words: [String], _ execute: (any AdminCommand) async throws -> AdminAnswer
    ) async -> AdminAnswer {
        do {
            var parsed = try Root.parseAsRoot(words)
            if let command = parsed as? any AdminCommand { return try await execute(command) }
            try parsed.run()
            return .failure(.init(.notOverTheSocket, "This command does not work over the control socket."))
        } catch let failure as AdminFailure {
            return .failure(failure)
        } catch let failure as StoreError {
            return .failure(AdminFailure(failure))
        } catch {
            let code = Root.exitCode(for: error)
            let text = Root.fullMessage(for: error)
            return code.isSuccess ? .text(text) : .failure(.init(.wrongUsage, text), exit: code.rawValue)
        }
    }
}

/// The maximum number of rows in a listing.
struct RowLimit: ExpressibleByArgument {
    /// Ours: more than any table of the store holds.
    static let highest = 1_000_000

    let rows: Int

    init(_ rows: Int) { self.rows = rows }

    init?(argument: String) {
        guard let rows = Int(argument), (0...Self.highest).contains(rows) else { return nil }
        self.rows = rows
    }

    var defaultValueDescription: String { "\(rows)" }
}
