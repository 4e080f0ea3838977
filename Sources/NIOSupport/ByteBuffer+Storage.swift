// Storage of buffers that live as long as a connection.

package import NIOCore

extension ByteBuffer {
    /// Ours: the largest storage that a buffer keeps between two uses, in bytes. As much as one read of a channel.
    package static let keptStorage = 64 << 10

    /// Frees storage that is much larger than the unread bytes, as after a long message. Copies these bytes.
    ///
    /// A budget counts unread bytes, and a buffer keeps its storage when they are read.
    package mutating func freeUnusedStorage() {
        guard storageCapacity > max(Self.keptStorage, 4 * readableBytes) else { return }
        self = ByteBuffer(buffer: self)
    }
}
