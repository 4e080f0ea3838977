// A contact card as a QR code.

import QRCode

/// Draws the URI of a contact card as a QR code.
enum CardCode {
    /// The lines of a code that stay on a terminal of 80x24, above the prompt. Names of up to 27 bytes fit.
    static let rows = 23

    /// Returns the code, which any phone can read; nil if the name is too long for one.
    static func terminal(_ uri: String, coloured: Bool = true) -> String? {
        guard let code = QRCode(Array(uri.utf8)) else { return nil }
        let quietZone = code.quietZone(fitting: rows)
        return coloured ? code.terminal(quietZone: quietZone) : code.plain(quietZone: quietZone)
    }
}
