// The plaintext of a ratchet message: the text byte for byte as the sender's client wrote it, the client-only tags, and
// padding that fills the carrier's last line.

/// The plaintext of an envelope:
///
///     kind (1 B) | tags length (2 B) | tags | text length (2 B) | text | zeros ...
///
/// Lengths are big-endian. All bytes after the text are padding and must be zero.
package struct Body: Equatable, Sendable {
    /// What the recipient's client receives.
    package enum Kind: UInt8, Sendable {
        /// A text under the carrier's own verb (PRIVMSG or NOTICE).
        case text = 0
        /// Tags without a text (TAGMSG).
        case tagsOnly = 1
        /// A control message between devices; not shown to people.
        case control = 2
        /// A text of several lines. A line after LF is a new one; a line after CR continues the one before.
        ///
        /// 3 is that of ``Content``.
        case lines = 4
    }

    /// A line of a text.
    package struct Line: Equatable, Sendable {
        package var text: [UInt8]
        /// Whether it continues the line before, without a space between them.
        package var continues: Bool

        package init(text: [UInt8], continues: Bool = false) { (self.text, self.continues) = (text, continues) }
    }

    /// Bytes of a body besides tags and text.
    package static let overhead = 5

    package var kind: Kind
    /// Client-only tags as in the line, without `@`; empty if there are none.
    package var tags: [UInt8]
    package var text: [UInt8]

    package init(kind: Kind = .text, tags: [UInt8] = [], text: [UInt8]) {
        (self.kind, self.tags, self.text) = (kind, tags, text)
    }

    /// A text of several lines, none of which contains CR or LF.
    package init(lines: [Line], tags: [UInt8] = []) {
        var text: [UInt8] = []
        for (index, line) in lines.enumerated() {
            if index > 0 { text.append(line.continues ? 0x0D : 0x0A) }
            text += line.text
        }
        self.init(kind: .lines, tags: tags, text: text)
    }

    /// Whether people are shown a text.
    package var isText: Bool {
        switch kind {
        case .text, .lines: true
        case .tagsOnly, .control: false
        }
    }

    /// The lines of a text, at least one; the text itself unless it is of several lines.
    package var lines: [Line] {
        guard kind == .lines else { return [Line(text: text)] }
        var lines = [Line(text: [])]
        for byte in text {
            switch byte {
            case 0x0A: lines.append(Line(text: []))
            case 0x0D: lines.append(Line(text: [], continues: true))
            default: lines[lines.count - 1].text.append(byte)
            }
        }
        return lines
    }

    /// The text, with LF between two lines; a line that continues the one before is part of it.
    package var joinedText: [UInt8] { kind == .lines ? text.filter { $0 != 0x0D } : text }

    /// A body that is not shown to people.
    package static let noText = Body(kind: .control, text: [])

    /// The length without padding, in bytes.
    package var length: Int { Self.overhead + tags.count + text.count }

    /// The bytes to seal, padded with zeros up to `target` bytes. There is no padding if `target` is below ``length``.
    package func bytes(paddedTo target: Int) -> [UInt8] {
        var output: [UInt8] = []
        output.reserveCapacity(max(length, target))
        output.append(kind.rawValue)
        for part in [tags, text] {
            output.append(UInt8(truncatingIfNeeded: part.count >> 8))
            output.append(UInt8(truncatingIfNeeded: part.count))
            output.append(contentsOf: part)
        }
        if output.count < target { output.append(contentsOf: repeatElement(0, count: target - output.count)) }
        return output
    }

    /// Parses opened bytes.
    ///
    /// - Throws: ``EnvelopeError/unsupportedKind(_:)`` or ``EnvelopeError/malformed``.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        guard let first = bytes.first else { throw .malformed }
        guard let kind = Kind(rawValue: first) else { throw .unsupportedKind(first) }
        var position = 1
        func part() throws(EnvelopeError) -> [UInt8] {
            guard position + 2 <= bytes.count else { throw .malformed }
            let count = Int(bytes[position]) << 8 | Int(bytes[position + 1])
            position += 2
            guard position + count <= bytes.count else { throw .malformed }
            defer { position += count }
            return Array(bytes[position..<(position + count)])
        }
        self.kind = kind
        tags = try part()
        text = try part()
        guard bytes[position...].allSatisfy({ $0 == 0 }) else { throw .malformed }
    }
}
