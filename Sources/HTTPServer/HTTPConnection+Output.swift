// Output to the client.

import HTTPCodec
import NIOCore

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
    }

    package func send(_ bytes: ByteBuffer) {
        if bytes.readableBytes <= Self.copied {
            prepare()
            output.writeImmutableBuffer(bytes)
        } else {
            emit()
            channel.write(bytes, promise: nil)
            needsFlush = true
        }
    }

    /// Writes a head unchanged.
    package func send(_ head: ResponseHead) {
        prepare()
        output.write(head)
    }

    package func send(_ bytes: ByteBuffer, isChunked: Bool) {
        guard isChunked else { return send(bytes) }
        prepare()
        output.writeChunkLine(bytes.readableBytes)
        send(bytes)
        prepare()
        output.writeStaticString("\r\n")
    }

    func sendEnd(_ trailers: HeaderFields) {
        prepare()
        output.writeLastChunk(trailers)
    }

    /// Sends the head of the backend's answer.
    ///
    /// - Returns: whether the body has to be sent chunked.
    package func begin(_ head: ResponseHead, framing: BodyFraming) -> Bool {
        let isOpenEnded = framing == .chunked || framing == .untilClose
        let isOld = exchange?.received.minorVersion == 0
        if isOpenEnded, isOld { endAfterThis() }
        let isChunked = isOpenEnded && !isOld
        services.meters.answered(head.status)
        var head = Forwarding.response(head, isChunked: isChunked)
        addConnection(&head, isOwnAnswer: false)
        send(head)
        return isChunked
    }

    /// Sends a complete answer.
    package func respond(_ head: ResponseHead, _ body: ByteBuffer) {
        services.meters.answered(head.status)
        var head = Forwarding.response(head, isChunked: false)
        let hasNoBody = head.status == 204 || head.status == 304 || head.status < 200
        if hasNoBody {
            if head.status != 304 { head.headers.remove("content-length") }
        } else {
            head.headers.set("Content-Length", to: "\(body.readableBytes)")
        }
        addConnection(&head, isOwnAnswer: true)
        send(head)
        if !hasNoBody, exchange?.received.head.method != "HEAD" { send(body) }
    }

    private func addConnection(_ head: inout ResponseHead, isOwnAnswer: Bool) {
        if !decidesToStay(isOwnAnswer: isOwnAnswer) {
            head.headers.add("Connection", "close")
        } else if exchange?.received.minorVersion == 0 {
            head.headers.add("Connection", "keep-alive")
        }
    }

    // MARK: Buffers

    /// Returns an empty buffer for a head.
    func scratch() -> ByteBuffer {
        var bytes = ByteBuffer()
        swap(&bytes, &spare)
        bytes.clear()
        return bytes
    }

    /// Takes the buffer of ``scratch()`` back, after its bytes were passed to a channel.
    package func giveBack(_ bytes: inout ByteBuffer) { swap(&bytes, &spare) }
}
