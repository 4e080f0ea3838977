// Parses request paths strictly: a path that backends could read differently is rejected. Such a path matches no route,
// and a request without a route is refused if protection is required.

/// The segments of a path, percent-decoded.
package struct RequestPath: Equatable, Sendable {
    /// Ours: maximum segments of a path, because matching takes one stack frame per segment.
    package static let segmentLimit = 64

    package let segments: [String]

    /// Parses the path of a target. RFC 9112 section 3.2.1, RFC 3986 section 3.3.
    ///
    /// Returns nil if parsers disagree about the path: no `/` in front, an empty segment before the last one, `.` or
    /// `..`, an encoded slash, a backslash, a semicolon (RFC 3986's parameters), a fragment, an invalid or a double
    /// percent-encoding, control characters, white space, or bytes that are not UTF-8.
    package init?(_ path: Substring) {
        switch Self.read(path) {
        case .success(let segments): self.segments = segments
        case .failure: return nil
        }
    }

    /// The reason why a path is rejected, for people; nil if the path is valid.
    package static func fault(_ path: Substring) -> String? {
        if case .failure(let fault) = read(path) { fault.words } else { nil }
    }

    private struct Fault: Error {
        package let words: String

        package init(_ words: String) { self.words = words }
    }

    private static func read(_ path: Substring) -> Result<[String], Fault> {
        guard path.utf8.first == UInt8(ascii: "/") else { return .failure(Fault("the target does not begin with /")) }
        let parts = path.utf8.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        guard parts.count <= segmentLimit else {
            return .failure(Fault("the path has more than \(segmentLimit) segments"))
        }
        var segments: [String] = []
        segments.reserveCapacity(parts.count)
        for (index, part) in parts.enumerated() {
            guard !part.isEmpty || index == parts.count - 1 else {
                return .failure(Fault("the path has an empty segment before its end (//)"))
            }
            switch segment(part) {
            case .success(let text): segments.append(text)
            case .failure(let fault): return .failure(fault)
            }
        }
        return .success(segments)
    }

    private static func segment(_ part: Substring.UTF8View) -> Result<String, Fault> {
        guard part.allSatisfy({ 0x21...0x7E ~= $0 && $0 != UInt8(ascii: "#") }) else {
            return .failure(Fault("the path has a byte that must be percent-encoded"))
        }
        var text: String
        if part.contains(UInt8(ascii: "%")) {
            guard let bytes = PercentCoding.decode(part), let decoded = String(validating: bytes, as: UTF8.self) else {
                return .failure(Fault("a percent-encoding in the path is invalid or not UTF-8"))
            }
            // A second decoding would change the segment.
            guard !PercentCoding.holdsEncoding(bytes) else {
                return .failure(Fault("a segment is percent-encoded twice"))
            }
            text = decoded
        } else {
            text = String(Substring(part))
        }
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "/"), UInt8(ascii: "\\"), UInt8(ascii: ";"):
                return .failure(Fault("a segment has an encoded slash, a backslash or a semicolon"))
            case 0..<0x20, 0x7F: return .failure(Fault("a segment has a control character"))
            default: break
            }
        }
        guard text != ".", text != ".." else { return .failure(Fault("a segment is . or ..")) }
        text.makeContiguousUTF8()
        return .success(text)
    }
}

/// Percent-encoding. RFC 3986 section 2.1.
package enum PercentCoding {
    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count)
        var rest = text.makeIterator()
        while let byte = rest.next() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.next().flatMap(digit), let low = rest.next().flatMap(digit) else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    /// Decodes like ``decode(_:)``, but keeps a percent sign without two hex digits as it is.
    package static func lenient(_ text: Substring.UTF8View) -> [UInt8] {
        var bytes = Array(text)
        guard bytes.contains(UInt8(ascii: "%")) else { return bytes }
        var (read, written) = (0, 0)
        while read < bytes.count {
            var byte = bytes[read]
            if byte == UInt8(ascii: "%"), read + 2 < bytes.count, let high = digit(bytes[read + 1]),
                let low = digit(bytes[read + 2])
            {
                byte = high << 4 | low
                read += 2
            }
            bytes[written] = byte
            (read, written) = (read + 1, written + 1)
        }
        bytes.removeLast(bytes.count - written)
        return bytes
    }

    /// Whether the bytes have a percent sign before two hex digits.
    static func holdsEncoding(_ bytes: [UInt8]) -> Bool {
        guard bytes.count >= 3 else { return false }
        return (0..<(bytes.count - 2)).contains { index in
            bytes[index] == UInt8(ascii: "%") && digit(bytes[index + 1]) != nil && digit(bytes[index + 2]) != nil
        }
    }

    /// Encodes a text as one path segment. Only unreserved characters stay as they are.
    package static func segment(_ text: String) -> String {
        var output: [UInt8] = []
        output.reserveCapacity(text.utf8.count)
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "~"):
                output.append(byte)
            default:
                output.append(UInt8(ascii: "%"))
                output.append(upperDigits[Int(byte >> 4)])
                output.append(upperDigits[Int(byte & 15)])
            }
        }
        return String(decoding: output, as: UTF8.self)
    }

    private static let upperDigits = Array("0123456789ABCDEF".utf8)

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - 0x30
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - 0x61 + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - 0x41 + 10
        default: nil
        }
    }
}
