// One line of IRC as a view over the received bytes. Nothing is copied or interpreted here: the route table knows the
// meaning of verbs, the roster the owners of nicks.

package import NIOCore

/// Why a line is not valid IRC.
package enum IRCParseError: Error, Equatable, Sendable {
    /// Empty, or only spaces.
    case empty
    /// Tags without a verb after them, or a source without a verb.
    case missingVerb
    /// A verb that is neither letters nor three digits, or is longer than ``IRCLimits/verbLength``.
    case malformedVerb
    /// A NUL byte, which no server relays.
    case containsNUL
    /// Longer than ``IRCLimits`` allows for tags or for the rest.
    case tooLong
}

/// The limits of the specifications, and ours.
package enum IRCLimits {
    /// RFC 1459 section 2.3: maximum length of a line without tags, CR LF included, in bytes.
    package static let lineLength = 512
    /// IRCv3 message-tags: maximum length of the tags that a client sends, `@` and the space included, in bytes.
    package static let clientTagsLength = 4096
    /// IRCv3 message-tags: maximum length of all tags of a line, `@` and the space included, in bytes.
    package static let tagsLength = 8191
    /// RFC 1459 section 2.3: maximum number of parameters of a line.
    package static let parameterCount = 15
    /// Ours: maximum length of a verb, in bytes. No server has a longer one; the lookup key needs a fixed size.
    package static let verbLength = 16
}

/// A range of bytes inside a line. Two bytes each: a line is at most 8191 + 512 bytes long.
package struct ByteSpan: Equatable, Sendable {
    package var start: UInt16
    package var end: UInt16

    package init(_ start: Int, _ end: Int) {
        self.start = UInt16(truncatingIfNeeded: start)
        self.end = UInt16(truncatingIfNeeded: end)
    }

    package var count: Int { Int(end) - Int(start) }
    package var isEmpty: Bool { start == end }
    package var range: Range<Int> { Int(start)..<Int(end) }
}

