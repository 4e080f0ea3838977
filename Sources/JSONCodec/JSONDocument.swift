// A JSON document as a view over the received bytes: the bytes stay in place, and an index of offsets is built beside
// them. The mapping of a backend, not this module, gives values their meaning.

package import NIOCore

/// A checked document: valid by RFC 8259, all of it UTF-8, within ``JSONLimits``.
///
/// RFC 8259 leaves two cases to the reader. Our rules:
///
/// - **Duplicate names in one object** (section 4): backends read such objects differently, so their meaning is
///   ambiguous. The document is accepted, ``hasDuplicateNames(_:)`` reports the object, and every path and edit that
///   touches it is refused. The rest of the document can be read and edited.
/// - **Half a surrogate pair as an escape**, `"\ud800"` (section 8.2): the document is accepted, because one message
///   cut in the middle of an emoji must not make a whole batch unreadable, and its bytes are not changed. The string
///   cannot be read (``JSONReadError/loneSurrogate``), because it has no valid text.
package struct JSONDocument: Sendable {
    /// The document that is indexed, including surrounding white space: as received, but for parsed strings.
    package let bytes: ByteBuffer
    let entries: [JSONEntry]
    /// The strings that ``parsing(_:limits:)`` has replaced, in order, an outer one before an inner one.
    var strings: [JSONParsedString] = []
    /// The bytes as received; nil if these are ``bytes``.
    var unparsedBytes: ByteBuffer?
    /// The fields of the form that was received; nil if it was a document.
    var fields: FormFields?

    /// Checks a document and indexes its values.
    ///
    /// - Throws: ``JSONError`` with the offset of the first invalid byte.
    package init(_ bytes: ByteBuffer, limits: JSONLimits = .standard) throws(JSONError) {
        let result = bytes.withUnsafeReadableBytes { raw -> Result<[JSONEntry], JSONError> in
            var scanner = JSONScanner(raw, limits)
            do throws(JSONError) {
                try scanner.scan()
                return .success(scanner.entries)
            } catch {
                return .failure(error)
            }
        }
        entries = try result.get()
        self.bytes = bytes
    }

    /// The outermost value.
    package var root: JSONPlace { JSONPlace(0, in: nil) }

    /// The number of values, not counting names of members.
    package var valueCount: Int { entries.count { $0.kind != .name } }

    /// Calls a closure with bytes and index.
    func withTable<Value>(_ body: (JSONTable) -> Value) -> Value {
        bytes.withUnsafeReadableBytes { body(JSONTable(bytes: $0, entries: entries)) }
    }
}

/// One value of a document. Valid for that document only. 8 bytes.
package struct JSONPlace: Hashable, Sendable {
    /// The index of its entry.
    let index: UInt32
    /// The index of the entry of the object or array that contains it.
    let parent: UInt32

    init(_ index: Int, in parent: JSONPlace?) {
        self.index = UInt32(truncatingIfNeeded: index)
        self.parent = parent?.index ?? JSONEntry.none
    }
}

/// The type of a value.
package enum JSONKind: Equatable, Sendable {
    case object, array, string, number, boolean, null

    /// The name shown to people.
    package var words: String {
        switch self {
        case .object: "an object"
        case .array: "an array"
        case .string: "a string"
        case .number: "a number"
        case .boolean: "true or false"
        case .null: "null"
        }
    }
}
