import Foundation

/// A client of WebSockets (RFC 6455) that can also misbehave: frames go out as they are told. It belongs to one thread at a time.
///
/// Messages that nobody asked for yet stay in `pending`. A ping is answered when it is read.
package final class WebSocketClient {
    package enum Opcode: UInt8, Sendable {
        case continuation = 0
        case text = 1
        case binary = 2
        case close = 8
        case ping = 9
        case pong = 10
    }

    /// The key of the RFC's own example, so that nobody has to compute the answer to it. Section 1.3.
    package static let handshake = [
        ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    static let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    package private(set) var pending: [JSONValue] = []
    /// The code that the other side closed with; 1006 where it was torn.
    package private(set) var closeCode: Int?
    /// Whether messages are lines, kept in ``lines``, and no JSON.
    package var carriesLines = false
    /// Messages that came while ``carriesLines``, each with whether it was text.
    package private(set) var lines: [(bytes: [UInt8], isText: Bool)] = []
    /// Pongs that came.
    package private(set) var pongs: [[UInt8]] = []
    private let stream: ByteStream
    private var fragments: [UInt8] = []
    private var isText = false

    init(_ stream: ByteStream) {
        self.stream = stream
    }

    // MARK: Saying

    package func send(_ message: JSONValue) throws {
        try send(.text, message.bytes)
    }

    /// One frame. The mask changes nothing but the bytes on the wire; `masked: false` breaks the protocol.
    package func send(
        _ opcode: Opcode, _ payload: [UInt8], isFinal: Bool = true, masked: Bool = true
    ) throws {
        var frame: [UInt8] = [(isFinal ? 0x80 : 0) | opcode.rawValue]
        let maskBit: UInt8 = masked ? 0x80 : 0
        switch payload.count {
        case ..<126: frame.append(maskBit | UInt8(payload.count))
        case ..<65_536: frame += [maskBit | 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        default:
            frame.append(maskBit | 127)
            frame += (0..<8).map { UInt8(truncatingIfNeeded: payload.count >> (56 - 8 * $0)) }
        }
        if masked {
            let mask: [UInt8] = [0x37, 0xFA, 0x21, 0x3D]
            frame += mask + payload.enumerated().map { $1 ^ mask[$0 & 3] }
        } else {
            frame += payload
        }
        try stream.send(frame)
    }

    /// A text message in several frames.
    package func sendInPieces(_ message: JSONValue, of size: Int) throws {
        let bytes = message.bytes
        for start in stride(from: 0, to: bytes.count, by: size) {
            let end = min(start + size, bytes.count)
            try send(start == 0 ? .text : .continuation, Array(bytes[start..<end]), isFinal: end == bytes.count)
        }
    }

    package func close(code: Int = 1000) throws {
        try send(.close, [UInt8(code >> 8), UInt8(code & 0xFF)])
    }

    // MARK: Hearing

    /// The first message that fits, taken out of `pending`. Messages before it stay there.
    @discardableResult
    package func expect(
        _ what: String, timeout: Duration = Deadline.usual, where fits: (JSONValue) -> Bool
    ) throws -> JSONValue {
        let deadline = Deadline(timeout)
        var seen = 0
        while true {
            while seen < pending.count {
                if fits(pending[seen]) { return pending.remove(at: seen) }
                seen += 1
            }
            if let closeCode { throw PeerError("closed with \(closeCode), no \(what); there is \(pending)") }
            do {
                try readFrame(.milliseconds(Int64(deadline.milliseconds)))
            } catch {
                throw PeerError("no \(what): \(error); there is \(pending)")
            }
        }
    }

    /// Says a line of IRC, without its end.
    package func say(_ line: String, _ opcode: Opcode = .text) throws { try send(opcode, Array(line.utf8)) }

    /// The first line that holds these bytes. Lines up to it are forgotten.
    @discardableResult
    package func expectLine(
        _ part: some Sequence<UInt8>, timeout: Duration = Deadline.usual
    ) throws -> (bytes: [UInt8], isText: Bool) {
        let (deadline, part) = (Deadline(timeout), Array(part))
        while true {
            while !lines.isEmpty {
                let line = lines.removeFirst()
                if line.bytes.indices.contains(where: { line.bytes[$0...].starts(with: part) }) { return line }
            }
            if let closeCode {
                throw PeerError("closed with \(closeCode), no \(String(decoding: part, as: UTF8.self))")
            }
            try readFrame(.milliseconds(Int64(deadline.milliseconds)))
        }
    }

    /// Reads frames until a pong has come.
    package func expectPong() throws -> [UInt8] {
        while pongs.isEmpty, closeCode == nil { try readFrame(Deadline.usual) }
        return pongs.isEmpty ? [] : pongs.removeFirst()
    }

    /// The first message of this type.
    @discardableResult
    package func expect(_ type: String, timeout: Duration = Deadline.usual) throws -> JSONValue {
        try expect(type, timeout: timeout) { $0["type"].string == type }
    }

    /// Reads on to the end of the connection; answers its code.
    @discardableResult
    package func expectEnd(timeout: Duration = Deadline.usual) throws -> Int {
        let deadline = Deadline(timeout)
        while closeCode == nil { try readFrame(.milliseconds(Int64(deadline.milliseconds))) }
        return closeCode ?? 1006
    }

    private func readFrame(_ timeout: Duration) throws {
        var size: (head: Int, payload: Int)?
        let whole = try stream.read("frame", timeout: timeout) { bytes in
            size = Self.size(bytes)
            return size.map { bytes.count >= $0.head + $0.payload } ?? false
        }
        guard whole, let size else {
            closeCode = closeCode ?? 1006
            return
        }
        let head = stream.take(size.head)
        let payload = stream.take(size.payload)
        guard head[0] & 0x70 == 0, head[1] & 0x80 == 0 else {
            throw PeerError("a frame that no server may send: \(head)")
        }
        try take(Opcode(rawValue: head[0] & 0x0F), isFinal: head[0] & 0x80 != 0, payload)
    }

    private func take(_ opcode: Opcode?, isFinal: Bool, _ payload: [UInt8]) throws {
        switch opcode {
        case .text, .binary, .continuation:
            if opcode != .continuation { isText = opcode == .text }
            fragments += payload
            guard isFinal else { return }
            if carriesLines {
                lines.append((fragments, isText))
            } else {
                pending.append(try JSONValue(fragments))
            }
            fragments = []
        case .ping: try send(.pong, payload)
        case .pong: pongs.append(payload)
        case .close: closeCode = payload.count >= 2 ? Int(payload[0]) << 8 | Int(payload[1]) : 1005
        case nil: throw PeerError("a frame of an unknown kind")
        }
    }

    /// Of the first frame; nothing while its head is not complete. Section 5.2.
    private static func size(_ bytes: [UInt8]) -> (head: Int, payload: Int)? {
        guard bytes.count >= 2 else { return nil }
        let short = Int(bytes[1] & 0x7F)
        let extra = short == 127 ? 8 : short == 126 ? 2 : 0
        guard bytes.count >= 2 + extra else { return nil }
        let length = extra == 0 ? short : bytes[2..<(2 + extra)].reduce(0) { $0 << 8 | Int($1) }
        return (2 + extra, length)
    }
}
