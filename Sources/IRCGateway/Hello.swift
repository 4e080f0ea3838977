// How a sidecar says that it is one to somebody of whom it knows nothing: a tag where tags are, else white space that
// nobody sees behind a first line of plain text.

import IRCCodec

/// The announcement on a plaintext line.
package enum Hello {
    package static let tag = "+pawl/hello"
    /// Space and tab, in an order that nobody types.
    private static let whiteSpace: [UInt8] = [0x20, 0x09, 0x20, 0x20, 0x09, 0x09, 0x20, 0x09]
    /// The white space, and the control code that ends formatting: ngIRCd cuts white space off the end of a line.
    package static let marker: [UInt8] = whiteSpace + [0x0F]

    /// The text without its marker; nothing where it has none. Servers that strip formatting leave the white space.
    package static func stripped(_ text: [UInt8]) -> [UInt8]? {
        let found = [marker, whiteSpace].first { text.count > $0.count && text.suffix($0.count).elementsEqual($0) }
        return found.map { Array(text.dropLast($0.count)) }
    }
}
