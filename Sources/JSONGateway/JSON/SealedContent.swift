// The sealed content of a message: `{"body":"hello","formatted_body":"<b>hello</b>"}`. The names are paths as written
// in the mapping, the values are the client's bytes. The first one is the text.
//
// Content of a kind names it in a last member: `{"topic":"hello","?kind":"topics"}`. No path of a mapping is written so.
//
// Opened values are put back only at paths that the mapping names, and what the backend has put there meanwhile is
// removed. With `keep` everything else in the content is sealed, so that a field that the mapping does not name is not
// left in the clear.

package import JSONCodec
import NIOCore
package import Protection

/// The values of a message that are sealed for its readers.
package struct SealedContent: Equatable, Sendable {
    /// Ours: maximum sealed values besides the text, because opening compares each with each.
    package static let partLimit = 256
    private static let kindName = "?kind"

    /// The values with their paths, the text first, or null in its place if the message has none.
    package let values: [(path: String, value: JSONFragment)]
    /// The kind as which it was sealed; nil if it is a message of people, or an earlier version has sealed it.
    package let kind: ContentKind?

    package static func == (left: Self, right: Self) -> Bool {
        left.kind == right.kind && left.values.elementsEqual(right.values) { $0 == $1 }
    }

    /// Collects the values of a message to seal.
    package init(_ document: JSONDocument, _ message: FoundMessage) throws(MessageFault) {
        values =
            [(message.shape.text.text, try Self.text(document, message))]
            + message.also.map { ($0.path, JSONFragment(document, $0.place)) }
        kind = message.shape.kind
    }

    /// Whether it may be shown as content of a kind: what was sealed as a message is no topic, and the reverse.
    func isOf(_ kind: ContentKind?, text path: JSONPath) -> Bool {
        if self.kind != nil || kind == nil { return self.kind == kind }
        // Earlier versions have not named the kind.
        return kind != .custom && values.first?.path == path.text
    }

    /// The text with the texts that are lines of it; null if there is none and the shape allows that.
    private static func text(_ document: JSONDocument, _ message: FoundMessage) throws(MessageFault) -> JSONFragment {
        let offset = document.range(message.place).lowerBound
        guard !message.joined.isEmpty else {
            if let text = message.text { return JSONFragment(document, text) }
            guard message.shape.textIsOptional else { throw .noText(at: offset) }
            return .null
        }
        var lines: [String] = []
        for place in [message.text].compactMap(\.self) + message.joined {
            guard let line = try? document.text(place) else { throw .loneSurrogate(at: offset) }
            if !line.isEmpty { lines.append(line) }
        }
        return .string(lines.joined(separator: "\n"))
    }

    /// Parses opened content. Throws ``MessageFault/malformedContent`` if a gateway cannot have sealed it.
    package init(_ bytes: [UInt8]) throws(MessageFault) {
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)), document.kind(document.root) == .object,
            !document.hasDuplicateNames(document.root), document.count(document.root) <= Self.partLimit + 2
        else { throw .malformedContent }
        var values: [(path: String, value: JSONFragment)] = []
        var kind: ContentKind?
        for place in document.children(document.root) {
            guard let name = try? document.name(place) else { throw .malformedContent }
            if name == Self.kindName {
                guard let named = (try? document.text(place)).flatMap(ContentKind.init) else { throw .malformedContent }
                kind = named
                continue
            }
            guard
                !values.isEmpty || document.isText(place) || document.isNull(place)
            else {
                throw .malformedContent
            }
            values.append((name, JSONFragment(document, place)))
        }
        guard !values.isEmpty, values.count <= Self.partLimit + 1 else { throw .malformedContent }
        (self.values, self.kind) = (values, kind)
    }

    /// The bytes to seal.
    package var bytes: [UInt8] {
        let named = kind.map { [(Self.kindName, JSONFragment.string($0.rawValue))] } ?? []
        return JSONFragment.object(values.map { ($0.path, $0.value) } + named).bytes
    }
}
