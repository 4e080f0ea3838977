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

    static func text(_ out: String) -> AdminAnswer { AdminAnswer(exit: 0, out: out, error: "") }

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
