/// One line as it came, without its line end, and the parts of it that tests ask for.
package struct IRCLine: Sendable, Equatable, CustomStringConvertible {
    package let bytes: [UInt8]

    package init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    package init(_ text: String) {
        bytes = Array(text.utf8)
    }

    /// Bytes that are not UTF-8 become replacement characters.
    package var text: String { String(decoding: bytes, as: UTF8.self) }
    package var description: String { text }

    /// Tags without a value have an empty one.
    package var tags: [String: String] {
        guard text.hasPrefix("@"), let end = text.firstIndex(of: " ") else { return [:] }
        var tags: [String: String] = [:]
        for tag in text[text.index(after: text.startIndex)..<end].split(separator: ";") {
            let parts = tag.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            tags[String(parts[0])] = parts.count > 1 ? Self.unescape(parts[1]) : ""
        }
        return tags
    }

    /// The line without its tags.
    package var untagged: String {
        guard text.hasPrefix("@"), let end = text.firstIndex(of: " ") else { return text }
        return String(text[end...].drop { $0 == " " })
    }

    /// Who said it, as `nick!user@host` or a server's name; empty when the line does not say.
    package var prefix: String {
        let line = untagged
        guard line.hasPrefix(":") else { return "" }
        return String(line.dropFirst().prefix { $0 != " " })
    }

    package var nick: String { String(prefix.prefix { $0 != "!" }) }
    package var command: String { words.first ?? "" }
    package var parameters: [String] { Array(words.dropFirst()) }

    /// The last parameter: the text of a message.
    package var body: String { parameters.last ?? "" }

    private var words: [String] {
        var rest = Substring(untagged)
        if rest.hasPrefix(":") {
            rest = rest.drop { $0 != " " }
        }
        var words: [String] = []
        while true {
            rest = rest.drop { $0 == " " }
            guard !rest.isEmpty else { return words }
            if rest.hasPrefix(":"), !words.isEmpty {
                words.append(String(rest.dropFirst()))
                return words
            }
            words.append(String(rest.prefix { $0 != " " }))
            rest = rest.drop { $0 != " " }
        }
    }

    private static func unescape(_ value: Substring) -> String {
        var result = ""
        var escaped = false
        for character in value {
            if escaped {
                escaped = false
                let replacements: [Character: Character] = [":": ";", "s": " ", "r": "\r", "n": "\n"]
                result.append(replacements[character] ?? character)
            } else if character == "\\" {
                escaped = true
            } else {
                result.append(character)
            }
        }
        return result
    }
}
