import Foundation
import Testing

/// Holds the catalogue of the library to what is there.
@Suite("The documentation is true")
struct DocumentationTests {
    private static let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    private static let catalogue = tests.deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Sources/DoubleRatchet/DoubleRatchet.docc")

    private static func articles() throws -> [(name: String, lines: [String])] {
        try FileManager.default.contentsOfDirectory(atPath: catalogue.path).filter { $0.hasSuffix(".md") }.sorted().map
        {
            let text = try String(contentsOf: catalogue.appending(path: $0), encoding: .utf8)
            return ($0, text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init))
        }
    }

    /// Lines without the indentation that they have in common.
    private static func dedented(_ lines: [String]) -> [String] {
        let indents = lines.filter { !$0.allSatisfy(\.isWhitespace) }.map { $0.prefix { $0 == " " }.count }
        return lines.map { String($0.dropFirst(indents.min() ?? 0)) }
    }

    /// The blocks of Swift in an article.
    private static func blocks(_ lines: [String]) -> [[String]] {
        var blocks: [[String]] = []
        var current: [String]?
        for line in lines {
            if line == "```swift" {
                current = []
            } else if line.hasPrefix("```") {
                if let block = current { blocks.append(block) }
                current = nil
            } else {
                current?.append(line)
            }
        }
        return blocks
    }

    @Test("every block of code stands in ExampleTests.swift, which is compiled and run") func examples() throws {
        let text = try String(contentsOf: Self.tests.appending(path: "ExampleTests.swift"), encoding: .utf8)
        let source = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        var count = 0
        for article in try Self.articles() {
            for block in Self.blocks(article.lines) {
                count += 1
                let starts = source.indices.filter { $0 + block.count <= source.count }
                let isThere = starts.contains { Self.dedented(Array(source[$0..<$0 + block.count])) == block }
                #expect(isThere, "\(article.name) holds code that ExampleTests.swift does not:\n\(block[0])")
            }
        }
        #expect(count >= 6)
    }

    /// The tests that a line names: `Suite.function` or `Suite.function in Tests/Target`.
    private static func names(_ line: String) -> [(suite: String, function: String)] {
        line.matches(of: /`([A-Z][A-Za-z0-9]*Tests)\.([a-z][A-Za-z0-9]*)`/).map { (String($0.1), String($0.2)) }
    }

    @Test("every test that an article names exists") func namedTests() throws {
        let folder = Self.tests.deletingLastPathComponent()
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

    // MARK: DocC

    private static let root = tests.deletingLastPathComponent().deletingLastPathComponent()
    private static let modules = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
        .appending(path: "Modules")

    private static func output(_ command: [String]) throws -> (status: Int32, text: String) {
        let (process, pipe) = (Process(), Pipe())
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = command
        (process.standardOutput, process.standardError) = (pipe, pipe)
        try process.run()
        let text = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationStatus, text)
    }

    private static var hasDocC: Bool {
        guard FileManager.default.fileExists(atPath: modules.appending(path: "DoubleRatchet.swiftmodule").path) else {
            return false
        }
        return (try? output(["docc", "--help"]).status) == 0
    }

    @Test("DocC converts the catalogue and all comments without a warning", .enabled(if: hasDocC, "docc not found"))
    func converts() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "docc-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let checkouts = Self.modules.deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "checkouts/swift-crypto/Sources").path
        let systems = ["CLibcrypto", "CSodium"].flatMap {
            ["-Xcc", "-fmodule-map-file=\(Self.root.path)/Sources/\($0)/module.modulemap"]
        }
        let boring = ["CCryptoBoringSSL", "CCryptoBoringSSLShims"].flatMap { ["-I", "\(checkouts)/\($0)/include"] }
        let target = try Self.output(["swift", "-print-target-info"]).text.firstMatch(of: /"triple": "([^"]+)"/)
        let triple = String(try #require(target).1)
        let graph = try Self.output(
            [
                "swift", "symbolgraph-extract", "-module-name", "DoubleRatchet", "-minimum-access-level", "public",
                "-target", triple, "-I", Self.modules.path, "-output-dir", folder.path,
            ] + systems + boring)
        try #require(graph.status == 0, "\(graph.text.prefix(2000))")
        let documents = try Self.output([
            "docc", "convert", Self.catalogue.path, "--additional-symbol-graph-dir", folder.path,
            "--fallback-display-name", "DoubleRatchet", "--fallback-bundle-identifier", "DoubleRatchet",
            "--output-path", folder.appending(path: "out").path,
        ])
        #expect(documents.status == 0 && !documents.text.contains("warning:"), "\(documents.text.prefix(4000))")
    }
}
