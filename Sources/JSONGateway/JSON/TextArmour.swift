// Envelopes in texts, for backends whose messages have no place for a flag: `?PAWL:BASE64.`, see `Armour`.
//
// A backend may turn the text into HTML: `<p>?PAWL:BASE64.</p>`. Then an opened text has to be HTML as well. It is
// escaped, because its sender wrote text: what the backend would make of it is not known here.

import Envelope
import JSONCodec
import NIOCore

/// The armour in a text.
struct TextArmour {
    /// Whether the text begins with the marker.
    private(set) var hasMarker = false
    /// The bytes behind the marker; nil if they are damaged, or there is no marker.
    private(set) var envelope: [UInt8]?
    /// Whether the text is HTML.
    private(set) var isHTML: Bool

    /// - Parameters:
    ///   - place: the text; nil if the message has none.
    ///   - isFollowed: whether more may stand behind the armour, as links do. It is not read.
    init(_ place: JSONPlace?, _ armour: EnvelopeArmour, isFollowed: Bool = false, in document: JSONDocument) {
        isHTML = armour == .html
        guard let place, let text = try? document.utf8(place) else { return }
        var plain = armour == .text ? text : Self.withoutElements(text)
        if armour == .detect { isHTML = text.first == UInt8(ascii: "<") }
        guard Armour.hasMarker(plain) else { return }
        hasMarker = true
        if isFollowed, let end = plain.firstIndex(of: UInt8(ascii: ".")) { plain.removeSubrange((end + 1)...) }
        if case .whole(let bytes)? = Armour.parse(plain[...]) { envelope = bytes }
    }

    /// A text without tags, references and the white space around it.
    private static func withoutElements(_ text: [UInt8]) -> [UInt8] {
        var plain: [UInt8] = []
        plain.reserveCapacity(text.count)
        var index = 0
        while index < text.count {
            switch text[index] {
            case UInt8(ascii: "<"):
                guard let end = text[index...].firstIndex(of: UInt8(ascii: ">")) else { return plain }
                index = end
            case UInt8(ascii: "&"):
                let name = text[(index + 1)...].prefix(6).prefix { $0 != UInt8(ascii: ";") }
                if let byte = references[String(decoding: name, as: UTF8.self).lowercased()] {
                    plain.append(byte)
                    index += name.count + 1
                } else {
                    plain.append(UInt8(ascii: "&"))
                }
            case let byte: plain.append(byte)
            }
            index += 1
        }
        let isSpace: (UInt8) -> Bool = { $0 <= 0x20 }
        return Array(plain.drop(while: isSpace).reversed().drop(while: isSpace).reversed())
    }

    /// Characters of armour that some programs write as references.
    private static let references: [String: UInt8] = [
        "#43": UInt8(ascii: "+"), "#x2b": UInt8(ascii: "+"), "#47": UInt8(ascii: "/"), "#x2f": UInt8(ascii: "/"),
        "#61": UInt8(ascii: "="), "#x3d": UInt8(ascii: "="), "#63": UInt8(ascii: "?"), "#x3f": UInt8(ascii: "?"),
    ]

    // MARK: HTML

    /// A sealed text as HTML.
    ///
    /// - Parameter links: the links that are shown as such; nil for none.
    static func html(_ text: JSONFragment, links: LinkForm?) throws(MessageFault) -> String {
        guard let document = try? JSONDocument(ByteBuffer(bytes: text.bytes)),
            let words = try? document.text(document.root)
        else { throw .malformedContent }
        let parts = (links?.divided(words) ?? [.text(words)]).map { part in
            switch part {
            case .text(let text): escaped(text)
            case .link(let name, let link): "<a href=\"\(escaped(link))\">\(escaped(name))</a>"
            }
        }
        return "<p>" + parts.joined() + "</p>"
    }

    /// A text as paragraphs of HTML.
    static func html(_ text: String) -> String { "<p>" + escaped(text) + "</p>" }

    private static func escaped(_ text: String) -> String {
        var html = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": html += "&amp;"
            case "<": html += "&lt;"
            case ">": html += "&gt;"
            case "\"": html += "&quot;"
            case "'": html += "&#39;"
            case "\n": html += "<br>\n"
            default: html.unicodeScalars.append(scalar)
            }
        }
        return html
    }

    /// HTML with words of the gateway before it.
    static func marked(_ text: String, _ words: String) -> String {
        let inner = String(html(words).dropLast("</p>".count))
        return text.hasPrefix("<p>") ? inner + text.dropFirst("<p>".count) : inner + "</p>\n" + text
    }
}
