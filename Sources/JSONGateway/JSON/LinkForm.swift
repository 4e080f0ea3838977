// Links that a backend has to see in a text, because it gives a file to those alone who receive a link to it.

import JSONCodec

/// How links of a sealed text stand beside the envelope.
package struct LinkForm: Sendable, Equatable {
    /// A piece of a text.
    enum Part: Equatable {
        case text(String)
        /// `[name](link)`.
        case link(name: String, link: String)
    }

    /// Ours: maximum links of one text. Each may cost the backend a lookup.
    static let limit = 64

    /// How such links begin: `/user_uploads/`.
    package var beginning: String
    /// What is written for each, with `{link}` in it.
    package var written: String

    package init(beginning: String, written: String) { (self.beginning, self.written) = (beginning, written) }

    /// The links in a text, each once and in their order, at most ``limit``.
    ///
    /// - Returns: nil if there are more.
    func links(in text: String) -> [String]? {
        let bytes = Array(text.utf8)
        let start = Array(beginning.utf8)
        var links: [String] = []
        var index = 0
        while index + start.count <= bytes.count {
            guard bytes[index...].starts(with: start) else {
                index += 1
                continue
            }
            var end = index + start.count
            while end < bytes.count, Self.isOfLink(bytes[end]) { end += 1 }
            var link = bytes[index..<end]
            // A sentence may end behind a link.
            while link.count > start.count, link.last == UInt8(ascii: ".") { link.removeLast() }
            let found = String(decoding: link, as: UTF8.self)
            if link.count > start.count, !links.contains(found) { links.append(found) }
            guard links.count <= Self.limit else { return nil }
            index = end
        }
        return links
    }

    /// What is written behind an envelope for the links of a text; nil if there are too many.
    func lines(for text: String) -> String? {
        links(in: text)?.map { "\n" + written.replacing("{link}", with: $0) }.joined()
    }

    /// Divides a text into links in Markdown and what is between them.
    func divided(_ text: String) -> [Part] {
        var parts: [Part] = []
        var rest = Substring(text)
        var plain = ""
        while let middle = rest.firstRange(of: "](" + beginning) {
            let before = rest[..<middle.lowerBound]
            let behind = rest[rest.index(middle.lowerBound, offsetBy: 2)...]
            let link = behind.prefix { $0.utf8.allSatisfy(Self.isOfLink) }
            let open = before.lastIndex(of: "[")
            guard let open, link.endIndex < behind.endIndex, behind[link.endIndex] == ")" else {
                plain += rest[..<link.endIndex]
                rest = rest[link.endIndex...]
                continue
            }
            plain += before[..<open]
            if !plain.isEmpty { parts.append(.text(plain)) }
            plain = ""
            parts.append(.link(name: String(before[before.index(after: open)...]), link: String(link)))
            rest = behind[behind.index(after: link.endIndex)...]
        }
        plain += rest
        if !plain.isEmpty { parts.append(.text(plain)) }
        return parts
    }

    /// Whether a byte can be in such a link. RFC 3986 section 2, without what ends links in texts.
    private static func isOfLink(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "."),
            UInt8(ascii: "~"), UInt8(ascii: "%"), UInt8(ascii: "/"):
            true
        default: false
        }
    }
}

extension FoundMessage {
    /// What stands beside the envelope of the links in the text; empty if nothing does, nil if there are too many.
    func links(in document: JSONDocument) -> String? {
        guard let form = shape.links, let text, let words = try? document.text(text) else { return "" }
        return form.lines(for: words)
    }
}
