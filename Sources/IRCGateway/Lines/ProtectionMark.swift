// Marks that show people and bots that a message was protected end to end.

import Envelope
import IRCCodec

/// Where protection marks are placed.
package enum ProtectionMarks: String, Sendable, CaseIterable {
    /// Before the text, and as a tag for clients that support tags.
    case text
    /// As a tag only: `pawl/protection=device`.
    case tags
    /// No mark.
    case off

    /// The name of the tag that carries a message's protection.
    package static let tag = "pawl/protection"
}

/// The marks placed before a text.
package struct ProtectionMark: Sendable, Equatable {
    package var plain: String
    /// Used if the sender's safety number has been compared.
    package var verified: String

    /// The mark of a text that the front gateway protected.
    package static let gateway = "[gateway]"

    /// The marks of texts protected end to end.
    package static let device = ProtectionMark(plain: "[e2e]", verified: "[e2e verified]")

    /// Returns whether a text begins with what people would take for a mark. Formatting and other invisible bytes are
    /// ignored.
    package static func isImitated(by text: [UInt8]) -> Bool {
        let content = CTCP(text) == .action ? text.dropFirst(8) : text[...]
        let isLetter: (UInt8) -> Bool = { (0x61...0x7A).contains($0 | 0x20) }
        let seen = content.prefix(200).filter { (0x21...0x7E).contains($0) }
        guard let start = seen.firstIndex(of: UInt8(ascii: "[")), !seen[..<start].contains(where: isLetter) else {
            return false
        }
        let words = String(decoding: seen[start...], as: UTF8.self).lowercased()
        return words.hasPrefix("[e2e") || words.hasPrefix(gateway)
    }
}

extension Body {
    /// Inserts a mark before the text, or after the verb of an action. Other CTCP messages are for programs and stay
    /// unchanged.
    ///
    /// Of several lines each has one, because most clients show them as messages of their own. A line that continues
    /// another has one only if it would be taken for a mark itself.
    package mutating func mark(_ mark: String) {
        guard isText else { return }
        if kind == .lines {
            let marked = lines.map { line in
                let isDue = line.continues ? ProtectionMark.isImitated(by: line.text) : !line.text.isEmpty
                return isDue ? Line(text: Array((mark + " ").utf8) + line.text, continues: line.continues) : line
            }
            self = Body(lines: marked, tags: tags)
            return
        }
        switch CTCP(text) {
        case .action: text = Array("\u{1}ACTION \(mark)".utf8) + text.dropFirst(7)
        case .other, .dcc: break
        case nil: text = Array((mark + " ").utf8) + text
        }
    }
}
