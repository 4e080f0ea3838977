// Reads the body of a request as a document: JSON, or a form if the mapping allows forms of its kind.

package import HTTPCodec
package import JSONCodec
package import NIOCore

/// A form that the body of a request may have.
package enum BodyForm: String, Sendable, CaseIterable {
    case json
    /// `application/x-www-form-urlencoded`: the fields are members of an object, and their values are strings.
    case form
    /// `multipart/form-data`: as in a form, and no part is a file.
    case multipart
}

extension MessageShape {
    /// Reads the body of a request.
    ///
    /// The body is a form if the mapping allows forms and the fields of the head say so. Everything else is read as JSON,
    /// unless the fields say that it is a form and it has an ampersand: a program that reads it as a form would find
    /// other fields in it.
    ///
    /// - Throws: ``MessageFault`` if the body cannot be read in the same way by all programs.
    package func document(_ body: ByteBuffer, _ headers: HeaderFields) throws(MessageFault) -> JSONDocument {
        let document: JSONDocument
        if self.bodies.contains(.form), headers.describeForm {
            do throws(FormError) { document = try JSONDocument(form: body) } catch {
                throw .notAForm(at: error.offset)
            }
        } else if self.bodies.contains(.multipart), headers.describeParts {
            document = try Self.multipart(body, headers)
        } else {
            guard self.bodies.contains(.json), let json = try? JSONDocument(body) else { throw .noMessage }
            if let offset = headers.formSeparator(in: body) { throw .notAForm(at: offset) }
            document = json
        }
        guard let parsed = try? document.parsing(for: [self]) else { throw .noMessage }
        try parsed.refuseParsedTexts(of: self)
        return parsed
    }

    private static func multipart(_ body: ByteBuffer, _ headers: HeaderFields) throws(MessageFault) -> JSONDocument {
        guard let boundary = try? MultipartBoundary(headers) else { throw .notAForm(at: 0) }
        var reader = MultipartReader(boundary)
        body.withUnsafeReadableBytes { reader.append($0) }
        var parts: [FormPart] = []
        var content: [UInt8] = []
        var head: MultipartHead?
        do throws(MultipartFault) {
            while let piece = try reader.next() {
                switch piece {
                case .head(let next):
                    guard next.fileName == nil else { throw MultipartFault.head }
                    (head, content) = (next, [])
                case .bytes(let bytes): content += bytes
                case .end:
                    // A delimiter behind a bare line feed is one for some programs.
                    guard let head, head.holdsText, !boundary.isIn(content) else { throw MultipartFault.delimiter }
                    parts.append(FormPart(name: Array(head.name.utf8), value: content, head: head.received))
                case .over: break
                }
            }
            try reader.finish()
        } catch {
            throw .notAForm(at: reader.offset)
        }
        guard let document = try? JSONDocument(parts: parts, boundary: boundary.bytes, of: body) else {
            throw .notAForm(at: 0)
        }
        return document
    }

    /// Reads the texts of a form with files as a document, which is written as the rest of the form.
    package func document(_ texts: FormTexts) throws(MessageFault) -> JSONDocument {
        guard
            let document = try? JSONDocument(parts: texts.parts, boundary: texts.boundary.bytes, of: ByteBuffer()),
            let parsed = try? document.parsing(for: [self])
        else { throw .notAForm(at: 0) }
        try parsed.refuseParsedTexts(of: self)
        return parsed
    }
}

extension JSONDocument {
    /// Refuses a parsed string that holds a string alone: a program that does not parse it reads another text.
    fileprivate func refuseParsedTexts(of shape: MessageShape) throws(MessageFault) {
        for path in shape.parsed {
            let places = (try? places(path)) ?? []
            guard let text = places.first(where: { isParsed($0) && kind($0) == .string }) else { continue }
            throw .notADocument(path: path.text, at: range(text).lowerBound)
        }
    }
}

extension MultipartHead {
    /// Whether the part holds text in UTF-8. RFC 7578 section 4.4: text is the default.
    var holdsText: Bool {
        guard name != "_charset_" else { return false }
        guard let type else { return true }
        let parts = type.lowercased().split(separator: ";").map(\.trimmingSpaces)
        guard let first = parts.first, first == "application/json" || first.hasPrefix("text/") else { return false }
        return parts.dropFirst().allSatisfy { !$0.hasPrefix("charset=") || HeaderFields.utf8.contains($0) }
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

    /// Where a JSON body has an ampersand although a program may take it for a form, whatever else the fields say; nil if
    /// all programs find the same in it.
    func formSeparator(in body: ByteBuffer) -> Int? {
        guard self["Content-Type"].contains(where: { $0.lowercased().contains("application/x-www-form-urlencoded") })
        else { return nil }
        return body.readableBytesView.firstIndex(of: UInt8(ascii: "&")).map { $0 - body.readerIndex }
    }

    fileprivate static let utf8: Set<Substring> = ["charset=utf-8", "charset=\"utf-8\"", "charset=utf8"]
}

extension Substring {
    fileprivate var trimmingSpaces: Substring {
        let start = drop { $0 == " " || $0 == "\t" }
        let end = start.lastIndex { $0 != " " && $0 != "\t" }
        return end.map { start[...$0] } ?? ""
    }
}
