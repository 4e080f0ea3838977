// A contact card as a QR code.

import QRCode

/// Draws the URI of a contact card as a QR code.
enum CardCode {
    /// Returns the code, which any phone can read; nil if the name is too long for one.
    static func terminal(_ uri: String, coloured: Bool = true) -> String? {
        let code = QRCode(Array(uri.utf8))
        return coloured ? code?.terminal : code?.plain
    }
}
