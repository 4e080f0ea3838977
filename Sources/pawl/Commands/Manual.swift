// `pawl manual`: the manual page, made of the same definitions that parse the commands.

import ArgumentParser
import Foundation

/// `pawl manual`, for packagers.
struct Manual: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the manual page of pawl, for man(1).",
        discussion: "Shell completions: pawl --generate-completion-script bash, zsh or fish.", shouldDisplay: false)
    @Option(help: "The date on the page, YYYY-MM-DD; today by default.") var date: String?

    func validate() throws {
        guard date?.wholeMatch(of: /\d{4}-\d\d-\d\d/) != nil || date == nil else {
            throw ValidationError("--date is YYYY-MM-DD.")
        }
    }

    func run() throws {
        let today = Date().formatted(.iso8601.year().month().day())
        print(try ManualPage(Pawl._dumpHelp()).text(date: date ?? today), terminator: "")
    }
}

/// The manual page of a program in man(7).
struct ManualPage {
    /// A command as ArgumentParser describes it. Its format has a version, and names do not change within one.
    private struct Command: Decodable {
        var commandName: String
        var shouldDisplay: Bool
        var abstract: String?
        var discussion: String?
        var defaultSubcommand: String?
        var subcommands: [Command]?
        var arguments: [Argument]?

        /// Without the one that ArgumentParser adds.
        var shown: [Command] { (subcommands ?? []).filter { $0.shouldDisplay && $0.commandName != "help" } }
    }

    private struct Argument: Decodable, Equatable {
        struct Name: Decodable, Equatable {
            var kind: String
            var name: String
        }

        var kind: String
        var shouldDisplay: Bool
        var isOptional: Bool
        var isRepeating: Bool
        var names: [Name]?
        var valueName: String?
        var defaultValue: String?
        var abstract: String?

        /// The same option, whatever its default is on this machine.
        func isSame(as other: Argument) -> Bool { names == other.names && abstract == other.abstract }
    }

    private struct Tool: Decodable {
        var serializationVersion: Int
        var command: Command
    }

    private let program: Command
    /// The options of commands that connect to a running gateway. They are described once.
    private let common: [Argument]

    /// - Parameter dump: what ArgumentParser prints for `--experimental-dump-help`.
    init(_ dump: String) throws {
        program = try JSONDecoder().decode(Tool.self, from: Data(dump.utf8)).command
        common = try JSONDecoder().decode(Tool.self, from: Data(Status._dumpHelp().utf8)).command.arguments ?? []
    }

    /// The page, with a line feed at its end.
    func text(date: String) -> String {
        var lines = [
            #".\" Made by: pawl manual"#,
            ".TH PAWL 1 \"\(date)\" \"\(ProgramVersion.text)\" Pawl",
            ".SH NAME", #"pawl \- a gateway that moves a plaintext chat backend to encryption, step by step"#,
            ".SH SYNOPSIS", #".B pawl"#, #".I COMMAND"#, #"[\fIOPTIONS\fR]"#,
            ".SH DESCRIPTION",
        ]
        lines += Self.paragraphs(program.discussion ?? "")
        lines += [".SH COMMANDS"]
        for command in program.shown { lines += section(command, ["pawl"]) }
        lines += [
            ".SH COMMON OPTIONS", "Commands that connect to a running gateway or sidecar have these options too.",
        ]
        for argument in common { lines += Self.item(argument) }
        lines += Self.ending
        return lines.joined(separator: "\n") + "\n"
    }

    private func section(_ command: Command, _ parents: [String]) -> [String] {
        let path = parents + [command.commandName]
        let own = (command.arguments ?? []).filter { argument in
            argument.shouldDisplay && argument.names?.first?.name != "version"
                && !common.contains { $0.isSame(as: argument) }
        }
        var lines: [String] = []
        if command.shown.isEmpty {
            let values = own.filter { $0.kind == "positional" }.map(Self.usage)
            lines.append(".SS " + Self.quoted((path + values).joined(separator: " ")))
        } else {
            lines.append(".SS " + Self.quoted((path + ["COMMAND"]).joined(separator: " ")))
        }
        lines += Self.paragraphs(command.abstract ?? "")
        if let discussion = command.discussion, !discussion.isEmpty {
            lines += [".PP"] + Self.paragraphs(discussion)
        }
        if let standard = command.defaultSubcommand {
            lines += [".PP", Self.escaped("Without a command it is \((path + [standard]).joined(separator: " ")).")]
        }
        guard command.shown.isEmpty else {
            return lines + command.shown.flatMap { section($0, path) }
        }
        for argument in own where argument.abstract?.isEmpty == false { lines += Self.item(argument) }
        return lines
    }

