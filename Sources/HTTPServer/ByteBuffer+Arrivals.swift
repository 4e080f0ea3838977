// Buffering of received bytes.

package import NIOCore

extension ByteBuffer {
    /// Appends received bytes to the unread ones.
    ///
    /// Discards the read bytes once they are as many as the unread ones. Otherwise a peer whose every read ends inside
    /// a head or a frame would let the buffer grow for ever. Each byte read causes at most one byte to be moved.
    package mutating func append(arrived bytes: ByteBuffer) {
        guard readableBytes > 0 else {
            self = bytes
            return
        }
        if readerIndex >= readableBytes { discardReadBytes() }
        writeImmutableBuffer(bytes)
    }
}
