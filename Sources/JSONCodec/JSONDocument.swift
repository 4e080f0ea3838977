// A JSON document as a view over the bytes it came in: the bytes stay where they are, beside them lies an index of
// offsets. What a value means belongs to the mapping of a backend, not here.

package import NIOCore

/// A document that has been checked: valid by RFC 8259, all of it UTF-8, within ``JSONLimits``.
///
/// Two things RFC 8259 leaves to the reader. Our rules:
///
/// - **Names that stand twice in one object** (section 4): backends read such objects differently, so nobody can say what
///   one means. The document is taken, ``hasDuplicateNames(_:)`` tells, and every path and edit that touches such an
///   object is refused. Elsewhere in the document it passes untouched.
/// - **Half a surrogate pair as an escape**, `"\ud800"` (section 8.2): the document is taken, because one message cut in
///   the middle of an emoji must not make a whole batch unreadable, and the bytes pass untouched. Its text cannot be read
///   (``JSONReadError/loneSurrogate``), because there is no such text.
package struct JSONDocument: Sendable {
    /// The document as it came, white space around it included.
    package let bytes: ByteBuffer
    let entries: [JSONEntry]

    /// Checks a document and finds its values.
    ///
    /// - Throws: ``JSONError`` with the place of the first byte that is not right.
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

    /// How many values there are, names of members not counted.
    package var valueCount: Int { entries.count { $0.kind != .name } }

    /// Runs something on bytes and index.
    func withTable<Value>(_ body: (JSONTable) -> Value) -> Value {
        bytes.withUnsafeReadableBytes { body(JSONTable(bytes: $0, entries: entries)) }
    }
}

/// One value of a document. It means something for the document that it comes from, and for no other. 8 bytes.
package struct JSONPlace: Hashable, Sendable {
    /// Its entry.
    let index: UInt32
    /// The entry of the object or array around it.
    let parent: UInt32

    init(_ index: Int, in parent: JSONPlace?) {
        self.index = UInt32(truncatingIfNeeded: index)
        self.parent = parent?.index ?? JSONEntry.none
    }
}

/// What a value is.
package enum JSONKind: Equatable, Sendable {
    case object, array, string, number, boolean, null

    /// As a person says it.
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
