/// Collects the chunks of one erasure-coded value until there are enough.
///
/// Any `needed` different chunks are enough; copies and later ones are ignored. Stored form: `count u8`, then records
/// of `index u16 || 32 bytes` in the order of arrival.
struct ChunkCollector: Sendable {
    private static let recordSize = 2 + ErasureCode.chunkSize

    private let needed: Int
    private var records: [UInt8] = []

    /// Makes a collector for a value of `size` bytes, a multiple of 32.
    init(size: Int) {
        needed = size / ErasureCode.chunkSize
    }

    private func contains(_ index: UInt16) -> Bool {
        let (high, low) = (UInt8(index >> 8), UInt8(truncatingIfNeeded: index))
        return stride(from: 0, to: records.count, by: Self.recordSize).contains {
            records[$0] == high && records[$0 + 1] == low
        }
    }

    /// Whether ``add(_:)`` would return the value.
    func isCompleted(by chunk: ErasureCode.Chunk) -> Bool {
        records.count == (needed - 1) * Self.recordSize && !contains(chunk.index)
    }

    /// Adds a chunk; returns the value if this was the last needed chunk.
    mutating func add(_ chunk: ErasureCode.Chunk) -> [UInt8]? {
        guard !contains(chunk.index) else { return nil }
        // Capacity for all chunks at once: a message with one more chunk then allocates nothing.
        records.reserveCapacity(needed * Self.recordSize)
        records.append(networkOrder: chunk.index)
        chunk.bytes.append(to: &records)
        return records.count == needed * Self.recordSize ? ErasureCode.decode(records) : nil
    }

    init(size: Int, from reader: inout ByteReader) throws(RatchetError) {
        self.init(size: size)
        let count = Int(try reader.byte())
        // A full collector would have been decoded.
        guard count < needed else { throw .malformed }
        records = Array(try reader.take(count * Self.recordSize))
        for start in stride(from: 0, to: records.count, by: Self.recordSize)
        where records[start] >= ErasureCode.maximumIndex >> 8 {
            throw .malformed
        }
    }

    package func serialize(into output: inout [UInt8]) {
        output.append(UInt8(records.count / Self.recordSize))
        output.append(contentsOf: records)
    }
}
