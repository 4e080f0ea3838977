// Splits bytes into lines of bounded length. A line that is too long is returned in marked pieces.

package import NIOCore

/// Splits a stream at LF; keeps the beginning of an incomplete line.
package struct LineSplitter: Sendable {
    /// A result of the splitter.
    package enum Piece: Equatable, Sendable {
        /// A line with its end as received; `content` is its length without CR and LF.
        case line(ByteBuffer, content: Int)
        /// Part of a line that is longer than the limit; `ended` if it contains the end of the line.
        case overlong(ByteBuffer, ended: Bool)
    }

    private let limit: Int
    private var partial: ByteBuffer?
    private var isOverlong = false

    /// - Parameter limit: the maximum length of a line with its end, in bytes.
    package init(limit: Int) { self.limit = limit }

    /// Removes and returns the incomplete line when the stream ends.
    package mutating func takePartial() -> ByteBuffer? {
        defer { partial = nil }
        return partial
    }

    /// The next piece of a chunk; nil if none is complete. Call until it returns nil.
    package mutating func next(_ chunk: inout ByteBuffer) -> Piece? {
        guard chunk.readableBytes > 0 else { return nil }
        let end = chunk.withUnsafeReadableBytes(Self.lineFeed)
        guard let end else { return keep(&chunk) }
        guard let head = chunk.readSlice(length: end + 1) else { return nil }
        if isOverlong {
            isOverlong = false
            return .overlong(head, ended: true)
        }
        var line = head
        if var kept = partial {
            partial = nil
            kept.writeImmutableBuffer(head)
            line = kept
        }
        guard line.readableBytes <= limit else { return .overlong(line, ended: true) }
        return .line(line, content: Self.contentLength(line))
    }

    /// The offset of the first LF. Reads eight bytes at a time: XOR makes an LF zero; the high bits mark zero bytes.
    private static func lineFeed(_ raw: UnsafeRawBufferPointer) -> Int? {
        var position = 0
        while position + 8 <= raw.count {
            let word = raw.loadUnaligned(fromByteOffset: position, as: UInt64.self) ^ 0x0A0A_0A0A_0A0A_0A0A
            let zeros = (word &- 0x0101_0101_0101_0101) & ~word & 0x8080_8080_8080_8080
            if zeros != 0 { return position + UInt64(littleEndian: zeros).trailingZeroBitCount / 8 }
            position += 8
        }
        while position < raw.count {
            if raw[position] == 0x0A { return position }
            position += 1
        }
        return nil
    }

    private mutating func keep(_ chunk: inout ByteBuffer) -> Piece? {
        if isOverlong {
            defer { chunk.clear() }
            return .overlong(chunk, ended: false)
        }
        var kept = partial ?? ByteBuffer()
        kept.writeBuffer(&chunk)
        partial = kept
        guard kept.readableBytes > limit else { return nil }
        partial = nil
        isOverlong = true
        return .overlong(kept, ended: false)
    }

    private static func contentLength(_ line: ByteBuffer) -> Int {
        line.withUnsafeReadableBytes { raw in
            var count = raw.count - 1
            while count > 0, raw[count - 1] == 0x0D { count -= 1 }
            return count
        }
    }
}
