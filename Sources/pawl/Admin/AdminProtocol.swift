// What goes over the control socket: one line of JSON with the words that an operator typed, one line back.

import Foundation

/// The words of one command.
struct AdminRequest: Codable, Sendable {
    var words: [String]
}

/// What the gateway answers.
struct AdminAnswer: Codable, Sendable {
    var exit: Int32
    /// For standard output.
    var out: String
    /// For standard error.
    var error: String
    /// What to send again with `--confirm` once a person has agreed.
    var confirmation: String?

    /// Escapes control characters of both texts: names in them come from chat users, and a terminal would obey.
    init(exit: Int32, out: String, error: String, confirmation: String? = nil) {
        self.exit = exit
        self.out = Printable.text(out)
        self.error = Printable.text(error)
        self.confirmation = confirmation
    }

    static func text(_ out: String) -> AdminAnswer { AdminAnswer(exit: 0, out: out, error: "") }

    /// Text with escape sequences of our own, as a coloured picture has them. The caller escapes what it takes from outside.
    static func picture(_ out: String) -> AdminAnswer {
        var answer = AdminAnswer.text("")
        answer.out = out
        return answer
    }

    static func failure(_ error: String, exit: Int32 = ExitStatus.failed) -> AdminAnswer {
        AdminAnswer(exit: exit, out: "", error: error)
    }

    /// A value as JSON with sorted keys, so that scripts can compare.
    static func json(_ value: some Encodable) throws -> AdminAnswer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return .text(String(decoding: try encoder.encode(value), as: UTF8.self))
    }
}

/// Texts for a terminal.
enum Printable {
    /// Ours: characters of a name in a column; the columns of a table with two such names fit on a wide terminal.
    static let nameLimit = 64

    /// A text in which control characters, except the line feed, and characters that reorder text are written as `\u001B`.
    /// JSON means the same afterwards: such characters stand inside its strings only.
    static func text(_ text: String) -> String { escaped(text) { $0 == "\n" } }

    /// A name or another text of one line, as part of a longer text.
    static func line(_ text: String) -> String { escaped(text) { _ in false } }

    private static func escaped(_ text: String, except isKept: (Unicode.Scalar) -> Bool) -> String {
        guard text.unicodeScalars.contains(where: { isHarmful($0) && !isKept($0) }) else { return text }
        var output = ""
        for scalar in text.unicodeScalars {
            guard isHarmful(scalar), !isKept(scalar) else {
                output.unicodeScalars.append(scalar)
                continue
            }
            for unit in UTF16.encode(scalar).map({ Array($0) }) ?? [] {
                let digits = String(unit, radix: 16, uppercase: true)
                output += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            }
        }
        return output
    }

    private static func isHarmful(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x20..<0x7F: false
        // Marks, embeddings and overrides of direction.
        case 0x061C, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
        default:
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: true
            default: false
            }
        }
    }
}
