import DoubleRatchet

/// The bytes of one Protocol Buffers message, checked as a whole before any field is read.
///
/// Supports only what the OMEMO messages use: fields 1 to 6 as unsigned 32-bit numbers or byte strings. Unknown fields
/// are skipped, as the format requires; a known field that occurs twice is rejected, because two readers could choose
/// differently. Nothing is copied: the bytes stay in place, so a MAC is over exactly what was sent.
struct ProtobufMessage {
    private var values: (Value?, Value?, Value?, Value?, Value?, Value?)
    private static let lastKnownField: UInt64 = 6

    private enum Value {
        case number(UInt64)
        case bytes(UnsafeRawBufferPointer)
        case other
    }

    /// - Throws: ``RatchetError/malformed`` for a field that is cut off, has number 0 or a group's wire type, or occurs
    ///   twice.
    init(_ bytes: UnsafeRawBufferPointer) throws(RatchetError) {
        var reader = ByteReader(bytes)
        while !reader.rest.isEmpty {
            let (field, value) = try Self.next(&reader)
            guard field <= Self.lastKnownField else { continue }
            guard find(field) == nil else { throw .malformed }
            switch field {
            case 1: values.0 = value
            case 2: values.1 = value
            case 3: values.2 = value
            case 4: values.3 = value
            case 5: values.4 = value
            default: values.5 = value
            }
        }
    }

    /// The number in `field`.
    ///
    /// - Throws: ``RatchetError/malformed`` if there is none or it needs more than 32 bits.
    package func number(_ field: UInt64) throws(RatchetError) -> UInt32 {
        guard let number = try optionalNumber(field) else { throw .malformed }
        return number
    }

    /// The number in `field`; nil if the field is absent.
    ///
    /// - Throws: ``RatchetError/malformed`` if the field is no number or needs more than 32 bits.
    package func optionalNumber(_ field: UInt64) throws(RatchetError) -> UInt32? {
        guard let value = find(field) else { return nil }
        guard case .number(let number) = value, let number = UInt32(exactly: number) else { throw .malformed }
        return number
    }

    /// The byte string in `field`.
    ///
    /// - Throws: ``RatchetError/malformed`` if there is none.
    package func bytes(_ field: UInt64) throws(RatchetError) -> UnsafeRawBufferPointer {
        guard case .bytes(let bytes) = find(field) else { throw .malformed }
        return bytes
    }

    private func find(_ field: UInt64) -> Value? {
        switch field {
        case 1: values.0
        case 2: values.1
        case 3: values.2
        case 4: values.3
        case 5: values.4
        default: values.5
        }
    }

    private static func next(_ reader: inout ByteReader) throws(RatchetError) -> (field: UInt64, value: Value) {
        let tag = try varint(&reader)
        let field = tag >> 3
        guard field > 0, tag <= UInt32.max else { throw .malformed }
        switch tag & 7 {
        case 0: return (field, .number(try varint(&reader)))
        case 1:
            _ = try reader.take(8)
            return (field, .other)
        case 2:
            guard let length = Int(exactly: try varint(&reader)) else { throw .malformed }
            return (field, .bytes(try reader.take(length)))
        case 5:
            _ = try reader.take(4)
            return (field, .other)
        default: throw .malformed
        }
    }

    /// At most ten bytes. Unlike in this library's own forms, longer encodings than the shortest are allowed.
    private static func varint(_ reader: inout ByteReader) throws(RatchetError) -> UInt64 {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), to: 70, by: 7) {
            let next = try reader.byte()
            guard shift < 63 || next <= 1 else { throw .malformed }
            value |= UInt64(next & 0x7F) << shift
            if next & 0x80 == 0 { return value }
        }
        throw .malformed
    }
}

extension [UInt8] {
    /// Appends a number as field `field`, below 16.
    mutating func append(protobuf field: UInt8, number: UInt32) {
        append(field << 3)
        append(varint: number)
    }

    /// Appends a byte string as field `field`, below 16.
    mutating func append(protobuf field: UInt8, bytes: some Collection<UInt8>) {
        append(protobuf: field, byteCount: bytes.count)
        append(contentsOf: bytes)
    }

    /// Appends the tag and length that precede the `byteCount` bytes of a byte string.
    mutating func append(protobuf field: UInt8, byteCount: Int) {
        append(field << 3 | 2)
        append(varint: UInt32(byteCount))
    }
}
