// Values of a received WebSocket message in a message of the gateway's own: the number of the request that a refusal
// answers, or the place of a withheld event in the order of events.

package import JSONCodec
import NIOCore

/// Which values of one message stand where in another.
package struct CopiedValues: Sendable, Equatable {
    package struct Copy: Sendable, Equatable {
        /// In the message of the gateway, which has a value there that stays if nothing can be copied.
        package var target: JSONPath
        /// In the received message.
        package var source: JSONPath

        package init(_ target: JSONPath, from source: JSONPath) { (self.target, self.source) = (target, source) }
    }

    /// Ours: maximum length of a value, in bytes. Numbers and ids are short.
    package static let valueLimit = 256

    package var copies: [Copy]

    package init(_ copies: [Copy]) { self.copies = copies }

    /// Returns a message of the gateway with the values of a received one.
    ///
    /// Strings and numbers are copied as they are written. Other values, longer ones and ambiguous ones are not.
    ///
    /// - Parameter received: nil if it is not JSON.
    package func put(_ received: JSONDocument?, into text: String) -> String {
        guard let received, let document = try? JSONDocument(ByteBuffer(string: text)) else { return text }
        var edits = JSONEdits(document)
        for copy in copies {
            guard let value = value(copy.source, in: received), let place = try? document.one(copy.target) else {
                continue
            }
            edits.replace(place, with: value)
        }
        return (try? edits.apply()).map { String(buffer: $0) } ?? text
    }

    private func value(_ path: JSONPath, in document: JSONDocument) -> JSONFragment? {
        guard let found = try? document.places(path, limit: 2), found.count == 1, let place = found.first,
            document.kind(place) == .string || document.kind(place) == .number
        else { return nil }
        let value = JSONFragment(document, place)
        return value.bytes.count <= Self.valueLimit ? value : nil
    }
}

/// The WebSocket message that stands in place of one of the backend that the client must not see.
///
/// Clients that count the backend's messages would open a new WebSocket because of a missing one.
package struct WithheldForm: Sendable, Equatable {
    /// JSON, with `{reason}` and `{code}` in strings.
    package var frame: String
    package var kept: CopiedValues

    package init(frame: String, kept: CopiedValues) { (self.frame, self.kept) = (frame, kept) }

    func filled(_ code: String, _ words: String, for withheld: JSONDocument?) -> String {
        kept.put(withheld, into: RefusalForm.filled(frame, ["code": code, "reason": words]))
    }
}
