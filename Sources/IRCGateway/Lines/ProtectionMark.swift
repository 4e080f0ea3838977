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
        guard content.contains(UInt8(ascii: "[")) else { return false }
        return TextBeginning.all(of: content).contains { seen in
            let isLetter: (UInt8) -> Bool = { (0x61...0x7A).contains($0 | 0x20) }
            guard let start = seen.firstIndex(of: UInt8(ascii: "[")), !seen[..<start].contains(where: isLetter) else {
                return false
            }
            let words = String(decoding: seen[start...], as: UTF8.self).lowercased()
            return words.hasPrefix("[e2e") || words.hasPrefix(gateway)
        }
    }

    // MARK: Long texts

    /// The lines of a text behind heads of a length in bytes. Clients show each as a message of its own, so each has the
    /// text's mark.
    ///
    /// - Parameters:
    ///   - mark: nil if the text has none.
    ///   - isJoined: whether clients join the lines. Then a later one has the mark only if it would be taken for one.
    static func pieces(
        _ text: [UInt8], behind head: Int, _ mark: String?, isJoined: Bool = false
    ) -> [[UInt8]] {
        let room = max(IRCLimits.lineLength - 2 - head, leastRoom)
        let reserve = mark.map { $0.utf8.count + 1 } ?? 0
        let pieces = LineBreaker.pieces(text, room: room, reserve: reserve, keepsSpaces: isJoined)
        guard let mark, pieces.count > 1 else { return pieces }
        return pieces.enumerated().map { index, piece in
            guard index > 0, !isJoined || isImitated(by: piece) else { return piece }
            var body = Body(text: piece)
            body.mark(mark)
            return body.text
        }
    }

    /// Ours: the least room for a text behind long names, in bytes. Longer than a mark.
    private static let leastRoom = 64

    /// The mark of a text of a sidecar, from its stored lines. Only the sidecar itself begins a line with one.
    static func stored(in lines: [ArraySlice<UInt8>]) -> String {
        let isVerified = lines.contains { line in
            let text = line[head(of: line).endIndex...]
            let content = CTCP(text) == .action ? text.dropFirst(8) : text
            return content.starts(with: device.verified.utf8)
        }
        return isVerified ? device.verified : device.plain
    }

    /// A line up to its text, which is behind the first ` :`.
    static func head(of line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let colon = line.indices.dropFirst().first { line[$0] == UInt8(ascii: ":") && line[$0 - 1] == 0x20 }
        return line[..<(colon.map { $0 + 1 } ?? line.endIndex)]
    }
}

/// The beginning of a text as clients show it.
enum TextBeginning {
    /// Ours: bytes of a beginning. Marks are shorter.
    private static let length = 200

    /// The visible ASCII bytes at the beginning of a text, by clients that know no colours and by clients that do.
    static func all(of text: ArraySlice<UInt8>) -> [[UInt8]] {
        let plain = visible(text)
        guard text.contains(where: isColour) else { return [plain] }
        return [plain, visible(withoutColours(text)[...])]
    }

    private static func visible(_ text: ArraySlice<UInt8>) -> [UInt8] {
        Array(text.lazy.filter { (0x21...0x7E).contains($0) }.prefix(length))
    }

    private static func isColour(_ byte: UInt8) -> Bool { byte == 0x03 || byte == 0x04 }

    /// A text without its colours: 0x03 and up to two digits, or 0x04 and six hexadecimal digits, for the foreground, and
    /// as many behind a comma for the background.
    private static func withoutColours(_ text: ArraySlice<UInt8>) -> [UInt8] {
        var result: [UInt8] = []
        var rest = text
        while let byte = rest.popFirst() {
            guard isColour(byte) else {
                result.append(byte)
                continue
            }
            let foreground = digits(rest, of: byte)
            rest = rest.dropFirst(foreground)
            guard foreground > 0, rest.first == UInt8(ascii: ",") else { continue }
            let background = digits(rest.dropFirst(), of: byte)
            if background > 0 { rest = rest.dropFirst(1 + background) }
        }
        return result
    }

    /// The length of a colour's number at the beginning of a text.
    private static func digits(_ text: ArraySlice<UInt8>, of code: UInt8) -> Int {
        let limit = code == 0x03 ? 2 : 6
        let count = text.prefix(limit).prefix { byte in
            (0x30...0x39).contains(byte) || code == 0x04 && (0x61...0x66).contains(byte | 0x20)
        }.count
        return code == 0x03 || count == limit ? count : 0
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

    /// The lines for a client that shows each of them as a message of its own. Blank ones are left out. One that continues
    /// another has the mark of the text as well, and is no CTCP.
    func separateLines(mark: String?) -> [[UInt8]] {
        lines.compactMap { line in
            guard line.continues else { return line.text.isEmpty ? nil : line.text }
            var one = Body(text: Array(line.text.drop { $0 == 0x01 }))
            guard !one.text.isEmpty else { return nil }
            if let mark, !one.text.starts(with: mark.utf8) { one.mark(mark) }
            return one.text
        }
    }
}
