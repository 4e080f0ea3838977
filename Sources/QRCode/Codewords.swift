/// The codewords of a symbol, made from bytes.
///
/// ```
/// 0100 | count, 8 or 16 bits | bytes ... | 0000 | fill to a byte | EC 11 EC 11 ... up to the version's data codewords
/// ```
///
/// The data are cut into blocks, of which the later ones may be longer by one. Each block gets its own error
/// correction. The blocks are interleaved: the first codeword of each block, then the second of each; the error
/// correction follows in the same order.
struct Codewords {
    let data: [UInt8]
    private let version: Version

    /// - Precondition: the bytes fit into the version.
    init(_ bytes: [UInt8], _ version: Version) {
        precondition(bytes.count <= version.byteCapacity)
        var bits = BitWriter()
        bits.append(0b0100, bits: 4)
        bits.append(bytes.count, bits: version.countBits)
        for byte in bytes { bits.append(Int(byte), bits: 8) }
        // Mode and count leave half a byte, which is exactly the terminator.
        bits.append(0, bits: 4)
        let missing = version.dataCodewords - bits.bytes.count
        data = bits.bytes + (0..<missing).map { $0 % 2 == 0 ? 0xEC : 0x11 }
        self.version = version
    }

    /// The data in the version's blocks, the short ones first.
    var blocks: [ArraySlice<UInt8>] {
        let short = data.count / version.blocks
        let long = data.count % version.blocks
        var rest = data[...]
        return (0..<version.blocks).map { index in
            let block = rest.prefix(index < version.blocks - long ? short : short + 1)
            rest = rest.dropFirst(block.count)
            return block
        }
    }

    /// All codewords in drawing order.
    var interleaved: [UInt8] {
        let reedSolomon = ReedSolomon(correction: version.correction)
        let corrections = blocks.map { reedSolomon.correction(for: $0)[...] }
        return Self.interleave(blocks) + Self.interleave(corrections)
    }

    private static func interleave(_ blocks: [ArraySlice<UInt8>]) -> [UInt8] {
        let longest = blocks.map(\.count).max() ?? 0
        return (0..<longest).flatMap { index in
            blocks.compactMap { $0.dropFirst(index).first }
        }
    }
}

/// Collects bits, highest first.
private struct BitWriter {
    private(set) var bytes: [UInt8] = []
    private var used = 0

    mutating func append(_ value: Int, bits: Int) {
        for bit in (0..<bits).reversed() {
            if used % 8 == 0 { bytes.append(0) }
            if value >> bit & 1 == 1 { bytes[used / 8] |= 0x80 >> (used % 8) }
            used += 1
        }
    }
}
