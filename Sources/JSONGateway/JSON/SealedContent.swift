// What is sealed of a message: `{"body":"hello","formatted_body":"<b>hello</b>"}`. The names are the paths of the mapping
// as they are written there, the values are the bytes that the client wrote. The first one is the text.

package import JSONCodec
import NIOCore

/// The values of a message that only its readers are to see.
package struct SealedContent: Equatable, Sendable {
    /// Ours: values that are sealed besides the text. Putting them back compares each with each.
    package static let partLimit = 256

    /// By path, the text first.
    package let values: [(path: String, value: JSONFragment)]

    package static func == (left: Self, right: Self) -> Bool {
        left.values.elementsEqual(right.values) { $0 == $1 }
    }

    /// What of a message is to be sealed.
    package init(_ document: JSONDocument, _ message: FoundMessage) throws(MessageFault) {
        guard let text = message.text else { throw .noText(at: document.range(message.place).lowerBound) }
        values =
            [(message.shape.text.text, JSONFragment(document, text))]
            + message.also.map { ($0.path, JSONFragment(document, $0.place)) }
    }

    /// Reads what was sealed. It comes from one of our own, so anything else is a fault.
    package init(_ bytes: [UInt8]) throws(MessageFault) {
        guard let document = try? JSONDocument(ByteBuffer(bytes: bytes)), document.kind(document.root) == .object,
            !document.hasDuplicateNames(document.root), document.count(document.root) <= Self.partLimit + 1
        else { throw .malformedContent }
        var values: [(path: String, value: JSONFragment)] = []
        for place in document.children(document.root) {
            guard let name = try? document.name(place), !values.isEmpty || document.isText(place) else {
                throw .malformedContent
            }
            values.append((name, JSONFragment(document, place)))
        }
        guard !values.isEmpty else { throw .malformedContent }
        self.values = values
    }

    /// The bytes to be sealed.
    package var bytes: [UInt8] { JSONFragment.object(values.map { ($0.path, $0.value) }).bytes }
}
