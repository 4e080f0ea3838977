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
    static let gateway = "[gateway]"

    /// End to end.
    package static let device = ProtectionMark(plain: "[e2e]", verified: "[e2e verified]")
}

extension Body {
    /// Puts a mark before the text; inside an action behind its verb. Other CTCP requests are for programs and stay.
    mutating func mark(_ mark: String) {
        guard kind == .text else { return }
        switch CTCP(text) {
        case .action: text = Array("\u{1}ACTION \(mark)".utf8) + text.dropFirst(7)
        case .other, .dcc: break
        case nil: text = Array((mark + " ").utf8) + text
        }
    }
}
