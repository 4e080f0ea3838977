import NIOCore
import Testing

@testable import NIOSupport

/// What SwiftNIO's pool of read buffers, made as a channel makes it, keeps between two reads.
@Suite struct TransientReadBuffersTests {
    /// The buffer of one read, which is given away when this returns.
    private final class Reader {
        private var pool = NIOPooledRecvBufferAllocator(capacity: 1, recvAllocator: TransientReadBuffers())

        /// Nil bytes fill the buffer.
        /// - Returns: the bytes that the buffer has room for, and whether it is still there.
        func read(_ bytes: Int?) -> (room: Int, isKept: Bool) {
            weak var storage: AnyObject?
            let room = readOnce(bytes) { storage = $0 }
            return (room, storage != nil)
        }

        private func readOnce(_ bytes: Int?, _ look: (AnyObject) -> Void) -> Int {
            var room = 0
            let (buffer, _) = pool.buffer(allocator: ByteBufferAllocator()) { buffer in
                room = buffer.writableBytes
                buffer.writeRepeatingByte(1, count: bytes ?? room)
            }
            pool.record(actualReadBytes: bytes ?? room)
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
        for size in [2048, 4096, 8192, 16_384, 32_768, 65_536, 65_536] { #expect(reader.read(nil).room == size) }
        for _ in 0..<10 {
            for _ in 0..<15 { #expect(reader.read(1).room == 65_536) }
            #expect(reader.read(40_000).room == 65_536)
        }
        for _ in 0..<200 { _ = reader.read(1) }
        #expect(reader.read(1).room == 256)
    }
}
