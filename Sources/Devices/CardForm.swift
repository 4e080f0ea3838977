// The forms of a contact card: a URI, which fits into a QR code, and a file, which also has the published keys.
//
// A card proves nothing by itself. It counts as much as the way on which it came: the screen of the person, or a file
// from their hands.

import Crypto
package import DoubleRatchet
package import Envelope

/// A person's name with the first key of their device list, from which safety numbers are made.
///
/// The URI; the bytes of the name that RFC 3986 does not call unreserved are percent-encoded:
///
///     pawl:contact?name=NAME&key=KEY (43 characters)&sum=SUM (8 characters)
///
/// KEY is the key and SUM the first 6 bytes of the digest of name and key, both in Base64 with `-` and `_`, not padded.
/// The sum shows typing errors and cut texts; it is no signature.
///
/// The file:
///
///     `PAWLCARD` (8 B) | form 1 (1 B) | name (2 B length) | key (32 B) | published keys (2 B length, may be empty) |
///     SHA-256 of everything before (32 B)
package struct CardForm: Equatable, Sendable {
    /// Ours: bytes of a name. Names at servers are shorter, apart from long mail addresses.
    package static let nameLimit = 255
    /// Ours: bytes of the published keys, whose form has the same limit.
    package static let keysLimit = 32 * 1024
    /// Bytes of the longest file.
    package static let fileLimit = magic.count + 1 + 2 + nameLimit + IdentityKey.byteCount + 2 + keysLimit + 32
    /// Bytes of the longest URI: each byte of a name may need three.
    package static let uriLimit = start.utf8.count + 3 * nameLimit + middle.utf8.count + 43 + end.utf8.count + 8

    private static let magic = Array("PAWLCARD".utf8)
    private static let form: UInt8 = 1
    private static let context = "pawl contact card"
    private static let (start, middle, end) = ("pawl:contact?name=", "&key=", "&sum=")

    /// 1 to ``nameLimit`` bytes without control characters.
    package let name: String
    /// The key that signed the first version of the person's device list.
    package let root: IdentityKey
    /// The published keys in their own form, not checked here; empty for none.
    package let keys: [UInt8]

    /// - Throws: `EnvelopeError.malformed` if the name or the keys are outside their bounds.
    package init(name: String, root: IdentityKey, keys: [UInt8] = []) throws(EnvelopeError) {
        guard (1...Self.nameLimit).contains(name.utf8.count), keys.count <= Self.keysLimit,
            name.unicodeScalars.allSatisfy({ $0.properties.generalCategory != .control })
        else { throw .malformed }
        (self.name, self.root, self.keys) = (name, root, keys)
    }

    // MARK: The URI

    /// The URI. It has no published keys.
    package var uri: String {
        var output = Array(Self.start.utf8)
        for byte in name.utf8 {
            if Self.isUnreserved(byte) {
                output.append(byte)
            } else {
                output += [UInt8(ascii: "%"), Self.digit(byte >> 4), Self.digit(byte & 15)]
            }
        }
        output += Self.middle.utf8
        output += Self.base64(root.bytes)
        output += Self.end.utf8
        output += Self.base64(sum)
        return String(decoding: output, as: UTF8.self)
    }

    /// Reads ``uri`` and no other form: each card has one.
    ///
    /// - Throws: `EnvelopeError.malformed`
    package init(uri: String) throws(EnvelopeError) {
        guard uri.utf8.count <= Self.uriLimit, uri.utf8.starts(with: Self.start.utf8) else { throw .malformed }
        var rest = Array(uri.utf8.dropFirst(Self.start.utf8.count))[...]
        var name: [UInt8] = []
        while let byte = rest.first, byte != UInt8(ascii: "&") {
            if byte == UInt8(ascii: "%") {
                guard rest.count >= 3, let high = Self.value(rest[rest.startIndex + 1]),
                    let low = Self.value(rest[rest.startIndex + 2])
                else { throw .malformed }
                name.append(high << 4 | low)
                rest.removeFirst(3)
            } else {
                name.append(byte)
                rest.removeFirst()
            }
        }
        let tail = Self.middle.utf8.count + 43 + Self.end.utf8.count + 8
        guard let name = String(validating: name, as: UTF8.self), rest.count == tail else { throw .malformed }
        let coded = rest.dropFirst(Self.middle.utf8.count).prefix(43)
        guard let bytes = Base64.decode(coded.map(Self.standard)), bytes.count == IdentityKey.byteCount,
            let root = try? IdentityKey(bytes.span)
        else { throw .malformed }
        try self.init(name: name, root: root)
        // Also compares the sum, the names of the parts and the case of percent-encoded digits.
        guard self.uri.utf8.elementsEqual(uri.utf8) else { throw .malformed }
    }

    private var sum: [UInt8] {
        var content = Array(Self.context.utf8)
        content.append(field: Array(name.utf8))
        content += root.bytes
        return Array(SHA256.hash(data: content).prefix(6))
    }

    private static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"):
            true
        default: false
        }
    }

    private static func digit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 + value : 0x41 + value - 10 }

    private static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case 0x30...0x39: digit - 0x30
        case 0x41...0x46: digit - 0x41 + 10
        default: nil
        }
    }

    private static func base64(_ bytes: [UInt8]) -> [UInt8] {
        var text: [UInt8] = []
        Base64.encode(bytes[...], into: &text)
        return text.map { character in
            switch character {
            case UInt8(ascii: "+"): UInt8(ascii: "-")
            case UInt8(ascii: "/"): UInt8(ascii: "_")
            default: character
            }
        }
    }

    /// The character of the standard alphabet; for `+` and `/` themselves one that no alphabet has.
    private static func standard(_ character: UInt8) -> UInt8 {
        switch character {
        case UInt8(ascii: "-"): UInt8(ascii: "+")
        case UInt8(ascii: "_"): UInt8(ascii: "/")
        case UInt8(ascii: "+"), UInt8(ascii: "/"): 0
        default: character
        }
    }

    // MARK: The file

    /// The bytes of the file.
    package var bytes: [UInt8] {
        var output = Self.magic + [Self.form]
        output.append(field: Array(name.utf8))
        output += root.bytes
        output.append(field: keys)
        return output + SHA256.hash(data: output)
    }

    /// Reads ``bytes`` and no other form. The published keys are not checked.
    ///
    /// - Throws: `EnvelopeError`: `unsupportedVersion` for a card of a later program.
    package init(_ bytes: [UInt8]) throws(EnvelopeError) {
        guard bytes.count <= Self.fileLimit, bytes.starts(with: Self.magic) else { throw .malformed }
        var cursor = ByteCursor(Array(bytes.dropFirst(Self.magic.count)))
        let form = try cursor.byte()
        guard form == Self.form else { throw .unsupportedVersion(form) }
        let name = try cursor.field()
        let key = try cursor.take(IdentityKey.byteCount)
        let keys = try cursor.field()
        let digest = try cursor.take(32)
        guard cursor.isAtEnd, digest == Array(SHA256.hash(data: Array(bytes.dropLast(32)))),
            let name = String(validating: name, as: UTF8.self), let root = try? IdentityKey(key.span)
        else { throw .malformed }
        try self.init(name: name, root: root, keys: keys)
    }
}
