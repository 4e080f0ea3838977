package import NIOCore
package import NIOPosix

/// Read buffers that a channel does not keep between two reads, so that a silent connection holds none.
///
/// SwiftNIO's channel (`NIOPooledRecvBufferAllocator`) keeps the buffer of its first read and reuses it unless a larger one
/// may be wanted. Here the first one is as small as it can be, and after it a larger one may always be wanted.
package struct TransientReadBuffers: RecvByteBufferAllocator {
    /// Bytes of the one buffer that is kept.
    static let kept = 64
    private var sizes = AdaptiveRecvByteBufferAllocator(minimum: 2048, initial: 2048, maximum: 65_536)
    private var isFirst = true

    package init() {}

    package func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
        isFirst ? allocator.buffer(capacity: Self.kept) : sizes.buffer(allocator: allocator)
    }

    package mutating func record(actualReadBytes: Int) -> Bool {
        if isFirst {
            isFirst = false
        } else {
            _ = sizes.record(actualReadBytes: actualReadBytes)
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
