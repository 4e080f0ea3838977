// Reads the body of a request as a document: JSON, or a form if the mapping allows forms.

package import HTTPCodec
package import JSONCodec
package import NIOCore

/// A form that the body of a request may have.
package enum BodyForm: String, Sendable, CaseIterable {
    case json
    /// `application/x-www-form-urlencoded`: the fields are members of an object, and their values are strings.
    case form
}

extension MessageShape {
    /// Reads the body of a request.
    ///
    /// The body is a form if the mapping allows forms and the fields of the head say so. Everything else is read as JSON.
    ///
    /// - Throws: ``MessageFault`` if the body cannot be read in the same way by all programs.
    package func document(_ body: ByteBuffer, _ headers: HeaderFields) throws(MessageFault) -> JSONDocument {
        let document: JSONDocument
        if bodies.contains(.form), headers.describeForm {
            do throws(FormError) { document = try JSONDocument(form: body) } catch {
                throw .notAForm(at: error.offset)
            }
        } else {
            guard bodies.contains(.json), let json = try? JSONDocument(body) else { throw .noMessage }
            document = json
        }
        guard let parsed = try? document.parsing(for: [self]) else { throw .noMessage }
        return parsed
    }
}

extension HeaderFields {
    /// Whether the fields describe a form in UTF-8. WHATWG URL section 5.
    fileprivate var describeForm: Bool {
        let types = self["Content-Type"]
        guard types.count == 1 else { return false }
        let parts = types[0].lowercased().split(separator: ";").map { $0.trimmingSpaces }
        return parts.first == "application/x-www-form-urlencoded"
            && parts.dropFirst().allSatisfy { !$0.hasPrefix("charset=") || Self.utf8.contains($0) }
    }

    private static let utf8: Set<Substring> = ["charset=utf-8", "charset=\"utf-8\"", "charset=utf8"]
}

extension Substring {
    fileprivate var trimmingSpaces: Substring {
        let start = drop { $0 == " " || $0 == "\t" }
        let end = start.lastIndex { $0 != " " && $0 != "\t" }
        return end.map { start[...$0] } ?? ""
    }
}
