// The program: `serve` and `sidecar` run a gateway, and most other commands connect to a running one.

import ArgumentParser

/// The root of the command line.
@main
struct Pawl: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pawl",
        abstract: "A gateway that moves a plaintext chat backend to encryption, step by step.",
        discussion: """
            Start it in front of a backend and observe first: pawl serve --listen irc://127.0.0.1:6667 \
            --upstream irc://127.0.0.1:6668 --policy observe --data DIR. Then: pawl status --data DIR.

            Exit codes: 0 success, 1 failure with a message, 64 wrong command line, 69 no running gateway, \
            75 confirmation required, 76 another gateway has taken over the database, 78 wrong configuration. A failure has a code, in the last line of its message: \
            scripts compare it, because the text may change. With --json a command prints JSON, and a failure is one line \
            of JSON on standard error: {"error":{"code":...,"message":...,"hint":...,"exit":...}}.
            """,
        version: ProgramVersion.text,
        subcommands: [
            Serve.self, Watch.self, Config.self, BackupCommand.self, RestoreCommand.self, StoreCommand.self,
            Version.self, Manual.self,
        ]
            + AdminGrammar.commands)

    /// Runs the command line. Failures are written here, because `--json` asks for objects.
    static func main() async {
        let words = Array(CommandLine.arguments.dropFirst())
        do {
            var command = try await asyncParseAsRoot(words)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch {
            Failures.end(error, words)
        }
    }
}

/// The name and version of the program.
enum ProgramVersion {
    static let number = "0.1.0"
    static let text = "pawl \(number)"
}

/// Exit codes that scripts may rely on.
enum ExitStatus {
    static let failed: Int32 = 1
    static let usage: Int32 = 64
    static let noGateway: Int32 = 69
    static let needsConfirmation: Int32 = 75
    /// Another gateway has taken over the database of the store; the process may be started again.
    static let takenOver: Int32 = 76
    static let configuration: Int32 = 78
}
