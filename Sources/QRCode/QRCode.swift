/// A QR code (ISO/IEC 18004) for bytes: byte mode, error correction level M, versions 1 to 10.
///
/// The meaning of the bytes is unknown here: no character set is announced, and readers take what looks like UTF-8 for
/// text.
///
/// Not libqrencode: the program would need another C library for one command, and this is the part of the standard that
/// a safety number needs.
public struct QRCode: Sendable {
    /// The number of bytes that a code of version 10 holds.
    public static let capacity = Version.all.last?.byteCapacity ?? 0

    private let matrix: Matrix
    /// The mask that inverts the modules; part of the code, and here for tests.
    let mask: Mask

    /// Makes the smallest code that holds the bytes, with the mask of least penalty; nil if there are too many bytes.
    public init?(_ bytes: [UInt8]) {
        guard let version = Version.smallest(holding: bytes.count) else { return nil }
        let codewords = Codewords(bytes, version).interleaved
        let candidates = Mask.all.map { mask in
            let code = QRCode(codewords, version, mask)
            return (code: code, penalty: code.penalty)
        }
        guard let best = candidates.min(by: { $0.penalty < $1.penalty })?.code else { return nil }
        self = best
    }

    /// Draws the given codewords with the given mask.
    init(_ codewords: [UInt8], _ version: Version, _ mask: Mask) {
        var matrix = Matrix(version)
        matrix.place(codewords)
        matrix.apply(mask)
        matrix.drawFormat(mask)
        self.matrix = matrix
        self.mask = mask
    }

    /// Modules along one side, without the quiet zone.
    public var size: Int { matrix.size }

    /// Whether a module is dark. Modules outside the code are light.
    public func isDark(row: Int, column: Int) -> Bool {
        guard (0..<size).contains(row), (0..<size).contains(column) else { return false }
        return matrix[row, column]
    }

    /// How hard the code is to read; lower is better.
    var penalty: Int { Penalty.of(matrix) }
}
