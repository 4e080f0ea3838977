// What is written to the client.

import HTTPCodec
import NIOCore

extension HTTPConnection {
    /// Ours: pieces up to this size are copied together, because that costs less than one more buffer to write. In bytes.
    private static let copied = 4096

    package var isWritable: Bool { channel.isWritable }

    private func emit() {
        guard output.readableBytes > 0 else { return }
        channel.write(output, promise: nil)
        isOutputShared = true
        needsFlush = true
        output.moveReaderIndex(to: output.writerIndex)
    }

    /// The buffer may be in the channel's hands; when it is not any more, its memory is used again.
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

    /// A head as it is.
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

    /// Begins the backend's answer.
    ///
    /// - Returns: whether its body goes out chunked.
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

    /// A whole answer.
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

    /// A buffer to write a head into.
    func scratch() -> ByteBuffer {
        var bytes = ByteBuffer()
        swap(&bytes, &spare)
        bytes.clear()
        return bytes
    }

    /// Gives it back after it has been handed to a channel.
    package func giveBack(_ bytes: inout ByteBuffer) { swap(&bytes, &spare) }
}
