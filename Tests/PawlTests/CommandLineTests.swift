import ArgumentParser
import Foundation
import Logging
import NIOSupport
import PeerKit
import StorePort
import TestKit
import Testing

@testable import pawl

/// What scripts and people get of the command line: JSON, codes, and the commands that were meant.
@Suite struct CommandLineTests {
    /// The commands without subcommands, by their words.
    private static func leaves(
        of type: any ParsableCommand.Type = Pawl.self, _ path: [String] = []
    ) -> [(words: [String], type: any ParsableCommand.Type)] {
        let subcommands = type.configuration.subcommands
        guard !subcommands.isEmpty else { return [(path, type)] }
        return subcommands.flatMap { leaves(of: $0, path + [$0._commandName]) }
    }

    /// The processes that run until they are stopped have a log, and its form is an option.
    private static let services = ["serve", "sidecar run"]

    @Test func everyCommandHasJSON() {
        let leaves = Self.leaves().filter { $0.type.configuration.shouldDisplay }
        #expect(leaves.count > 35)
        for (words, type) in leaves {
            let name = words.joined(separator: " ")
            let option = Self.services.contains(name) ? "log-format" : "json"
            let isThere = (try? Regex(#""name"\s*:\s*"\#(option)""#)).map { type._dumpHelp().contains($0) }
            #expect(isThere == true, "pawl \(name) has no --\(option)")
        }
    }

    @Test(arguments: [
        ("statsu", "pawl status"), ("user", "pawl users"), ("qeue", "pawl queue"), ("queue lst", "pawl queue list"),
        ("sidecar statsu", "pawl sidecar status"), ("sidecar protct #den", "pawl sidecar protect"),
        ("policy sett hosted", "pawl policy set"), ("repair", "pawl queue repair"), ("adopt bob", "pawl sidecar adopt"),
        ("show 7", "pawl queue show"), ("config chek pawl.yaml --json", "pawl config check"),
    ]) func theCommandThatWasMeantIsNamed(typed: String, meant: String) async throws {
        let words = typed.split(separator: " ").map(String.init)
        #expect(MistypedCommand.meant(words) == meant)
        do {
            _ = try Pawl.parseAsRoot(words)
            Issue.record("pawl \(typed) was parsed")
        } catch {
            let (report, text) = Failures.usage(
                words, message: Pawl.message(for: error), full: Pawl.fullMessage(for: error))
            #expect(report.hint == meant && report.exit == 64 && report.code == "wrong-usage")
            #expect(text.contains("'\(meant)'") && text.contains("Usage: "), "\(text)")
            #expect(!text.contains("--json'") && report.message.contains("'\(meant)'"), "\(text)")
        }
    }

    /// Nothing is like these, several commands are, or the command is right and its options are not.
    @Test(arguments: ["xyzzy", "list", "status --jsno", "queue", "--data x statsu", ""])
    func whatIsNotLikeACommandHasNoSuggestion(typed: String) {
        #expect(MistypedCommand.meant(typed.split(separator: " ").map(String.init)) == nil)
    }

    @Test func theHelpOfTheKnownPartIsNamed() {
        #expect(MistypedCommand.help(["queue", "drop", "x"]) == "pawl help queue drop")
        #expect(MistypedCommand.help([]) == "pawl help")
    }

    @Test func optionsHaveSuggestions() {
        #expect(throws: (any Error).self) { try Pawl.parseAsRoot(["status", "--jsno"]) }
        do {
            _ = try Pawl.parseAsRoot(["status", "--jsno"])
        } catch {
            #expect(Pawl.message(for: error).contains("--json"))
        }
    }

    @Test func aFailureIsOneLineOfJSON() throws {
        let report = Failures.Report(
            code: "no-store", message: "one\ntwo \u{9B}", hint: "--data DIR", exit: 1, confirmation: nil)
        let line = Failures.json(report)
        #expect(!line.contains("\n") && !line.contains("\u{9B}"))
        #expect(try JSONDecoder().decode(Failures.Line.self, from: Data(line.utf8)) == .init(error: report))
        let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        let members = try #require(object["error"] as? [String: Any])
        #expect(members.keys.sorted() == ["code", "exit", "hint", "message"])
        #expect(Failures.wantJSON(["status", "--json"]))
        #expect(!Failures.wantJSON(["backup", "--", "--json"]))
    }

    @Test func failuresPointOn() {
        #expect(FailureCode.hint(of: "no-such-request") == "pawl queue list")
        #expect(FailureCode.hint(of: "configuration-refused") == "pawl config keys")
        #expect(FailureCode.hint(of: "store-locked") == nil)
        // Each hint that is a command is one.
        for code in FailureCode.allCases {
            guard let hint = FailureCode.hint(of: code.rawValue), hint.hasPrefix("pawl ") else { continue }
            let words = hint.split(separator: " ").dropFirst().map(String.init)
            #expect(Self.leaves().contains { $0.words == words }, "\(hint)")
        }
        let locked = Failures.report(StoreError.locked("x"), exit: 1, after: "pawl does not start: ")
        #expect(locked.code == "store-locked" && locked.message.hasPrefix("pawl does not start: "))
        #expect(Failures.report(PeerError("x"), exit: 1).code == "failed")
    }

    /// Acts, which answer people with a sentence, answer scripts with an object.
    @Test func actsAnswerInJSON() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try AdminTests.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
        for words in [["version"], ["policy", "set", "hosted", "--yes"], ["devices", "unblock", "alice"], ["drain"]] {
            let answer = await AdminGrammar.perform(words + ["--json"], on: gateway)
            #expect(answer.exit == 0, "\(words): \(answer)")
            let object = try? JSONSerialization.jsonObject(with: Data(answer.out.utf8))
            #expect(object is [String: Any], "\(words): \(answer)")
        }
    }

    /// The socket of a gateway that was killed stays, and nothing answers there.
    @Test func theProgramShowsItsVersionWithoutAGateway() async throws {
        let scratch = try ScratchDirectory()
        _ = try scratch.write("pawl.sock", "")
        let command = try Pawl.parseAsRoot(["version", "--socket", scratch.file("pawl.sock")])
        let version = try #require(command as? Version)
        await #expect(throws: Never.self) { try await version.run() }
    }

    /// A question has a code, and scripts get its token as a member of its own.
    @Test func questionsHaveACode() throws {
        let scratch = try ScratchDirectory()
        let gateway = try AdminTests.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
        let answer = gateway.question("Really?", "words")
        #expect(answer.exit == 75 && answer.failure == .confirmationRequired)
        #expect(gateway.confirmations.accept(answer.confirmation, for: "words"))
    }

    @Test func mistypedPoliciesAndStates() async throws {
        let scratch = try ScratchDirectory()
        let gateway = try AdminTests.gateway(scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0")
        let policy = await AdminGrammar.perform(["policy", "set", "hosetd"], on: gateway)
        #expect(policy.failure == .noSuchPolicy && policy.error.contains("Did you mean hosted?"))
        let state = await AdminGrammar.perform(["queue", "list", "--state", "pendign"], on: gateway)
        #expect(state.failure == .noSuchState && state.error.contains("Did you mean pending?"))
    }

    // MARK: The log

    @Test func theLogAsJSON() throws {
        let lines = Shared<[String]>([])
        var logger = Logger(label: "pawl") { _ in
            JSONLogHandler(level: .info) { line in lines.withLock { $0.append(line) } }
        }
        logger[metadataKey: "part"] = "queue"
        logger.debug("not this")
        logger.notice("policy changed\nby \u{1B}[2J", metadata: ["scope": "everyone"])
        let text = try #require(lines.withLock { $0 }.first)
        #expect(lines.withLock { $0.count } == 1)
        #expect(!text.contains("\n") && !text.contains("\u{1B}"))
        let line = try JSONDecoder().decode(LogLine.self, from: Data(text.utf8))
        #expect(line.level == "notice" && line.message == "policy changed\nby \u{1B}[2J")
        #expect(line.fields == ["part": "queue", "scope": "everyone"])
        #expect(line.time.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil, "\(line.time)")
        let failure = LogLine("x", level: .critical, code: "store-locked", exit: 1, at: 0)
        #expect(failure.text.contains(#""code":"store-locked""#) && failure.text.contains(#""exit":1"#))
        #expect(failure.time.hasPrefix("1970-01-01T00:00:00.000"))
    }
}
