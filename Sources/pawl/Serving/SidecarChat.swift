// Commands that the person writes to `*pawl` in the chat client, as bouncers have it. They are those of `pawl sidecar`:
// the grammar of the command line executes them, and the answer is shown line by line.

import Foundation
import IRCGateway
import PawlConfiguration
import Protection

/// The commands that wait, from all connections of a sidecar.
final class SidecarChat: Sendable {
    /// Ours: commands that wait. A person types them, so that more are from a program that does not wait for answers.
    static let waitingLimit = 32

    private let (commands, continuation) = AsyncStream.makeStream(
        of: (ConnectionID, String).self, bufferingPolicy: .bufferingOldest(waitingLimit))

    /// Takes a command; returns whether it will be answered.
    func take(_ text: String, from connection: ConnectionID) -> Bool {
        if case .enqueued = continuation.yield((connection, text)) { true } else { false }
    }

    /// Answers commands, one after the other, until the task is cancelled.
    func run(_ sidecar: Sidecar) async {
        var chat = ChatCommands()
        for await (connection, text) in commands {
            let lines = await chat.answer(text, from: connection, sidecar)
            sidecar.front.send(.sidecar(.said(lines)), to: [connection])
        }
    }
}

/// Executes commands from a chat, with the questions that wait for a yes.
struct ChatCommands {
    /// Ours: lines of an answer. More would fill the window, and a shell shows all of them.
    static let lineLimit = 60
    /// Ours: connections whose questions are remembered; each question is valid for two minutes.
    private static let questionLimit = 100

    /// A command as a person writes it.
    private struct Entry {
        var name: String
        /// What follows the name.
        var parameters: String
        var meaning: String
        /// The words for the command line; nil if the parameters do not fit.
        var words: @Sendable ([String]) -> [String]?
    }

    /// The words of a question, with its token.
    private var questions: [ConnectionID: (words: [String], token: String)] = [:]

    private static let entries: [Entry] = [
        Entry(name: "status", parameters: "", meaning: "your devices, your rooms, and whose keys are known") {
            $0.isEmpty ? ["status"] : nil
        },
        Entry(name: "devices", parameters: "[NICK]", meaning: "your devices, or those of someone whose keys are known")
        {
            $0.count <= 1 ? ["devices"] + $0 : nil
        },
        Entry(name: "verify", parameters: "NICK", meaning: "the digits to compare with someone, by other means") {
            switch ($0.count, $0.last) {
            case (1, _): ["verify", $0[0], "--plain"]
            case (2, "matches"?): ["verify", $0[0], "--matches"]
            case (2, let card?) where card.hasPrefix("pawl:"): ["verify", $0[0], "--card", card]
            default: nil
            }
        },
        Entry(
            name: "verify", parameters: "NICK matches", meaning: "you have compared the digits, and they are the same"
        ) {
            _ in nil
        },
        Entry(name: "card", parameters: "", meaning: "your contact card, for others to scan") {
            $0.isEmpty ? ["card", "--plain"] : nil
        },
        Entry(name: "scan", parameters: "CARD [NICK]", meaning: "verify the person whose contact card you have") {
            (1...2).contains($0.count) ? ["scan"] + $0 : nil
        },
        Entry(name: "accept", parameters: "NICK", meaning: "accept the new keys of someone whose keys have changed") {
            switch ($0.count, $0.last) {
            case (1, _): ["accept", $0[0]]
            case (2, "known"?): ["accept", $0[0], "--known"]
            default: nil
            }
        },
        Entry(name: "forget", parameters: "NICK", meaning: "forget the keys of someone") {
            $0.count == 1 ? ["forget"] + $0 : nil
        },
        Entry(name: "plain", parameters: "NICK on|off", meaning: "allow or refuse plain text to and from someone") {
            switch ($0.count, $0.last?.lowercased()) {
            case (1, _), (2, "on"?): ["plain", $0[0]]
            case (2, "off"?): ["protect", $0[0]]
            default: nil
            }
        },
        Entry(name: "protect", parameters: "#ROOM", meaning: "keep a room encrypted whoever joins; back: plain #ROOM") {
            $0.count == 1 ? ["protect"] + $0 : nil
        },
        Entry(name: "adopt", parameters: "NICK", meaning: "add another device of yours; on that one: join") {
            $0.count == 1 ? ["adopt"] + $0 : nil
        },
        Entry(name: "join", parameters: "NICK", meaning: "let another device of yours add this one") {
            $0.count == 1 ? ["join"] + $0 : nil
        },
        Entry(name: "revoke", parameters: "DEVICE", meaning: "remove a lost device of yours") {
            $0.count == 1 ? ["revoke"] + $0 : nil
        },
    ]

