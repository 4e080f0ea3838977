import CQRencode

/// A QR code (ISO/IEC 18004) for bytes, made by libqrencode: byte mode, error correction level M, versions 1 to 10.
///
/// The meaning of the bytes is unknown here: no character set is announced, and readers take what looks like UTF-8 for
/// text.
public struct QRCode: Sendable {
    /// The number of bytes that a code of version 10 holds. Ours: larger codes do not fit a terminal, and are hard to read
    /// from a screen.
    public static let capacity = 213

    /// Modules along one side, without the quiet zone.
    public let size: Int
    /// The modules, row by row.
    private let dark: [Bool]

    /// Makes the smallest code that holds the bytes; nil if there are none or too many bytes, or no memory.
    public init?(_ bytes: [UInt8]) {
        guard (1...Self.capacity).contains(bytes.count),
            // 0: the smallest version.
            let code = QRcode_encodeData(Int32(bytes.count), bytes, 0, QR_ECLEVEL_M)
        else { return nil }
        defer { QRcode_free(code) }
        let width = Int(code.pointee.width)
        size = width
        // The lowest bit of each byte is the colour.
        dark = UnsafeBufferPointer(start: code.pointee.data, count: width * width).map { $0 & 1 == 1 }
    }

    /// Whether a module is dark. Modules outside the code are light.
    public func isDark(row: Int, column: Int) -> Bool {
        guard (0..<size).contains(row), (0..<size).contains(column) else { return false }
        return dark[row * size + column]
    }
}
