// Lines of IRC as messages of a WebSocket, without a channel. IRCv3 "WebSocket".

import NIOCore
import NIOSupport

/// How lines are carried. The raw value is the name of the subprotocol.
enum LineSubprotocol: String {
    /// Lines of any bytes, in binary messages.
    case binary = "binary.ircv3.net"
    /// Lines of UTF-8, in text messages.
    case text = "text.ircv3.net"

    /// The first of the client's subprotocols that exists here. RFC 6455 section 4.2.2.
    static func chosen(from offered: [String]) -> Self? { offered.lazy.compactMap(Self.init(rawValue:)).first }
}

/// Why a connection is closed. The raw value is the close code. RFC 6455 section 7.4.1.
enum WebSocketLineFault: UInt16, Error, Equatable {
    /// Fragments out of order.
    case malformed = 1002
    /// A text message that is not UTF-8, or a message with more than one line.
    case notALine = 1007
    /// A message longer than ``WebSocketLines/limit``.
    case tooLong = 1009
}

/// Makes lines of messages, and messages of lines.
struct WebSocketLines {
    /// Ours: the maximum size of a message, in bytes. Lines with tags have at most 8,702, and the rules for lines that
    /// are too long apply to those that are a little longer.
    static let limit = 16 << 10

    let subprotocol: LineSubprotocol
    /// A line to the client of which the end has not been written.
    private var unfinished = ByteBuffer()

    init(_ subprotocol: LineSubprotocol) { self.subprotocol = subprotocol }

    /// Returns the line of a message with its CR LF; nil for an empty message.
    ///
    /// A message is one line without its end. One line end is accepted, as some clients send it. More would be several
    /// lines, of which a filter in front of the gateway could have seen only the first.
    static func line(_ message: ByteBuffer, isText: Bool) throws(WebSocketLineFault) -> ByteBuffer? {
        guard message.readableBytes <= limit else { throw .tooLong }
        var view = message.readableBytesView[...]
        if view.last == 0x0A { view = view.dropLast() }
        if view.last == 0x0D { view = view.dropLast() }
        guard !view.contains(where: { $0 == 0x0A || $0 == 0x0D || $0 == 0 }) else { throw .notALine }
        guard !isText || String(validating: view, as: UTF8.self) != nil else { throw .notALine }
        guard !view.isEmpty else { return nil }
        var line = ByteBuffer()
        line.writeBytes(view)
        line.writeStaticString("\r\n")
        return line
    }

    /// Returns the messages of whole lines. Bytes behind the last line wait for their end.
    ///
    /// In text messages bytes that are not UTF-8 become U+FFFD, as the specification has it.
    mutating func messages(_ bytes: ByteBuffer) -> [ByteBuffer] {
        unfinished.writeImmutableBuffer(bytes)
        var messages: [ByteBuffer] = []
        while let end = unfinished.readableBytesView.firstIndex(of: 0x0A) {
            let count = end - unfinished.readerIndex
            guard var line = unfinished.readSlice(length: count + 1) else { break }
            line.moveWriterIndex(to: line.writerIndex - 1)
            if line.readableBytesView.last == 0x0D { line.moveWriterIndex(to: line.writerIndex - 1) }
            guard line.readableBytes > 0 else { continue }
            if subprotocol == .text, String(validating: line.readableBytesView, as: UTF8.self) == nil {
                line = ByteBuffer(string: String(decoding: line.readableBytesView, as: UTF8.self))
            }
            messages.append(line)
        }
        unfinished.discardReadBytes()
        unfinished.freeUnusedStorage()
        return messages
    }
}
