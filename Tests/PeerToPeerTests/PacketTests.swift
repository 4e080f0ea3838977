import DoubleRatchet
import PeerConnection
import TestKit
import Testing

/// The forms of packets and frames, and packets in a stream of bytes.
@Suite struct PeerPacketTests {
    private static let key = Bytes32((0..<32).map { UInt8($0) })
    private static let signature = [UInt8](repeating: 5, count: 80)

    private func packets() throws -> [PeerPacket] {
        let id = try #require(PeerConnectionID([UInt8](repeating: 9, count: 16)))
        return [
            .hello(connection: id, Self.key), .answer(Self.key, Self.signature), .finish(Self.signature),
            .record([UInt8](repeating: 1, count: 17)),
            .record([UInt8](repeating: 1, count: PeerLimits.packetLimit - 1)),
        ]
    }

    private static let frames: [PeerFrame] = [
        .message(1, []), .message(.max, [1, 2, 3]),
        .message(2, [UInt8](repeating: 1, count: PeerLimits.messageLimit)), .taken(1), .taken(.max),
        .status(flags: 0, metadata: []),
        .status(flags: 255, metadata: [UInt8](repeating: 1, count: PeerLimits.metadataLimit)), .end,
    ]

    @Test func packetsAreThoseOfTheDrawing() throws {
        let packets = try packets()
        #expect(packets[0].bytes == [1, 1] + [UInt8](repeating: 9, count: 16) + Self.key.array)
        #expect(packets[1].bytes == [2, 1] + Self.key.array + Self.signature)
        #expect(packets[2].bytes == [3] + Self.signature)
        #expect(packets[3].bytes == [4] + [UInt8](repeating: 1, count: 17))
        for packet in packets { #expect(try PeerPacket(packet.bytes) == packet) }
    }

    /// Packets have one length, apart from records, so every cut and every additional byte is refused.
    @Test func cutAndOversizedPacketsAreRefused() throws {
        for packet in try packets().prefix(3) {
            let bytes = packet.bytes
            for length in 0..<bytes.count {
                #expect(throws: PeerEnd.malformed) { try PeerPacket(Array(bytes.prefix(length))) }
            }
            #expect(throws: PeerEnd.malformed) { try PeerPacket(bytes + [0]) }
        }
        for length in 0..<17 {
            #expect(throws: PeerEnd.malformed) { try PeerPacket([4] + [UInt8](repeating: 0, count: length)) }
        }
        #expect(throws: PeerEnd.malformed) {
            try PeerPacket([4] + [UInt8](repeating: 0, count: PeerLimits.packetLimit))
        }
        for kind: UInt8 in [0, 5, 255] { #expect(throws: PeerEnd.malformed) { try PeerPacket([kind, 1, 2, 3]) } }
    }

    @Test func framesAreThoseOfTheDrawing() throws {
        #expect(PeerFrame.message(258, [7]).bytes == [1, 0, 0, 0, 0, 0, 0, 1, 2, 7])
        #expect(PeerFrame.taken(3).bytes == [2, 0, 0, 0, 0, 0, 0, 0, 3])
        #expect(PeerFrame.status(flags: 1, metadata: [8]).bytes == [3, 1, 8])
        #expect(PeerFrame.end.bytes == [4])
        for frame in Self.frames { #expect(try PeerFrame(frame.bytes) == frame) }
    }

    @Test func framesThatAreNoneAreRefused() {
        var bad: [[UInt8]] = [
            [], [0], [5], [4, 0], [2, 0, 0, 0, 0, 0, 0, 0, 3, 0], [1] + [UInt8](repeating: 0, count: 8),
            [2] + [UInt8](repeating: 0, count: 8), [3],
            PeerFrame.message(1, [UInt8](repeating: 0, count: PeerLimits.messageLimit + 1)).bytes,
            PeerFrame.status(flags: 0, metadata: [UInt8](repeating: 0, count: PeerLimits.metadataLimit + 1)).bytes,
        ]
        for frame in [PeerFrame.message(1, []), .taken(1)] {
            for length in 1..<9 { bad.append(Array(frame.bytes.prefix(length))) }
        }
        for bytes in bad { #expect(throws: PeerEnd.malformed) { try PeerFrame(bytes) } }
    }

    @Test func randomBytesAreReadOrRefused() throws {
        var generator = SeededGenerator(seed: 150)
        for _ in 0..<20_000 {
            var bytes = generator.bytes(generator.below(120))
            if !bytes.isEmpty { bytes[0] = UInt8(generator.below(6)) }
            if let packet = try? PeerPacket(bytes) { #expect(packet.bytes == bytes) }
            if let frame = try? PeerFrame(bytes) { #expect(frame.bytes == bytes) }
        }
    }

    // MARK: Streams

    private static let stream: [[UInt8]] = [[1], [2, 3], [UInt8](repeating: 4, count: 100), [5]]
    private static var bytes: [UInt8] { stream.flatMap { PacketReader.head(of: $0) + $0 } }

    private func read(_ reader: inout PacketReader) throws(PeerEnd) -> [[UInt8]] {
        var packets: [[UInt8]] = []
        while let packet = try reader.next() { packets.append(packet) }
        return packets
    }

    @Test func aStreamIsReadWholeAndByteByByte() throws {
        var whole = PacketReader(limit: 100)
        whole.append(Self.bytes)
        #expect(try read(&whole) == Self.stream && whole.waiting == 0)
        var slow = PacketReader(limit: 100)
        var packets: [[UInt8]] = []
        for byte in Self.bytes {
            slow.append([byte])
            packets += try read(&slow)
        }
        #expect(packets == Self.stream && slow.waiting == 0)
    }

    @Test func aStreamIsReadInTwoPieces() throws {
        for split in 0...Self.bytes.count {
            var reader = PacketReader(limit: 100)
            reader.append(Self.bytes.prefix(split))
            var packets = try read(&reader)
            reader.append(Self.bytes.dropFirst(split))
            packets += try read(&reader)
            #expect(packets == Self.stream)
        }
    }

    @Test func aStreamThatEndsInAPacketHasBytesLeft() throws {
        let bytes = PacketReader.head(of: [1, 2, 3]) + [1, 2, 3]
        for length in 1..<bytes.count {
            var reader = PacketReader(limit: 100)
            reader.append(bytes.prefix(length))
            #expect(try reader.next() == nil)
            #expect(reader.waiting == length)
        }
    }

    /// The length alone is enough: nothing is kept for a packet that is too long, and the stream stays refused.
    @Test func aPacketThatIsTooLongIsRefusedByItsLength() {
        for head: [UInt8] in [[0, 0, 0, 101], [0, 0, 0, 0], [255, 255, 255, 255]] {
            var reader = PacketReader(limit: 100)
            reader.append(head)
            #expect(throws: PeerEnd.malformed) { try reader.next() }
            reader.append(Self.bytes)
            #expect(throws: PeerEnd.malformed) { try reader.next() }
            #expect(reader.waiting == 0)
        }
    }

    @Test func randomStreamsAreReadOrRefused() {
        var generator = SeededGenerator(seed: 152)
        for _ in 0..<5000 {
            var reader = PacketReader(limit: 50)
            var (read, given): ([[UInt8]], [UInt8]) = ([], [])
            for _ in 0..<generator.below(6) {
                var piece = generator.bytes(generator.below(40))
                for index in piece.indices where generator.below(2) == 0 { piece[index] = 0 }
                reader.append(piece)
                given += piece
                while let packet = try? reader.next() { read.append(packet) }
            }
            #expect(given.starts(with: read.flatMap { PacketReader.head(of: $0) + $0 }))
            #expect(reader.waiting < 54 + 40)
        }
    }
}
