// Randomness is an argument, so that every run can be repeated.

/// Where random bytes come from.
public protocol RandomSource {
    /// Overwrites all bytes with random ones.
    mutating func fill(_ bytes: UnsafeMutableRawBufferPointer)
}

/// The system's generator. The caller chooses it; nothing in this library uses it by itself.
public struct SystemRandomSource: RandomSource, Sendable {
    private var generator = SystemRandomNumberGenerator()

    /// A source on the system's cryptographic generator.
    public init() {}

    /// Overwrites all bytes with random ones.
    public mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        var offset = 0
        while offset < bytes.count {
            var word = generator.next()
            for _ in 0..<min(8, bytes.count - offset) {
                bytes[offset] = UInt8(truncatingIfNeeded: word)
                word >>= 8
                offset += 1
            }
        }
    }
}

extension RandomSource {
    mutating func secret(_ count: Int) -> SecretBytes {
        var source = self
        defer { self = source }
        return SecretBytes(count: count) { source.fill($0) }
    }
}
