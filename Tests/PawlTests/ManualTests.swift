import ArgumentParser
import Foundation
import PeerKit
import TestThreads
import Testing

@testable import pawl

/// The manual page and the completions, which are made of the commands.
@Suite(.blocking) struct ManualTests {
    private static func page() throws -> String { try ManualPage(Pawl._dumpHelp()).text(date: "2026-11-28") }

    @Test func everyCommandHasASection() throws {
        let page = try Self.page()
        func check(_ type: any ParsableCommand.Type, _ path: String) {
            let name = path + " " + type._commandName
            guard type.configuration.shouldDisplay else {
                #expect(!page.contains("\n.SS \"\(name)"), "\(name) is hidden")
                return
            }
            #expect(page.contains("\n.SS \"\(name)"), "\(name)")
            for subcommand in type.configuration.subcommands { check(subcommand, name) }
        }
        for type in Pawl.configuration.subcommands { check(type, "pawl") }
        #expect(page.contains(#".TP"# + "\n" + #"\fB\-\-policy\fR \fIPOLICY\fR"#))
        // Described once, and without the directory of this machine.
        #expect(page.components(separatedBy: #"\fB\-\-socket\fR"#).count == 2)
        #expect(!page.contains(CommonOptions.defaultData.replacing("-", with: #"\-"#) + ".\n"))
        #expect(try page == Self.page() && page.contains("2026-11-28"))
    }

    /// Scripts rely on these.
    @Test func everyExitStatusIsExplained() throws {
        let page = try Self.page()
        let all = [
            0, ExitStatus.failed, ExitStatus.usage, ExitStatus.noGateway, ExitStatus.needsConfirmation,
            ExitStatus.takenOver, ExitStatus.configuration,
        ]
        for status in all { #expect(page.contains(#"\fB\#(status)\fR"#), "\(status)") }
    }

    /// Nothing of a text is taken for a request of the formatter.
    @Test func linesAreTextOrKnownRequests() throws {
        let known: Set<Substring> = [".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", #".\""#]
        for line in try Self.page().split(separator: "\n") where line.hasPrefix(".") || line.hasPrefix("'") {
            #expect(known.contains(line.prefix { $0 != " " }), "\(line)")
        }
    }

    @Test func theFormatterHasNoComplaint() throws {
        let scratch = try ScratchDirectory()
        _ = try scratch.write("pawl.1", Self.page())
        let lint = try ChildProcess.run(
            "/usr/bin/env", ["mandoc", "-T", "lint", "-W", "warning", scratch.file("pawl.1")])
        #expect(lint.succeeded && lint.stdout.isEmpty, "\(lint.stdout)\(lint.stderr)")
        let shown = try ChildProcess.run("/usr/bin/env", ["mandoc", "-T", "ascii", scratch.file("pawl.1")]).stdout
        // Headings are struck twice, text is not.
        #expect(shown.contains("Wrong configuration.") && shown.contains("Reads the configuration again"))
    }

    /// A shell that is installed reads its script; bash always is.
    @Test(arguments: ["bash", "zsh", "fish"]) func completionsAreScripts(shell: String) throws {
        let script = Pawl.completionScript(for: try #require(CompletionShell(rawValue: shell)))
        for word in ["status", "sidecar", "queue", "json"] { #expect(script.contains(word), "\(shell): \(word)") }
        let program = "/usr/bin/\(shell)"
        guard FileManager.default.isExecutableFile(atPath: program) else { return }
        let scratch = try ScratchDirectory()
        _ = try scratch.write("completions", script)
        let checked = try ChildProcess.run(program, ["-n", scratch.file("completions")])
        #expect(checked.succeeded && checked.stderr.isEmpty, "\(shell): \(checked.stderr)")
    }
}
