// Reads and writes WebSocket frames, and assembles messages. RFC 6455 section 5.
//
// Not NIOWebSocket: its decoder and its aggregator of fragments are handlers of a channel. Here both sides of a relay are
// pure values, so that the machines are tested without a channel, and each rule has its close code.
//
// A text that is not UTF-8 is read: servers exist that send and take such texts, and where nothing is protected a relay
// changes no message. `WebSocketMachine` closes with 1007 otherwise.

package import NIOCore

/// An error in WebSocket frames. The raw value is the close code. Section 7.4.1.
package enum FrameFault: UInt16, Error, Equatable, Sendable {
    /// Wrong masking, reserved bits or opcodes, an oversized or fragmented control frame, or fragments out of order.
    case malformed = 1002
    /// A close reason that is not UTF-8. Of texts the receiver decides.
    case notText = 1007
    /// A message longer than the limit.
    case tooLong = 1009
}

/// A whole message from one side.
package enum WebSocketMessage: Equatable, Sendable {
    case data(ByteBuffer, isText: Bool)
    case ping(ByteBuffer)
    case pong(ByteBuffer)
    /// The payload is empty, or holds code and reason as received.
    case close(ByteBuffer)
}

/// A piece of a message that is too long to be assembled.
package enum WebSocketPiece: Equatable, Sendable {
    /// - Parameter opcode: that of the message for its first piece, else 0.
    case data(ByteBuffer, opcode: UInt8, isLast: Bool)
    /// A control frame between two of its frames.
    case control(WebSocketMessage)
}

