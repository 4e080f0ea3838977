/// The keys of messages that have not come yet (Double Ratchet, section 3.2: `MKSKIPPED`), bounded, oldest first.
///
/// One block of memory of its own holds records of 68 bytes, exactly as the state writes them, and is wiped with it:
///
/// ```
/// 0                    32             36             68
/// | ratchet public key | number u32   | message key  |
/// ```
/// A ``SenderKeyReceiver`` keeps its own, under the sender's signature key. Only late messages look here, so a scan over at most ``RatchetLimits/maximumSkippedKeys`` records serves.
struct SkippedKeys: ~Copyable, Sendable {
    static let recordSize = 68

    private(set) var count = 0
    private var capacity = 0
    private nonisolated(unsafe) var records = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    init() {}

    /// Takes over `count` records of a state.
    init(count: Int, records bytes: UnsafeRawBufferPointer) {
        precondition(bytes.count == count * Self.recordSize)
        reserve(count)
        records.copyMemory(from: bytes)
        self.count = count
    }

    deinit {
        SecretBytes.wipe(records)
        records.deallocate()
    }

    func index(of key: Bytes32, number: UInt32) -> Int? {
        for index in 0..<count {
            let offset = index * Self.recordSize
            guard records.loadUnaligned(fromByteOffset: offset + 32, as: UInt32.self) == number.bigEndian,
                Bytes32(bytes(offset, 32)) == key
            else { continue }
            return index
        }
        return nil
    }

    func messageKey(at index: Int) -> MessageKey {
        MessageKey(secret: SecretBytes(copying: bytes(index * Self.recordSize + 36, 32)))
    }

    mutating func remove(at index: Int) {
        shiftDown(from: index + 1, to: index)
    }

    /// Stores the keys of `number` up to but not including `end`. Where all do not fit, the oldest go.
    mutating func store(
        chain: ChainKey, ratchetKey: Bytes32, from number: UInt32, to end: UInt32,
        limit: Int = RatchetLimits.maximumSkippedKeys
    ) {
        guard number < end else { return }
        let added = min(Int(end - number), limit)
        let excess = count + added - limit
        if excess > 0 { shiftDown(from: excess, to: 0) }
        reserve(count + added)
        var number = number
        var key = chain
        while number < end {
            if end - number <= UInt32(added) {
                write(ratchetKey, number, key.messageKey)
            }
            key = key.next
            number += 1
        }
    }

    func append(to output: inout [UInt8]) {
        output.append(contentsOf: bytes(0, count * Self.recordSize))
    }

    private func bytes(_ offset: Int, _ length: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: records[offset..<offset + length])
    }

    private mutating func write(_ ratchetKey: Bytes32, _ number: UInt32, _ key: consuming MessageKey) {
        let start = count * Self.recordSize
        let record = UnsafeMutableRawBufferPointer(rebasing: records[start..<start + Self.recordSize])
        ratchetKey.withUnsafeBytes { record.copyMemory(from: $0) }
        record.storeBytes(of: number.bigEndian, toByteOffset: 32, as: UInt32.self)
        key.secret.withUnsafeBytes { UnsafeMutableRawBufferPointer(rebasing: record[36...]).copyMemory(from: $0) }
        count += 1
    }

    /// Moves everything from record `source` on to record `target` below it, and wipes what becomes free.
    private mutating func shiftDown(from source: Int, to target: Int) {
        let moved = bytes(source * Self.recordSize, (count - source) * Self.recordSize)
        let end = (target + count - source) * Self.recordSize
        UnsafeMutableRawBufferPointer(rebasing: records[(target * Self.recordSize)..<end]).copyMemory(from: moved)
        SecretBytes.wipe(UnsafeMutableRawBufferPointer(rebasing: records[end..<count * Self.recordSize]))
        count -= source - target
    }

    private mutating func reserve(_ needed: Int) {
        guard needed > capacity else { return }
        capacity = min(max(needed, 2 * capacity, 8), max(needed, RatchetLimits.maximumSkippedKeys))
        let larger = UnsafeMutableRawBufferPointer.allocate(byteCount: capacity * Self.recordSize, alignment: 16)
        larger.initializeMemory(as: UInt8.self, repeating: 0)
        larger.copyMemory(from: bytes(0, count * Self.recordSize))
        SecretBytes.wipe(records)
        records.deallocate()
        records = larger
    }
}
