// The frames of stream transports (Unix socket, TCP with TLS, WebSocket). This target knows no socket, no clock and no
// service: bytes go in, frames come out.
//
// Every frame carries the id of its exchange, so replies may come in any order and a cancelled exchange takes its late
// reply with it. Ids are chosen by the client, and a connection uses each once; with 64 bits they never repeat.

package import NIOCore

/// One frame between a client and a service.
///
/// ```
///  0        4      5              13
/// +--------+------+--------------+---------+
/// | length | kind | id of the    | payload |
/// | u32    | u8   | exchange u64 |         |
/// +--------+------+--------------+---------+
/// ```
///
/// Numbers are big-endian. The length counts everything behind it: at least 9, at most the limit of the reader.
package enum Frame: Equatable, Sendable {
    /// A client opens the connection: version, then the protocol's name in UTF-8. Its id is 0.
    case hello(version: UInt8, proto: ByteBuffer)
    /// The service accepts, with the version that it speaks.
    case welcome(version: UInt8)
    /// The service does not accept: a reason for people. It closes the connection after this frame.
    case unavailable(reason: ByteBuffer)
    /// A request of the client.
    case request(id: UInt64, ByteBuffer)
    /// The service's reply to a request.
    case reply(id: UInt64, ByteBuffer)
    /// A request failed: a code of `pawl_transports.h` and a reason.
    case failure(id: UInt64, code: Int32, reason: ByteBuffer)
    /// The client does not wait for this reply any more.
    case cancel(id: UInt64)
    /// The service takes no more requests. It answers those under way and closes the connection.
    case drain

    /// The version of this format.
    package static let version: UInt8 = 1
    /// Bytes of the length.
    package static let lengthSize = 4
    /// Bytes of kind and id.
    package static let headSize = 9

    fileprivate enum Kind: UInt8 {
        case hello = 1
        case welcome, unavailable, request, reply, failure, cancel, drain
    }
}

/// Why bytes are no frames. The connection that carried them is closed.
package enum FrameError: Error, Equatable {
    /// The length is above the reader's limit.
    case tooLong(length: Int, limit: Int)
    /// The length is below that of an empty frame, or of this kind's fields.
    case tooShort
    case unknownKind(UInt8)
    /// A frame without payload or id has one.
    case malformed
    /// The connection ended inside a frame.
    case truncated
}

extension Frame {
    private var kind: Kind {
        switch self {
        case .hello: .hello
        case .welcome: .welcome
        case .unavailable: .unavailable
        case .request: .request
        case .reply: .reply
        case .failure: .failure
        case .cancel: .cancel
        case .drain: .drain
        }
    }

    /// Appends the frame to a buffer.
    ///
    /// - Precondition: the payload has less than 4 GiB; callers compare it with their limit before.
    package func write(to buffer: inout ByteBuffer) {
        switch self {
        case .hello(let version, let proto):
            writeHead(0, 1 + proto.readableBytes, &buffer)
            buffer.writeInteger(version)
            buffer.writeImmutableBuffer(proto)
        case .welcome(let version):
            writeHead(0, 1, &buffer)
            buffer.writeInteger(version)
        case .unavailable(let reason):
            writeHead(0, reason.readableBytes, &buffer)
            buffer.writeImmutableBuffer(reason)
        case .request(let id, let payload), .reply(let id, let payload):
            writeHead(id, payload.readableBytes, &buffer)
            buffer.writeImmutableBuffer(payload)
        case .failure(let id, let code, let reason):
            writeHead(id, 4 + reason.readableBytes, &buffer)
            buffer.writeInteger(code)
            buffer.writeImmutableBuffer(reason)
        case .cancel(let id):
            writeHead(id, 0, &buffer)
        case .drain:
            writeHead(0, 0, &buffer)
        }
    }

    private func writeHead(_ id: UInt64, _ count: Int, _ buffer: inout ByteBuffer) {
        precondition(count <= Int(UInt32.max) - Self.headSize, "a payload has less than 4 GiB")
        buffer.reserveCapacity(minimumWritableBytes: Self.lengthSize + Self.headSize + count)
        buffer.writeInteger(UInt32(Self.headSize + count))
        buffer.writeInteger(kind.rawValue)
        buffer.writeInteger(id)
    }

