import HTTPCodec

/// The path of a route, for instance `/rooms/{conversation}/send/m.room.message/{local_id}`.
///
/// A name in braces matches one segment, `**` at the end one or more. Segments are compared percent-decoded.
///
///     pattern = 1*( "/" segment ) [ "/" ] / "/**"
///     segment = literal / "{" name "}" / "**"         "**" at the end only
///     name    = 1*( ALPHA / DIGIT / "_" )
package struct PathPattern: Hashable, Sendable {
    package enum Segment: Hashable, Sendable {
        /// Empty only as the last segment, for a path that ends with a slash.
        case literal(String)
        case capture(String)
        case rest
    }

    /// Ours: maximum length of a pattern, in bytes.
    package static let lengthLimit = 1024

    package let text: String
    package let segments: [Segment]

    package init(text: String, segments: [Segment]) { (self.text, self.segments) = (text, segments) }

    /// Parses a pattern.
    package init(_ text: String) throws(PathPatternError) {
        guard text.utf8.count <= Self.lengthLimit else {
            throw PathPatternError(text, "a path has at most \(Self.lengthLimit) characters")
        }
        guard text.hasPrefix("/") else { throw PathPatternError(text, "a path begins with /") }
        var segments: [Segment] = []
        var names: Set<String> = []
        let parts = text.dropFirst().split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count <= RequestPath.segmentLimit else {
            throw PathPatternError(text, "a path has at most \(RequestPath.segmentLimit) segments")
        }
        for (index, part) in parts.enumerated() {
            let isLast = index == parts.count - 1
            if part == "**" {
                guard isLast else { throw PathPatternError(text, "** is allowed only at the end of a path") }
                segments.append(.rest)
            } else if part.hasPrefix("{") || part.hasSuffix("}") {
                let name = try Self.name(part, text)
                guard names.insert(name).inserted else { throw PathPatternError(text, "{\(name)} appears in it twice") }
                segments.append(.capture(name))
            } else {
                guard !part.isEmpty || isLast else { throw PathPatternError(text, "it has an empty segment (//)") }
                segments.append(.literal(try Self.literal(part, text)))
            }
        }
        self.init(text: text, segments: segments)
    }

    /// The names in braces.
    package var captureNames: [String] {
        segments.compactMap { if case .capture(let name) = $0 { name } else { nil } }
    }

    private static func name(_ part: Substring, _ text: String) throws(PathPatternError) -> String {
        let name = part.dropFirst().dropLast()
        guard part.hasPrefix("{"), part.hasSuffix("}"), !name.isEmpty, name.utf8.allSatisfy(Self.isNameByte) else {
            throw PathPatternError(
                text,
                "braces enclose a whole segment, with a name of letters, digits and _ in them: {conversation}")
        }
        return String(name)
    }

    private static func isNameByte(_ byte: UInt8) -> Bool {
        UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte
            || byte == UInt8(ascii: "_")
    }

    private static func literal(_ part: Substring, _ text: String) throws(PathPatternError) -> String {
        guard !part.utf8.contains(where: { "*{}?#%\\;".utf8.contains($0) || $0 <= 0x20 || $0 == 0x7F }) else {
            throw PathPatternError(
                text,
                "`\(part)` is not a valid segment: it must not contain *, {}?#%\\; or white space; {name} stands for a "
                    + "whole segment, and ** for the rest of a path")
        }
        guard part != ".", part != ".." else { throw PathPatternError(text, "the segment `\(part)` is not allowed") }
        return String(part)
    }
}

/// An invalid pattern in a mapping.
package struct PathPatternError: Error, Equatable, Sendable, CustomStringConvertible {
    package let pattern: String
    /// The fault and its correction, in words.
    package let reason: String

    package init(_ pattern: String, _ reason: String) { (self.pattern, self.reason) = (pattern, reason) }

    package var description: String { "the path \(pattern) is wrong: \(reason)" }
}
