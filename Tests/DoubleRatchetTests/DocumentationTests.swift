import Foundation
import TestKit
import TestThreads
import Testing

/// Holds the catalogue of the library to what is there.
@Suite("The documentation is true", .blocking)
struct DocumentationTests {
    private static let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent()

    private static func articles() throws -> [Catalogue.Article] {
        try Catalogue(of: "DoubleRatchet", file: #filePath).articles
    }

    @Test("every block of code stands in ExampleTests.swift, which is compiled and run") func examples() throws {
        let examples = try Catalogue(of: "DoubleRatchet", file: #filePath)
            .missing(in: "Tests/DoubleRatchetTests/ExampleTests.swift")
        #expect(examples.blocks.isEmpty && examples.count >= 6, "\(examples)")
    }

    /// What has duties that the tutorial does not explain.
    @Test("the tutorial uses only the safe parts") func safeParts() throws {
        let tutorial = try #require(try Self.articles().first { $0.name == "GettingStarted.md" })
        let code = tutorial.blocks.joined().joined(separator: "\n")
        for unsafe in ["SignedPreKey(", "KEMPreKey(", "OneTimePreKey(", "Session.respond", "expecting: nil"] {
            #expect(!code.contains(unsafe), "the tutorial uses \(unsafe)")
        }
        for safe in ["PreKeyStore(", "SessionRecord(", "StateSealer"] {
            #expect(code.contains(safe), "the tutorial does not use \(safe)")
        }
    }

    /// The tests that a line names: `Suite.function` or `Suite.function in Tests/Target`.
    private static func names(_ line: String) -> [(suite: String, function: String)] {
        line.matches(of: /`([A-Z][A-Za-z0-9]*Tests)\.([a-z][A-Za-z0-9]*)`/).map { (String($0.1), String($0.2)) }
    }

    @Test("every test that an article names exists") func namedTests() throws {
        let folder = Self.tests.deletingLastPathComponent().resolvingSymlinksInPath()
        let files = FileManager.default.enumerator(atPath: folder.path)?.compactMap { $0 as? String } ?? []
        var functions: [String: Set<String>] = [:]
        for file in files where file.hasSuffix("Tests.swift") && file.hasPrefix("DoubleRatchetTests/") {
            let text = try String(contentsOf: folder.appending(path: file), encoding: .utf8)
            guard let suite = text.firstMatch(of: /struct ([A-Z][A-Za-z0-9]*Tests)/) else { continue }
            functions[String(suite.1), default: []].formUnion(
                text.matches(of: /func ([a-z][A-Za-z0-9]*)\(/).map { String($0.1) })
        }
        var count = 0
        for article in try Self.articles() {
            for name in article.lines.flatMap(Self.names) {
                count += 1
                let exists = functions[name.suite]?.contains(name.function) ?? false
                #expect(exists, "\(article.name) names \(name.suite).\(name.function)")
            }
        }
        #expect(count > 60)
    }

    @Test("every line of the table of proofs names a test or says that there is none") func everyLine() throws {
        let proofs = try Self.articles().first { $0.name == "Proofs.md" }?.lines ?? []
        let rows = proofs.filter { $0.hasPrefix("| ") && !$0.hasPrefix("| What") }
        #expect(rows.count > 50)
        for row in rows {
            #expect(!Self.names(row).isEmpty || row.contains("not proven") || row.contains("`Tests/"), "\(row)")
        }
    }

    @Test(
        "DocC converts the catalogue and all comments without a warning",
        .enabled(if: Catalogue.isConvertible, "docc not found"))
    func converts() throws {
        let complaints = try Catalogue(of: "DoubleRatchet", file: #filePath).convert()
        #expect(complaints.isEmpty, "\(complaints.prefix(4000))")
    }
}
