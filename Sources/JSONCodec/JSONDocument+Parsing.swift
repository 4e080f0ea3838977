// JSON documents inside strings of a document: `{"event":"posted","data":{"post":"{\"message\":\"hello\"}"}}`.
//
// A string that is parsed is replaced by the document in it, so that paths and edits go through it. An edit writes the
// string again: once, however many edits are in it. A string without an edit keeps its bytes.

package import NIOCore

/// A string of the received document that is replaced by the document in it.
struct JSONParsedString: Sendable {
    /// The outermost value of the inner document, in bytes from the beginning of ``JSONDocument/bytes``.
    var range: Range<Int>
    /// The string as received, with its quotes.
    let received: ByteBuffer
}

extension JSONDocument {
    /// Ours: maximum paths of strings to parse, because each one may be inside another, and each level doubles escapes.
    package static let parsedPathLimit = 4

    /// The document in which the strings at these paths are replaced by the documents in them.
    ///
    /// A string without a valid document stays a string. See ``unparsed(_:)``.
    ///
    /// - Parameters:
    ///   - paths: at most ``parsedPathLimit``. A path may lead through strings that an earlier one has parsed.
    /// - Throws: ``JSONError`` if the result exceeds the limits.
    package func parsing(_ paths: [JSONPath], limits: JSONLimits = .standard) throws(JSONError) -> JSONDocument {
        var document = self
        for path in paths.prefix(Self.parsedPathLimit) {
            guard let places = try? document.places(path) else { continue }
            // No value at the path is deeper than the path is long.
            var inner = limits
            inner.depth = max(0, limits.depth - path.steps.count)
            document = try document.parsing(places, limits, inner)
        }
        return document
    }

    private func parsing(
        _ places: [JSONPlace], _ limits: JSONLimits, _ innerLimits: JSONLimits
    ) throws(JSONError) -> JSONDocument {
        var splices: [JSONSplice] = []
        for place in places where isText(place) && !isParsed(place) {
            guard let text = try? utf8(place),
                let inner = try? JSONDocument(ByteBuffer(bytes: text), limits: innerLimits)
            else { continue }
            splices.append(JSONSplice(range(place), Array(text[inner.range(inner.root)])))
        }
        guard !splices.isEmpty else { return self }
        var document = try JSONDocument(JSONSplice.apply(splices, to: bytes), limits: limits)
        let shift = JSONShift(splices)
        var moved = strings.map { JSONParsedString(range: shift($0.range), received: $0.received) }
        for splice in splices {
            let slice = bytes.getSlice(at: bytes.readerIndex + splice.range.lowerBound, length: splice.range.count)
            moved.append(JSONParsedString(range: shift(splice.range), received: slice ?? ByteBuffer()))
        }
        document.strings = moved.sorted {
            ($0.range.lowerBound, -$0.range.upperBound) < ($1.range.lowerBound, -$1.range.upperBound)
        }
        (document.unparsedBytes, document.fields) = (received, fields)
        return document
    }

    /// The body as received: with its strings as they were, or the form.
    package var received: ByteBuffer { unparsedBytes ?? bytes }

    /// Whether a value is the outermost value of a parsed string.
    package func isParsed(_ place: JSONPlace) -> Bool {
        let range = range(place)
        var (low, high) = (0, strings.count)
        while low < high {
            let middle = (low + high) / 2
            if strings[middle].range.lowerBound < range.lowerBound { low = middle + 1 } else { high = middle }
        }
        // At most one for each path begins there.
        return strings[low...].prefix { $0.range.lowerBound == range.lowerBound }.contains { $0.range == range }
    }

    /// The strings at a path that ``parsing(_:limits:)`` has left, because no valid document is in them.
    ///
    /// Strings without any text are not among them.
    package func unparsed(_ path: JSONPath) throws(JSONMatchError) -> [JSONPlace] {
        let parsed = Set(strings.map(\.range))
        return try places(path).filter { place in
            kind(place) == .string && !parsed.contains(range(place)) && !isBlank(place)
        }
    }

    /// Whether a value is a string that holds nothing but white space.
    func isBlank(_ place: JSONPlace) -> Bool {
        guard kind(place) == .string, let text = try? utf8(place) else { return false }
        return text.allSatisfy { $0 == 0x20 || 0x09...0x0D ~= $0 }
    }

    // MARK: Writing

