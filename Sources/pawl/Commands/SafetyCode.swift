// The safety number as a QR code.

import DoubleRatchet
import QRCode

/// Draws a safety number as a QR code.
enum SafetyCode {
    /// Returns the digits as a QR code, which any phone can read; nil if it cannot be drawn.
    static func terminal(_ number: SafetyNumber, coloured: Bool = true) -> String? {
        let code = QRCode(Array("Pawl \(number)".utf8))
        return coloured ? code?.terminal : code?.plain
    }
}
