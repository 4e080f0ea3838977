import ArgumentParser
import Foundation
import IRCGateway
import PeerKit
import Protection
import TestThreads
import Testing

@testable import pawl

/// What a person writes to `*pawl`, and the words that answer.
@Suite(.blocking) struct SidecarChatTests {
    private let scratch: ScratchDirectory
    private let sidecar: Sidecar
    private let connection = ConnectionID(1)

    init() throws {
        scratch = try ScratchDirectory()
        sidecar = try AdminTests.gateway(
            scratch, upstream: "irc://127.0.0.1:1", listen: "irc://127.0.0.1:0", as: .sidecar
        ).sidecar()
    }

    private func answer(_ text: String, _ chat: inout ChatCommands) async -> String {
        await chat.answer(text, from: connection, sidecar).joined(separator: "\n")
    }

    @Test func helpNamesEveryCommand() async {
        var chat = ChatCommands()
        for text in ["help", "HELP", "", "  "] {
            let help = await answer(text, &chat)
            for command in SidecarCommand.asking {
                #expect(help.contains("  \(command._commandName)"), "\(command._commandName)")
            }
        }
        let unknown = await answer("verfy bob", &chat)
        #expect(unknown.contains("Did you mean verify?") && unknown.contains("  status"))
        #expect(await answer("xyzzy \u{1B}[2J", &chat).contains("  status"))
    }

    @Test func reportsAndRefusalsAreThoseOfTheCommands() async {
        var chat = ChatCommands()
        #expect(await answer("status", &chat).contains("your devices"))
        #expect(await answer("/msg *pawl status", &chat).contains("your devices"))
        #expect(await answer("devices", &chat).contains("(this one)"))
        for text in [
            "verify bob", "verify bob matches", "verify bob --matches", "accept bob", "accept bob --known",
            "forget 'bob'",
            "adopt bob", "join bob", "devices bob",
        ] {
            let said = await answer(text, &chat)
            #expect(said.contains("No keys of bob are known") && said.contains("/msg *pawl status"), "\(text): \(said)")
        }
        #expect(await answer("scan pawl:contact?name=bob", &chat).contains("no contact card"))
        #expect(await answer("card", &chat).contains("Connect a client"))
        #expect(await answer("protect '#den'", &chat).contains("No client of this sidecar is in #den"))
    }

    /// No option of the command line gets through: it could name another directory or confirm something.
    @Test func optionsAreNotTaken() async {
        var chat = ChatCommands()
        for text in [
            "status --socket /x", "forget bob --confirm abc", "verify", "accept a b c", "plain bob maybe", "revoke -x",
        ] {
            #expect(await answer(text, &chat).hasPrefix("Write: "), "\(text)")
        }
    }

    @Test func plainTextToAPersonIsRefusedAndAllowed() async {
        var chat = ChatCommands()
        #expect(await answer("plain bob", &chat).contains("allowed already"))
        #expect(await answer("plain Bob off", &chat).contains("Nothing is sent to Bob in plain text"))
        #expect(sidecar.demandsProtection(of: "bob"))
        #expect(await answer("yes", &chat).contains("no question"))
        #expect(await answer("plain bob on", &chat).contains("answer: yes"))
        #expect(await answer("no", &chat) == "Not done.")
        #expect(await answer("yes", &chat).contains("no question"))
        // A question is answered by the next words, or not at all.
        let question = await answer("plain bob on", &chat)
        #expect(question.contains("answer: yes") && !question.contains("--confirm"))
        #expect(await answer("yes", &chat) == "Plain text to bob is allowed.")
        #expect(!sidecar.demandsProtection(of: "bob"))
        let log = await AdminGrammar.perform(["audit"], on: sidecar.gateway).out
        #expect(log.contains("protect bob") && log.contains("plain bob"))
    }

    @Test func longAnswersAreCut() {
        let lines = ChatCommands.lines(of: .text((1...100).map { "\($0)" }.joined(separator: "\n")))
        #expect(lines.count == ChatCommands.lineLimit + 1 && lines.last?.contains("40 more lines") == true)
    }

    @Test func wordsAreSplit() {
        #expect(ChatCommands.words("  verify\tbob ") == ["verify", "bob"])
        #expect(ChatCommands.words("pawl sidecar plain '#den'") == ["plain", "#den"])
        #expect(ChatCommands.words("'") == ["'"])
    }
}
