// Values of statements in PostgreSQL's binary format, and the rows that come back. There are two types: numbers of eight
// bytes and byte strings, each alone or as an array. Names are byte strings too: PostgreSQL's texts cannot hold U+0000.

import CLibpq
import StorePort

/// A parameter of a statement.
///
///     number: 8 B, big-endian
///     array: dimensions (4 B: 0 if empty, else 1) | has nulls (4 B) | type of elements (4 B)
///         | count (4 B) | lower bound (4 B: 1) | each: length (4 B; -1 for null) | bytes
struct Parameter {
    /// The types, by PostgreSQL's object ids.
    enum Kind: UInt32 {
        case bytes = 17
        case number = 20
        case byteStrings = 1001
        case numbers = 1016

        /// As it is written in a statement.
        var name: String {
            switch self {
            case .bytes: "bytea"
            case .number: "int8"
            case .byteStrings: "bytea[]"
            case .numbers: "int8[]"
            }
        }
    }

    let kind: Kind
    let value: [UInt8]

    static func number(_ number: Int64) -> Parameter { Parameter(kind: .number, value: big(number)) }
    static func number(_ number: UInt64) -> Parameter { .number(Int64(bitPattern: number)) }
    static func bytes(_ bytes: [UInt8]) -> Parameter { Parameter(kind: .bytes, value: bytes) }

    static func numbers(_ numbers: some Collection<Int64>) -> Parameter {
        var value = header(.number, count: numbers.count, hasNulls: false, bytes: numbers.count * 8)
        for number in numbers {
            value += big(Int32(8))
            value += big(number)
        }
        return Parameter(kind: .numbers, value: value)
    }

    /// Numbers above `Int64.max` keep their bits.
    static func numbers(_ numbers: some Collection<UInt64>) -> Parameter {
        .numbers(numbers.map { Int64(bitPattern: $0) })
    }

    static func numbers(_ numbers: some Collection<Int64?>) -> Parameter {
        array(.number, .numbers, numbers.map { $0.map { big($0) } })
    }

    static func byteStrings(_ strings: some Collection<[UInt8]>) -> Parameter {
        array(.bytes, .byteStrings, strings.map { Optional($0) })
    }

    static func byteStrings(_ strings: some Collection<[UInt8]?>) -> Parameter {
        array(.bytes, .byteStrings, Array(strings))
    }

    private static func array(_ element: Kind, _ kind: Kind, _ elements: [[UInt8]?]) -> Parameter {
        let size = elements.reduce(0) { $0 + ($1?.count ?? 0) }
        let hasNulls = elements.contains { $0 == nil }
        var value = header(element, count: elements.count, hasNulls: hasNulls, bytes: size)
        for element in elements {
            value += big(element.map { Int32($0.count) } ?? -1)
            if let element { value += element }
        }
        return Parameter(kind: kind, value: value)
    }

    private static func header(_ element: Kind, count: Int, hasNulls: Bool, bytes: Int) -> [UInt8] {
        var value: [UInt8] = []
        value.reserveCapacity(20 + count * 4 + bytes)
        value += big(Int32(count == 0 ? 0 : 1))
        value += big(Int32(hasNulls ? 1 : 0))
        value += big(Int32(element.rawValue))
        guard count > 0 else { return value }
        value += big(Int32(count))
        value += big(Int32(1))
        return value
    }

    private static func big<Number: FixedWidthInteger>(_ number: Number) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { Array($0) }
    }
}

/// The rows that a statement has returned, in the binary format. All columns are numbers or byte strings.
final class Rows {
    private let result: OpaquePointer
    let count: Int

    /// Takes over a result, and releases it at the end.
    init(_ result: OpaquePointer) { (self.result, count) = (result, Int(PQntuples(result))) }

    deinit { PQclear(result) }

    func isNull(_ row: Int, _ column: Int32) -> Bool { PQgetisnull(result, Int32(row), column) != 0 }

    /// Zero for a value that is not a number, which the statements of this driver do not return.
    func number(_ row: Int, _ column: Int32) -> Int64 {
        guard let address = PQgetvalue(result, Int32(row), column), PQgetlength(result, Int32(row), column) == 8 else {
            return 0
        }
        return Int64(bigEndian: UnsafeRawPointer(address).loadUnaligned(as: Int64.self))
    }

    func identifier(_ row: Int, _ column: Int32) -> UInt64 { UInt64(bitPattern: number(row, column)) }
    /// A count, clamped to 0 through 2^40, so that the sum of all rows cannot overflow.
    func count(_ row: Int, _ column: Int32) -> Int { Int(min(max(number(row, column), 0), 1 << 40)) }

    func optionalNumber(_ row: Int, _ column: Int32) -> Int64? {
        isNull(row, column) ? nil : number(row, column)
    }

    func bytes(_ row: Int, _ column: Int32) -> [UInt8] {
        guard let address = PQgetvalue(result, Int32(row), column) else { return [] }
        let count = Int(PQgetlength(result, Int32(row), column))
        return Array(UnsafeRawBufferPointer(start: address, count: count))
    }

    func text(_ row: Int, _ column: Int32) -> String { String(decoding: bytes(row, column), as: UTF8.self) }

    func optionalText(_ row: Int, _ column: Int32) -> String? { isNull(row, column) ? nil : text(row, column) }

    func map<Value, Failure: Error>(_ value: (RowView) throws(Failure) -> Value) throws(Failure) -> [Value] {
        var values: [Value] = []
        values.reserveCapacity(count)
        for row in 0..<count { values.append(try value(RowView(rows: self, row: row))) }
        return values
    }
}

/// One row.
struct RowView {
    let rows: Rows
    let row: Int

    func number(_ column: Int32) -> Int64 { rows.number(row, column) }
    func identifier(_ column: Int32) -> UInt64 { rows.identifier(row, column) }
    func count(_ column: Int32) -> Int { rows.count(row, column) }
    func optionalNumber(_ column: Int32) -> Int64? { rows.optionalNumber(row, column) }
    func bytes(_ column: Int32) -> [UInt8] { rows.bytes(row, column) }
    func text(_ column: Int32) -> String { rows.text(row, column) }
    func optionalText(_ column: Int32) -> String? { rows.optionalText(row, column) }
}
