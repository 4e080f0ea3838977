// Reading and writing fixed layouts. Numbers are big-endian.

/// Takes bytes from the front, and refuses where there are too few.
struct ByteReader {
    private let bytes: [UInt8]
    private(set) var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    init(_ span: Span<UInt8>) { bytes = span.array }

    var isAtEnd: Bool { position == bytes.count }

    /// Everything that was read so far.
    var consumed: [UInt8] { Array(bytes[..<position]) }

    var rest: ArraySlice<UInt8> { bytes[position...] }

    mutating func byte() throws(RatchetError) -> UInt8 {
        guard position < bytes.count else { throw .malformed }
        defer { position += 1 }
        return bytes[position]
    }

    mutating func take(_ count: Int) throws(RatchetError) -> [UInt8] {
        guard count >= 0, position + count <= bytes.count else { throw .malformed }
        defer { position += count }
        return Array(bytes[position..<(position + count)])
    }

    mutating func secret(_ count: Int) throws(RatchetError) -> SecretBytes {
        guard count >= 0, position + count <= bytes.count else { throw .malformed }
        defer { position += count }
        return SecretBytes(bytes[position..<(position + count)])
    }

    mutating func number() throws(RatchetError) -> UInt32 {
        try take(4).reduce(0) { $0 << 8 | UInt32($1) }
    }

    /// A number of seven bits a byte, least significant first, in its shortest form.
    mutating func varint() throws(RatchetError) -> UInt32 {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), through: 28, by: 7) {
            let byte = try byte()
            value |= UInt64(byte & 0x7F) << shift
            guard byte & 0x80 == 0 else { continue }
            guard value <= UInt64(UInt32.max), byte != 0 || shift == 0 else { throw .malformed }
            return UInt32(value)
        }
        throw .malformed
    }

    func finish() throws(RatchetError) {
        guard isAtEnd else { throw .malformed }
    }
}

extension [UInt8] {
    mutating func append(number: UInt32) {
        for shift in [24, 16, 8, 0] as [UInt32] { append(UInt8(truncatingIfNeeded: number >> shift)) }
    }

    mutating func append(varint: UInt32) {
        var value = varint
        while value >= 0x80 {
            append(UInt8(truncatingIfNeeded: value) | 0x80)
            value >>= 7
        }
        append(UInt8(value))
    }

    mutating func append(_ secret: SecretBytes) {
        secret.withUnsafeBytes { append(contentsOf: $0) }
    }
}

extension Span<UInt8> {
    var array: [UInt8] { withUnsafeBufferPointer { Array($0) } }
}
