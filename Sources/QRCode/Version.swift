/// A version sets a code's size. `table` holds the standard's values for level M; all others are computed.
struct Version: Equatable, Sendable {
    /// From 1 to 10.
    let number: Int
    /// The number of data blocks, each with error correction of its own.
    let blocks: Int
    /// Codewords for error correction in each block.
    let correction: Int

    private static let table: [(blocks: Int, correction: Int)] = [
        (1, 10), (1, 16), (1, 26), (2, 18), (2, 24), (4, 16), (4, 18), (4, 22), (5, 22), (5, 26),
    ]

    /// From the smallest to the largest.
    static let all = table.enumerated().map {
        Version(number: $0 + 1, blocks: $1.blocks, correction: $1.correction)
    }

    static func smallest(holding count: Int) -> Version? {
        all.first { count <= $0.byteCapacity }
    }

    /// Modules along one side.
    var size: Int { 17 + 4 * number }

    /// Rows, and likewise columns, that contain the centres of alignment patterns.
    var alignmentCenters: [Int] {
        switch number {
        case 1: []
        case ..<7: [6, size - 7]
        default: [6, size / 2, size - 7]
        }
    }

    /// Whether the number itself is drawn, twice: from version 7 on.
    var isDrawn: Bool { number >= 7 }

    /// Modules available for codewords.
    var freeModules: Int {
        let finders = 3 * 8 * 8
        let format = 2 * 15 + 1
        let timing = 2 * (size - 16)
        let centers = alignmentCenters.count
        // No pattern at the three finders; those in row or column 6 share five modules with a timing pattern.
        let alignment = centers == 0 ? 0 : (centers * centers - 3) * 25 - 2 * (centers - 2) * 5
        return size * size - finders - format - timing - alignment - (isDrawn ? 2 * 18 : 0)
    }

    /// All codewords. Up to seven modules remain unused.
    var codewords: Int { freeModules / 8 }

    var dataCodewords: Int { codewords - blocks * correction }

    /// Bits of the byte count.
    var countBits: Int { number < 10 ? 8 : 16 }

    /// Bytes that fit after the mode and the count.
    var byteCapacity: Int { (8 * dataCodewords - 4 - countBits) / 8 }
}
