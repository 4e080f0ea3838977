import Ownership
import StorePort
import TestKit
import Testing

/// The frames of a link: whole, byte by byte, truncated, too long, and damaged.
@Suite struct LinkFrameTests {
    private static func job(_ number: UInt64, _ payload: [UInt8]) -> SentJob<[UInt8]> {
        SentJob(
            token: JobToken(high: number, low: ~number), shard: Shard(UInt8(truncatingIfNeeded: number)),
            epoch: number << 40,
            job: payload)
    }

    private static func reply(_ number: UInt64, _ outcome: JobOutcome<[UInt8]>) -> SentReply<[UInt8]> {
        SentReply(
            token: JobToken(high: number, low: 7), shard: Shard(255), epoch: UInt64.max - number, outcome: outcome)
    }

    /// One of each kind, after the hello.
    private static let frames: [LinkFrame] = [
        .hello(GatewayID(0x0102_0304_0506_0708)), .jobs([job(1, [1, 2, 3]), job(300, [])]), .jobs([]),
        .replies([reply(1, .done([9, 8])), reply(2, .failed), reply(3, .notMine), reply(4, .done([]))]),
        .rise(version: 12, [5]), .acknowledged(version: 12), .ping(1), .pong(UInt64.max),
    ]

    private static func bytes(_ frames: [LinkFrame]) -> [UInt8] {
        var bytes: [UInt8] = []
        for frame in frames { frame.write(to: &bytes) }
        return bytes
    }

    private static func read(_ pieces: [[UInt8]]) throws(LinkError) -> [LinkFrame] {
        var reader = LinkReader()
        var frames: [LinkFrame] = []
        for piece in pieces {
            reader.receive(piece)
            while let frame = try reader.next() { frames.append(frame) }
        }
        return frames
    }

    /// A frame after a hello.
    private static func read(frame body: [UInt8]) throws(LinkError) -> [LinkFrame] {
        var bytes = bytes([frames[0]])
        bytes += [0, 0, UInt8(body.count >> 8), UInt8(body.count & 255)] + body
        return try read([bytes])
    }

    @Test func framesAreReadWholeAndByteByByte() throws {
        let bytes = Self.bytes(Self.frames)
        #expect(try Self.read([bytes]) == Self.frames)
        #expect(try Self.read(bytes.map { [$0] }) == Self.frames)
        for size in [2, 3, 7, 31] {
            let pieces = stride(from: 0, to: bytes.count, by: size).map {
                Array(bytes[$0..<min($0 + size, bytes.count)])
            }
            #expect(try Self.read(pieces) == Self.frames)
        }
    }

