// Breaks long texts into lines. A text that was sealed whole may be longer than a line when it is shown under another
// name. It is broken at spaces, and loses no byte that a line can contain, except the space at the break, and bytes 0x01
// behind it, which would make a CTCP message of the rest.

package import NIOCore

extension ByteBuffer {
    /// A line with its CR LF. CR, LF and NUL in the text become spaces, so that it is one line, whatever it contains.
    package init(line text: String) {
        var bytes = LineBreaker.clean(text.utf8)
        bytes += [0x0D, 0x0A]
        self.init(bytes: bytes)
    }
}

/// Breaks texts into lines.
package enum LineBreaker {
    private static let action = Array("\u{1}ACTION ".utf8)

    /// A text in which CR, LF and NUL, which a line cannot contain, are spaces.
    package static func clean(_ text: some Collection<UInt8>) -> [UInt8] {
        text.map { $0 == 0x0D || $0 == 0x0A || $0 == 0 ? 0x20 : $0 }
    }

    /// Pieces of a text, each at most `room` bytes long. CR, LF and NUL, which a line cannot contain, become spaces.
    ///
    /// Only the first piece can be a CTCP message, unless the text is an ACTION: then all are.
    ///
    /// - Parameters:
    ///   - reserve: the bytes that the caller adds to each piece but the first; fewer than `room`.
    ///   - keepsSpaces: whether the pieces are joined again, so that the space at a break is kept.
    package static func pieces(
        _ text: [UInt8], room: Int, reserve: Int = 0, keepsSpaces: Bool = false
    ) -> [[UInt8]] {
        let clean = Self.clean(text)
        guard clean.count > room else { return [clean] }
        guard clean.starts(with: action) else {
            return plain(clean[...], room, reserve, keepsSpaces)
        }
        var content = clean.dropFirst(action.count)
        if content.last == 0x01 { content = content.dropLast() }
        return plain(content, room - action.count - 1, reserve, keepsSpaces).map { action + $0 + [0x01] }
    }

    private static func plain(
        _ text: ArraySlice<UInt8>, _ room: Int, _ reserve: Int, _ keepsSpaces: Bool
    ) -> [[UInt8]] {
        var rest = text
        var pieces: [[UInt8]] = []
        var room = room
        while rest.count > room {
            var end = end(of: rest, room)
            // At a space, if there is one near.
            if let space = rest[max(rest.startIndex, end - 40)..<end].lastIndex(of: 0x20), space > rest.startIndex {
                end = keepsSpaces ? space + 1 : space
            }
            pieces.append(Array(rest[rest.startIndex..<end]))
            rest = rest[end...]
            if !keepsSpaces, rest.first == 0x20 { rest = rest.dropFirst() }
            rest = rest.drop { $0 == 0x01 }
            if pieces.count == 1 { room = max(room - reserve, 1) }
        }
        if !rest.isEmpty { pieces.append(Array(rest)) }
        return pieces
    }

    /// The end of a piece, not inside a character. More than three continuation bytes are no UTF-8, and cut anywhere.
    private static func end(of rest: ArraySlice<UInt8>, _ room: Int) -> Int {
        let limit = rest.startIndex + room
        let starts = (max(limit - 3, rest.startIndex + 1)...limit).reversed()
        return starts.first { rest[$0] & 0xC0 != 0x80 } ?? limit
    }
}
