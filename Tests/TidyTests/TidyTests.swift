import Foundation
import TestThreads
import Testing

/// The house rules that a compiler does not check.
@Suite(.blocking) struct TidyTests {
    static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    static func files(_ folder: String) -> [(name: String, text: String)] {
        let base = root.appending(path: folder)
        let names = FileManager.default.enumerator(atPath: base.path)?.compactMap { $0 as? String } ?? []
        return names.filter { $0.hasSuffix(".swift") }.sorted().compactMap { name in
            (try? String(contentsOf: base.appending(path: name), encoding: .utf8)).map { ("\(folder)/\(name)", $0) }
        }
    }

    /// Whether a text has these words. The tests search all sources, and `String.contains` looks at each character, which
    /// takes minutes in a build without optimization.
    static func has(_ text: String, _ words: String) -> Bool { strstr(text, words) != nil }

    static func has(_ text: Substring, _ words: String) -> Bool { has(String(text), words) }

    static func imports(_ text: String) -> [String] {
        text.split(separator: "\n").filter { has($0, "import ") }.compactMap { line in
            let words = line.split(separator: " ")
            guard let at = words.firstIndex(of: "import"), at <= 2, at + 1 < words.count else { return nil }
            guard words[..<at].allSatisfy({ ["public", "package", "@testable", "internal"].contains($0) }) else {
                return nil
            }
            let name =
                ["struct", "class", "enum", "func", "protocol"].contains(words[at + 1]) && at + 2 < words.count
                ? words[at + 2] : words[at + 1]
            return String(name.prefix { $0 != "." })
        }
    }

    static let bannedWords: [(word: String, reason: String)] = [
        ("T" + "ODO", "an issue says what is missing"),
        ("F" + "IXME", "an issue says what is missing"),
        ("tr" + "y!", "errors are handled"),
        ("fatal" + "Error(", "a caller's bug is a precondition"),
    ]

    /// A verb that the route table calls handled is forwarded like any other if the machine has no case for it.
    @Test func everyHandledVerbOfAClientHasACase() throws {
        let files = Self.files("Sources/IRCGateway")
        let table = try #require(files.first { $0.name.hasSuffix("/IRCRouteTable.swift") }?.text)
        let rows = try #require(table.split(separator: "static let client").dropFirst().first)
        let client = try #require(rows.split(separator: "static let server").first)
        let handled = client.matches(of: /rows\(\s*"([A-Z ]+)",\s*\.\w+,\s*\.handled\)/)
            .flatMap { $0.output.1.split(separator: " ") }
        #expect(!handled.isEmpty)
        // The machines on the client's side have the cases; those on the backend's side are other verbs.
        let machines = files.filter { $0.text.contains("IRCRouteTable.client(") }
        for verb in handled {
            let name = verb.lowercased()
            let hasCase = machines.contains { file in
                file.text.split(separator: "\n").contains { line in
                    line.contains("case ") && line.split { !$0.isLetter && $0 != "." }.contains { $0 == ".\(name)" }
                }
            }
            #expect(hasCase, "\(verb) is handled in the route table, and has no case in a machine")
        }
    }

    @Test func bannedWordsStayOut() {
        for file in Self.files("Sources") + Self.files("Tests") {
            for (word, reason) in Self.bannedWords where Self.has(file.text, word) {
                Issue.record("\(file.name) holds \(word): \(reason)")
            }
        }
    }

