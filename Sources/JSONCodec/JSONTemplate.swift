// Recognises documents that are equal to an earlier one but for values that decide nothing. Most messages of a client are:
// only their text and a number differ. Comparing them costs less than indexing them.

import NIOCore

/// Documents that differ from one document in some of its scalar values alone.
///
/// A document that matches is valid, has the same index as the first one but for offsets, and each of its fixed values is
/// the same.
package struct JSONTemplate: Sendable {
    /// Ours: maximum bytes that are fixed, and values that are open.
    package static let fixedLimit = 512
    static let openLimit = 16
    /// Ours: maximum size of a document that is compared, in bytes.
    package static let sizeLimit = 1024

    private enum Value {
        /// A string without escapes.
        case string
        /// A string that is an id: ASCII, without white space and control characters, not empty.
        case name
        /// An integer without sign that fits in 64 bits.
        case number
    }

    /// All bytes but those of open values.
    private let fixed: [UInt8]
    /// The open values, each with the number of fixed bytes before it.
    private let open: [(offset: Int, value: Value)]

    /// Makes a template of a document.
    ///
    /// - Parameters:
    ///   - names: the names of members whose values are fixed. Those of array elements are in any case.
    ///   - ids: the names of members whose values have to stay ids of at most `idLimit` bytes, if they are strings.
    /// - Returns: nil if the document is too long, or was not received as it is.
    package init?(_ document: JSONDocument, fixed names: Set<[UInt8]>, ids: Set<[UInt8]>) {
        guard document.unparsedBytes == nil, document.fields == nil, document.bytes.readableBytes <= Self.sizeLimit
        else { return nil }
        var fixed: [UInt8] = []
        var open: [(offset: Int, value: Value)] = []
        document.withTable { table in
            var position = 0
            for index in table.entries.indices.dropFirst() where table.entries[index - 1].kind == .name {
                let (name, entry) = (table.entries[index - 1], table.entries[index])
                let text = Array(table.bytes[(name.range.lowerBound + 1)..<(name.range.upperBound - 1)])
                guard !name.hasEscapes, !names.contains(text) else { continue }
                var range = entry.range
                var value = Value.number
                if entry.kind == .string {
                    range = (range.lowerBound + 1)..<(range.upperBound - 1)
                    value = ids.contains(text) ? .name : .string
                } else if entry.kind != .number {
                    continue
                }
                guard Self.end(of: value, in: table.bytes, from: range.lowerBound) == range.upperBound else { continue }
                fixed += table.bytes[position..<range.lowerBound]
                open.append((fixed.count, value))
                position = range.upperBound
            }
            fixed += table.bytes[position...]
        }
        guard fixed.count <= Self.fixedLimit, open.count <= Self.openLimit else { return nil }
        (self.fixed, self.open) = (fixed, open)
    }

    /// Whether a document, as received, differs from the first in open values alone.
    package func matches(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard bytes.count <= Self.sizeLimit else { return false }
        return fixed.withUnsafeBytes { fixed in
            var (position, done) = (0, 0)
            for (offset, value) in open {
                guard Self.areSame(bytes, position, fixed, done..<offset),
                    let end = Self.end(of: value, in: bytes, from: position + offset - done)
                else { return false }
                (position, done) = (end, offset)
            }
            return bytes.count - position == fixed.count - done
                && Self.areSame(bytes, position, fixed, done..<fixed.count)
        }
    }

    private static func areSame(
        _ bytes: UnsafeRawBufferPointer, _ position: Int, _ fixed: UnsafeRawBufferPointer, _ range: Range<Int>
    ) -> Bool {
        guard bytes.count - position >= range.count else { return false }
        var (left, right) = (position, range.lowerBound)
        while right + 8 <= range.upperBound {
            guard
                bytes.loadUnaligned(fromByteOffset: left, as: UInt64.self)
                    == fixed.loadUnaligned(fromByteOffset: right, as: UInt64.self)
            else { return false }
            left += 8
            right += 8
        }
        while right < range.upperBound {
            guard bytes[left] == fixed[right] else { return false }
            left += 1
            right += 1
        }
        return true
    }

    /// The end of an open value; nil if there is none at the position. The byte behind it is fixed, so a value that goes
    /// on does not match.
    private static func end(of value: Value, in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        switch value {
        case .string: return endOfString(in: bytes, from: start)
        case .name:
            var position = start
            while position < bytes.count, 0x21..<0x7F ~= bytes[position], bytes[position] != UInt8(ascii: "\""),
                bytes[position] != UInt8(ascii: "\\")
            {
                position += 1
            }
            return 1...idLimit ~= position - start ? position : nil
        case .number:
            var position = start
            while position < bytes.count, UInt8(ascii: "0")...UInt8(ascii: "9") ~= bytes[position] { position += 1 }
            guard 1...18 ~= position - start, bytes[start] != UInt8(ascii: "0") || position - start == 1 else {
                return nil
            }
            return position
        }
    }

    /// Ours: maximum length of an id that matches, in bytes.
    private static let idLimit = 255

    private static func endOfString(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var position = JSONWord.skipPlain(bytes, from: start)
        var isASCII = true
        while position < bytes.count, bytes[position] != UInt8(ascii: "\"") {
            guard bytes[position] >= 0x20, bytes[position] != UInt8(ascii: "\\") else { return nil }
            if bytes[position] >= 0x80 { isASCII = false }
            position += 1
        }
        guard position < bytes.count else { return nil }
        let text = UnsafeRawBufferPointer(rebasing: bytes[start..<position])
        return isASCII || String(validating: text, as: UTF8.self) != nil ? position : nil
    }
}

extension JSONPath {
    /// The names of all members that decide where the path leads.
    ///
    /// - Parameter isLastOpen: whether the name of the last step is left out: its value is only taken.
    /// - Returns: nil if any member may.
    package func decidingNames(isLastOpen: Bool) -> Set<[UInt8]>? {
        var names: Set<[UInt8]> = []
        for (index, step) in steps.enumerated() {
            switch step {
            case .member(let name):
                if !isLastOpen || index < steps.count - 1 { names.insert(name.bytes) }
            case .condition(let conditions):
                for condition in conditions { names.formUnion(condition.names.map(\.bytes)) }
            case .everyMember: return nil
            case .element, .everyElement: break
            }
        }
        return names
    }

    /// The name of the last step; nil if it is no member.
    package var lastName: [UInt8]? {
        guard case .member(let name)? = steps.last else { return nil }
        return name.bytes
    }
}
