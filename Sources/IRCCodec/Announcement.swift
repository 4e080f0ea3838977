// How a sidecar announces itself to people whose keys it does not know: a tag if the backend has tags, else invisible
// white space at the end of the first plaintext line.

/// The announcement on a plaintext line.
package enum Announcement {
    package static let tag = "+pawl/hello"
    /// Spaces and tabs in an order that people do not type.
    private static let whiteSpace: [UInt8] = [0x20, 0x09, 0x20, 0x20, 0x09, 0x09, 0x20, 0x09]
    /// The white space and the control code that ends formatting: ngIRCd removes white space from the end of a line.
    package static let marker: [UInt8] = whiteSpace + [0x0F]

    /// The text without its marker; nil if it has none. Servers that strip formatting leave the white space.
    package static func stripped(_ text: [UInt8]) -> [UInt8]? {
        let found = [marker, whiteSpace].first { text.count > $0.count && text.suffix($0.count).elementsEqual($0) }
        return found.map { Array(text.dropLast($0.count)) }
    }
}
