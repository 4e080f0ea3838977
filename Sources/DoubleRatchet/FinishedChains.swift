/// Finished receiving chains, and the keys of messages skipped in them or in the current one.
///
/// (Double Ratchet, section 4.3: `MKSKIPPED` by header key and number.)
///
/// ```
/// finished chains: count u8  | number u32 | header key 32    36 bytes each, oldest first
/// skipped keys:    count u16 | chain u32 | number u32 | message key 32    40 bytes each, oldest first
/// ```
/// Chains are numbered in their order from 0. The message keys are the combined ones of the ``TripleRatchet``. The
/// limits are ``RatchetLimits/maximumSkippedKeys`` keys and the newest ``RatchetLimits/maximumRememberedChains``
/// chains; older chains are kept while keys of theirs are stored, up to ``RatchetLimits/maximumWaitingChains``. The
/// oldest are always dropped first.
struct FinishedChains: ~Copyable, Sendable {
    static let keySize = 40

    struct Chain: Sendable {
        package let number: UInt32
        let headerKey: HeaderKey
    }

    private(set) var chains: [Chain] = []
    private var keys = SecretRecords(recordSize: keySize)

    var keyCount: Int { keys.count }

    init() {}

    // MARK: Keys

    package func index(of chain: UInt32, number: UInt32) -> Int? {
        let wanted = UInt64(chain) << 32 | UInt64(number)
        let all = keys.bytes
        return (0..<keys.count).first { index in
            UInt64(bigEndian: all.loadUnaligned(fromByteOffset: index * Self.keySize, as: UInt64.self)) == wanted
        }
    }

    /// The message key; the pointer is valid until the next change.
    package func messageKey(at index: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: keys[index][8...])
    }

    mutating func removeKey(at index: Int) {
        keys.remove(at: index)
        prune()
    }

    /// Makes room for `added` keys and returns how many of the first ones do not fit.
    mutating func makeRoom(for added: Int) -> Int {
        let excess = keys.count + added - RatchetLimits.maximumSkippedKeys
        if excess > 0 { keys.removeFirst(min(excess, keys.count)) }
        let fitting = min(added, RatchetLimits.maximumSkippedKeys)
        keys.reserve(keys.count + fitting)
        return added - fitting
    }

    /// Stores the 32 bytes that `derive` writes.
    package mutating func append(chain: UInt32, number: UInt32, _ derive: (UnsafeMutableRawBufferPointer) -> Void) {
        keys.append { record in
            record.storeBytes(of: chain.bigEndian, toByteOffset: 0, as: UInt32.self)
            record.storeBytes(of: number.bigEndian, toByteOffset: 4, as: UInt32.self)
            derive(UnsafeMutableRawBufferPointer(rebasing: record[8...]))
        }
    }

    // MARK: Chains

    mutating func finish(_ chain: Chain) {
        chains.append(chain)
        prune()
    }

    private mutating func prune() {
        while chains.count > RatchetLimits.maximumWaitingChains {
            let oldest = chains.removeFirst().number
            while let index = firstKey(of: oldest) { keys.remove(at: index) }
        }
        guard chains.count > RatchetLimits.maximumRememberedChains else { return }
        let older = chains.count - RatchetLimits.maximumRememberedChains
        let dropped = (0..<older).filter { firstKey(of: chains[$0].number) == nil }
        for index in dropped.reversed() { chains.remove(at: index) }
    }

    private func firstKey(of chain: UInt32) -> Int? {
        let all = keys.bytes
        return (0..<keys.count).first { index in
            UInt32(bigEndian: all.loadUnaligned(fromByteOffset: index * Self.keySize, as: UInt32.self)) == chain
        }
    }

    // MARK: At rest

    /// Reads both lists. `current` is the number of the current receiving chain; nil if there is none yet.
    init(from reader: inout ByteReader, current: UInt32?) throws(RatchetError) {
        let chainCount = Int(try reader.byte())
        guard chainCount <= RatchetLimits.maximumWaitingChains else { throw .malformed }
        for _ in 0..<chainCount {
            let number = try reader.uint32()
            guard number < current ?? 0, chains.last.map({ $0.number < number }) ?? true else { throw .malformed }
            chains.append(Chain(number: number, headerKey: HeaderKey(secret: try reader.secret(32))))
        }
        let keyCount = Int(try reader.uint16())
        guard keyCount <= RatchetLimits.maximumSkippedKeys, keyCount == 0 || current != nil else { throw .malformed }
        keys = SecretRecords(recordSize: Self.keySize, records: try reader.take(keyCount * Self.keySize))
    }

    /// The bytes that ``serialize(into:)`` appends.
    var serializedSize: Int { 1 + chains.count * 36 + 2 + keys.count * Self.keySize }

    package func serialize(into output: inout [UInt8]) {
        output.append(UInt8(chains.count))
        for chain in chains {
            output.append(networkOrder: chain.number)
            chain.headerKey.secret.append(to: &output)
        }
        output.append(networkOrder: UInt16(keys.count))
        output.append(contentsOf: keys.bytes)
    }
}
