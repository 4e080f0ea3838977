// Reading heads. RFC 9112 sections 2 to 6. Lines end in CR LF and in nothing else; no line is continued on the next.

package import NIOCore

/// A request's head with what it says about its body and its connection.
package struct ReceivedRequest: Sendable, Equatable {
    package var head: RequestHead
    /// HTTP/1.x.
    package var minorVersion: Int
    package var framing: BodyFraming
    /// Whether the client wants to go on with this connection afterwards.
    package var keepsAlive: Bool
    /// Whether the client waits with the body for a 100.
    package var expectsContinue: Bool
}

/// An answer's head, likewise.
package struct ReceivedResponse: Sendable, Equatable {
    package var head: ResponseHead
    package var framing: BodyFraming
    package var keepsAlive: Bool
}

/// Takes heads from the front of what has arrived. One reader for each direction of a connection.
package struct HeadReader: Sendable {
    private let limits: HeadLimits
    /// Bytes that were looked at and hold no end of the head, so that slow senders cost no more than fast ones.
    private var scanned = 0

    package init(limits: HeadLimits = HeadLimits()) { self.limits = limits }

    /// Whether the client has begun a request.
    package func hasBegun(_ buffer: ByteBuffer) -> Bool { buffer.readableBytes > 0 }

    /// The next request; nothing while it is not whole. The buffer moves only behind a whole head.
    package mutating func request(_ buffer: inout ByteBuffer) throws(HTTPFault) -> ReceivedRequest? {
        // Section 2.2: an empty line before a request is skipped.
        while scanned == 0, buffer.getInteger(at: buffer.readerIndex, as: UInt16.self) == 0x0D0A {
            buffer.moveReaderIndex(forwardBy: 2)
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

    /// The next answer; nothing while it is not whole.
    ///
    /// - Parameter isToHead: whether the request was a HEAD, whose answer has no body.
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

    /// The fields behind a chunked body, with the empty line.
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

    /// How long the head is, with its empty line.
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
