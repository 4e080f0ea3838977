// How the program reports a failure: as text, or as an object for scripts (`--json`).

import ArgumentParser
import Foundation

/// Writes failures to standard error: the text with the code in a line of its own, or one line of JSON.
enum Failures {
    /// A failure as scripts read it. The names of its members never change.
    struct Report: Codable, Equatable {
        /// See ``FailureCode``; `failed` if the failure has none of its own.
        var code: String
        /// What happened and what to do, in words.
        var message: String
        /// A command or an option to go on with.
        var hint: String?
        var exit: Int32
        /// The token for `--confirm`, with exit code 75.
        var confirmation: String?
    }

    /// The line that is written.
    struct Line: Codable, Equatable {
        var error: Report
    }

    /// Whether words ask for JSON.
    static func wantJSON(_ words: some Sequence<String>) -> Bool {
        words.prefix { $0 != "--" }.contains("--json")
    }

    private static var wantsJSON: Bool { wantJSON(CommandLine.arguments.dropFirst()) }

    /// Writes a failure as the command line asks.
    ///
    /// - Returns: the exit code, to be thrown.
    static func write(_ report: Report, text: String? = nil) -> ExitCode {
        let line = wantsJSON ? json(report) : "\(text ?? report.message)\ncode: \(report.code)"
        FileHandle.standardError.write(Data("\(line)\n".utf8))
        return ExitCode(report.exit)
    }

    /// The line of a failure as JSON.
    static func json(_ report: Report) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and numbers can always be encoded.
        return (try? encoder.encode(Line(error: report))).map { Printable.line(String(decoding: $0, as: UTF8.self)) }
            ?? "{}"
    }

    /// Writes an error that ends the program.
    static func write(_ error: any Error, exit: Int32 = ExitStatus.failed, after prefix: String = "") -> ExitCode {
        write(report(error, exit: exit, after: prefix))
    }

    static func report(_ error: any Error, exit: Int32, after prefix: String = "") -> Report {
        let code = FailureCode.of(error) ?? FailureCode.failed.rawValue
        return Report(
            code: code, message: prefix + Assembly.message(of: error), hint: FailureCode.hint(of: code), exit: exit)
    }

    /// Writes the failure of an answer of the gateway.
    static func write(_ answer: AdminAnswer) -> ExitCode {
        let code = answer.code ?? FailureCode.failed.rawValue
        let hint = answer.confirmation.map { "--confirm \($0)" } ?? FailureCode.hint(of: code)
        return write(
            Report(
                code: code, message: answer.error, hint: hint, exit: answer.exit, confirmation: answer.confirmation))
    }

    // MARK: The command line

    /// Ends the program after a command has failed, or has asked for a text such as the help.
    static func end(_ error: any Error, _ words: [String]) -> Never {
        let code = Pawl.exitCode(for: error)
        // What failed with an exit code alone has been reported.
        if code.isSuccess || error is ExitCode { Pawl.exit(withError: error) }
        guard code == .validationFailure else { Pawl.exit(withError: write(error)) }
        let usage = usage(words, message: Pawl.message(for: error), full: Pawl.fullMessage(for: error))
        Pawl.exit(withError: write(usage.report, text: usage.text))
    }

    /// A wrong command line, with the command that was probably meant.
    ///
    /// - Parameters:
    ///   - message: what is wrong.
    ///   - full: the same with the usage of the command.
    static func usage(_ words: [String], message: String, full: String) -> (report: Report, text: String) {
        let meant = MistypedCommand.meant(words)
        let message = Printable.text(message)
        var better = message
        if let meant, let typed = MistypedCommand.unknown(words) {
            // Not the parser's words: it complains of the options behind the mistyped command too.
            better = "There is no command '\(Printable.line(typed))' here. Did you mean '\(meant)'?"
        }
        let report = Report(
            code: FailureCode.wrongUsage.rawValue, message: better, hint: meant ?? MistypedCommand.help(words),
            exit: ExitStatus.usage)
        return (report, Printable.text(full).replacing(message, with: better, maxReplacements: 1))
    }
}