    /// The bytes as they stand in the comment of the file.
    @Test func theFormIsFixed() {
        #expect(Self.bytes([Self.frames[0]]) == [0, 0, 0, 11, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8])
        #expect(Self.bytes([.acknowledged(version: 258)]) == [0, 0, 0, 9, 5, 0, 0, 0, 0, 0, 0, 1, 2])
        let job = SentJob(token: JobToken(high: 1, low: 2), shard: Shard(3), epoch: 4, job: [UInt8(6)])
        #expect(
            Self.bytes([.jobs([job])]) == [
                0, 0, 0, 33, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0,
                0, 1,
                6,
            ])
    }

    @Test func aTruncatedFrameIsWaitedFor() throws {
        let bytes = Self.bytes(Self.frames)
        for count in bytes.indices {
            let frames = try Self.read([Array(bytes.prefix(count))])
            #expect(frames == Array(Self.frames.prefix(frames.count)) && frames.count < Self.frames.count)
        }
    }

    /// A length that covers only a part of a frame's fields, and one that covers more.
    @Test func aLengthThatDoesNotFitEndsTheLink() {
        for frame in Self.frames.dropFirst() {
            let body = Array(Self.bytes([frame]).dropFirst(4))
            for count in 1..<body.count {
                #expect(throws: LinkError.malformed) { try Self.read(frame: Array(body.prefix(count))) }
            }
            #expect(throws: LinkError.malformed) { try Self.read(frame: body + [0]) }
        }
        #expect(throws: LinkError.malformed) { try Self.read(frame: []) }
    }

    @Test func whatIsTooLongIsRefusedBeforeItIsThere() {
        let hello = Self.bytes([Self.frames[0]])
        #expect(throws: LinkError.tooLong) { try Self.read([hello + [0, 0x40, 0, 1]]) }
        #expect(throws: LinkError.tooLong) { try Self.read([[255, 255, 255, 255]]) }
        #expect(throws: LinkError.tooLong) { try Self.read(frame: [2, 8, 1]) }
        #expect(throws: LinkError.tooLong) { try Self.read(frame: [4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 16, 0, 1]) }
    }

    @Test func unknownKindsAndOutcomesEndTheLink() {
        for kind: UInt8 in [0, 8, 255] {
            #expect(throws: LinkError.unknownKind(kind)) { try Self.read(frame: [kind]) }
        }
        var body = Array(Self.bytes([.replies([Self.reply(1, .failed)])]).dropFirst(4))
        for outcome: UInt8 in [0, 4, 255] {
            body[body.count - 1] = outcome
            #expect(throws: LinkError.malformed) { try Self.read(frame: body) }
        }
    }

    @Test func theFirstFrameIsAHelloAndOnlyThat() {
        #expect(throws: LinkError.unexpectedHello) { try Self.read([Self.bytes([.ping(1)])]) }
        #expect(throws: LinkError.unexpectedHello) { try Self.read([Self.bytes([Self.frames[0], Self.frames[0]])]) }
        #expect(throws: LinkError.otherVersion(2)) {
            try Self.read([[0, 0, 0, 11, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]])
        }
    }

    @Test func nothingIsReadAfterAnError() throws {
        var reader = LinkReader()
        reader.receive(Self.bytes([.ping(1)]))
        for _ in 0..<2 {
            #expect(throws: LinkError.unexpectedHello) { try reader.next() }
            reader.receive(Self.bytes(Self.frames))
        }
    }

    @Test func manyJobsAreDividedWithinTheBounds() throws {
        let small = (0..<5000).map { Self.job(UInt64($0), [1]) }
        let large = (0..<9).map { Self.job(UInt64($0), [UInt8](repeating: 7, count: LinkLimits.payloadBytes)) }
        for (jobs, count) in [(small, 3), (large, 3), ([], 0)] {
            let frames = LinkFrame.frames(of: jobs)
            #expect(frames.count == count)
            let read = try Self.read([Self.bytes([Self.frames[0]] + frames)])
            #expect(read.dropFirst() == frames[...])
            var received: [SentJob<[UInt8]>] = []
            for case .jobs(let part) in read { received += part }
            #expect(received == jobs)
        }
        let replies = (0..<5000).map { Self.reply(UInt64($0), .failed) }
        #expect(LinkFrame.frames(of: replies).count == 3)
    }

    /// Damaged frames are refused, or have one meaning: written again they are the same bytes.
    @Test func damagedFramesAreRefusedOrUnambiguous() {
        var random = SeededGenerator(seed: 18)
        let whole = Self.bytes(Self.frames)
        for round in 0..<3000 {
            var bytes = whole
            for _ in 0...random.below(3) {
                let place = random.below(bytes.count)
                switch random.below(3) {
                case 0: bytes[place] = UInt8(random.below(256))
                case 1: bytes.remove(at: place)
                default: bytes.insert(UInt8(random.below(256)), at: place)
                }
            }
            var reader = LinkReader()
            reader.receive(bytes)
            var frames: [LinkFrame] = []
            while let frame = try? reader.next() { frames.append(frame) }
            #expect(bytes.starts(with: Self.bytes(frames)), "round \(round)")
        }
    }
}
