// How a sidecar says that it is one to somebody of whom it knows nothing: a tag where tags are, else white space that
// nobody sees behind a first line of plain text.

import IRCCodec

/// The announcement on a plaintext line.
enum Hello {
    static let tag = "+pawl/hello"
    /// Space and tab, in an order that nobody types.
    static let marker: [UInt8] = [0x20, 0x09, 0x20, 0x20, 0x09, 0x09, 0x20, 0x09]

    /// The text without its marker; nothing where it has none.
    static func stripped(_ text: [UInt8]) -> [UInt8]? {
        text.count > marker.count && text.suffix(marker.count).elementsEqual(marker)
            ? Array(text.dropLast(marker.count)) : nil
    }
}
