/// Another device's sender key, as distributed to us: opens that sender's messages to one group.
///
/// It does not contain its owner. The caller records the session that the distribution came over, and binds the sender
/// and the group as associated data. It keeps a receiver after a rotation for as long as messages under the old key may
/// still come. It must not replace one by an older distribution of the same key, which would open messages again.
///
/// It cannot be copied. The caller stores the state after ``decrypt(_:associatedData:into:)`` before the plaintext is
/// delivered. A function that throws changes nothing: neither the receiver nor the output array.
public struct SenderKeyReceiver: ~Copyable, Sendable {
    private static let stateVersion: UInt8 = 1

    /// The random number by which messages name this key. It is a hint: if the signature does not verify, another key
    /// may have the same number.
    public let id: UInt32
    private let signatureKey: Bytes32
    /// The number of the first message that the distribution opens.
    private let first: UInt32
    /// The number of the first message that is neither opened nor skipped.
    public private(set) var next: UInt32
    private var chainKey: ChainKey
    private var skipped: SkippedKeys

    /// The number of stored keys of skipped messages, at most ``RatchetLimits/maximumSkippedKeys``.
    public var skippedCount: Int { skipped.count }

    /// Makes a receiver that opens messages from `distribution.iteration` on.
    public init(_ distribution: SenderKeyDistribution) {
        self.init(
            id: distribution.id, signatureKey: distribution.signatureKey, first: distribution.iteration,
            next: distribution.iteration, chainKey: distribution.chainKey, skipped: SkippedKeys())
    }

    /// Opens `message` and appends its plaintext to `output`.
    ///
    /// The signature is verified first, so a forged message costs one signature check and no member can forge
    /// another's. A genuine message costs up to ``RatchetLimits/maximumSkip`` HMACs more. Keys of skipped messages are
    /// kept until those come; beyond ``RatchetLimits/maximumSkippedKeys`` the oldest are dropped.
    ///
    /// - Parameters:
    ///   - message: exactly one message; additional bytes make it a forgery.
    ///   - associatedData: the data that the sender bound.
    ///   - output: the plaintext is appended.
    /// - Returns: the number of skipped messages.
    /// - Throws: ``RatchetError/unknownSenderKey``, ``RatchetError/authenticationFailed``, ``RatchetError/duplicate``,
    ///   ``RatchetError/beforeDistribution``, ``RatchetError/tooFarAhead``, ``RatchetError/malformed``,
    ///   ``RatchetError/unsupportedVersion``, ``RatchetError/exhausted``.
    public mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Session.Received {
        try message.withUnsafeBytes { (bytes) throws(RatchetError) in
            let header = try SenderKeyMessage(bytes)
            guard header.keyID == id else { throw .unknownSenderKey }
            let unsigned = UnsafeRawBufferPointer(rebasing: bytes.dropLast(KeySize.signature))
            var signed = SenderKeyMessage.signed(unsigned, associatedData)
            defer { Scratch.giveBack(&signed) }
            let signature = UnsafeRawBufferPointer(rebasing: bytes.suffix(KeySize.signature))
            guard signed.withUnsafeBytes({ Primitives.verify(signature, of: $0, by: signatureKey) }) else {
                throw .authenticationFailed
            }
            let sealed = UnsafeRawBufferPointer(rebasing: unsigned.dropFirst(SenderKeyMessage.headerSize))
            var data = header.authenticated(signatureKey, associatedData)
            defer { Scratch.giveBack(&data) }
            return Session.Received(
                skipped: try receive(header.iteration, sealed, authenticating: data, into: &output))
        }
    }

    /// Opens a message, takes the step only if that succeeds, and returns the number of newly skipped messages.
    private mutating func receive(
        _ iteration: UInt32, _ sealed: UnsafeRawBufferPointer, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        guard iteration >= first else { throw .beforeDistribution }
        guard iteration >= next else {
            guard let index = skipped.index(of: signatureKey, number: iteration) else { throw .duplicate }
            let key = MessageKey(secret: SecretBytes(copying: skipped.messageKey(at: index)))
            try SenderMessageKey(key).open(sealed, authenticating: data, into: &output)
            skipped.remove(at: index)
            return 0
        }
        let gap = iteration - next
        guard gap <= RatchetLimits.maximumSkip else { throw .tooFarAhead }
        guard iteration < UInt32.max else { throw .exhausted }
        if gap == 0 {
            try SenderMessageKey(chainKey.messageKey).open(sealed, authenticating: data, into: &output)
            chainKey.advance()
            next += 1
            return 0
        }
        let key = chainKey.advanced(by: gap)
        try SenderMessageKey(key.messageKey).open(sealed, authenticating: data, into: &output)

        skipped.store(chain: chainKey, ratchetKey: signatureKey, from: next, to: iteration)
        chainKey = key.next
        next = iteration + 1
        return Int(gap)
    }

    // MARK: At rest

    /// Reads the output of ``serialize(into:)``. Keys were checked before they were stored, so the caller must protect
    /// the stored state against changes.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``, also for counts over the limits.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        self = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            let receiver = try Self.read(from: &reader)
            guard reader.rest.isEmpty else { throw .malformed }
            return receiver
        }
    }

    private init(
        id: UInt32, signatureKey: Bytes32, first: UInt32, next: UInt32, chainKey: ChainKey,
        skipped: consuming SkippedKeys
    ) {
        self.id = id
        self.signatureKey = signatureKey
        self.first = first
        self.next = next
        self.chainKey = chainKey
        self.skipped = skipped
    }

    /// Reads the output of ``serialize(into:)`` from the front of `reader`: it states its own length.
    package static func read(from reader: inout ByteReader) throws(RatchetError) -> SenderKeyReceiver {
        guard try reader.byte() == stateVersion else { throw .unsupportedVersion }
        let (id, first, next) = (try reader.uint32(), try reader.uint32(), try reader.uint32())
        let chainKey = ChainKey(secret: try reader.secret(32))
        let signatureKey = try reader.bytes32()
        let count = Int(try reader.uint16())
        // At most one skipped key for each message passed.
        guard first <= next, count <= min(RatchetLimits.maximumSkippedKeys, Int(next - first)) else {
            throw .malformed
        }
        let skipped = SkippedKeys(count: count, records: try reader.take(count * SkippedKeys.recordSize))
        return SenderKeyReceiver(
            id: id, signatureKey: signatureKey, first: first, next: next, chainKey: chainKey, skipped: skipped)
    }

    /// Appends the state, 79 bytes plus 68 for each skipped key. The caller seals it and wipes it with
    /// ``SecretBytes/wipe(_:)``.
    ///
    /// ```
    /// 0   1            5                   9               13             45                 77
    /// | 1 | key id u32 | first iteration u32 | next number u32 | chain key 32 | signature key 32 | count u16 | skipped keys |
    /// ```
    /// All numbers are big-endian. The skipped keys have 68 bytes each, oldest first, as drawn in `SkippedKeys`, with
    /// the signature key in place of a ratchet key.
    public borrowing func serialize(into output: inout [UInt8]) {
        // A growing array would leave a part of the keys in the memory that it frees.
        output.reserveCapacity(output.count + serializedSize)
        output.append(Self.stateVersion)
        output.append(networkOrder: id)
        output.append(networkOrder: first)
        output.append(networkOrder: next)
        chainKey.secret.append(to: &output)
        signatureKey.append(to: &output)
        output.append(networkOrder: UInt16(skipped.count))
        skipped.append(to: &output)
    }

    /// The bytes that ``serialize(into:)`` appends.
    package var serializedSize: Int { 79 + skipped.count * SkippedKeys.recordSize }
}
