import Glibc
import NIOCore

/// A whole request or answer of HTTP/1.1, as text.
struct WebMessage {
    let head: String
    let body: String

    /// Takes one off the front, once it is all there.
    init?(_ buffer: inout ByteBuffer) {
        guard let length = buffer.lengthOfHead,
            let head = buffer.getString(at: buffer.readerIndex, length: length)
        else { return nil }
        self.head = head
        var rest = buffer
        rest.moveReaderIndex(forwardBy: length)
        if Self.field("transfer-encoding", of: head) != nil {
            guard let body = Self.chunks(&rest) else { return nil }
            self.body = body
        } else {
            let length = Self.field("content-length", of: head).flatMap { Int($0) } ?? 0
            guard let body = rest.readString(length: length) else { return nil }
            self.body = body
        }
        buffer = rest
    }

    /// The words of the first line.
    var words: [Substring] {
        self.head.utf8.prefix { $0 != 13 }.split(separator: 32).map { Substring($0) }
    }

    /// The value of a field, whose name is in lower case.
    func field(_ name: String) -> String? { Self.field(name, of: self.head) }

    private static func field(_ name: String, of head: String) -> String? {
        for line in head.utf8.split(separator: 10) where line.count > name.utf8.count {
            let colon = line.index(line.startIndex, offsetBy: name.utf8.count)
            guard line[colon] == UInt8(ascii: ":"), zip(line[..<colon], name.utf8).allSatisfy({ $0 | 0x20 == $1 })
            else {
                continue
            }
            return String(Substring(line[colon...].dropFirst().drop { $0 == 32 }.prefix { $0 != 13 }))
        }
        return nil
    }

    private static func chunks(_ buffer: inout ByteBuffer) -> String? {
        var body = ""
        while let end = buffer.readableBytesView.firstIndex(of: 13),
            let digits = buffer.readString(length: end - buffer.readerIndex), let size = Int(digits, radix: 16)
        {
            buffer.moveReaderIndex(forwardBy: 2)
            guard let chunk = buffer.readString(length: size), buffer.readableBytes >= 2 else { return nil }
            buffer.moveReaderIndex(forwardBy: 2)
            guard size > 0 else { return body }
            body += chunk
        }
        return nil
    }
}

/// Whole frames of a WebSocket, RFC 6455 section 5.2, of at most 65,535 bytes.
struct WebFrame {
    let isText: Bool
    let text: String

    /// Takes one off the front, once it is all there.
    static func read(_ buffer: inout ByteBuffer) -> WebFrame? {
        var rest = buffer
        guard let first = rest.readInteger(as: UInt8.self), let second = rest.readInteger(as: UInt8.self) else {
            return nil
        }
        var length = Int(second & 0x7F)
        if length == 126 {
            guard let longer = rest.readInteger(as: UInt16.self) else { return nil }
            length = Int(longer)
        }
        var mask: [UInt8] = [0, 0, 0, 0]
        if second & 0x80 != 0 {
            guard let bytes = rest.readBytes(length: 4) else { return nil }
            mask = bytes
        }
        guard var payload = rest.readBytes(length: length) else { return nil }
        if mask != [0, 0, 0, 0] {
            for index in payload.indices { payload[index] ^= mask[index & 3] }
        }
        buffer = rest
        return WebFrame(isText: first == 0x81, text: String(decoding: payload, as: UTF8.self))
    }

    /// - Parameter isMasked: what clients have to do; with zeros, which costs nothing.
    static func write(_ text: String, isMasked: Bool, to buffer: inout ByteBuffer) {
        let mask: UInt8 = isMasked ? 0x80 : 0
        buffer.writeInteger(UInt8(0x81))
        if text.utf8.count < 126 {
            buffer.writeInteger(mask | UInt8(text.utf8.count))
        } else {
            buffer.writeInteger(mask | 126)
            buffer.writeInteger(UInt16(text.utf8.count))
        }
        if isMasked { buffer.writeInteger(UInt32(0)) }
        buffer.writeString(text)
    }
}

extension ByteBuffer {
    /// Bytes up to and with the first empty line.
    var lengthOfHead: Int? {
        self.withUnsafeReadableBytes { bytes in
            var index = 3
            while index < bytes.count {
                if bytes[index] == 10, bytes[index - 1] == 13, bytes[index - 2] == 10, bytes[index - 3] == 13 {
                    return index + 1
                }
                index += 1
            }
            return nil
        }
    }
}

extension String {
    /// Whether these bytes are somewhere in it.
    func holds(_ part: String) -> Bool {
        self.withCString { whole in part.withCString { strstr(whole, $0) != nil } }
    }
}