    /// Reads what stands behind the length.
    fileprivate init(body: ByteBuffer) throws(FrameError) {
        var body = body
        guard let number = body.readInteger(as: UInt8.self), let id = body.readInteger(as: UInt64.self) else {
            throw .tooShort
        }
        guard let kind = Kind(rawValue: number) else { throw .unknownKind(number) }
        switch kind {
        case .hello, .welcome, .unavailable, .drain: guard id == 0 else { throw .malformed }
        case .request, .reply, .failure, .cancel: guard id != 0 else { throw .malformed }
        }
        switch kind {
        case .hello:
            guard let version = body.readInteger(as: UInt8.self) else { throw .tooShort }
            self = .hello(version: version, proto: body)
        case .welcome:
            guard let version = body.readInteger(as: UInt8.self) else { throw .tooShort }
            guard body.readableBytes == 0 else { throw .malformed }
            self = .welcome(version: version)
        case .unavailable: self = .unavailable(reason: body)
        case .request: self = .request(id: id, body)
        case .reply: self = .reply(id: id, body)
        case .failure:
            guard let code = body.readInteger(as: Int32.self) else { throw .tooShort }
            self = .failure(id: id, code: code, reason: body)
        case .cancel:
            guard body.readableBytes == 0 else { throw .malformed }
            self = .cancel(id: id)
        case .drain:
            guard body.readableBytes == 0 else { throw .malformed }
            self = .drain
        }
    }
}

/// Reads frames from a stream of bytes, in pieces of any size.
///
/// It holds at most one frame that is not complete, and as much memory for frames that were read. After an error it
/// stays failed.
package struct FrameReader {
    /// Upper bound of the length field, in bytes.
    package var limit: Int
    private var buffer = ByteBuffer()
    private var failure: FrameError?

    /// - Parameter limit: Upper bound of the length field. A longer frame is refused before its payload is stored.
    package init(limit: Int) { self.limit = limit }

    /// The memory for what has arrived, in bytes.
    package var storage: Int { buffer.storageCapacity }

    /// Takes bytes that arrived.
    ///
    /// Discards the read bytes once they are as many as the unread ones. Otherwise a peer whose every write ends inside a
    /// frame would let the buffer grow for ever.
    package mutating func append(_ bytes: ByteBuffer) {
        guard failure == nil else { return }
        guard buffer.readableBytes > 0 else {
            buffer = bytes
            return
        }
        if buffer.readerIndex >= buffer.readableBytes { buffer.discardReadBytes() }
        buffer.writeImmutableBuffer(bytes)
    }

    /// The next frame, or nil if more bytes are needed.
    package mutating func next() throws(FrameError) -> Frame? {
        if let failure { throw failure }
        do {
            return try read()
        } catch {
            failure = error
            buffer = ByteBuffer()
            throw error
        }
    }

    private mutating func read() throws(FrameError) -> Frame? {
        guard let length = buffer.getInteger(at: buffer.readerIndex, as: UInt32.self).map(Int.init) else { return nil }
        guard length <= limit else { throw .tooLong(length: length, limit: limit) }
        guard length >= Frame.headSize else { throw .tooShort }
        guard buffer.readableBytes >= Frame.lengthSize + length else { return nil }
        buffer.moveReaderIndex(forwardBy: Frame.lengthSize)
        guard let body = buffer.readSlice(length: length) else { return nil }
        if buffer.readableBytes == 0 { buffer = ByteBuffer() }
        return try Frame(body: body)
    }

    /// Checks that the stream did not end inside a frame.
    package func finish() throws(FrameError) {
        if let failure { throw failure }
        guard buffer.readableBytes == 0 else { throw .truncated }
    }
}

extension Frame {
    /// The limit of a ``FrameReader`` for payloads of this size. Room for the code of a failure is included.
    package static func lengthLimit(message: Int) -> Int { headSize + 4 + message }
}
