import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// Two messengers in processes that are killed, again and again, while messages wait.
@Suite(.blocking, .serialized) struct KillTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
    private static let count = isLong ? 1000 : 150
    private static let rounds = isLong ? 60 : 12

    private let scratch: ScratchDirectory
    private let program: String

    init() throws {
        scratch = try ScratchDirectory()
        program = try PawlProcess.builtProgram("MessengerVictim")
    }

    private func victim(_ name: String, _ peer: String, _ mode: String...) throws -> ChildProcess {
        try ChildProcess(program, [scratch.file("spool"), scratch.file(name), name, peer] + mode)
    }

    private func numbers(_ lines: String, _ word: String) -> [Int] {
        lines.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            return words.count >= 2 && words[0] == word ? Int(words[1]) : nil
        }
    }

    @Test func nothingAcceptedIsLostAndNothingIsShownTwice() throws {
        var random = SeededGenerator(seed: 11)
        try FileManager.default.createDirectory(atPath: scratch.file("spool"), withIntermediateDirectories: true)
        // Both publish their keys.
        for (name, peer) in [("alice", "bob"), ("bob", "alice")] {
            let first = try victim(name, peer, "read")
            try eventually("the keys of \(name)") {
                FileManager.default.fileExists(atPath: scratch.file("spool/keys/\(name)"))
            }
            #expect(first.kill(SIGKILL))
            try first.waitForExit()
        }
        // The writer is killed while it writes offline.
        _ = try scratch.write("spool/offline", "")
        var accepted: [Int] = []
        while accepted.count < Self.count {
            let writer = try victim("alice", "bob", "write", "\(Self.count - accepted.count)")
            let enough = Int.random(in: 1...Self.count, using: &random)
            try eventually("some texts are accepted", every: .milliseconds(1)) {
                numbers(writer.stdout, "accepted").count >= enough || writer.stdout.contains("written")
                    || !writer.isRunning
            }
            #expect(writer.kill(SIGKILL), "it ended by itself: \(writer.stderr)")
            try writer.waitForExit()
            accepted += numbers(writer.stdout, "accepted")
        }
        // Online again: both are killed at any time.
        try FileManager.default.removeItem(atPath: scratch.file("spool/offline"))
        var shown: [Int] = []
        for _ in 0..<Self.rounds {
            let writer = try victim("alice", "bob", "write", "0")
            let reader = try victim("bob", "alice", "read")
            usleep(UInt32.random(in: 0...400_000, using: &random))
            for process in [writer, reader] {
                #expect(process.kill(SIGKILL), "it ended by itself: \(process.stderr)")
                try process.waitForExit()
            }
            shown += numbers(reader.stdout, "shown")
        }
        // Nothing is killed any more: all arrive.
        let writer = try victim("alice", "bob", "write", "0")
        let reader = try victim("bob", "alice", "read")
        let last = try #require(accepted.max())
        try eventually("the last text is shown") {
            numbers(reader.stdout, "shown").contains { $0 >= last } || shown.contains { $0 >= last }
                || !reader.isRunning
        }
        for process in [writer, reader] {
            #expect(process.kill(SIGKILL), "it ended by itself: \(process.stderr)")
            try process.waitForExit()
        }
        shown += numbers(reader.stdout, "shown")
        let list = try victim("bob", "alice", "list")
        try list.waitForExit()
        let texts = numbers(list.stdout, "text")
        #expect(list.stdout.hasSuffix("end\n"), "\(list.stderr)")
        // One more than was reported may be there each time: the writer was killed before it could report it.
        #expect(texts == Array(1...max(texts.count, 1)), "in order, each once")
        #expect(Set(accepted).isSubset(of: texts))
        #expect(Set(shown).count == shown.count, "a text was shown twice")
        // No text is in a file.
        for name in ["alice", "bob"] {
            let mine = try victim(name, name == "alice" ? "bob" : "alice", "list")
            try mine.waitForExit()
            #expect(numbers(mine.stdout, "text") == texts)
        }
    }

    /// A device is added, and both devices are killed again and again while the history is handed over.
    @Test func anAddedDeviceGetsTheWholeHistoryOnce() throws {
        var random = SeededGenerator(seed: 12)
        try FileManager.default.createDirectory(atPath: scratch.file("spool"), withIntermediateDirectories: true)
        let bob = try victim("bob", "alice", "read")
        try eventually("the keys of bob") { FileManager.default.fileExists(atPath: scratch.file("spool/keys/bob")) }
        #expect(bob.kill(SIGKILL))
        try bob.waitForExit()
        // Several parts of history.
        let first = try victim("alice", "bob", "serve", "60")
        try eventually("the history is written") { first.stdout.contains("written") || !first.isRunning }
        #expect(first.kill(SIGKILL), "it ended by itself: \(first.stderr)")
        try first.waitForExit()
        func tablet(_ mode: String...) throws -> ChildProcess {
            try ChildProcess(program, [scratch.file("spool"), scratch.file("tablet"), "alice", "bob"] + mode)
        }
        var shown: [Int] = []
        for _ in 0..<(Self.isLong ? 60 : 6) {
            let pair = (master: try victim("alice", "bob", "serve", "1"), tablet: try tablet("read"))
            usleep(UInt32.random(in: 0...600_000, using: &random))
            for process in [pair.master, pair.tablet] {
                #expect(process.kill(SIGKILL), "it ended by itself: \(process.stderr)")
                try process.waitForExit()
            }
            shown += numbers(pair.tablet.stdout, "own")
        }
        // Nothing is killed any more.
        let master = try victim("alice", "bob", "serve", "1")
        try eventually("the last text is accepted") { master.stdout.contains("written") || !master.isRunning }
        let last = try #require(numbers(master.stdout, "accepted").last, "\(master.stderr)")
        let list = try tablet("gather", "\(last)")
        try eventually("the tablet has the history") { list.stdout.hasSuffix("end\n") || !list.isRunning }
        try list.waitForExit()
        #expect(list.stdout.hasSuffix("end\n"), "\(list.stderr)")
        shown += numbers(list.stdout, "own")
        #expect(numbers(list.stdout, "text") == Array(1...last), "in order, each once")
        #expect(Set(shown).count == shown.count, "a text was shown twice")
        #expect(master.kill(SIGKILL), "it ended by itself: \(master.stderr)")
        try master.waitForExit()
    }
}
