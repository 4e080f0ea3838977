package import NIOCore
package import NIOPosix

/// Read buffers that a channel does not keep between two reads, so that a silent connection holds none.
///
/// SwiftNIO's channel (`NIOPooledRecvBufferAllocator`) keeps the buffer of its first read and reuses it unless a larger one
/// may be wanted. Here the first one is as small as it can be, and after it a larger one may always be wanted.
package struct TransientReadBuffers: RecvByteBufferAllocator {
    /// Bytes of the one buffer that is kept.
    static let kept = 64
    /// Bytes of the others. A buffer that waits to be written is not much larger than what it holds, however little that is.
    static let sizes = 256...65_536
    /// Reads that need at most half of a buffer, one after the other, before the size is halved.
    static let patience = 16

    private var size: UInt32 = 2048
    private var smallReads: UInt8 = 0
    private var isFirst = true

    package init() {}

    package func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
        allocator.buffer(capacity: isFirst ? Self.kept : Int(size))
    }

    package mutating func record(actualReadBytes bytes: Int) -> Bool {
        guard !isFirst else {
            isFirst = false
            return true
        }
        if bytes >= Int(size) {
            size = min(size * 2, UInt32(Self.sizes.upperBound))
            smallReads = 0
        } else if bytes > Int(size) / 2 {
            smallReads = 0
        } else {
            smallReads += 1
            if smallReads == Self.patience {
                size = max(size / 2, UInt32(Self.sizes.lowerBound))
                smallReads = 0
            }
        }
        return true
    }
}

extension ServerBootstrap {
    /// Accepted channels keep no read buffer between two reads. The pool of buffers has one place, so a read event is one
    /// read of up to 64 KB.
    package func transientReadBuffers() -> Self {
        childChannelOption(.recvAllocator, value: TransientReadBuffers())
            .childChannelOption(.maxMessagesPerRead, value: 1)
    }
}

extension ClientBootstrap {
    /// As for accepted channels.
    package func transientReadBuffers() -> Self {
        channelOption(.recvAllocator, value: TransientReadBuffers()).channelOption(.maxMessagesPerRead, value: 1)
    }
}
