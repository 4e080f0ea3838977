// What a plaintext channel carries besides texts: envelopes and keys.

import Envelope

/// One frame. As bytes:
///
///     "pawl" (4 B) | form 1 (1 B) | kind (1 B) | content
///     kind 1: an envelope: recipient device (8 B) | message id (8 B) | envelope
///     kind 2: published keys; kind 3: the same, and the reader is asked for its own
///
/// As a text: Base64 without padding, which begins with `cGF3b`; or the whole armour of ``Armour``.
enum ChannelFrame: Equatable, Sendable {
    case message(to: DeviceID, MessageID, [UInt8])
    case keys([UInt8], asksForKeys: Bool)

    /// A text that has come.
    enum Text: Equatable, Sendable {
        case frame(ChannelFrame)
        /// It begins like a frame and is none.
        case damaged
        case text(String, hasHint: Bool)
    }

    /// Ours: bytes of a frame; the longest envelope and its header.
    static let maximumLength = Carrier.json.maximumLength + 32
    private static let magic = Array("pawl".utf8)
    private static let form: UInt8 = 1
    /// The Base64 of the magic bytes, as far as it does not depend on the next byte.
    private static let prefix = "cGF3b"

    /// The end of an unprotected text of an upgraded client: three characters without width (U+2063, U+2064, U+2063).
    static let hint = "\u{2063}\u{2064}\u{2063}"

    var bytes: [UInt8] {
        var output = Self.magic + [Self.form]
        switch self {
        case .message(let device, let id, let envelope):
            output.append(1)
            output.append(bigEndian: device.value)
            output.append(bigEndian: id.value)
            output += envelope
        case .keys(let bytes, let asksForKeys):
            output.append(asksForKeys ? 3 : 2)
            output += bytes
        }
        return output
    }

    /// - Throws: ``EnvelopeError``
    init(_ bytes: [UInt8]) throws(EnvelopeError) {
        guard bytes.count <= Self.maximumLength, bytes.starts(with: Self.magic) else { throw .malformed }
        var cursor = ByteCursor(Array(bytes.dropFirst(Self.magic.count)))
        let form = try cursor.byte()
        guard form == Self.form else { throw .unsupportedVersion(form) }
        switch try cursor.byte() {
        case 1:
            let device = DeviceID(try cursor.uint64())
            self = .message(to: device, MessageID(try cursor.uint64()), cursor.rest())
        case 2: self = .keys(cursor.rest(), asksForKeys: false)
        case 3: self = .keys(cursor.rest(), asksForKeys: true)
        case let other: throw .unsupportedKind(other)
        }
    }

    // MARK: Texts

    var text: String { Base64.text(bytes) }

    var markedText: String { String(decoding: Armour.marker, as: UTF8.self) + ":" + text + "." }

    /// Reads a text of the format with a flag. The flag itself is not needed.
    static func parse(_ text: String) -> Text {
        guard text.utf8.starts(with: prefix.utf8) else { return .text(text, hasHint: false) }
        guard text.utf8.count <= Base64.encodedLength(maximumLength), let bytes = Base64.decode(text.utf8),
            let frame = try? ChannelFrame(bytes)
        else { return isBase64(text) ? .damaged : .text(text, hasHint: false) }
        return .frame(frame)
    }

    /// Whether a text has only characters of Base64, so that no person has written it. A word that begins like a frame
    /// is shorter than every frame.
    private static func isBase64(_ text: String) -> Bool {
        text.utf8.count > 32
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "/"):
                    true
                default: false
                }
            }
    }

    /// Reads a text of the format with a marker.
    static func parse(marked text: String) -> Text {
        let bytes = Array(text.utf8)
        guard Armour.hasMarker(bytes) else {
            guard text.utf8.reversed().starts(with: hint.utf8.reversed()) else { return .text(text, hasHint: false) }
            return .text(String(decoding: bytes.dropLast(hint.utf8.count), as: UTF8.self), hasHint: true)
        }
        guard bytes.count <= Base64.encodedLength(maximumLength) + 8,
            case .whole(let content) = Armour.parse(bytes[...]), let frame = try? ChannelFrame(content)
        else { return .damaged }
        return .frame(frame)
    }
}
