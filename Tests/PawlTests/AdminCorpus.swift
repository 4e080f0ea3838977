import ArgumentParser
import Foundation
import TestKit

@testable import pawl

/// Words that an operator, a script or an attacker on the control socket may send.
struct AdminCorpus: RandomNumberGenerator, Sendable {
    /// The same in each run of the tests. `Tests/fuzz admin` looks further; PAWL_FUZZ_SEED repeats a run of it.
    static func random() -> AdminCorpus {
        let environment = ProcessInfo.processInfo.environment
        let isFuzzing = environment["PAWL_FUZZ_RUNS"] != nil
        let seed =
            environment["PAWL_FUZZ_SEED"].flatMap { UInt64($0) } ?? (isFuzzing ? UInt64.random(in: 0...UInt64.max) : 1)
        print("seed of the admin commands: \(seed)")
        return AdminCorpus(seed: seed)
    }

    private var generator: SeededGenerator
    /// Where files may be written.
    var directory = "/nonexistent"

    init(seed: UInt64) { generator = SeededGenerator(seed: seed) }

    /// All commands of the control socket, by their words.
    static let commands: [[String]] = words(of: AdminGrammar.Root.self)

    private static func words(of command: any ParsableCommand.Type) -> [[String]] {
        let subcommands = command.configuration.subcommands
        guard !subcommands.isEmpty else { return [[]] }
        return subcommands.flatMap { subcommand in words(of: subcommand).map { [subcommand._commandName] + $0 } }
    }

    static let arguments = [
        "", " ", "-", "--", "-1", "0", "1", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
        "18446744073709551616", "1e400", "nan", "alice", "#ops", "#", "@#ops", "room #ops", "~ff", "~", "nick x",
        "own device", "everyone", "@a:b", "é\u{301}\u{202E}", "\u{0}", "\u{1B}]0;x\u{7}", "a\nb", "ffffffffffffffff",
        "hosted", "off", "observe", "required", "default", "dead", "--help", "--version", "--json", "--yes", "--force",
        "--plain", "--uncoloured", "--matches", String(repeating: "x", count: 10_000), "--generate-completion-script",
        "--experimental-dump-help", "help",
    ]

    static let options = [
        "--limit", "--account", "--room", "--state", "--confirm", "--data", "--socket", "--every", "--count",
    ]

    /// Every command with each odd argument, and with it as the value of two options in turn.
    func all() -> [[String]] {
        var all: [[String]] = []
        for command in Self.commands where command != ["drain"] {
            all.append(command)
            for (number, argument) in Self.arguments.enumerated() {
                let argument = safe(argument, for: command)
                all.append(command + [argument])
                for place in [number, number + 4] {
                    all.append(command + ["\(Self.options[place % Self.options.count])=\(argument)"])
                }
            }
            all.append(command + ["--limit=-1"])
        }
        return all
    }

    /// One command with some of them.
    mutating func words() -> [String] {
        var command = Self.commands[generator.below(Self.commands.count)]
        if command == ["drain"] { command = ["status"] }
        var words = command
        for _ in 0..<generator.below(5) {
            let argument = safe(Self.arguments[generator.below(Self.arguments.count)], for: command)
            switch generator.below(3) {
            case 0: words += [Self.options[generator.below(Self.options.count)], argument]
            case 1: words.append("\(Self.options[generator.below(Self.options.count)])=\(argument)")
            default: words.append(argument)
            }
        }
        return words
    }

    /// A backup goes where files may be written.
    private func safe(_ argument: String, for command: [String]) -> String {
        guard command == ["backup"], !argument.hasPrefix("--") else { return argument }
        return directory + "/" + argument.prefix(300)
    }

    mutating func next() -> UInt64 { generator.next() }
}
