// What has arrived and has not been taken yet.

package import NIOCore

extension ByteBuffer {
    /// Puts what has arrived behind what has not been taken yet.
    ///
    /// What has been taken is let go as soon as it is as much as what is left: a peer whose every read ends within a head or a frame
    /// would fill the buffer with all that it has ever sent. So a byte is moved once at most for each byte that was taken.
    package mutating func append(arrived bytes: ByteBuffer) {
        guard readableBytes > 0 else {
            self = bytes
            return
        }
        if readerIndex >= readableBytes { discardReadBytes() }
        writeImmutableBuffer(bytes)
    }
}
