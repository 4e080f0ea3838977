// What the admin service reads and writes, as JSON: the words of a command and its answer, and a subscription to the
// status with its events.

import Foundation

/// The words of one command.
struct AdminRequest: Codable, Sendable {
    var words: [String]
}

/// The answer of the gateway.
struct AdminAnswer: Codable, Sendable, Equatable {
    var exit: Int32
    /// For standard output.
    var out: String
    /// For standard error.
    var error: String
    /// The code of the failure; nil if there is none, or if the gateway is older than this program.
    var code: String?
    /// The token to send with `--confirm` after the operator has agreed.
    var confirmation: String?

    /// Escapes control characters in both texts: chat users choose the names in them, and a terminal would execute them.
    init(exit: Int32, out: String, error: String, code: String? = nil, confirmation: String? = nil) {
        self.exit = exit
        self.out = Printable.text(out)
        self.error = Printable.text(error)
        self.code = code
        self.confirmation = confirmation
    }

    static func text(_ out: String) -> AdminAnswer { AdminAnswer(exit: 0, out: out, error: "") }

    /// Text with escape sequences of our own, such as a coloured QR code. The caller escapes text from outside.
    static func picture(_ out: String) -> AdminAnswer {
        var answer = AdminAnswer.text("")
        answer.out = out
        return answer
    }

    static func failure(_ failure: AdminFailure, exit: Int32 = ExitStatus.failed) -> AdminAnswer {
        AdminAnswer(exit: exit, out: "", error: failure.message, code: failure.code)
    }

    /// The outcome of an act, as JSON if scripts asked for it.
    private struct Outcome: Encodable {
        var done = true
        var text: String
    }

    /// The answer to an act that was done.
    ///
    /// - Parameter json: whether scripts read it.
    static func done(_ text: String, json: Bool) throws -> AdminAnswer {
        json ? try .json(Outcome(text: text)) : .text(text)
    }

    /// A value as JSON with sorted keys, so that scripts can compare outputs.
    static func json(_ value: some Encodable) throws -> AdminAnswer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return .text(String(decoding: try encoder.encode(value), as: UTF8.self))
    }
}

/// A subscription to the status.
struct AdminSubscription: Codable, Sendable {
    /// Ours: a day, in seconds. Longer pauses are of no use, and clocks do not accept all numbers.
    static let intervals = 0.1...86_400.0
    /// The same in words.
    static let intervalText = "from 0.1 to 86400 seconds"

    /// Whether the reports are JSON.
    var json: Bool
    /// Seconds between two looks at the counters.
    var every: Double
}

/// An event of a subscription.
enum AdminEvent: Codable, Sendable, Equatable {
    /// The status, which differs from the last one.
    case status(answer: AdminAnswer)
    /// The status was looked at, and is the last one.
    case unchanged
    /// The last event: why there are no more.
    case ended(answer: AdminAnswer)
}

/// Texts for a terminal.
enum Printable {
    /// Ours: longest name in a column, in characters. A table with two such names fits on a wide terminal.
    static let nameLimit = 64

    /// Escapes control characters, except the line feed, and characters that reorder text, as `\u001B`.
    ///
    /// JSON keeps its meaning, because it has such characters inside strings only.
    static func text(_ text: String) -> String { escaped(text) { $0 == "\n" } }

    /// Escapes a name or another text of one line for a longer text. Line feeds are escaped too.
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
