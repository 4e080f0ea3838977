// Folding of names. Nicks are always compared folded and shown as written.

import NIOCore

/// ISUPPORT `CASEMAPPING`.
package enum CaseMapping: String, Sendable {
    case ascii
    /// `{}|~` are the lower case of `[]\^` (RFC 1459 section 2.2).
    case rfc1459
    /// As ``rfc1459`` without `~` and `^`.
    case strictRFC1459 = "rfc1459-strict"

    /// The mapping of a value of CASEMAPPING; nil if it is not known.
    package init?(announced value: String) {
        // The name in the first drafts of RPL_ISUPPORT.
        let name = value.lowercased()
        self.init(rawValue: name == "strict-rfc1459" ? "rfc1459-strict" : name)
    }

    /// Whether all mappings that servers have agree about a name: those here, and those for other alphabets.
    package static func areAgreed(about name: String) -> Bool {
        name.utf8.allSatisfy { $0 < 0x80 && rfc1459.fold($0) == ascii.fold($0) && !"{|}~".utf8.contains($0) }
    }

    /// The lower case of a byte.
    @inline(__always)
    package func fold(_ byte: UInt8) -> UInt8 {
        switch byte {
        case 0x41...0x5A: return byte + 0x20
        case 0x5B...0x5D: return self == .ascii ? byte : byte + 0x20
        case 0x5E: return self == .rfc1459 ? 0x7E : byte
        default: return byte
        }
    }

    /// A folded name, as a key.
    package func fold(_ name: String) -> String {
        String(unsafeUninitializedCapacity: name.utf8.count) { output in
            var count = 0
            for byte in name.utf8 {
                output[count] = fold(byte)
                count += 1
            }
            return count
        }
    }
}

extension IRCLine {
    /// A folded part of the line, as a key.
    package func folded(_ span: ByteSpan, _ mapping: CaseMapping) -> String {
        bytes.withUnsafeReadableBytes { raw in
            String(unsafeUninitializedCapacity: span.count) { output in
                for (offset, index) in span.range.enumerated() { output[offset] = mapping.fold(raw[index]) }
                return span.count
            }
        }
    }
}

/// Matches names against masks with `*` and `?`, ignoring letter case.
package enum Mask {
    /// Whether a name matches a mask. The time is bounded by the product of both lengths.
    package static func matches(_ mask: String, _ name: String, _ mapping: CaseMapping = .ascii) -> Bool {
        let pattern = mask.utf8.map(mapping.fold)
        let text = name.utf8.map(mapping.fold)
        var (p, t, star, mark) = (0, 0, -1, 0)
        while t < text.count {
            if p < pattern.count, pattern[p] == UInt8(ascii: "?") || pattern[p] == text[t] {
                p += 1
                t += 1
            } else if p < pattern.count, pattern[p] == UInt8(ascii: "*") {
                star = p
                mark = t
                p += 1
            } else if star >= 0 {
                p = star + 1
                mark += 1
                t = mark
            } else {
                return false
            }
        }
        while p < pattern.count, pattern[p] == UInt8(ascii: "*") { p += 1 }
        return p == pattern.count
    }
}
