// Bytes into lines, bounded. A line that is too long is not a line: it is given out in pieces and marked.

package import NIOCore

/// Splits a stream at LF; keeps the beginning of a line until its end has come.
package struct LineSplitter: Sendable {
    /// What comes out.
    package enum Piece: Equatable, Sendable {
        /// A line with its end as it came; `content` is its length without CR and LF.
        case line(ByteBuffer, content: Int)
        /// Part of a line that is longer than the limit; `ended` when the end is in it.
        case overlong(ByteBuffer, ended: Bool)
    }

    private let limit: Int
    private var partial: ByteBuffer?
    private var isOverlong = false

    /// - Parameter limit: the longest line with its end, in bytes.
    package init(limit: Int) { self.limit = limit }

    /// Takes what has been kept, for a connection that ends or stops being looked at.
    package mutating func takePartial() -> ByteBuffer? {
        defer { partial = nil }
        return partial
    }

    /// The next piece of a chunk, or nothing when it is used up. Call until it gives nothing.
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

    /// The first LF, eight bytes at a time: a byte that equals LF becomes zero, and a zero byte shows in its high bit.
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
