import HTTPCodec
import NIOCore
import TestKit
import Testing

@Suite struct FrameReaderTests {
    private func read(
        _ bytes: [UInt8], isMasked: Bool = false, limit: Int = 1000, by size: Int = .max
    ) throws(FrameFault) -> [WebSocketMessage] {
        var reader = FrameReader(isMasked: isMasked, limit: limit)
        var buffer = ByteBuffer()
        var messages: [WebSocketMessage] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            buffer.writeBytes(rest.prefix(size))
            rest = rest.dropFirst(size)
            while let message = try reader.next(&buffer) { messages.append(message) }
        }
        return messages
    }

    /// RFC 6455 section 5.7.
    @Test func theExamplesOfTheSpecification() throws {
        let hello = WebSocketMessage.data(ByteBuffer(string: "Hello"), isText: true)
        #expect(try read([0x81, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F]) == [hello])
        let masked: [UInt8] = [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58]
        #expect(try read(masked, isMasked: true) == [hello])
        #expect(try read([0x01, 0x03, 0x48, 0x65, 0x6C, 0x80, 0x02, 0x6C, 0x6F]) == [hello])
        var written = ByteBuffer()
        written.write(hello, mask: 0x37FA_213D)
        #expect(Array(buffer: written) == masked)
    }

    @Test(arguments: [0, 1, 7, 8, 9, 125, 126, 127, 65535, 65536, 70000], [1, 4096])
    func lengthsThereAndBack(_ length: Int, _ size: Int) throws {
        let message = WebSocketMessage.data(
            ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0) }), isText: false)
        for mask in [nil, 0x0102_F3A4] as [UInt32?] {
            var bytes = ByteBuffer(string: "before")
            bytes.write(message, mask: mask)
            #expect(bytes.readString(length: 6) == "before")
            #expect(try read(Array(buffer: bytes), isMasked: mask != nil, limit: 100_000, by: size) == [message])
        }
    }

    /// What passes as it is are the messages that are read otherwise, up to the first that is not one whole frame.
    @Test(arguments: 0..<200 as Range<UInt64>) func whatPassesAsItIs(_ seed: UInt64) throws {
        var chance = SeededGenerator(seed: seed)
        let isMasked = Bool.random(using: &chance)
        var bytes = ByteBuffer()
        for _ in 0..<Int.random(in: 0..<8, using: &chance) {
            let size = [0, 1, 7, 8, 125, 126, 300, 1024, 1025, 70_000].randomElement(using: &chance) ?? 0
            let payload = ByteBuffer(bytes: (0..<size).map { _ in UInt8.random(in: 0...255, using: &chance) })
            let mask = isMasked ? UInt32.random(in: 0...UInt32.max, using: &chance) : nil
            let isControl = Int.random(in: 0..<8, using: &chance) == 0 && size < 126
            let opcode: UInt8 = isControl ? 9 : Bool.random(using: &chance) ? 1 : 2
            bytes.writeFrame(opcode, payload, mask, isFinal: isControl || Int.random(in: 0..<8, using: &chance) > 0)
        }
        bytes.moveWriterIndex(to: bytes.writerIndex - Int.random(in: 0...min(bytes.readableBytes, 3), using: &chance))
        var reader = FrameReader(isMasked: isMasked, limit: 1 << 20)
        var passed: [WebSocketMessage] = []
        let count = reader.wholeMessages(in: bytes) { payload, isText in
            guard passed.count < 4 else { return false }
            passed.append(.data(ByteBuffer(bytes: payload), isText: isText))
            return true
        }
        var rest = bytes
        var read = rest.readSlice(length: count) ?? ByteBuffer()
        var messages: [WebSocketMessage] = []
        while let message = try reader.next(&read) { messages.append(message) }
        #expect(messages == passed && read.readableBytes == 0)
        // And what is left is read as if nothing had passed.
        var other = FrameReader(isMasked: isMasked, limit: 1 << 20)
        var (all, whole): ([WebSocketMessage], ByteBuffer) = ([], bytes)
        while let message = try? other.next(&whole) { all.append(message) }
        while let message = try? reader.next(&rest) { messages.append(message) }
        #expect(messages == all)
    }

    @Test func nothingPassesInsideAMessage() throws {
        var bytes = ByteBuffer()
        bytes.writeFrame(1, ByteBuffer(string: "a"), nil, isFinal: false)
        bytes.writeFrame(9, ByteBuffer(string: "b"), nil)
        bytes.writeFrame(2, ByteBuffer(string: "c"), nil)
        var reader = FrameReader(isMasked: false, limit: 1000)
        #expect(reader.wholeMessages(in: bytes) { _, _ in true } == 0)
        #expect(try reader.next(&bytes) == .ping(ByteBuffer(string: "b")))
        #expect(reader.wholeMessages(in: bytes) { _, _ in true } == 0)
        #expect(throws: FrameFault.malformed) { try reader.next(&bytes) }
        for wrong in [[0xC1, 0x00], [0x81, 0x80], [0x81, 0x7E, 0x00, 0x05], [0x83, 0x00]] as [[UInt8]] {
            let frame = ByteBuffer(bytes: wrong + [1, 2, 3, 4, 5, 6, 7, 8])
            #expect(FrameReader(isMasked: false, limit: 1000).wholeMessages(in: frame) { _, _ in true } == 0)
        }
        var long = ByteBuffer()
        long.writeFrame(2, ByteBuffer(repeating: 7, count: 1001), nil)
        #expect(FrameReader(isMasked: false, limit: 1000).wholeMessages(in: long) { _, _ in true } == 0)
    }

    @Test func controlFramesStandBetweenFragments() throws {
        let messages = try read([
            0x01, 0x01, 0x61, 0x89, 0x01, 0x7A, 0x00, 0x00, 0x80, 0x01, 0x62, 0x88, 0x02, 0x03, 0xE8,
        ])
        #expect(
            messages == [
                .ping(ByteBuffer(string: "z")), .data(ByteBuffer(string: "ab"), isText: true),
                .close(ByteBuffer(bytes: [0x03, 0xE8])),
            ])
    }

    @Test(
        arguments: [
            ([0xC1, 0x00], .malformed), ([0x83, 0x00], .malformed), ([0x8B, 0x00], .malformed),
            ([0x81, 0x80], .malformed),
            ([0x09, 0x00], .malformed), ([0x89, 0x7E, 0x00, 0x7E], .malformed), ([0x80, 0x00], .malformed),
            ([0x01, 0x00, 0x81, 0x00], .malformed), ([0x82, 0x7E, 0x00, 0x05], .malformed),
            ([0x82, 0x7F, 0, 0, 0, 0, 0, 0, 0, 5], .malformed), ([0x82, 0x7F, 0xFF, 0, 0, 0, 0, 0, 0, 5], .malformed),
            ([0x88, 0x01, 0x03], .malformed), ([0x88, 0x02, 0x03, 0xED], .malformed),
            ([0x88, 0x03, 0x03, 0xE8, 0xFF], .notText),
            ([0x82, 0x7E, 0x03, 0xE9], .tooLong),
        ] as [([UInt8], FrameFault)]) func isRefused(_ bytes: [UInt8], _ fault: FrameFault)
    {
        #expect(throws: fault) { try read(bytes) }
        #expect(throws: fault) { try read(bytes, by: 1) }
    }

    @Test func fragmentsCountTogether() {
        let part: [UInt8] = [0x02, 0x7E, 0x02, 0x58] + [UInt8](repeating: 0, count: 600)
        let more: [UInt8] = [0x80, 0x7E, 0x02, 0x58] + [UInt8](repeating: 0, count: 600)
        #expect(throws: FrameFault.tooLong) { try read(part + more) }
    }

    /// A message above the limit in pieces, as it comes.
    @Test(arguments: [1, 3, 7, 1000]) func aLongMessageComesInPieces(_ size: Int) throws {
        let bytes = (0..<3000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        var input = ByteBuffer()
        input.writeFrame(2, ByteBuffer(bytes: bytes[..<600]), 0x0102_F3A4, isFinal: false)
        input.writeFrame(0, ByteBuffer(bytes: bytes[600..<2999]), 0xA1B2_C3D4, isFinal: false)
        input.writeFrame(9, ByteBuffer(string: "p"), 0x0000_00FF)
        input.writeFrame(0, ByteBuffer(bytes: bytes[2999...]), 0x55AA_1234)
        input.writeFrame(1, ByteBuffer(string: "next"), 7)
        var (reader, buffer, output) = (FrameReader(isMasked: true, limit: 1000), ByteBuffer(), [UInt8]())
        var (opcodes, controls, messages): ([UInt8], [WebSocketMessage], [WebSocketMessage]) = ([], [], [])
        while let piece = input.readBytes(length: min(size, input.readableBytes)), !piece.isEmpty {
            buffer.writeBytes(piece)
            reading: while true {
                guard reader.isPassing else {
                    do {
                        guard let message = try reader.next(&buffer) else { break reading }
                        messages.append(message)
                    } catch {
                        #expect(error == .tooLong)
                        reader.pass()
                    }
                    continue
                }
                switch try reader.nextPiece(&buffer) {
                case nil: break reading
                case .control(let message): controls.append(message)
                case .data(let bytes, let opcode, let isLast):
                    opcodes.append(opcode)
                    output += Array(buffer: bytes)
                    #expect(isLast != reader.isPassing)
                }
            }
        }
        #expect(output == bytes && opcodes.first == 2 && opcodes.dropFirst().allSatisfy { $0 == 0 })
        #expect(controls == [.ping(ByteBuffer(string: "p"))])
        #expect(messages == [.data(ByteBuffer(string: "next"), isText: true)])
        // What goes on has to have begun, and no other message comes between.
        for wrong: [UInt8] in [[0x00, 0x00], [0x02, 0x00, 0x82, 0x00]] {
            var (reader, buffer) = (FrameReader(isMasked: false, limit: 100), ByteBuffer(bytes: wrong))
            reader.pass()
            if wrong.count > 2 { _ = try reader.nextPiece(&buffer) }
            #expect(throws: FrameFault.malformed) { try reader.nextPiece(&buffer) }
        }
    }

    /// What receives the messages decides about them.
    @Test func aTextThatIsNotUTF8IsRead() throws {
        let text = WebSocketMessage.data(ByteBuffer(bytes: [0xC3, 0x28]), isText: true)
        #expect(try read([0x81, 0x02, 0xC3, 0x28]) == [text])
        #expect(try read([0x01, 0x01, 0xC3, 0x80, 0x01, 0x28]) == [text])
    }

    @Test func aCharacterMayCrossFragments() throws {
        #expect(try read([0x01, 0x01, 0xC3, 0x80, 0x01, 0xA4]) == [.data(ByteBuffer(string: "ä"), isText: true)])
    }
}
