/// The keys that make a device a receiver of a sender key: 73 bytes, including the secret chain key.
///
/// ```
/// 0         1            5               9              41
/// | version | key id u32 | iteration u32 | chain key 32 | Ed25519 signature key 32 |
/// ```
/// Version 1. All numbers are big-endian. It is sent to each member over a pairwise ``Session`` and nowhere else: that
/// session authenticates the sender, which the bytes do not name, and rejects copies. It opens every message of the key
/// from `iteration` on, and none before.
public struct SenderKeyDistribution: Sendable {
    /// The encoded length in bytes.
    public static let byteCount = 73
    private static let version: UInt8 = 1

    /// The sender key's random number, by which messages name it.
    public let id: UInt32
    /// The number of the first message that it opens, from 0.
    public let iteration: UInt32
    let chainKey: ChainKey
    let signatureKey: Bytes32

    init(id: UInt32, iteration: UInt32, chainKey: ChainKey, signatureKey: Bytes32) {
        self.id = id
        self.iteration = iteration
        self.chainKey = chainKey
        self.signatureKey = signatureKey
    }

    /// Reads the 73 bytes above, which the caller then wipes. Takes about 20 microseconds to check the signature key.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed`` for another length,
    ///   ``RatchetError/invalidKey`` for a signature key that is not canonical, not on the curve or of low order.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        self = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in
            guard try reader.byte() == Self.version else { throw .unsupportedVersion }
            let (id, iteration) = (try reader.uint32(), try reader.uint32())
            let chainKey = ChainKey(secret: try reader.secret(32))
            // Under a key of low order, one signature can be valid for many messages.
            let signatureKey = try IdentityKey(try reader.bytes32()).rawBytes
            return SenderKeyDistribution(
                id: id, iteration: iteration, chainKey: chainKey, signatureKey: signatureKey)
        }
    }

    /// Appends the 73 bytes above. The caller seals them and wipes the array with ``SecretBytes/wipe(_:)``.
    public func serialize(into output: inout [UInt8]) {
        output.append(Self.version)
        output.append(networkOrder: id)
        output.append(networkOrder: iteration)
        chainKey.secret.append(to: &output)
        signatureKey.append(to: &output)
    }
}
