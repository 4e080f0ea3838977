/// The operating system's generator, for callers that choose it.
///
/// The library itself never uses it. It is a thin wrapper of the standard library's `SystemRandomNumberGenerator`
/// (`getrandom` on Linux).
public struct SystemRandomSource: RandomSource, Sendable {
    private var generator = SystemRandomNumberGenerator()

    /// Makes a source; it has no state.
    public init() {}

    /// Fills `bytes` from the operating system, eight at a time.
    public mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        var offset = 0
        while offset < bytes.count {
            withUnsafeBytes(of: generator.next()) { word in
                let length = min(word.count, bytes.count - offset)
                bytes[offset..<offset + length].copyBytes(from: word.prefix(length))
                offset += length
            }
        }
    }
}
