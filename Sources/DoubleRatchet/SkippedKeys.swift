/// The keys of messages that have not come yet (Double Ratchet, section 3.2: `MKSKIPPED`), bounded, oldest first.
///
/// Records of 68 bytes, in the form of the stored state:
///
/// ```
/// 0                    32             36             68
/// | ratchet public key | number u32   | message key  |
/// ```
/// An `OMEMORatchet` stores them by ratchet key, a ``SenderKeyReceiver`` by the sender's signature key. Only late
/// messages search here, so a scan over at most ``RatchetLimits/maximumSkippedKeys`` records is fast enough.
package struct SkippedKeys: ~Copyable, Sendable {
    package static let recordSize = 68
    private static let numberOffset = Bytes32.count
    private static let keyOffset = numberOffset + 4

    private var records: SecretRecords

    package var count: Int { records.count }

    package init() {
        records = SecretRecords(recordSize: Self.recordSize)
    }

    /// Takes `count` records from a stored state.
    package init(count: Int, records bytes: UnsafeRawBufferPointer) {
        precondition(bytes.count == count * Self.recordSize)
        records = SecretRecords(recordSize: Self.recordSize, records: bytes)
    }

    package func index(of key: Bytes32, number: UInt32) -> Int? {
        (0..<records.count).first { index in
            let record = records[index]
            return record.loadUnaligned(fromByteOffset: Self.numberOffset, as: UInt32.self) == number.bigEndian
                && Bytes32(UnsafeRawBufferPointer(rebasing: record[..<Self.numberOffset])) == key
        }
    }

    /// The message key; the pointer is valid until the next change.
    package func messageKey(at index: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: records[index][Self.keyOffset...])
    }

    package mutating func remove(at index: Int) {
        records.remove(at: index)
    }

    /// Stores the keys from `number` up to but not including `end`. If they do not all fit, the oldest are dropped.
    package mutating func store(
        chain: ChainKey, ratchetKey: Bytes32, from number: UInt32, to end: UInt32,
        limit: Int = RatchetLimits.maximumSkippedKeys
    ) {
        guard number < end else { return }
        let added = min(Int(end - number), limit)
        let excess = records.count + added - limit
        if excess > 0 { records.removeFirst(excess) }
        records.reserve(records.count + added)
        var key = chain
        for number in number..<end {
            if end - number <= UInt32(added) { append(ratchetKey, number, key.messageKey) }
            key.advance()
        }
    }

    private mutating func append(_ ratchetKey: Bytes32, _ number: UInt32, _ key: consuming MessageKey) {
        records.append { record in
            ratchetKey.withUnsafeBytes { record.copyMemory(from: $0) }
            record.storeBytes(of: number.bigEndian, toByteOffset: Self.numberOffset, as: UInt32.self)
            key.withUnsafeBytes {
                UnsafeMutableRawBufferPointer(rebasing: record[Self.keyOffset...]).copyMemory(from: $0)
            }
        }
    }

    package func append(to output: inout [UInt8]) {
        output.append(contentsOf: records.bytes)
    }
}
