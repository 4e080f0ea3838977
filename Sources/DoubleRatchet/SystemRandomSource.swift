#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// The operating system's generator, for callers that choose it.
///
/// The library itself never uses it. Each ``fill(_:)`` asks the kernel once for each 256 bytes, by `getentropy` of
/// POSIX.1-2024: the standard library's generator asks once for each eight.
public struct SystemRandomSource: RandomSource, Sendable {
    /// What one call of `getentropy` gives at most, in bytes.
    private static let limit = 256

    /// Makes a source; it has no state.
    public init() {}

    /// Fills `bytes` from the operating system. The process ends if the system has no generator.
    public mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let part = UnsafeMutableRawBufferPointer(rebasing: rest.prefix(Self.limit))
            precondition(getentropy(part.baseAddress!, part.count) == 0, "the operating system gives no random bytes")
            rest = rest.dropFirst(part.count)
        }
    }
}
