import NIOCore
import TestKit
import Testing
import TransportCodec

@Suite struct FrameTests {
    private static let text = ByteBuffer(string: "text")
    private static let frames: [Frame] = [
        .hello(version: 1, proto: text), .hello(version: 255, proto: ByteBuffer()), .welcome(version: 1),
        .unavailable(reason: text), .unavailable(reason: ByteBuffer()), .request(id: 1, text),
        .request(id: .max, ByteBuffer()), .reply(id: 2, ByteBuffer(repeating: 7, count: 70_000)),
        .failure(id: 3, code: -1, reason: text), .failure(id: 3, code: .max, reason: ByteBuffer()), .cancel(id: 4),
        .drain,
    ]

    private static func bytes(_ frames: [Frame]) -> ByteBuffer {
        var buffer = ByteBuffer()
        for frame in frames { frame.write(to: &buffer) }
        return buffer
    }

    private static func read(_ reader: inout FrameReader) throws(FrameError) -> [Frame] {
        var frames: [Frame] = []
        while let frame = try reader.next() { frames.append(frame) }
        return frames
    }

    @Test func theFormatIsThatOfTheDrawing() {
        #expect(
            Array(Self.bytes([.failure(id: 0x0102, code: 5, reason: ByteBuffer(string: "x"))]).readableBytesView) == [
                0, 0, 0, 14, 6, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 5, 0x78,
            ])
        #expect(Array(Self.bytes([.drain]).readableBytesView) == [0, 0, 0, 9, 8, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test func framesAreReadWhole() throws {
        var reader = FrameReader(limit: 1 << 20)
        reader.append(Self.bytes(Self.frames))
        #expect(try Self.read(&reader) == Self.frames)
        try reader.finish()
    }

    @Test func framesAreReadByteByByte() throws {
        var reader = FrameReader(limit: 1 << 20)
        var read: [Frame] = []
        for byte in Self.bytes(Self.frames).readableBytesView {
            reader.append(ByteBuffer(bytes: [byte]))
            read += try Self.read(&reader)
        }
        #expect(read == Self.frames)
        try reader.finish()
    }

    /// Two frames, split at every byte.
    @Test func framesAreReadInTwoPieces() throws {
        let frames: [Frame] = [.request(id: 9, Self.text), .cancel(id: 9)]
        let bytes = Self.bytes(frames)
        for split in 0...bytes.readableBytes {
            var reader = FrameReader(limit: 100)
            var rest = bytes
            let first = rest.readSlice(length: split) ?? ByteBuffer()
            reader.append(first)
            var read = try Self.read(&reader)
            reader.append(rest)
            read += try Self.read(&reader)
            #expect(read == frames)
        }
    }

    /// A peer whose every write ends inside a frame, as under load: what was read does not stay in memory.
    @Test func whatWasReadIsNotKept() throws {
        let frame = Self.bytes([.request(id: 1, ByteBuffer(repeating: 7, count: 1000))])
        var (reader, count) = (FrameReader(limit: 2000), 0)
        reader.append(try #require(frame.getSlice(at: 0, length: 500)))
        for _ in 0..<5000 {
            var bytes = try #require(frame.getSlice(at: 500, length: frame.readableBytes - 500))
            bytes.writeImmutableBuffer(try #require(frame.getSlice(at: 0, length: 500)))
            reader.append(bytes)
            count += try Self.read(&reader).count
        }
        #expect(count == 5000)
        #expect(reader.storage <= 16 << 10, "\(reader.storage) bytes")
    }

    @Test func anEndInsideAFrameIsSeen() throws {
        let bytes = Self.bytes([.request(id: 9, Self.text)])
        for end in 1..<bytes.readableBytes {
            var reader = FrameReader(limit: 100)
            var rest = bytes
            reader.append(rest.readSlice(length: end) ?? ByteBuffer())
            #expect(try reader.next() == nil)
            #expect(throws: FrameError.truncated) { try reader.finish() }
        }
    }

    /// The length alone is enough for a refusal: nothing is stored for a frame that is too long.
    @Test func aFrameThatIsTooLongIsRefusedByItsLength() {
        var reader = FrameReader(limit: 100)
        reader.append(ByteBuffer(bytes: [0, 0, 0, 101]))
        #expect(throws: FrameError.tooLong(length: 101, limit: 100)) { try reader.next() }
        reader.append(Self.bytes([.drain]))
        #expect(throws: FrameError.tooLong(length: 101, limit: 100)) { try reader.next() }
    }

    @Test(arguments: [
        ([0, 0, 0, 8] as [UInt8], FrameError.tooShort), ([0, 0, 0, 0], .tooShort),
        ([0, 0, 0, 9, 0] + [UInt8](repeating: 0, count: 8), .unknownKind(0)),
        ([0, 0, 0, 9, 9] + [UInt8](repeating: 0, count: 8), .unknownKind(9)),
        // A greeting without a version, a failure without a code.
        ([0, 0, 0, 9, 1] + [UInt8](repeating: 0, count: 8), .tooShort),
        ([0, 0, 0, 12, 6, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], .tooShort),
        // A request with the id 0, and the opposite; payloads where none may be.
        ([0, 0, 0, 9, 4] + [UInt8](repeating: 0, count: 8), .malformed),
        ([0, 0, 0, 9, 8, 0, 0, 0, 0, 0, 0, 0, 1], .malformed),
        ([0, 0, 0, 10, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0], .malformed),
        ([0, 0, 0, 10, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0], .malformed),
        ([0, 0, 0, 11, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], .malformed),
    ])
    func whatIsNoFrameIsRefused(_ bytes: [UInt8], _ error: FrameError) {
        var reader = FrameReader(limit: 100)
        reader.append(ByteBuffer(bytes: bytes))
        #expect(throws: error) { try reader.next() }
    }

    /// Random bytes, and frames with random changes: an error or frames that are written the same, never a crash.
    @Test func randomBytesAreReadOrRefused() {
        var generator = SeededGenerator(seed: 15)
        for round in 0..<20_000 {
            var bytes = generator.bytes(generator.below(60))
            if round.isMultiple(of: 2) {
                bytes = Array(Self.bytes([Self.frames[generator.below(7)]]).readableBytesView)
                for _ in 0..<generator.below(4) { bytes[generator.below(bytes.count)] = UInt8(generator.below(256)) }
            }
            var reader = FrameReader(limit: 200)
            var read: [Frame] = []
            var rest = bytes[...]
            do throws(FrameError) {
                while !rest.isEmpty {
                    let count = 1 + generator.below(rest.count)
                    reader.append(ByteBuffer(bytes: rest.prefix(count)))
                    rest = rest.dropFirst(count)
                    read += try Self.read(&reader)
                }
            } catch {
                #expect(throws: error) { try reader.next() }
            }
            let written = Array(Self.bytes(read).readableBytesView)
            #expect(bytes.starts(with: written))
        }
    }
}
