// IRCv3 message-tags: reading, unescaping and writing them.

import NIOCore

/// One tag of a line.
package struct IRCTag: Equatable, Sendable {
    /// The key with its `+` and vendor, as written.
    package let key: String
    /// The unescaped value; empty if there is none.
    package let value: String

    package init(key: String, value: String) {
        self.key = key
        self.value = value
    }

    /// Whether it is a client-only tag: servers only relay it.
    package var isClientOnly: Bool { key.utf8.first == UInt8(ascii: "+") }

    /// Whether it is a client-only tag whose key has only bytes that the specification allows in one.
    package var isValidClientOnly: Bool {
        isClientOnly && key.utf8.count > 1
            && key.utf8.dropFirst().allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
                case UInt8(ascii: "-")...UInt8(ascii: "9"): true  // Digits, and `-`, `.`, `/` of vendor and name.
                default: false
                }
            }
    }
}

extension IRCLine {
    /// All tags in their order; empty pieces are skipped, as the specification requires.
    package var tagList: [IRCTag] {
        guard !tags.isEmpty else { return [] }
        return string(tags).split(separator: ";", omittingEmptySubsequences: true).map { piece in
            guard let equals = piece.firstIndex(of: "=") else { return IRCTag(key: String(piece), value: "") }
            return IRCTag(
                key: String(piece[..<equals]), value: TagValue.unescape(piece[piece.index(after: equals)...]))
        }
    }

    /// The unescaped value of a tag; nil if there is none. The last one wins, as the specification requires.
    ///
    /// - Parameter key: in ASCII. It is compared as bytes; only a matching value is copied.
    package func tag(_ key: String) -> String? { tagSpan(key).map { TagValue.unescape(string($0)[...]) } }

    /// The span of a tag's escaped value; nil if there is none. The last one wins.
    package func tagSpan(_ key: String) -> ByteSpan? {
        guard !tags.isEmpty else { return nil }
        var key = key
        return key.withUTF8 { key in
            bytes.withUnsafeReadableBytes { raw in
                var found: ByteSpan?
                var start = Int(tags.start)
                let end = tags.range.upperBound
                while start < end {
                    var index = 0
                    while index < key.count, start + index < end, raw[start + index] == key[index] { index += 1 }
                    let isKey = index == key.count
                    var place = start + index
                    let value = place
                    while place < end, raw[place] != UInt8(ascii: ";") { place += 1 }
                    if isKey, value == place || raw[value] == UInt8(ascii: "=") {
                        found = ByteSpan(min(value + 1, place), place)
                    }
                    start = place + 1
                }
                return found
            }
        }
    }
}

/// The escaping of tag values (IRCv3 message-tags, "Escaping Values").
package enum TagValue {
    /// Replaces the escapes `\:` `\s` `\\` `\r` `\n`; drops a lone backslash.
    package static func unescape(_ text: Substring) -> String {
        guard text.utf8.contains(UInt8(ascii: "\\")) else { return String(text) }
        var result = ""
        var escaped = false
        for character in text.unicodeScalars {
            if escaped {
                switch character {
                case ":": result.unicodeScalars.append(";")
                case "s": result.unicodeScalars.append(" ")
                case "r": result.unicodeScalars.append("\r")
                case "n": result.unicodeScalars.append("\n")
                default: result.unicodeScalars.append(character)
                }
                escaped = false
            } else if character == "\\" {
                escaped = true
            } else {
                result.unicodeScalars.append(character)
            }
        }
        return result
    }

    /// The reverse of ``unescape(_:)``. NUL, which has no escape, is dropped.
    package static func escape(_ text: String) -> String {
        var result = ""
        for character in text.unicodeScalars {
            switch character {
            case ";": result += "\\:"
            case " ": result += "\\s"
            case "\\": result += "\\\\"
            case "\r": result += "\\r"
            case "\n": result += "\\n"
            case "\0": break
            default: result.unicodeScalars.append(character)
            }
        }
        return result
    }
}

extension ByteBuffer {
    /// Writes `@key=value;... `; writes no bytes if the list is empty.
    package mutating func writeTags(_ tags: [IRCTag]) {
        guard !tags.isEmpty else { return }
        var separator = "@"
        for tag in tags {
            writeString(separator)
            writeString(tag.key)
            if !tag.value.isEmpty {
                writeString("=")
                writeString(TagValue.escape(tag.value))
            }
            separator = ";"
        }
        writeString(" ")
    }
}
