// Reads bodies. RFC 9112 sections 6 and 7.

package import NIOCore

/// Reads a body from the front of a buffer, in pieces as they arrive.
package struct BodyReader: Sendable {
    /// The next part of a body.
    package enum Piece: Equatable, Sendable {
        case bytes(ByteBuffer)
        /// The body has ended. Only a chunked body has trailers.
        case end(HeaderFields)
    }

    private enum State: Equatable {
        case counted(Int)
        case untilClose
        case chunkLine
        case chunk(Int)
        case chunkEnd
        case trailers
        case done
    }

    private var state: State
    private var reader: HeadReader

    package init(_ framing: BodyFraming, limits: HeadLimits = HeadLimits()) {
        reader = HeadReader(limits: limits)
        switch framing {
        case .none: state = .counted(0)
        case .length(let count): state = .counted(count)
        case .chunked: state = .chunkLine
        case .untilClose: state = .untilClose
        }
    }

    /// Whether the end has been read.
    package var isDone: Bool { state == .done }
    /// Whether the end of the connection ends this body regularly.
    package var endsWithConnection: Bool { state == .untilClose }

    /// Returns the next piece; nil if more bytes are needed or the body has ended.
    package mutating func next(_ buffer: inout ByteBuffer) throws(HTTPFault) -> Piece? {
        while true {
            switch state {
            case .counted(0):
                state = .done
                return .end(HeaderFields())
            case .counted(let count):
                guard let piece = Self.take(&buffer, atMost: count) else { return nil }
                state = .counted(count - piece.readableBytes)
                return .bytes(piece)
            case .untilClose:
                return Self.take(&buffer, atMost: .max).map(Piece.bytes)
            case .chunkLine:
                guard let size = try Self.chunkSize(&buffer) else { return nil }
                state = size == 0 ? .trailers : .chunk(size)
            case .chunk(let count):
                guard let piece = Self.take(&buffer, atMost: count) else { return nil }
                state = count == piece.readableBytes ? .chunkEnd : .chunk(count - piece.readableBytes)
                return .bytes(piece)
            case .chunkEnd:
                guard let end = buffer.getInteger(at: buffer.readerIndex, as: UInt16.self) else {
                    guard buffer.readableBytesView.first ?? 0x0D == 0x0D else { throw .malformed }
                    return nil
                }
                guard end == 0x0D0A else { throw .malformed }
                buffer.moveReaderIndex(forwardBy: 2)
                state = .chunkLine
            case .trailers:
                guard let fields = try reader.trailers(&buffer) else { return nil }
                state = .done
                return .end(fields.trailers)
            case .done:
                return nil
            }
        }
    }

    private static func take(_ buffer: inout ByteBuffer, atMost count: Int) -> ByteBuffer? {
        guard buffer.readableBytes > 0 else { return nil }
        return buffer.readSlice(length: min(count, buffer.readableBytes))
    }

    /// Reads a chunk line, `1A;name=value` CR LF; nil if it is incomplete. Drops extensions, which are hop-by-hop.
    private static func chunkSize(_ buffer: inout ByteBuffer) throws(HTTPFault) -> Int? {
        let view = buffer.readableBytesView.prefix(HeadLimits.chunkLine)
        var (size, digits) = (0, 0)
        var index = view.startIndex
        while index < view.endIndex, let digit = hexDigit(view[index]) {
            // 15 digits fit into an `Int`.
            guard digits < 15 else { throw .malformed }
            (size, digits) = (size << 4 | digit, digits + 1)
            index += 1
        }
        guard index < view.endIndex else {
            guard view.count < HeadLimits.chunkLine else { throw .malformed }
            return nil
        }
        guard digits > 0, [0x0D, 0x3B, 0x20, 0x09].contains(view[index]) else { throw .malformed }
        while index < view.endIndex, view[index] != 0x0D {
            guard view[index] >= 0x20 || view[index] == 0x09, view[index] != 0x7F else { throw .malformed }
            index += 1
        }
        guard index + 1 < view.endIndex else {
            guard view.count < HeadLimits.chunkLine else { throw .malformed }
            return nil
        }
        guard view[index + 1] == 0x0A else { throw .malformed }
        buffer.moveReaderIndex(forwardBy: index + 2 - view.startIndex)
        return size
    }

    private static func hexDigit(_ byte: UInt8) -> Int? {
        switch byte {
        case 0x30...0x39: Int(byte) - 0x30
        case 0x41...0x46: Int(byte) - 0x37
        case 0x61...0x66: Int(byte) - 0x57
        default: nil
        }
    }
}

extension HeaderFields {
    /// The fields without those that frame, route or authenticate a message, or name a client. RFC 9110 section 6.5.1.
    var trailers: HeaderFields {
        var fields = self
        for name in [
            "content-length", "transfer-encoding", "host", "connection", "upgrade", "te", "trailer", "authorization",
            "cookie", "set-cookie", "content-encoding", "content-type", "content-range", "expect",
        ] where !fields.fields.isEmpty { fields.remove(name) }
        // A backend may add trailers to the fields of the head, from which a client's own were removed.
        fields.fields.removeAll { Forwarding.isAboutTheClient($0.name) }
        return fields
    }
}