    /// The bytes of a value, with the parsed strings inside it as strings again.
    func restored(_ place: JSONPlace) -> [UInt8] {
        let range = range(place)
        var output: [UInt8] = []
        output.reserveCapacity(range.count)
        let inside = strings.filter {
            range.lowerBound <= $0.range.lowerBound && $0.range.upperBound <= range.upperBound
        }
        write(range, [], inside.filter { $0.range != range }[...], to: &output)
        return output
    }

    /// Applies splices, and writes the parsed strings as strings again.
    ///
    /// - Parameter splices: in order, not overlapping.
    /// - Throws: ``JSONEditError/tooLarge`` if a form's document exceeds the limits.
    func written(_ splices: [JSONSplice]) throws(JSONEditError) -> ByteBuffer {
        guard let fields else { return writtenAsDocument(splices) }
        guard let document = try? JSONDocument(writtenAsDocument(splices)) else { throw .tooLarge }
        return ByteBuffer(bytes: fields.written(document))
    }

    /// Whether edits replace bytes of the received document, and nothing is encoded again.
    var isPlain: Bool { fields == nil && strings.isEmpty }

    private func writtenAsDocument(_ splices: [JSONSplice]) -> ByteBuffer {
        guard !strings.isEmpty else { return JSONSplice.apply(splices, to: bytes) }
        var output: [UInt8] = []
        output.reserveCapacity(received.readableBytes)
        write(0..<bytes.readableBytes, splices[...], strings[...], to: &output)
        return ByteBuffer(bytes: output)
    }

    /// Writes a range of the document.
    ///
    /// - Parameters:
    ///   - splices: those in the range, in order.
    ///   - strings: those in the range, in order, an outer one before an inner one.
    private func write(
        _ range: Range<Int>, _ splices: ArraySlice<JSONSplice>, _ strings: ArraySlice<JSONParsedString>,
        to output: inout [UInt8]
    ) {
        var (position, splices, strings) = (range.lowerBound, splices, strings)
        func copy(_ end: Int, _ output: inout [UInt8]) {
            bytes.withUnsafeReadableBytes { output.append(contentsOf: $0[position..<end]) }
        }
        while true {
            let splice = splices.first
            guard let string = strings.first else {
                guard let splice else { break }
                copy(splice.range.lowerBound, &output)
                output += splice.bytes
                position = splice.range.upperBound
                splices.removeFirst()
                continue
            }
            if let splice, splice.range.upperBound <= string.range.lowerBound || splice.removes(string.range) {
                copy(splice.range.lowerBound, &output)
                output += splice.bytes
                position = splice.range.upperBound
                splices.removeFirst()
                strings = strings.drop { $0.range.lowerBound < position }
                continue
            }
            let inner = splices.prefix { $0.range.lowerBound < string.range.upperBound }
            copy(string.range.lowerBound, &output)
            let nested = strings.dropFirst().prefix { $0.range.upperBound <= string.range.upperBound }
            if inner.isEmpty {
                output += string.received.readableBytesView
            } else {
                var text: [UInt8] = []
                text.reserveCapacity(string.range.count)
                write(string.range, inner, nested, to: &text)
                JSONStringWriter.append(text, to: &output)
            }
            position = string.range.upperBound
            splices = splices.dropFirst(inner.count)
            strings = strings.dropFirst(1 + nested.count)
        }
        copy(range.upperBound, &output)
    }
}

extension JSONSplice {
    /// Whether it removes a parsed string, and does not only change what is in it.
    fileprivate func removes(_ string: Range<Int>) -> Bool {
        range.lowerBound <= string.lowerBound && string.upperBound <= range.upperBound
            && (range != string || bytes.isEmpty)
    }
}

/// How far bytes move when splices are applied.
private struct JSONShift {
    /// The end of each splice, and the growth by it and all before it.
    private var ends: [(end: Int, growth: Int)] = []

    /// - Parameter splices: in order, not overlapping.
    init(_ splices: [JSONSplice]) {
        var growth = 0
        for splice in splices {
            growth += splice.bytes.count - splice.range.count
            ends.append((splice.range.upperBound, growth))
        }
    }

    /// A range after the splices, none of which crosses one of its ends.
    func callAsFunction(_ range: Range<Int>) -> Range<Int> {
        (range.lowerBound + growth(before: range.lowerBound))..<(range.upperBound + growth(before: range.upperBound))
    }

    /// The growth by the splices that end at or before an offset.
    private func growth(before offset: Int) -> Int {
        var (low, high) = (0, ends.count)
        while low < high {
            let middle = (low + high) / 2
            if ends[middle].end <= offset { low = middle + 1 } else { high = middle }
        }
        return low > 0 ? ends[low - 1].growth : 0
    }
}
