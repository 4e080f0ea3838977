import Foundation
import TestThreads
import Testing

/// Tests compare a text by its code or by the function that makes it. A copy of its words breaks with each better wording,
/// and says nothing about the case that was meant.
@Suite(.blocking) struct TextTests {
    /// The sources of texts that have a code or a function: what a test can name instead.
    private static let sources = [
        "Sources/Reports/Notices.swift", "Sources/SQLiteStore/StoreRefusals.swift",
        "Sources/StoreBase/KeyRefusals.swift", "Sources/Outbox/ActRefusal.swift",
        "Sources/pawl/Admin/AdminService.swift",
        "Sources/pawl/Serving/RoleRecord.swift", "Sources/pawl/Serving/Role.swift",
    ]

    /// Fewer words are a name or a command.
    private static let leastWords = 4

    /// How a comparison begins. Few lines have one, and the expression of ``compared(_:)`` is slow.
    private static let beginnings = [#"contains(""#, #"hasPrefix(""#, #"hasSuffix(""#, #"== ""#]

    /// The literals that a line of a test compares with, other than those that must not be shown.
    ///
    /// Words that must not be shown stand for every text that holds them, so no code replaces them.
    private static func compared(_ line: Substring) -> [String] {
        guard !line.contains("!") || line.contains("!= ") else { return [] }
        guard !line.contains("== false"), !line.contains(".isEmpty") else { return [] }
        return line.matches(of: /(?:contains|hasPrefix|hasSuffix)\("([^"\\]+)"\)|== "([^"\\]+)"/)
            .compactMap { $0.output.1 ?? $0.output.2 }.map(String.init)
            .filter { $0.split(separator: " ").count >= leastWords }
    }

    @Test func noTestComparesACopyOfAText() throws {
        let texts = try Self.sources.map { (name) -> (String, String) in
            let text = try String(contentsOf: TidyTests.root.appending(path: name), encoding: .utf8)
            let lines = text.split(separator: "\n").filter { !$0.drop { $0 == " " }.hasPrefix("//") }
            return (name, lines.joined(separator: "\n"))
        }
        for file in TidyTests.files("Tests") where !file.name.hasSuffix("/TextTests.swift") {
            for (index, line) in file.text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                guard Self.beginnings.contains(where: { TidyTests.has(line, $0) }) else { continue }
                for words in Self.compared(line) {
                    guard let source = texts.first(where: { TidyTests.has($0.1, words) }) else { continue }
                    Issue.record("\(file.name):\(index + 1) compares '\(words)': name the text of \(source.0) instead")
                }
            }
        }
    }

    /// The comparison is found, and what is not one is left alone.
    @Test func comparisonsAreFound() {
        #expect(Self.compared(#"#expect(error.message.contains("is not a file. Name"))"#) == ["is not a file. Name"])
        #expect(Self.compared(#"#expect(text == "one two three four")"#) == ["one two three four"])
        #expect(Self.compared(#"#expect(!text.contains("one two three four"))"#).isEmpty)
        #expect(Self.compared(#"#expect(text.contains("pawl restore FILE"))"#).isEmpty)
        #expect(Self.compared(#"client.send("PRIVMSG bob :one two three")"#).isEmpty)
    }
}