    /// A comparison with a policy says nothing of what is meant, and a new policy would slip through it. `Policy` has a property for each
    /// question, with a switch that names all policies.
    @Test func policiesAreAskedAndNotCompared() throws {
        let names = ["off", "observe", "opportunistic", "hosted", "required"]
        let comparison = try Regex(#"(==|!=|<|>|<=|>=) \.(\#(names.joined(separator: "|")))\b"#)
        for file in Self.files("Sources") {
            let lines = file.text.split(separator: "\n").filter { line in names.contains { Self.has(line, " .\($0)") } }
            for line in lines where line.contains(comparison) && !line.contains("marks !=") {
                Issue.record("\(file.name) compares with a policy: \(line)")
            }
        }
    }

    /// `nonisolated(unsafe)` and `@unchecked Sendable` need a reason beside them.
    @Test func sharpEdgesHaveAReason() {
        for file in Self.files("Sources") where Self.has(file.text, "@unchecked Sendable") {
            let lines = file.text.split(separator: "\n", omittingEmptySubsequences: false)
            for (number, line) in lines.enumerated() where Self.has(line, "@unchecked Sendable") {
                let around = lines[max(0, number - 3)...min(lines.count - 1, number + 2)]
                #expect(around.contains { $0.contains("//") }, "\(file.name):\(number + 1) gives no reason")
            }
        }
    }

    /// A test that talks to real servers blocks its thread; in Swift's own pool it would starve the others.
    @Test func testsWithPeersRunOnThreadsOfTheirOwn() {
        let files = Self.files("Tests/PeerTests") + Self.files("Tests/PeerKitTests")
        for file in files where Self.has(file.text, "@Test") {
            // The traits of a suite may stand in several lines.
            let suites = file.text.components(separatedBy: "\n@Suite").dropFirst()
                .map { $0.components(separatedBy: "struct")[0] }
            #expect(!suites.isEmpty && suites.allSatisfy { $0.contains(".blocking") }, "\(file.name)")
        }
    }

    /// So do tests that wait for a process or sleep without suspending. Swift's pool has two threads on two cores: two
    /// such tests stop all others.
    @Test func testsThatBlockRunOnThreadsOfTheirOwn() {
        let blocking = [
            "ChildProcess", "ChatBackendProcess", "Catalogue(", "waitUntilExit", "Thread.sleep", "try eventually(",
        ]
        for file in Self.files("Tests") where Self.has(file.text, "@Test") {
            guard blocking.contains(where: { Self.has(file.text, $0) }) else { continue }
            let isMarked = file.text.contains(/\.blocking\b|blocking \{|detachNewThread|CommitThread/)
            #expect(isMarked, "\(file.name) blocks Swift's pool")
        }
    }

    /// Each fault that `Tests/mutants` puts into a copy of the tree replaces lines that have to be there exactly once, and that
    /// no other fault replaces.
    @Test func everyFaultFitsTheSources() throws {
        let text = try String(contentsOf: Self.root.appending(path: "Tests/Mutants/faults.txt"), encoding: .utf8)
        var faults: [(number: Substring, file: String, lines: [String])] = []
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            if line.hasPrefix("[") { faults.append((line.prefix { $0 != "]" }, "", [])) }
            guard !faults.isEmpty else { continue }
            if line.hasPrefix("in ") { faults[faults.count - 1].file = String(line.dropFirst(3)) }
            if line.hasPrefix("- ") { faults[faults.count - 1].lines.append(String(line.dropFirst(2))) }
        }
        #expect(faults.count >= 100)
        #expect(Set(faults.map(\.number)).count == faults.count, "a number is there twice")
        var replaced: Set<String> = []
        for fault in faults {
            let source = try? String(contentsOf: Self.root.appending(path: fault.file), encoding: .utf8)
            let lines = (source ?? "").split(separator: "\n", omittingEmptySubsequences: false)
                .map { $0.trimmingCharacters(in: .whitespaces) }
            let places = lines.indices.filter { lines[$0...].starts(with: fault.lines) }
            #expect(places.count == 1, "fault \(fault.number)] is not there exactly once: \(fault.file)")
            guard let place = places.first else { continue }
            for number in place..<place + fault.lines.count {
                let isNew = replaced.insert("\(fault.file):\(number)").inserted
                #expect(isNew, "fault \(fault.number)] replaces a line of another fault")
            }
        }
    }

    @Test func theTopLevelHoldsWhatBelongsThere() throws {
        let allowed: Set<String> = [
            "Package.swift", "Package.resolved", "Sources", "Tests", "config", "deploy", "README.md",
        ]
        let names = try FileManager.default.contentsOfDirectory(atPath: Self.root.path).filter { !$0.hasPrefix(".") }
        #expect(Set(names).subtracting(allowed).isEmpty)
    }

    @Test func everythingIsFormatted() throws {
        let process = Process()
        let output = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["swift", "format", "lint", "--strict", "--recursive", "Sources", "Tests", "Package.swift"]
        process.currentDirectoryURL = Self.root
        process.standardOutput = output
        process.standardError = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        #expect(process.terminationStatus == 0, "\(text.prefix(2000))")
    }
}
