import HTTPCodec
import HTTPServer
import NIOCore
import NIOSupport
import Testing

/// What a peer sends and the gateway has taken is let go, however the peer cuts it.
@Suite struct ArrivalTests {
    /// A stream of one unit again and again, in reads that end one byte into the next unit.
    ///
    /// - Returns: the most that the buffer ever held, in bytes.
    private static func largest(
        _ unit: [UInt8], reads: Int, unitsARead: Int, _ take: (inout ByteBuffer) throws -> Void
    ) throws -> Int {
        let units = [UInt8]((0..<unitsARead).map { _ in unit }.joined())
        let read = ByteBuffer(bytes: units.dropFirst() + unit.prefix(1))
        var buffer = ByteBuffer(bytes: unit.prefix(1))
        var largest = 0
        for _ in 0..<reads {
            buffer.append(arrived: read)
            try take(&buffer)
            #expect(buffer.readableBytes == 1)
            largest = max(largest, buffer.storageCapacity)
        }
        return largest
    }

    @Test func framesThatEndInTheNextReadDoNotPileUp() throws {
        var reader = FrameReader(isMasked: true, limit: 1 << 20)
        let frame: [UInt8] = [0x82, 0xFE, 0x01, 0xF4, 1, 2, 3, 4] + [UInt8](repeating: 7, count: 500)
        var count = 0
        let largest = try Self.largest(frame, reads: 2000, unitsARead: 4) { buffer in
            while try reader.next(&buffer) != nil { count += 1 }
        }
        #expect(count == 8000)
        #expect(largest <= 16 << 10)
    }

    @Test func pipelinedRequestsThatEndInTheNextReadDoNotPileUp() throws {
        var reader = HeadReader()
        var count = 0
        let largest = try Self.largest(Array("GET /a HTTP/1.1\r\nHost: x\r\n\r\n".utf8), reads: 2000, unitsARead: 70) {
            buffer in
            while try reader.request(&buffer) != nil { count += 1 }
        }
        #expect(count == 140_000)
        #expect(largest <= 16 << 10)
    }

    /// One long message behind short ones: its bytes are not moved again with each read.
    @Test func whatIsLeftStaysWhereItIsWhileItIsMoreThanWhatWasTaken() {
        var buffer = ByteBuffer(bytes: [UInt8](repeating: 1, count: 100))
        buffer.moveReaderIndex(forwardBy: 49)
        buffer.append(arrived: ByteBuffer(bytes: [2]))
        #expect(buffer.readerIndex == 49)
        buffer.moveReaderIndex(forwardBy: 1)
        buffer.append(arrived: ByteBuffer(bytes: [3]))
        #expect(buffer.readerIndex == 50 && buffer.readableBytes == 52)
        buffer.moveReaderIndex(forwardBy: 10)
        buffer.append(arrived: ByteBuffer(bytes: [4]))
        #expect(buffer.readerIndex == 0)
        #expect(Array(buffer.readableBytesView) == [UInt8](repeating: 1, count: 40) + [2, 3, 4])
    }

    /// One long message, and the beginning of the next with it.
    @Test(arguments: [0, 1, 100, 40_000]) func theStorageOfALongMessageIsFreed(_ rest: Int) throws {
        var (reader, buffer) = (FrameReader(isMasked: false, limit: 4 << 20), ByteBuffer())
        var frame = ByteBuffer()
        frame.writeFrame(2, ByteBuffer(repeating: 7, count: 2 << 20), nil)
        frame.writeRepeatingByte(0x82, count: rest)
        while let piece = frame.readSlice(length: min(65_536, frame.readableBytes)), piece.readableBytes > 0 {
            buffer.append(arrived: piece)
        }
        // It is not freed, and not copied, while it is needed.
        let storage = buffer.storageCapacity
        buffer.freeUnusedStorage()
        #expect(buffer.storageCapacity == storage && storage >= 2 << 20)
        guard case .data(let message, _)? = try reader.next(&buffer) else {
            Issue.record("no message")
            return
        }
        #expect(message.readableBytes == 2 << 20 && buffer.storageCapacity == storage)
        buffer.freeUnusedStorage()
        #expect(buffer.storageCapacity <= ByteBuffer.keptStorage)
        #expect(Array(buffer: buffer) == [UInt8](repeating: 0x82, count: rest))
    }

    @Test func aSmallBufferKeepsItsStorage() {
        var buffer = ByteBuffer(repeating: 1, count: 10_000)
        let storage = buffer.storageCapacity
        buffer.moveReaderIndex(to: buffer.writerIndex)
        buffer.freeUnusedStorage()
        #expect(buffer.storageCapacity == storage && storage >= 10_000)
    }
}
