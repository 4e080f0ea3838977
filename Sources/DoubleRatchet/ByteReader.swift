/// Reads the fixed binary forms of this library from front to back. Every read is bounds-checked.
package struct ByteReader {
    package private(set) var rest: UnsafeRawBufferPointer

    package init(_ bytes: UnsafeRawBufferPointer) {
        rest = bytes
    }

    /// Reads a value that must fill all of `bytes`.
    package static func readAll<Value>(
        _ bytes: Span<UInt8>, _ read: (inout ByteReader) throws(RatchetError) -> Value
    ) throws(RatchetError) -> Value {
        try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            let value = try read(&reader)
            guard reader.rest.isEmpty else { throw .malformed }
            return value
        }
    }

    package mutating func take(_ count: Int) throws(RatchetError) -> UnsafeRawBufferPointer {
        guard count <= rest.count else { throw .malformed }
        let taken = UnsafeRawBufferPointer(rebasing: rest.prefix(count))
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
        return taken
    }

    package mutating func byte() throws(RatchetError) -> UInt8 {
        try take(1)[0]
    }

    package mutating func uint16() throws(RatchetError) -> UInt16 {
        UInt16(bigEndian: try take(2).loadUnaligned(as: UInt16.self))
    }

    package mutating func uint32() throws(RatchetError) -> UInt32 {
        UInt32(bigEndian: try take(4).loadUnaligned(as: UInt32.self))
    }

    package mutating func uint64() throws(RatchetError) -> UInt64 {
        UInt64(bigEndian: try take(8).loadUnaligned(as: UInt64.self))
    }

    package mutating func bytes32() throws(RatchetError) -> Bytes32 {
        Bytes32(try take(Bytes32.count))
    }

    package mutating func secret(_ count: Int) throws(RatchetError) -> SecretBytes {
        SecretBytes(copying: try take(count))
    }

    /// LEB128, least significant group first, at most five bytes, shortest form only.
    package mutating func varint() throws(RatchetError) -> UInt32 {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), to: 35, by: 7) {
            let next = try byte()
            value |= UInt64(next & 0x7F) << shift
            if next & 0x80 == 0 {
                guard next != 0 || shift == 0, value <= UInt32.max else { throw .malformed }
                return UInt32(value)
            }
        }
        throw .malformed
    }
}

extension [UInt8] {
    package mutating func append(networkOrder value: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: value.bigEndian) { append(contentsOf: $0) }
    }

    package mutating func append(varint value: UInt32) {
        var value = value
        while value >= 0x80 {
            append(UInt8(truncatingIfNeeded: value) | 0x80)
            value >>= 7
        }
        append(UInt8(value))
    }
}
