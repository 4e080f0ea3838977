// Output to the client.

import HTTPCodec
import NIOCore
import NIOSupport

extension HTTPConnection {
    /// Ours: maximum size of a piece that is copied into `output`, in bytes. Copying costs less than another write.
    private static let copied = 4096

    package var isWritable: Bool { channel.isWritable }

    private func emit() {
        guard output.readableBytes > 0 else { return }
        channel.write(output, promise: nil)
        isOutputShared = true
        needsFlush = true
        output.moveReaderIndex(to: output.writerIndex)
        output.freeUnusedStorage()
    }

    /// Clears `output` after it was written. NIO reuses its memory if the channel has released it.
    private func prepare() {
        guard isOutputShared else { return }
        isOutputShared = false
        output.clear()
    }

    package func flush() {
        emit()
        guard needsFlush else { return }
        needsFlush = false
        channel.flush()
        noteUnwritten()
    }

    /// Writes bytes unchanged.
    ///
    /// - Parameter room: released when they are written, or dropped with the connection.
    package func write(_ bytes: ByteBuffer, room: ByteReservation? = nil) {
        guard bytes.readableBytes > Self.copied else {
            prepare()
            output.writeImmutableBuffer(bytes)
            room?.release()
            return
        }
        emit()
        channel.write(bytes, promise: room?.released(on: eventLoop))
        needsFlush = true
    }

    /// Writes a head unchanged.
    package func write(_ head: ResponseHead) {
        prepare()
        output.write(head)
    }

    func inform(_ head: ResponseHead) { write(head) }

    package func begin(_ head: ResponseHead, framing: BodyFraming) {
        let isOpenEnded = framing == .chunked || framing == .untilClose
        let isOld = exchange?.received.minorVersion == 0
        if isOpenEnded, isOld { endAfterThis() }
        sendsChunks = isOpenEnded && !isOld
        services.meters.answered(head.status)
        var head = Forwarding.response(head, isChunked: sendsChunks)
        addConnection(&head, isOwnAnswer: false)
        write(head)
    }

    package func send(_ bytes: ByteBuffer, room: ByteReservation?) {
        guard sendsChunks else { return write(bytes, room: room) }
        prepare()
        output.writeChunkLine(bytes.readableBytes)
        write(bytes, room: room)
        prepare()
        output.writeStaticString("\r\n")
    }

    func end(_ trailers: HeaderFields) {
        guard sendsChunks else { return }
        prepare()
        output.writeLastChunk(trailers)
    }

    package func respond(_ head: ResponseHead, _ body: ByteBuffer, room: ByteReservation?) {
        services.meters.answered(head.status)
        var head = head.complete(with: body)
        addConnection(&head, isOwnAnswer: true)
        write(head)
        guard !head.hasNoBody, exchange?.received.head.method != "HEAD" else { return room?.release() ?? () }
        write(body, room: room)
    }

    private func addConnection(_ head: inout ResponseHead, isOwnAnswer: Bool) {
        if !decidesToStay(isOwnAnswer: isOwnAnswer) {
            head.headers.add("Connection", "close")
        } else if exchange?.received.minorVersion == 0 {
            head.headers.add("Connection", "keep-alive")
        }
    }
}
