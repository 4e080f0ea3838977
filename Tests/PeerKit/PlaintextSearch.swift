package import Foundation

/// Looks for a text in bytes that should not show it: as it is, in hexadecimal, or in Base64 at any alignment.
package struct PlaintextSearch: Sendable {
    private let forms: [Data]

    package init(_ text: String) {
        forms = Self.forms(of: Array(text.utf8))
    }

    package func finds(in haystack: Data) -> Bool {
        forms.contains { haystack.range(of: $0) != nil }
    }

    /// The files under a directory that show it, by their names.
    package func files(under directory: String) -> [String] {
        let names = FileManager.default.enumerator(atPath: directory)?.compactMap { $0 as? String } ?? []
        return names.sorted().filter { name in
            guard let bytes = FileManager.default.contents(atPath: directory + "/" + name) else { return false }
            return finds(in: bytes)
        }
    }

    private static func forms(of bytes: [UInt8]) -> [Data] {
        var forms = [Data(bytes), Data(bytes.map { String(format: "%02x", Int($0)) }.joined().utf8)]
        // in Base64 the characters at the edges also depend on the neighbours, so they are left out
        for shift in 0..<3 where bytes.count >= 6 {
            let encoded = Data([UInt8](repeating: 0, count: shift) + bytes).base64EncodedString()
            let whole = (shift + bytes.count) / 3 * 4
            // Four characters stand somewhere in any megabyte of envelopes, and prove nothing.
            guard whole - (shift == 0 ? 0 : 4) >= 8 else { continue }
            forms.append(Data(encoded.utf8.prefix(whole).dropFirst(shift == 0 ? 0 : 4)))
        }
        return forms
    }
}