/// Reads the messages of one side from the front of a buffer.
///
/// Assembles fragments. Control frames may arrive between them. A message above the limit is an error, or passes in pieces.
package struct FrameReader: Sendable {
    /// Section 5.1: a client masks, a server does not.
    private let isMasked: Bool
    /// Maximum size of one message, in bytes.
    private let limit: Int
    private var fragments: (bytes: ByteBuffer, isText: Bool)?
    private var passing: Passing?

    /// A message that passes in pieces.
    private struct Passing {
        /// Of the next piece: 0 if the message has begun.
        var opcode: UInt8 = 0
        var hasBegun = false
        /// Bytes of the present frame that have not come.
        var left = 0
        var isFinal = false
        /// For the next byte.
        var mask: UInt32?
    }

    package init(isMasked: Bool, limit: Int) { (self.isMasked, self.limit) = (isMasked, limit) }

    /// Bytes of an unfinished message in fragments.
    package var fragmentBytes: Int { fragments?.bytes.readableBytes ?? 0 }

    private struct Header {
        package var isFinal = false
        package var opcode: UInt8 = 0
        package var length = 0
        package var mask: UInt32?
        package var size = 2
    }

    /// Returns the next whole message; nil if there is none. Consumes whole frames only.
    package mutating func next(_ buffer: inout ByteBuffer) throws(FrameFault) -> WebSocketMessage? {
        while let header = try header(buffer) {
            guard buffer.readableBytes - header.size >= header.length else { return nil }
            buffer.moveReaderIndex(forwardBy: header.size)
            var payload = buffer.readSlice(length: header.length) ?? ByteBuffer()
            if let mask = header.mask { payload.applyMask(mask) }
            switch header.opcode {
            case 0x8: return .close(try Self.checkedClose(payload))
            case 0x9: return .ping(payload)
            case 0xA: return .pong(payload)
            default:
                guard let whole = try data(payload, header) else { continue }
                return whole
            }
        }
        return nil
    }

    // MARK: Messages that pass as they are

    /// Ours: maximum payload of a masked frame that is offered unmasked, in bytes. More would be taken from the heap.
    private static let unmaskedLimit = 1024

    /// Counts the bytes at the front that are whole messages of one frame each, up to the first that may not pass.
    ///
    /// Stops before everything else too: ``next(_:)`` reads that, or refuses it.
    ///
    /// - Parameter passes: whether a message may pass as it is. Gets its payload, unmasked, and whether it is a text.
    package func wholeMessages(
        in buffer: ByteBuffer, while passes: (_ payload: UnsafeRawBufferPointer, _ isText: Bool) -> Bool
    ) -> Int {
        guard passing == nil, fragments == nil else { return 0 }
        return buffer.withUnsafeReadableBytes { bytes in
            withUnsafeTemporaryAllocation(byteCount: isMasked ? Self.unmaskedLimit : 0, alignment: 8) { copy in
                var end = 0
                while let frame = wholeFrame(UnsafeRawBufferPointer(rebasing: bytes[end...])) {
                    var payload = UnsafeRawBufferPointer(rebasing: bytes[(end + frame.header)..<(end + frame.size)])
                    if isMasked {
                        guard payload.count <= copy.count else { break }
                        Self.unmask(payload, bytes[(end + frame.header - 4)...], into: copy)
                        payload = UnsafeRawBufferPointer(rebasing: copy[..<payload.count])
                    }
                    guard passes(payload, frame.isText) else { break }
                    end += frame.size
                }
                return end
            }
        }
    }

    /// Reads the sizes of the frame at the front; nil if it is no whole message, has not come whole, or breaks a rule.
    private func wholeFrame(_ bytes: UnsafeRawBufferPointer) -> (header: Int, size: Int, isText: Bool)? {
        guard bytes.count >= 2, bytes[0] == 0x81 || bytes[0] == 0x82, (bytes[1] & 0x80 != 0) == isMasked else {
            return nil
        }
        var (header, length) = (2, Int(bytes[1] & 0x7F))
        if length == 126 {
            guard bytes.count >= 4 else { return nil }
            (header, length) = (4, Int(bytes[2]) << 8 | Int(bytes[3]))
            guard length > 125 else { return nil }
        } else if length == 127 {
            return nil
        }
        if isMasked { header += 4 }
        guard length <= limit, bytes.count >= header + length else { return nil }
        return (header, header + length, bytes[0] == 0x81)
    }

    private static func unmask(
        _ payload: UnsafeRawBufferPointer, _ mask: Slice<UnsafeRawBufferPointer>,
        into copy: UnsafeMutableRawBufferPointer
    ) {
        let mask = UnsafeRawBufferPointer(rebasing: mask)
        let word = UInt64(mask.loadUnaligned(as: UInt32.self))
        let wide = word << 32 | word
        var index = 0
        while index + 8 <= payload.count {
            let masked = payload.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            copy.storeBytes(of: masked ^ wide, toByteOffset: index, as: UInt64.self)
            index += 8
        }
        while index < payload.count {
            copy[index] = payload[index] ^ mask[index % 4]
            index += 1
        }
    }

    // MARK: Longer messages

    /// Whether a message passes in pieces: ``nextPiece(_:)`` reads it, and not ``next(_:)``.
    package var isPassing: Bool { passing != nil }

    /// Lets the message that ``next(_:)`` has found longer than the limit pass in pieces.
    package mutating func pass() { passing = Passing() }

    /// Returns the next piece of the message, or a control frame between its frames; nil if neither has come.
    package mutating func nextPiece(_ buffer: inout ByteBuffer) throws(FrameFault) -> WebSocketPiece? {
        guard var now = passing else { return nil }
        if let (bytes, isText) = fragments {
            fragments = nil
            now.hasBegun = true
            passing = now
            return .data(bytes, opcode: isText ? 1 : 2, isLast: false)
        }
        if now.left == 0 {
            guard let header = try header(buffer) else { return nil }
            guard header.opcode < 8 else { return try next(&buffer).map { .control($0) } }
            guard (header.opcode == 0) == now.hasBegun else { throw .malformed }
            buffer.moveReaderIndex(forwardBy: header.size)
            (now.opcode, now.left, now.isFinal, now.mask) =
                (header.opcode, header.length, header.isFinal, header.mask)
            now.hasBegun = true
            passing = now
        }
        var piece = buffer.readSlice(length: min(now.left, buffer.readableBytes)) ?? ByteBuffer()
        guard now.left == 0 || piece.readableBytes > 0 else { return nil }
        if let mask = now.mask {
            piece.applyMask(mask)
            let turn = 8 * UInt32(piece.readableBytes % 4)
            now.mask = turn == 0 ? mask : mask << turn | mask >> (32 - turn)
        }
        now.left -= piece.readableBytes
        let isLast = now.left == 0 && now.isFinal
        let opcode = now.opcode
        now.opcode = 0
        passing = isLast ? nil : now
        return .data(piece, opcode: opcode, isLast: isLast)
    }

    private mutating func data(_ payload: ByteBuffer, _ header: Header) throws(FrameFault) -> WebSocketMessage? {
        var (bytes, isText) = (payload, header.opcode == 1)
        if header.opcode == 0 {
            guard let earlier = fragments else { throw .malformed }
            fragments = nil
            (bytes, isText) = earlier
            bytes.writeImmutableBuffer(payload)
        } else {
            guard fragments == nil else { throw .malformed }
        }
        guard header.isFinal else {
            fragments = (bytes, isText)
            return nil
        }
        return .data(bytes, isText: isText)
    }

    /// Reads and checks the header at the front, before the payload has arrived; nil if it is incomplete.
    private func header(_ buffer: ByteBuffer) throws(FrameFault) -> Header? {
        let start = buffer.readerIndex
        guard let first = buffer.getInteger(at: start, as: UInt8.self),
            let second = buffer.getInteger(at: start + 1, as: UInt8.self)
        else { return nil }
        var header = Header(isFinal: first & 0x80 != 0, opcode: first & 0x0F)
        guard first & 0x70 == 0, [0, 1, 2, 8, 9, 10].contains(header.opcode), (second & 0x80 != 0) == isMasked else {
            throw .malformed
        }
        switch second & 0x7F {
        case 126:
            guard let length = buffer.getInteger(at: start + 2, as: UInt16.self) else { return nil }
            guard length > 125 else { throw .malformed }
            (header.length, header.size) = (Int(length), 4)
        case 127:
            guard let length = buffer.getInteger(at: start + 2, as: UInt64.self) else { return nil }
            guard length > 0xFFFF, length <= UInt64(Int64.max) else { throw .malformed }
            (header.length, header.size) = (Int(length), 10)
        case let length: header.length = Int(length)
        }
        if header.opcode >= 8, !header.isFinal || header.length > 125 { throw .malformed }
        if header.opcode < 8, passing == nil, header.length > limit - fragmentBytes { throw .tooLong }
        if isMasked {
            guard let mask = buffer.getInteger(at: start + header.size, as: UInt32.self) else { return nil }
            header.mask = mask
            header.size += 4
        }
        return header
    }

    /// Returns the payload if it is empty, or a code allowed on the wire and a reason in UTF-8. Section 7.4.
    private static func checkedClose(_ payload: ByteBuffer) throws(FrameFault) -> ByteBuffer {
        guard payload.readableBytes > 0 else { return payload }
        var rest = payload
        guard let code = rest.readInteger(as: UInt16.self) else { throw .malformed }
        guard (1000...1003).contains(code) || (1007...1014).contains(code) || (3000...4999).contains(code) else {
            throw .malformed
        }
        guard rest.isUTF8 else { throw .notText }
        return payload
    }
}

