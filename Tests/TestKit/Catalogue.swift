import Foundation

/// The DocC catalogue of a target: its articles, and what DocC makes of them.
package struct Catalogue {
    /// An article, as lines.
    package struct Article {
        package let name: String
        package let lines: [String]

        /// The blocks of Swift.
        package var blocks: [[String]] {
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
    }

    private let target: String
    private let root: URL
    package let articles: [Article]

    /// Reads the articles of a target.
    ///
    /// - Parameter file: a file of the target's tests.
    package init(of target: String, file: String = #filePath) throws {
        self.target = target
        root = URL(fileURLWithPath: file).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let folder = root.appending(path: "Sources/\(target)/\(target).docc")
        articles = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".md") }
            .sorted().map {
                let text = try String(contentsOf: folder.appending(path: $0), encoding: .utf8)
                return Article(
                    name: $0, lines: text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init))
            }
    }

    /// The articles' blocks of Swift that a file, which is compiled, does not contain; and how many there are.
    package func missing(in file: String) throws -> (blocks: [String], count: Int) {
        let text = try String(contentsOf: root.appending(path: file), encoding: .utf8)
        let source = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        let blocks = articles.flatMap { article in article.blocks.map { (article.name, $0) } }
        let missing = blocks.filter { _, block in
            let first = block.first ?? ""
            let starts = source.indices.filter { $0 + block.count <= source.count && source[$0].hasSuffix(first) }
            return !starts.contains { Self.dedented(Array(source[$0..<$0 + block.count])) == block }
        }
        return (missing.map { "\($0.0): \($0.1.joined(separator: "\n"))" }, blocks.count)
    }

    /// Lines without the indentation that they have in common.
    private static func dedented(_ lines: [String]) -> [String] {
        let indents = lines.filter { !$0.allSatisfy(\.isWhitespace) }.map { $0.prefix { $0 == " " }.count }
        return lines.map { String($0.dropFirst(indents.min() ?? 0)) }
    }

    // MARK: DocC

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

    /// Whether the toolchain has DocC and this build has the modules.
    package static var isConvertible: Bool {
        guard FileManager.default.fileExists(atPath: modules.appending(path: "DoubleRatchet.swiftmodule").path) else {
            return false
        }
        return (try? output(["docc", "--help"]).status) == 0
    }

    /// Converts the catalogue and all comments of public symbols.
    ///
    /// - Returns: warnings and errors; empty if there are none.
    package func convert() throws -> String {
        let folder = FileManager.default.temporaryDirectory.appending(path: "docc-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let checkouts = Self.modules.deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "checkouts").path
        let maps =
            ["CLibcrypto", "CSodium"].map { "\(root.path)/Sources/\($0)" } + [
                "\(checkouts)/GRDB.swift/Sources/GRDBSQLite"
            ]
        let systems = maps.flatMap { ["-Xcc", "-fmodule-map-file=\($0)/module.modulemap"] }
        let boring = ["CCryptoBoringSSL", "CCryptoBoringSSLShims"].flatMap {
            ["-I", "\(checkouts)/swift-crypto/Sources/\($0)/include"]
        }
        let information = try Self.output(["swift", "-print-target-info"]).text
        guard let triple = information.firstMatch(of: /"triple": "([^"]+)"/)?.1 else { return "no target" }
        let graph = try Self.output(
            [
                "swift", "symbolgraph-extract", "-module-name", target, "-minimum-access-level", "public",
                "-target", String(triple), "-I", Self.modules.path, "-output-dir", folder.path,
            ] + systems + boring)
        guard graph.status == 0 else { return graph.text }
        let documents = try Self.output([
            "docc", "convert", root.appending(path: "Sources/\(target)/\(target).docc").path,
            "--additional-symbol-graph-dir", folder.path, "--fallback-display-name", target,
            "--fallback-bundle-identifier", target, "--output-path", folder.appending(path: "out").path,
        ])
        return documents.status == 0 && !documents.text.contains("warning:") ? "" : documents.text
    }
}
