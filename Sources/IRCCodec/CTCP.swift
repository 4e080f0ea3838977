// CTCP: a message whose text is `\x01COMMAND argument\x01` (the closing byte may be missing).

/// The kind of a CTCP text.
package enum CTCP: Equatable, Sendable {
    /// `/me`: a message that people read.
    case action
    /// Any request or reply but ACTION and DCC, with its command in upper case.
    case other(String)
    /// A request for a direct connection, which would bypass the gateway.
    case dcc

    /// Classifies the text of a PRIVMSG or NOTICE; nil if it is not CTCP.
    package init?(_ text: some Collection<UInt8>) {
        guard text.first == 0x01 else { return nil }
        let body = text.dropFirst().prefix { $0 != 0x20 && $0 != 0x01 }
        let command = String(decoding: body, as: UTF8.self).uppercased()
        switch command {
        case "ACTION": self = .action
        case "DCC", "XDCC": self = .dcc
        default: self = .other(command)
        }
    }
}