/// A parsed line, without its CR LF:
///
///     [@tags SPACE] [:source SPACE] verb [SPACE parameter]... [SPACE :trailing]
///
/// RFC 1459 section 2.3.1, RFC 2812 section 2.3.1, IRCv3 message-tags. All positions are offsets into ``bytes``.
package struct IRCLine: Sendable {
    /// The line as received, without its CR LF.
    package let bytes: ByteBuffer
    /// The bytes between `@` and the space; empty if there are no tags.
    package private(set) var tags = ByteSpan(0, 0)
    /// The bytes between `:` and the space; empty if there is no source.
    package private(set) var source = ByteSpan(0, 0)
    /// The verb or numeric as written.
    package private(set) var verbSpan = ByteSpan(0, 0)
    /// The offset of the parameters: the end of the verb.
    private var parametersStart: UInt16 = 0
    /// The upper-case verb, as a key.
    package private(set) var key: VerbKey

    /// Parses a line without its CR LF.
    ///
    /// - Throws: ``IRCParseError`` if the line is not valid IRC.
    package init(_ bytes: ByteBuffer) throws(IRCParseError) {
        self.bytes = bytes
        self.key = VerbKey()
        var failure: IRCParseError?
        var parsed = (tags: ByteSpan(0, 0), source: ByteSpan(0, 0), verb: ByteSpan(0, 0), key: VerbKey(), end: 0)
        bytes.withUnsafeReadableBytes { raw in
            failure = Self.scan(raw, into: &parsed)
        }
        if let failure { throw failure }
        (tags, source, verbSpan, key) = (parsed.tags, parsed.source, parsed.verb, parsed.key)
        parametersStart = UInt16(truncatingIfNeeded: parsed.end)
    }

    private static func scan(
        _ raw: UnsafeRawBufferPointer,
        into parsed: inout (tags: ByteSpan, source: ByteSpan, verb: ByteSpan, key: VerbKey, end: Int)
    ) -> IRCParseError? {
        let count = raw.count
        guard count <= IRCLimits.tagsLength + IRCLimits.lineLength else { return .tooLong }
        var position = 0
        func skipSpaces() { while position < count, raw[position] == 0x20 { position += 1 } }
        func skipWord() { while position < count, raw[position] != 0x20 { position += 1 } }
        skipSpaces()
        guard position < count else { return .empty }
        if raw[position] == UInt8(ascii: "@") {
            let start = position + 1
            skipWord()
            guard position - start + 2 <= IRCLimits.tagsLength else { return .tooLong }
            parsed.tags = ByteSpan(start, position)
            skipSpaces()
            guard position < count else { return .missingVerb }
        }
        if raw[position] == UInt8(ascii: ":") {
            let start = position + 1
            skipWord()
            parsed.source = ByteSpan(start, position)
            skipSpaces()
            guard position < count else { return .missingVerb }
        }
        let verbStart = position
        skipWord()
        guard position - verbStart <= IRCLimits.verbLength else { return .malformedVerb }
        parsed.verb = ByteSpan(verbStart, position)
        guard let key = VerbKey(raw, verbStart..<position) else { return .malformedVerb }
        parsed.key = key
        parsed.end = position
        return nil
    }

    // MARK: Parts

    /// The spans of the parameters, at most ``IRCLimits/parameterCount``; the last one may contain spaces.
    package var parameters: [ByteSpan] {
        var spans: [ByteSpan] = []
        forEachParameter { _, span in
            spans.append(span)
            return true
        }
        return spans
    }

    /// The parameter at an index; nil if there is none. Does not allocate.
    package func parameter(_ index: Int) -> ByteSpan? {
        var found: ByteSpan?
        forEachParameter { position, span in
            if position == index { found = span }
            return position < index
        }
        return found
    }

    /// Calls the body for each parameter until the body returns false.
    package func forEachParameter(_ body: (Int, ByteSpan) -> Bool) {
        bytes.withUnsafeReadableBytes { raw in
            var position = Int(parametersStart)
            var index = 0
            while position < raw.count {
                while position < raw.count, raw[position] == 0x20 { position += 1 }
                guard position < raw.count else { return }
                let span: ByteSpan
                if raw[position] == UInt8(ascii: ":") || index == IRCLimits.parameterCount - 1 {
                    let start = raw[position] == UInt8(ascii: ":") ? position + 1 : position
                    span = ByteSpan(start, raw.count)
                    position = raw.count
                } else {
                    let start = position
                    while position < raw.count, raw[position] != 0x20 { position += 1 }
                    span = ByteSpan(start, position)
                }
                guard body(index, span) else { return }
                index += 1
            }
        }
    }

    /// A part of the line as a string. Invalid UTF-8 is replaced, so this is for names and reports, not for relaying.
    package func string(_ span: ByteSpan) -> String {
        bytes.withUnsafeReadableBytes { raw in String(decoding: raw[span.range], as: UTF8.self) }
    }

    /// A part of the line as a slice that shares its storage.
    package func slice(_ span: ByteSpan) -> ByteBuffer {
        bytes.getSlice(at: bytes.readerIndex + Int(span.start), length: span.count) ?? ByteBuffer()
    }

    /// The parameter at an index as a string; nil if there is none.
    package func text(_ index: Int) -> String? {
        parameter(index).map(string)
    }

    /// The names in a list parameter, as written; empty if there is none.
    ///
    /// Split by bytes, as servers do: one Swift `Character` may contain a comma.
    package func names(_ index: Int) -> [String] {
        guard let span = parameter(index) else { return [] }
        return slice(span).readableBytesView.split(separator: UInt8(ascii: ","))
            .map { String(decoding: $0, as: UTF8.self) }
    }

    /// Whether a part of the line equals an ASCII text, ignoring letter case.
    package func matches(_ span: ByteSpan, _ text: StaticString) -> Bool {
        guard span.count == text.utf8CodeUnitCount else { return false }
        return bytes.withUnsafeReadableBytes { raw in
            for offset in 0..<span.count {
                let byte = raw[Int(span.start) + offset]
                let upper = byte >= 0x61 && byte <= 0x7A ? byte - 0x20 : byte
                let expected = text.utf8Start[offset]
                let upperExpected = expected >= 0x61 && expected <= 0x7A ? expected - 0x20 : expected
                if upper != upperExpected { return false }
            }
            return true
        }
    }

    /// Whether the line contains NUL or CR, which no line may. Some programs drop them, and others end the line there.
    ///
    /// Reads eight bytes at a time, and looks closer only at those with a byte below 0x0E.
    package var containsNULOrCR: Bool {
        bytes.withUnsafeReadableBytes { raw in
            var position = 0
            while position + 8 <= raw.count {
                let word = raw.loadUnaligned(fromByteOffset: position, as: UInt64.self)
                let low = (word &- 0x0E0E_0E0E_0E0E_0E0E) & ~word & 0x8080_8080_8080_8080
                if low != 0, raw[position..<(position + 8)].contains(where: Self.isNULOrCR) { return true }
                position += 8
            }
            return raw[position...].contains(where: Self.isNULOrCR)
        }
    }

    private static func isNULOrCR(_ byte: UInt8) -> Bool { byte == 0 || byte == 0x0D }

    /// The line without its tags, as a slice.
    package var withoutTags: ByteBuffer {
        slice(ByteSpan(source.isEmpty ? Int(verbSpan.start) : Int(source.start) - 1, bytes.readableBytes))
    }

    // MARK: Source

    /// The nick or server name of the source; empty if there is no source.
    package var sourceNick: ByteSpan {
        bytes.withUnsafeReadableBytes { raw in
            let end = raw[source.range].firstIndex { $0 == UInt8(ascii: "!") || $0 == UInt8(ascii: "@") }
            return ByteSpan(Int(source.start), end ?? Int(source.end))
        }
    }

    /// Whether the source is a person (`nick!user@host`), not a server.
    package var sourceIsPerson: Bool {
        !source.isEmpty && sourceNick.count < source.count
    }

    /// The bytes after the `@` of the source; empty if there are none.
    package var sourceHost: ByteSpan {
        bytes.withUnsafeReadableBytes { raw in
            guard let at = raw[source.range].lastIndex(of: UInt8(ascii: "@")) else { return ByteSpan(0, 0) }
            return ByteSpan(at + 1, Int(source.end))
        }
    }
}
