import Foundation
import Glibc
import PeerKit
import Synchronization
import TestKit
import TestThreads
import Testing

/// The tutorial of the library for applications: its application is killed, and its code stands in the article.
@Suite(.blocking) struct TutorialTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// The note is sent by the next process, with the key of the first attempt.
    @Test func aNoteSurvivesAKill() async throws {
        let isWorking = Mutex(false)
        let backend = try await ChatBackend { received in
            isWorking.withLock { $0 } ? .status(201, body: received.body) : .silence
        }
        let scratch = try ScratchDirectory()
        let program = try PawlProcess.builtProgram("QueueVictim")
        let file = scratch.file("notes.sqlite")
        let first = try ChildProcess(program, [file, backend.url, "hello"])
        try await eventuallyAsync("the note is stored") {
            first.stdout.contains("notes: POST /notes (new note): appended\n") || !first.isRunning
        }
        #expect(first.kill(SIGKILL), "it ended by itself: \(first.stderr)")
        try first.waitForExit()
        isWorking.withLock { $0 = true }
        let second = try ChildProcess(program, [file, backend.url, ""])
        try await eventuallyAsync("the note is saved") { second.stdout.contains("saved: hello\n") || !second.isRunning }
        #expect(second.kill(SIGKILL), "it ended by itself: \(second.stderr)")
        try second.waitForExit()
        let received = backend.received
        #expect(!received.isEmpty && received.allSatisfy { $0.body == #"{"text":"hello"}"# && $0.uri == "/notes" })
        #expect(Set(received.map { $0.header("Idempotency-Key") }).count == 1)
        try await backend.stop()
    }

    /// Each block of the article stands in the application, apart from those for Apple's systems.
    @Test func theArticleMatchesTheCode() throws {
        let article = try String(
            contentsOf: Self.root.appending(
                path: "Sources/RequestQueueClient/RequestQueueClient.docc/GettingStarted.md"),
            encoding: .utf8)
        let code = try String(contentsOf: Self.root.appending(path: "Tests/QueueVictim/Notes.swift"), encoding: .utf8)
        let blocks = article.components(separatedBy: "```swift\n").dropFirst()
            .map { $0.components(separatedBy: "\n```").first ?? "" }
        let portable = blocks.filter { !$0.contains("import UIKit") && !$0.contains("import Network\n") }
        #expect(portable.count >= 6 && blocks.count == portable.count + 2)
        for block in portable { #expect(code.contains(block), "not in the application:\n\(block)") }
    }

    // MARK: The catalogues

    private static let catalogues = ["RequestQueue", "RequestQueueClient"]

    private static func catalogue(_ module: String) -> URL { root.appending(path: "Sources/\(module)/\(module).docc") }

    /// A promise stands beside the test that proves it.
    @Test func eachPromiseHasATestThatExists() throws {
        let tests = Self.root.appending(path: "Tests").resolvingSymlinksInPath()
        let files = FileManager.default.enumerator(atPath: tests.path)?.compactMap { $0 as? String } ?? []
        let sources = try files.filter { $0.hasSuffix("Tests.swift") }
            .map { try String(contentsOf: tests.appending(path: $0), encoding: .utf8) }
        let page = try String(
            contentsOf: Self.catalogue("RequestQueueClient").appending(path: "PromisesAndLimits.md"), encoding: .utf8)
        let section = try #require(page.components(separatedBy: "### ").first { $0.hasPrefix("Promises") })
        let rows = section.split(separator: "\n").filter { $0.hasPrefix("| ") && !$0.hasPrefix("| promise") }
        #expect(rows.count >= 10)
        for row in rows {
            let names = row.matches(of: /`([A-Z]\w*Tests)(?:\.(\w+))?`/)
            #expect(!names.isEmpty, "\(row)")
            for name in names {
                let isThere = sources.contains { source in
                    source.contains("struct \(name.1) ") && (name.2.map { source.contains("func \($0)(") } ?? true)
                }
                #expect(isThere, "\(name.0)")
            }
        }
    }

    @Test(.enabled(if: Catalogue.isConvertible, "docc not found"), arguments: catalogues)
    func docCConvertsCatalogueAndCommentsWithoutAWarning(_ module: String) throws {
        #expect(try Catalogue(of: module).convert() == "")
    }
}
