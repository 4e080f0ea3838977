// How a sidecar announces itself to people whose keys it does not know: a tag if the backend has tags, else format codes
// without text between them at the end of the first plaintext line. irssi, WeeChat and HexChat show nothing of them, and
// write nothing of them to their logs.

/// The announcement on a plaintext line.
package enum Announcement {
    package static let tag = "+pawl/hello"
    /// Bold and underlined, on and off in an order that no client writes, and the code that ends formatting.
    package static let marker: [UInt8] = [0x02, 0x1F, 0x02, 0x1F, 0x1F, 0x02, 0x1F, 0x02, 0x0F]
    /// The marker of earlier versions, of which irssi shows the tabs. It is read and not written.
    package static let earlierMarker: [UInt8] = whiteSpace + [0x0F]
    private static let whiteSpace: [UInt8] = [0x20, 0x09, 0x20, 0x20, 0x09, 0x09, 0x20, 0x09]

    /// The text without its marker; nil if it has none. Servers that strip formatting leave the earlier white space.
    package static func stripped(_ text: [UInt8]) -> [UInt8]? {
        let found = [marker, earlierMarker, whiteSpace].first {
            text.count > $0.count && text.suffix($0.count).elementsEqual($0)
        }
        return found.map { Array(text.dropLast($0.count)) }
    }
}