    private static func usage(_ argument: Argument) -> String {
        let name = (argument.valueName ?? "value").uppercased() + (argument.isRepeating ? "..." : "")
        return argument.isOptional ? "[\(name)]" : name
    }

    /// One argument of a list.
    private static func item(_ argument: Argument) -> [String] {
        var term = (argument.names ?? []).map { name in
            #"\fB"# + escaped((name.kind == "long" ? "--" : "-") + name.name) + #"\fR"#
        }.joined(separator: ", ")
        let value = escaped((argument.valueName ?? "value").uppercased())
        switch argument.kind {
        case "positional": term = #"\fI"# + value + #"\fR"#
        case "option": term += #" \fI"# + value + #"\fR"#
        default: break
        }
        var text = argument.abstract ?? ""
        if argument.names?.contains(where: { $0.name == "data" }) == true {
            // The default differs from user to user.
            text +=
                argument.defaultValue == nil
                ? "" : " Default: PAWL_DATA, else that of the service or your own; see FILES."
        } else if let standard = argument.defaultValue {
            text += " Default: \(standard)."
        }
        return [".TP", term] + paragraphs(text)
    }

    /// The sections behind the commands: a heading, and terms with their texts.
    private static let chapters: [(heading: String, terms: [(String, String)])] = [
        (
            "EXIT STATUS",
            [
                ("0", "Done."), ("1", "Failed: the message has the reason, and its last line a code."),
                ("64", "Wrong command line."), ("69", "No gateway or sidecar runs there."),
                ("75", "The act must be confirmed: repeat the command with the token that was given."),
                ("76", "Another gateway has taken over the database of the store; pawl serve may be started again."),
                ("78", "Wrong configuration."),
            ]
        ),
        (
            "ENVIRONMENT",
            [
                ("PAWL_DATA", "The data directory, if --data is not given."),
                (
                    "PAWL_...",
                    "Each key of the configuration: PAWL_UPSTREAM_URL is upstream.url. Variables override the file."
                ),
                ("NOTIFY_SOCKET", "Where a service manager waits for the states of the process, see sd_notify(3)."),
                ("SWIFT_BACKTRACE", "What a crash report shows. By default neither registers nor memory."),
            ]
        ),
        (
            "SIGNALS",
            [
                ("SIGHUP", "Reads the configuration again; a wrong one is refused and the old one kept."),
                ("SIGTERM", "Stops the process. What can be sent is sent first, for up to 20 seconds."),
            ]
        ),
        (
            "FILES",
            [
                ("/etc/pawl/pawl.yaml", "The configuration of the system service."),
                ("/var/lib/pawl", "The data directory of the system service: the store, its key, the control socket."),
                ("~/.local/share/pawl", "The data directory of a sidecar of your own, if XDG_DATA_HOME is not set."),
            ]
        ),
    ]

    private static var ending: [String] {
        var lines: [String] = []
        for (heading, terms) in chapters {
            lines.append(".SH " + heading)
            for (term, text) in terms {
                lines.append(".TP")
                lines.append(#"\fB"# + escaped(term) + #"\fR"#)
                lines.append(escaped(text))
            }
        }
        return lines
    }

    // MARK: man(7)

    /// The lines of a text. An empty line begins a paragraph.
    private static func paragraphs(_ text: String) -> [String] {
        text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
            line.allSatisfy(\.isWhitespace) ? ".PP" : escaped(String(line))
        }
    }

    /// An argument of a macro.
    private static func quoted(_ text: String) -> String {
        "\"" + escaped(text).replacing("\"", with: #"\(dq"#) + "\""
    }

    /// Text that no formatter takes for a request, with hyphens that can be copied.
    private static func escaped(_ text: String) -> String {
        let escaped = text.replacing("\\", with: #"\e"#).replacing("-", with: #"\-"#)
        return escaped.hasPrefix(".") || escaped.hasPrefix("'") ? #"\&"# + escaped : escaped
    }
}
