import NIOCore

#if FUZZ_CODECS
    import Glibc
#else
    @testable import Envelope
    @testable import IRCCodec
#endif

/// Bytes for everything that reads a line or an envelope: the first byte says what. `Tests/fuzz codecs` grows them,
/// `CodecTests` draws them.
enum CodecProgramme {
    /// What must not happen.
    struct Finding: Error {
        let text: String
    }

    static let readerCount = 6

    private static func demand(_ holds: Bool, _ text: @autoclosure () -> String) throws {
        guard holds else { throw Finding(text: text()) }
    }

    static func run(_ input: [UInt8]) throws {
        guard let first = input.first else { return }
        let bytes = Array(input.dropFirst())
        switch Int(first) % readerCount {
        case 0, 1: try line(bytes)
        case 2: try armour(bytes, capacity: Int(first))
        case 3: try envelope(bytes)
        case 4: try fragments(bytes)
        default: try base64(bytes)
        }
    }

    /// Every part of a line lies within it, and what is written again says the same.
    private static func line(_ bytes: [UInt8]) throws {
        guard let line = try? IRCLine(ByteBuffer(bytes: bytes)) else { return }
        for span in line.parameters + [line.tags, line.source, line.verbSpan, line.sourceNick, line.sourceHost] {
            try demand(span.start <= span.end && Int(span.end) <= bytes.count, "a part beyond its line")
            try demand(line.slice(span).readableBytes == span.count, "a slice of another length")
        }
        try demand(line.parameters.count <= IRCLimits.parameterCount, "too many parameters")
        for index in 0...line.parameters.count {
            try demand(line.parameter(index) == line.parameters.dropFirst(index).first, "another parameter \(index)")
        }
        for tag in line.tagList where tag.key.utf8.allSatisfy({ $0 < 0x80 }) {
            try demand(line.tag(tag.key) != nil, "a listed tag is not found")
            // A lone backslash is gone after the first reading.
            let again = TagValue.unescape(TagValue.escape(tag.value)[...])
            try demand(again == tag.value, "a value is escaped into another")
        }
        var support = ServerSupport()
        support.absorb(line)
        _ = support.isRoom(bytes[0], then: bytes.last)
        if let text = line.parameters.last { _ = CTCP(bytes[text.range]) }
        _ = line.withoutTags
        _ = line.sourceIsPerson
        for mapping in [CaseMapping.ascii, .rfc1459] {
            let folded = line.folded(line.sourceNick, mapping)
            try demand(mapping.fold(folded) == folded, "folded twice is another name")
        }
    }

    private static func armour(_ bytes: [UInt8], capacity: Int) throws {
        switch Armour.parse((Armour.marker + bytes)[...]) {
        case .fragment(_, let index, let count, let piece):
            try demand(index < count && !piece.isEmpty, "a fragment beyond its envelope")
        case .none: throw Finding(text: "the marker is not seen")
        default: break
        }
        _ = Armour.parse(bytes[...])
        guard !bytes.isEmpty, let lines = Armour.split(bytes, id: 7, capacity: 40 + capacity) else { return }
        var assembler = FragmentAssembler()
        var whole: [UInt8]?
        for text in lines {
            try demand(text.count <= 40 + capacity, "a line over its capacity")
            switch Armour.parse(text[...]) {
            case .whole(let bytes): whole = bytes
            case .fragment(let id, let index, let count, let piece):
                let outcome = assembler.add(
                    source: "a", target: "b", id: id, index: index, count: count, bytes: piece, now: 0)
                if case .complete(let bytes) = outcome { whole = bytes }
            default: throw Finding(text: "a line of ours is damaged")
            }
        }
        try demand(whole == bytes && assembler.isEmpty, "an envelope comes out as another")
    }

    private static func envelope(_ bytes: [UInt8]) throws {
        if let envelope = try? Envelope(bytes) {
            try demand(envelope.bytes == bytes, "an envelope is written again in other bytes")
            try demand(Envelope.claim(of: bytes)?.sender == envelope.sender, "another claim")
        }
        if let body = try? Body(bytes) {
            try demand(body.bytes(paddedTo: bytes.count) == bytes, "a body is written again in other bytes")
        }
    }

    /// Fragments of some senders, in any order, with any contradiction: bounded, and nothing is mixed.
    private static func fragments(_ bytes: [UInt8]) throws {
        var assembler = FragmentAssembler()
        var now: Int64 = 0
        for start in stride(from: 0, to: bytes.count - 4, by: 4) {
            let (who, id, place, size) = (bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3])
            now += Int64(size) * 100_000_000
            let count = 2 + Int(place >> 4)
            let outcome = assembler.add(
                source: "\(who % 4)", target: "\(who >> 7)", id: UInt32(id % 8), index: Int(place & 15) % count,
                count: count, bytes: [UInt8](repeating: who % 4, count: 1 + Int(size)), now: now)
            if case .complete(let whole) = outcome {
                try demand(Set(whole) == [who % 4] && whole.count >= count, "fragments of two senders are mixed")
            }
            _ = assembler.expire(now: now)
            if let deadline = assembler.nextDeadline { try demand(deadline > now, "something overdue is kept") }
        }
        _ = assembler.expire(now: now + 1_000_000_000_000)
        try demand(assembler.isEmpty, "something is kept for ever")
    }

    private static func base64(_ bytes: [UInt8]) throws {
        var text: [UInt8] = []
        Base64.encode(bytes[...], into: &text)
        try demand(Base64.decode(text) == bytes, "bytes come back as others")
        try demand(text.count == Base64.encodedLength(bytes.count), "another length")
        if let decoded = Base64.decode(bytes) {
            var again: [UInt8] = []
            Base64.encode(decoded[...], into: &again)
            try demand(again == bytes, "a text has two forms")
        }
    }
}

#if FUZZ_CODECS
    /// One input of the fuzzer: ends the process where something is found.
    @_cdecl("LLVMFuzzerTestOneInput")
    public func fuzzCodecs(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
        do {
            try CodecProgramme.run(Array(UnsafeBufferPointer(start: start, count: count)))
        } catch {
            print("FINDING: \(error)")
            fflush(nil)
            abort()
        }
        return 0
    }
#endif