    /// What all commands do, in lines.
    static var help: [String] {
        ["Commands to your sidecar; nothing that you write here leaves this machine:"]
            + entries.map { "  \($0.name)\($0.parameters.isEmpty ? "" : " \($0.parameters)"): \($0.meaning)" }
    }

    /// Executes a command.
    ///
    /// - Returns: the lines that answer it.
    mutating func answer(_ text: String, from connection: ConnectionID, _ sidecar: Sidecar) async -> [String] {
        let typed = Self.words(text)
        guard let name = typed.first?.lowercased() else { return Self.help }
        let question = questions.removeValue(forKey: connection)
        if name == "yes", typed.count == 1 {
            guard let question else { return ["There is no question to answer. Write help."] }
            return await perform(question.words + ["--confirm", question.token], for: connection, sidecar)
        }
        if name == "no", typed.count == 1 { return [question == nil ? "There is no question to answer." : "Not done."] }
        guard name != "help" else { return Self.help }
        let entries = Self.entries.filter { $0.name == name }
        guard let entry = entries.first else {
            let meant = NearestName.of(name, among: Self.entries.map(\.name))
            return [
                "There is no command \(Printable.line(name)).\(meant.map { " Did you mean \($0)?" } ?? "")"
            ] + Self.help
        }
        // No name begins with a hyphen, so that an option is no name.
        let parameters =
            typed.dropFirst().filter { !$0.hasPrefix("--") }
            + typed.dropFirst().filter { ["--matches", "--known"].contains($0) }.map { String($0.dropFirst(2)) }
        guard !parameters.contains(where: { $0.hasPrefix("-") || $0.isEmpty }), let words = entry.words(parameters)
        else {
            return entries.map { "Write: \($0.name) \($0.parameters)" }
        }
        return await perform(["sidecar"] + words, for: connection, sidecar)
    }

    private mutating func perform(
        _ words: [String], for connection: ConnectionID, _ sidecar: Sidecar
    ) async -> [String] {
        let answer = await AdminGrammar.perform(words, on: sidecar.gateway)
        var lines = Self.lines(of: answer)
        if let token = answer.confirmation {
            if questions.count >= Self.questionLimit { questions = [:] }
            questions[connection] = (words.filter { $0 != "--confirm" }, token)
            lines.append("To do it, answer: yes")
        }
        return lines
    }

    /// An answer as lines of a chat, with the commands in it as they are written there.
    static func lines(of answer: AdminAnswer) -> [String] {
        var text = [answer.out, answer.error].filter { !$0.isEmpty }.joined(separator: "\n")
        if let token = answer.confirmation { text = text.replacing(" To confirm, add: --confirm \(token)", with: "") }
        text = text.replacing("pawl sidecar ", with: "/msg \(ControlNick.name) ")
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        guard lines.count > lineLimit else { return lines }
        return lines.prefix(lineLimit) + ["There are \(lines.count - lineLimit) more lines. A shell shows all of them."]
    }

    /// The words of a line. Quotes around a word are removed, because texts for shells have them.
    static func words(_ text: String) -> [String] {
        var words = text.split(whereSeparator: \.isWhitespace).map { word in
            guard word.count > 1, let quote = word.first, "'\"".contains(quote), word.last == quote else {
                return String(word)
            }
            return String(word.dropFirst().dropLast())
        }
        // A command as texts show it was copied whole.
        for start in [["/msg", ControlNick.name], ["pawl", "sidecar"]] where words.starts(with: start) {
            words.removeFirst(start.count)
        }
        return words
    }
}

extension Gateway {
    /// Answers the commands that a sidecar's person writes in the chat; returns at once in front of a backend.
    func serveChat() async {
        guard case .sidecar(_, let front) = parts, let sidecar = try? sidecar() else { return }
        await front.chat.run(sidecar)
    }
}