extension ByteBuffer {
    /// Whether the bytes are UTF-8.
    package var isUTF8: Bool {
        withUnsafeReadableBytes { bytes in
            bytes.allSatisfy { $0 < 0x80 } || String(validating: bytes, as: UTF8.self) != nil
        }
    }

    /// Masks or unmasks the readable bytes, which is the same operation. Section 5.3.
    ///
    /// - Parameter mask: the four bytes of the mask, big-endian.
    mutating func applyMask(_ mask: UInt32) {
        let count = readableBytes
        let wide = (UInt64(mask) << 32 | UInt64(mask)).bigEndian
        withUnsafeMutableReadableBytes { bytes in
            var index = 0
            while index + 8 <= count {
                let word = bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                bytes.storeBytes(of: word ^ wide, toByteOffset: index, as: UInt64.self)
                index += 8
            }
            while index < count {
                bytes[index] ^= UInt8(truncatingIfNeeded: mask >> (24 - 8 * UInt32(index % 4)))
                index += 1
            }
        }
    }

    /// Writes a whole message as one frame.
    ///
    /// - Parameter mask: a random number for this frame if the receiver is a server, else nil.
    package mutating func write(_ message: WebSocketMessage, mask: UInt32?) {
        switch message {
        case .data(let bytes, let isText): writeFrame(isText ? 1 : 2, bytes, mask)
        case .close(let bytes): writeFrame(8, bytes, mask)
        case .ping(let bytes): writeFrame(9, bytes, mask)
        case .pong(let bytes): writeFrame(10, bytes, mask)
        }
    }

    /// Writes a frame.
    ///
    /// - Parameters:
    ///   - isFinal: whether it is the last of its message.
    ///   - mask: as for a whole message.
    package mutating func writeFrame(
        _ opcode: UInt8, _ payload: ByteBuffer, _ mask: UInt32?, isFinal: Bool = true
    ) {
        let length = payload.readableBytes
        let masked: UInt8 = mask == nil ? 0 : 0x80
        writeInteger(isFinal ? 0x80 | opcode : opcode)
        if length < 126 {
            writeInteger(masked | UInt8(length))
        } else if length <= 0xFFFF {
            writeInteger(masked | 126)
            writeInteger(UInt16(length))
        } else {
            writeInteger(masked | 127)
            writeInteger(UInt64(length))
        }
        guard let mask else {
            writeImmutableBuffer(payload)
            return
        }
        writeInteger(mask)
        let start = writerIndex
        writeImmutableBuffer(payload)
        guard length > 0 else { return }
        // Masks only the payload just written, in place.
        let front = readerIndex
        moveReaderIndex(to: start)
        applyMask(mask)
        moveReaderIndex(to: front)
    }
}
