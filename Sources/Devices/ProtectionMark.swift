// How people and bots see that a message came end to end.

import Envelope
import IRCCodec

/// Where the mark goes.
package enum ProtectionMarks: String, Sendable, CaseIterable {
    /// Before the text, and as a tag for clients that have tags.
    case text
    /// As a tag only: `pawl/protection=device`.
    case tags
    /// Nowhere.
    case off

    /// The tag that says the protection of a message.
    package static let tag = "pawl/protection"
}

/// What stands before a text.
package struct ProtectionMark: Sendable, Equatable {
    package var plain: String
    /// Where the sender's safety number has been compared.
    package var verified: String

    /// What stands before a text that was protected by the gateway in front.
    package static let gateway = "[gateway]"

    /// End to end.
    package static let device = ProtectionMark(plain: "[e2e]", verified: "[e2e verified]")

    /// Whether somebody has typed before a text what people would take for a mark; formatting and the like, which they
    /// do not see, is passed over.
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
    /// Puts a mark before the text; inside an action behind its verb. Other CTCP requests are for programs and stay.
    package mutating func mark(_ mark: String) {
        guard kind == .text else { return }
        switch CTCP(text) {
        case .action: text = Array("\u{1}ACTION \(mark)".utf8) + text.dropFirst(7)
        case .other, .dcc: break
        case nil: text = Array((mark + " ").utf8) + text
        }
    }
}
