/// Seals states at rest: of sessions, records, prekeys and sender keys.
///
/// Each state is bound to its place, so that two cannot be exchanged, and has a counter, so that an older one can be
/// detected.
///
/// ```
/// 0   1             9          21
/// | 1 | counter u64 | nonce 12 | state under AES-256-GCM-SIV, tag 16 |
/// ```
/// The counter is big-endian. The version, the counter and the place are authenticated.
///
/// A state that goes back in time uses keys again, and nothing inside the state can detect that. So the caller counts
/// the writes of a state, keeps the count where it is not copied or restored along with the state, and passes it to
/// ``open(_:place:atLeast:into:)``.
public struct StateSealer: Sendable {
    /// The bytes that sealing adds to a state.
    public static let overhead = 1 + 8 + KeySize.nonce + KeySize.tag
    private static let version: UInt8 = 1
    private let key: SecretBytes

    /// - Parameter key: 32 bytes, used for nothing else; the caller wipes its own copy.
    public init(key: Span<UInt8>) {
        precondition(key.count == 32, "a key of AES-256 has 32 bytes")
        self.key = key.withUnsafeBytes { SecretBytes(copying: $0) }
    }

    /// Seals a state and appends it to `output`.
    ///
    /// - Parameters:
    ///   - state: the state to store, of any length.
    ///   - place: the unique name of the state's row among all rows under this key.
    ///   - counter: one more than the counter of the previous state.
    ///   - random: 12 bytes are taken. If the same bytes come a second time, as in a cloned machine, SIV discloses only
    ///     whether two states are equal.
    ///   - output: the sealed state is appended.
    public func seal(
        _ state: Span<UInt8>, place: [UInt8], counter: UInt64, random: inout some RandomSource,
        into output: inout [UInt8]
    ) {
        var head = [Self.version]
        head.append(networkOrder: counter)
        var nonce = [UInt8](repeating: 0, count: KeySize.nonce)
        nonce.withUnsafeMutableBytes { random.fill($0) }
        output += head + nonce
        state.withUnsafeBytes {
            Primitives.seal($0, key: key, nonce: nonce, authenticating: head + place, into: &output)
        }
    }

    /// Opens a sealed state and appends it to `output`. The caller wipes it with ``SecretBytes/wipe(_:)``.
    ///
    /// - Parameters:
    ///   - sealed: the stored bytes.
    ///   - place: the place that it was sealed for.
    ///   - expected: the counter of the newest state that is known to be stored.
    ///   - output: the state is appended.
    /// - Returns: the state's counter.
    /// - Throws: ``RatchetError/rolledBack`` if it is authentic but older than `expected`;
    ///   ``RatchetError/authenticationFailed`` if it was changed, or sealed for another place or under another key;
    ///   ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``. Then `output` is unchanged.
    public func open(
        _ sealed: Span<UInt8>, place: [UInt8], atLeast expected: UInt64, into output: inout [UInt8]
    ) throws(RatchetError) -> UInt64 {
        try sealed.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            guard try reader.byte() == Self.version else { throw .unsupportedVersion }
            let counter = try reader.uint64()
            let nonce = Array(try reader.take(KeySize.nonce))
            guard reader.rest.count >= KeySize.tag else { throw .malformed }
            let head = Array(bytes[..<9])
            let start = output.count
            try Primitives.open(reader.rest, key: key, nonce: nonce, authenticating: head + place, into: &output)
            guard counter >= expected else {
                output.withUnsafeMutableBytes {
                    SecretBytes.wipe(UnsafeMutableRawBufferPointer(rebasing: $0[start...]))
                }
                output.removeSubrange(start...)
                throw .rolledBack
            }
            return counter
        }
    }
}
