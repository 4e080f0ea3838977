package import NIOCore

/// Why a string cannot be read as text.
package enum JSONReadError: Error, Equatable, Sendable {
    /// It is not a string.
    case notAString
    /// It contains the escape of half a surrogate pair; see ``JSONDocument``.
    case loneSurrogate
}

extension JSONDocument {
    package func kind(_ place: JSONPlace) -> JSONKind {
        switch entries[Int(place.index)].kind {
        case .object: .object
        case .array: .array
        case .string, .name: .string
        case .number: .number
        case .true, .false: .boolean
        case .null: .null
        }
    }

    /// The value's range, in bytes from the beginning of the document. A string's range includes its quotes.
    package func range(_ place: JSONPlace) -> Range<Int> { entries[Int(place.index)].range }

    /// The value's bytes, as a slice of the document.
    package func slice(_ place: JSONPlace) -> ByteBuffer {
        let range = range(place)
        return bytes.getSlice(at: bytes.readerIndex + range.lowerBound, length: range.count) ?? ByteBuffer()
    }

    // MARK: Scalars

    /// The unescaped bytes of a string; always UTF-8.
    package func utf8(_ place: JSONPlace) throws(JSONReadError) -> [UInt8] {
        let entry = entries[Int(place.index)]
        guard entry.kind == .string else { throw .notAString }
        guard !entry.hasLoneSurrogate else { throw .loneSurrogate }
        return withTable { table in unescaped(entry, table) }
    }

    /// Whether the value is a string that can be read.
    package func isText(_ place: JSONPlace) -> Bool {
        let entry = entries[Int(place.index)]
        return entry.kind == .string && !entry.hasLoneSurrogate
    }

    /// The unescaped text of a string.
    package func text(_ place: JSONPlace) throws(JSONReadError) -> String {
        let entry = entries[Int(place.index)]
        guard entry.kind == .string else { throw .notAString }
        guard !entry.hasLoneSurrogate else { throw .loneSurrogate }
        return withTable { text(entry, $0) }
    }

    /// Whether the value is a string that equals `text` after unescaping. Nothing is copied.
    package func hasText(_ text: String, _ place: JSONPlace) -> Bool {
        let entry = entries[Int(place.index)]
        guard entry.kind == .string else { return false }
        return withTable { $0.text(entry).elementsEqual(text.utf8) }
    }

    /// A number as written, so that the caller chooses the type; nil if the value is not a number.
    package func numberText(_ place: JSONPlace) -> String? {
        let entry = entries[Int(place.index)]
        guard entry.kind == .number else { return nil }
        return withTable { String(decoding: $0.bytes[entry.range], as: UTF8.self) }
    }

    /// A number as an integer, however it is written (`12`, `12.0`, `1.2e1`); nil if it is not whole or does not fit.
    package func integer(_ place: JSONPlace) -> Int? {
        let entry = entries[Int(place.index)]
        guard entry.kind == .number else { return nil }
        return withTable { JSONDecimal($0.bytes[entry.range]).integer }
    }

    package func boolean(_ place: JSONPlace) -> Bool? {
        switch entries[Int(place.index)].kind {
        case .true: true
        case .false: false
        default: nil
        }
    }

    package func isNull(_ place: JSONPlace) -> Bool { entries[Int(place.index)].kind == .null }

    // MARK: Containers

    /// The number of members or elements; 0 if the value is neither object nor array.
    package func count(_ place: JSONPlace) -> Int { entries[Int(place.index)].count }

    /// The values in an object or array, in order; empty for other values.
    package func children(_ place: JSONPlace) -> JSONChildren { JSONChildren(entries, place) }

    /// The value of a member, the first if the name is duplicate. See ``hasDuplicateNames(_:)``.
    package func member(_ name: String, of place: JSONPlace) -> JSONPlace? {
        withTable { $0.member(JSONName(Array(name.utf8)), of: place) }
    }

    /// Whether a value is a direct member or element of a container.
    package func isMember(_ place: JSONPlace, of container: JSONPlace) -> Bool { place.parent == container.index }

    /// Whether a value is an element of an array.
    package func isElement(_ place: JSONPlace) -> Bool {
        place.parent != JSONEntry.none && entries[Int(place.parent)].kind == .array
    }

    /// The name of a value that is a member of an object; nil for other values.
    package func name(_ place: JSONPlace) throws(JSONReadError) -> String? {
        guard place.parent != JSONEntry.none, entries[Int(place.parent)].kind == .object else { return nil }
        let entry = entries[Int(place.index) - 1]
        guard !entry.hasLoneSurrogate else { throw .loneSurrogate }
        return withTable { text(entry, $0) }
    }

    /// Whether an object has two members with the same name after unescaping.
    package func hasDuplicateNames(_ place: JSONPlace) -> Bool { entries[Int(place.index)].hasDuplicateNames }

    /// Whether any object of the document has duplicate names.
    package var hasDuplicateNames: Bool { entries.contains { $0.hasDuplicateNames } }

    private func text(_ entry: JSONEntry, _ table: JSONTable) -> String {
        guard !entry.hasEscapes else { return String(decoding: unescaped(entry, table), as: UTF8.self) }
        let range = (entry.range.lowerBound + 1)..<(entry.range.upperBound - 1)
        return String(decoding: UnsafeRawBufferPointer(rebasing: table.bytes[range]), as: UTF8.self)
    }

    private func unescaped(_ entry: JSONEntry, _ table: JSONTable) -> [UInt8] {
        guard entry.hasEscapes else {
            return Array(table.bytes[(entry.range.lowerBound + 1)..<(entry.range.upperBound - 1)])
        }
        var output: [UInt8] = []
        output.reserveCapacity(entry.range.count)
        for byte in table.text(entry) { output.append(byte) }
        return output
    }
}
