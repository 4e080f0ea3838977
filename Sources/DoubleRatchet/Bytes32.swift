/// 32 public bytes, inline: a public key or a hash. Comparing it takes four word comparisons and no allocation.
///
/// Never holds a secret; ``SecretBytes`` does.
package struct Bytes32: Hashable, Sendable {
    private let words: (UInt64, UInt64, UInt64, UInt64)

    package static let count = 32

    package init(_ bytes: UnsafeRawBufferPointer) {
        precondition(bytes.count == Self.count)
        words = (
            bytes.loadUnaligned(fromByteOffset: 0, as: UInt64.self),
            bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self),
            bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self),
            bytes.loadUnaligned(fromByteOffset: 24, as: UInt64.self)
        )
    }

    package init(_ bytes: [UInt8]) {
        self = bytes.withUnsafeBytes { Bytes32($0) }
    }

    package func withUnsafeBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try Swift.withUnsafeBytes(of: words, body)
    }

    package func append(to output: inout [UInt8]) {
        withUnsafeBytes { output.append(contentsOf: $0) }
    }

    package var array: [UInt8] {
        withUnsafeBytes { Array($0) }
    }

    /// The first eight bytes, as a short identifier of a key.
    package var prefix: UInt64 { UInt64(bigEndian: words.0) }

    package static func == (left: Bytes32, right: Bytes32) -> Bool {
        left.words.0 == right.words.0 && left.words.1 == right.words.1 && left.words.2 == right.words.2
            && left.words.3 == right.words.3
    }

    package func hash(into hasher: inout Hasher) {
        withUnsafeBytes { hasher.combine(bytes: $0) }
    }
}
