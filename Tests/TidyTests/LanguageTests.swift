import Foundation
import TestThreads
import Testing

/// Words of a private dialect that stood in comments and documents once. Each has a term that readers know.
@Suite(.blocking) struct LanguageTests {
    /// Whole words, with what to write instead.
    private static let words: [(word: String, instead: String)] = [
        ("whoever", "name the component or the person that acts"),
        ("nothing where", "nil if, or: empty if"),
        ("resaid", "retried, or: sent again"),
        ("lapsed", "expired"),
        ("parcel", "shared ciphertext"),
        ("parcels", "shared ciphertexts"),
        ("shelf", "store, table or cache"),
        ("desk", "table"),
        ("keeper", "store, table or cache"),
        ("remark", "notice"),
        ("remarks", "notices"),
        ("is gone", "is closed, removed or expired"),
        ("what was said", "the message"),
        ("is said again", "is sent again"),
        ("nobody's business", "say what would be disclosed, and to whom"),
    ]

    /// The comments of a file without code in backticks.
    private static func comments(_ text: String) -> [(line: Int, text: String)] {
        var found: [(Int, String)] = []
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let trimmed = line.trimmingCharacters(in: .whitespaces)
            guard trimmed.hasPrefix("//") else { continue }
            found.append((index + 1, prose(trimmed)))
        }
        return found
    }

    private static func prose(_ text: String) -> String {
        text.split(separator: "`", omittingEmptySubsequences: false).enumerated()
            .map { $0.offset.isMultiple(of: 2) ? String($0.element) : "" }.joined().lowercased()
            .replacing(/- parameter \w+:/, with: "")
    }

    private static func contains(_ text: String, _ word: String) -> Bool {
        let letters = CharacterSet.letters
        var rest = text[...]
        while let range = rest.range(of: word) {
            let before = range.lowerBound == text.startIndex ? nil : text[text.index(before: range.lowerBound)]
            let after = range.upperBound == text.endIndex ? nil : text[range.upperBound]
            let isWord = [before, after].compactMap(\.self).allSatisfy { character in
                !character.unicodeScalars.contains(where: letters.contains)
            }
            if isWord { return true }
            rest = rest[range.upperBound...]
        }
        return false
    }

    /// Whether any of the words stands anywhere, in code or as a part of another one.
    private static func mayHaveWords(_ text: String) -> Bool {
        let lowercased = text.lowercased()
        return words.contains { TidyTests.has(lowercased, $0.word) }
    }

    @Test func commentsUseTheTermsOfTheField() {
        for file in TidyTests.files("Sources") where Self.mayHaveWords(file.text) {
            for (line, text) in Self.comments(file.text) {
                for (word, instead) in Self.words where Self.contains(text, word) {
                    Issue.record("\(file.name):\(line) says '\(word)'; write: \(instead)")
                }
            }
        }
    }

    @Test func documentsUseTheTermsOfTheField() throws {
        for name in ["README.md", "Sources/ARCHITECTURE.md", "Sources/WIRE.md", "Sources/THREATMODEL.md"] {
            let text = try String(contentsOf: TidyTests.root.appending(path: name), encoding: .utf8)
            for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                guard Self.mayHaveWords(String(line)) else { continue }
                let prose = Self.prose(String(line))
                // In documents people act, and some of them are unknown.
                for (word, instead) in Self.words where word != "whoever" && Self.contains(prose, word) {
                    Issue.record("\(name):\(index + 1) says '\(word)'; write: \(instead)")
                }
            }
        }
    }

    /// The words are found where they stand alone, and not in code or in other words.
    @Test func wordsAreFound() {
        #expect(Self.contains("a shelf for keys", "shelf") && Self.contains("shelf", "shelf"))
        #expect(!Self.contains("shelfs", "shelf") && !Self.contains("bookshelf", "shelf"))
        #expect(!Self.contains(Self.prose("// see `shelf`"), "shelf"))
        #expect(Self.comments("let a = 1 // a desk\n/// A desk.\n").map(\.line) == [2])
    }
}
