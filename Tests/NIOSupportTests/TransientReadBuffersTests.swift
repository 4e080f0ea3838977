import NIOCore
import Testing

@testable import NIOSupport

/// What SwiftNIO's pool of read buffers, made as a channel makes it, keeps between two reads.
@Suite struct TransientReadBuffersTests {
    /// The buffer of one read, which is given away when this returns.
    private final class Reader {
        private var pool = NIOPooledRecvBufferAllocator(capacity: 1, recvAllocator: TransientReadBuffers())

        /// - Returns: the bytes that the buffer has room for, and whether it is still there.
        func read(_ bytes: Int) -> (room: Int, isKept: Bool) {
            weak var storage: AnyObject?
            let room = readOnce(bytes) { storage = $0 }
            return (room, storage != nil)
        }

        private func readOnce(_ bytes: Int, _ look: (AnyObject) -> Void) -> Int {
            var room = 0
            let (buffer, _) = pool.buffer(allocator: ByteBufferAllocator()) { buffer in
                room = buffer.writableBytes
                buffer.writeRepeatingByte(1, count: bytes)
            }
            pool.record(actualReadBytes: bytes)
            buffer.withVeryUnsafeBytesWithStorageManagement { _, storage in look(storage.takeUnretainedValue()) }
            return room
        }
    }

    @Test func nothingLargeIsKept() {
        let reader = Reader()
        #expect(reader.read(64) == (64, true))
        for _ in 0..<3 { #expect(reader.read(500) == (2048, false)) }
    }

    /// A read that fills its buffer gets a larger one next, up to 64 KB, and many small reads a smaller one.
    @Test func sizesFollowTheReads() {
        let reader = Reader()
        _ = reader.read(64)
        var room = 2048
        for _ in 0..<8 { room = reader.read(room).room }
        #expect(room == 65_536)
        for _ in 0..<10 {
            for _ in 0..<15 { #expect(reader.read(1).room == 65_536) }
            #expect(reader.read(40_000).room == 65_536)
        }
        for _ in 0..<200 { room = reader.read(1).room }
        #expect(room == 256)
    }
}
