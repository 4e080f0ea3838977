// Reads heads. RFC 9112 sections 2 to 6. A line ends in CR LF only; continuation lines are rejected.
//
// NIOHTTP1 does not parse what passes through the gateway: its decoder drops the reason phrase, rejects unknown methods
// and changes values that are not UTF-8. A message that could be read in two ways is rejected, by rules that are these
// and not those of a version of llhttp.

package import NIOCore

/// A request's head with the framing of its body and the options of its connection.
package struct ReceivedRequest: Sendable, Equatable {
    package var head: RequestHead
    /// HTTP/1.x; 1 for HTTP/2, whose requests are forwarded like those of HTTP/1.1.
    package var minorVersion: Int
    package var framing: BodyFraming
    /// Whether the connection stays open after this request.
    package var keepsAlive: Bool
    /// Whether the client waits for a 100 before it sends the body.
    package var expectsContinue: Bool
}

/// A response's head with the framing of its body.
package struct ReceivedResponse: Sendable, Equatable {
    package var head: ResponseHead
    package var framing: BodyFraming
    package var keepsAlive: Bool
}

/// Reads heads from the front of a buffer. Each direction of a connection has its own reader.
package struct HeadReader: Sendable {
    private let limits: HeadLimits
    /// Bytes already searched for the end of the head, so that a slow sender causes no repeated work.
    private var scanned = 0

    package init(limits: HeadLimits = HeadLimits()) { self.limits = limits }

    /// Whether the client has begun to send a request.
    package func hasBegun(_ buffer: ByteBuffer) -> Bool { buffer.readableBytes > 0 }

    /// Returns the next request; nil if its head is incomplete. Consumes whole heads only.
    package mutating func request(_ buffer: inout ByteBuffer) throws(HTTPFault) -> ReceivedRequest? {
        // Section 2.2: an empty line before a request is skipped, also if its two bytes come one after the other.
        while scanned < 2, buffer.getInteger(at: buffer.readerIndex, as: UInt16.self) == 0x0D0A {
            buffer.moveReaderIndex(forwardBy: 2)
            scanned = 0
        }
        guard let length = try headLength(buffer) else { return nil }
        let request = try buffer.withUnsafeReadableBytes { bytes in
            HeadParser.parsed(UnsafeRawBufferPointer(rebasing: bytes[..<length]), limits) {
                parser throws(HTTPFault) in try parser.request()
            }
        }.get()
        buffer.moveReaderIndex(forwardBy: length)
        return request
    }

    /// Returns the next response; nil if its head is incomplete.
    ///
    /// - Parameter isToHead: whether the request was a HEAD, whose response has no body.
    package mutating func response(
        _ buffer: inout ByteBuffer, isToHead: Bool
    ) throws(HTTPFault) -> ReceivedResponse? {
        guard let length = try headLength(buffer) else { return nil }
        let response = try buffer.withUnsafeReadableBytes { bytes in
            HeadParser.parsed(UnsafeRawBufferPointer(rebasing: bytes[..<length]), limits) {
                parser throws(HTTPFault) in try parser.response(isToHead: isToHead)
            }
        }.get()
        buffer.moveReaderIndex(forwardBy: length)
        return response
    }

    /// Returns the trailers after a chunked body, and consumes the empty line; nil if they are incomplete.
    package mutating func trailers(_ buffer: inout ByteBuffer) throws(HTTPFault) -> HeaderFields? {
        if buffer.getInteger(at: buffer.readerIndex, as: UInt16.self) == 0x0D0A {
            buffer.moveReaderIndex(forwardBy: 2)
            return HeaderFields()
        }
        guard let length = try headLength(buffer) else { return nil }
        let fields = try buffer.withUnsafeReadableBytes { bytes in
            HeadParser.parsed(UnsafeRawBufferPointer(rebasing: bytes[..<length]), limits) {
                parser throws(HTTPFault) in try parser.trailers()
            }
        }.get()
        buffer.moveReaderIndex(forwardBy: length)
        return fields
    }

    /// Returns the `Origin` fields of a request whose head is rejected or incomplete: those that can be read line by line.
    ///
    /// For the refusal only, so that the page that has sent the request can read it.
    package func origins(_ buffer: ByteBuffer) -> HeaderFields {
        var fields = HeaderFields()
        let lines = buffer.readableBytesView.prefix(limits.bytes).split(
            separator: 0x0A, omittingEmptySubsequences: false)
        // The first line names the target, and the last has not come as a whole.
        for line in lines.dropFirst().dropLast() {
            let line = line.last == 0x0D ? line.dropLast() : line
            if line.isEmpty { break }
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")),
                HeaderFields.areAlike(String(decoding: line[..<colon], as: UTF8.self), "origin"),
                line.allSatisfy({ 0x20...0x7E ~= $0 || $0 == 0x09 })
            else { continue }
            let value = FieldParameters.trimmed(Array(line[(colon + 1)...])[...])
            fields.add("Origin", String(decoding: value, as: UTF8.self))
        }
        return fields
    }

    /// The length of the head with its empty line, in bytes; nil if the head is incomplete.
    private mutating func headLength(_ buffer: ByteBuffer) throws(HTTPFault) -> Int? {
        let start = scanned
        let (end, isMalformed) = buffer.withUnsafeReadableBytes { bytes -> (Int?, Bool) in
            var index = start
            while index < bytes.count {
                if bytes[index] == 0x0A {
                    guard index > 0, bytes[index - 1] == 0x0D else { return (nil, true) }
                    if index >= 3, bytes[index - 2] == 0x0A { return (index + 1, false) }
                }
                index += 1
            }
            return (nil, false)
        }
        guard !isMalformed else { throw .lineEnd }
        if let end, end <= limits.bytes {
            scanned = 0
            return end
        }
        scanned = buffer.readableBytes
        guard scanned > limits.bytes || end != nil else { return nil }
        let hasLine = buffer.readableBytesView.prefix(limits.target + 64).contains(0x0A)
        throw hasLine ? .headTooLong : .targetTooLong
    }
}
