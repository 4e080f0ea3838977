// The safety number as a code for a camera.

import DoubleRatchet
import QRCode

/// Draws it.
enum SafetyCode {
    /// The digits as a QR code, so that any phone shows them; nothing where it cannot be drawn.
    static func terminal(_ number: SafetyNumber, coloured: Bool = true) -> String? {
        let code = QRCode(Array("Pawl \(number)".utf8))
        return coloured ? code?.terminal : code?.plain
    }
}
