// The program: `serve` runs the gateway, everything else talks to a running one.

import ArgumentParser

/// The root of the command line.
@main
struct Pawl: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pawl",
        abstract: "A gateway that moves a plaintext chat backend to encryption, step by step.",
        discussion: """
            Start it in front of a backend and look first: pawl serve --listen irc://127.0.0.1:6667 \
            --upstream irc://127.0.0.1:6668 --policy observe --data DIR. Then: pawl status --data DIR.

            Exit codes: 0 done, 1 it failed and the text says why, 64 the command line is wrong, 69 no gateway is \
            running there, 75 a person has to confirm, 78 the configuration is wrong.
            """,
        version: ProgramVersion.text,
        subcommands: [
            Serve.self, Watch.self, Config.self, BackupCommand.self, RestoreCommand.self, StoreCommand.self,
            Version.self,
        ]
            + AdminGrammar.commands)
}

/// What this program calls itself.
enum ProgramVersion {
    static let number = "0.1.0"
    static let text = "pawl \(number)"
}

/// Exit codes that scripts may rely on.
enum ExitStatus {
    static let failed: Int32 = 1
    static let noGateway: Int32 = 69
    static let needsConfirmation: Int32 = 75
    static let configuration: Int32 = 78
}
