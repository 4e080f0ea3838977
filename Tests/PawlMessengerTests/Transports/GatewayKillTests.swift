import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// Members of a group in processes that are killed, over a real gateway, with histories on disk.
@Suite(.serialized) struct GatewayKillTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
    private static let rounds = isLong ? 40 : 8
    private static let names = ["alice", "bob", "carol"]

    /// The processes of the members.
    private struct Members: Sendable {
        let program: String
        let scratch: ScratchDirectory
        let port: UInt16
        let tokens: [String: String]

        func start(_ name: String, _ mode: String) throws -> ChildProcess {
            // Alice makes the group, and adds and removes carol.
            let others = name == "alice" ? "bob,carol" : "-"
            return try ChildProcess(
                program, ["http://127.0.0.1:\(port)", scratch.file(name), name, others, mode],
                environment: ["PAWL_TOKEN": tokens[name] ?? ""])
        }

        /// Alice and bob write. Carol, who is removed and added all the time, reads.
        func startAll() throws -> [ChildProcess] {
            try [start("alice", "group"), start("bob", "group"), start("carol", "watch")]
        }

        func kill(_ processes: [ChildProcess]) throws {
            for process in processes {
                #expect(process.kill(SIGKILL), "it ended by itself: \(process.stderr)")
                try process.waitForExit()
            }
        }
    }

    /// The rest of the lines that begin with a word.
    private static func lines(_ text: String, _ word: String) -> [String] {
        text.split(separator: "\n").filter { $0.hasPrefix(word + " ") }.map { String($0.dropFirst(word.count + 1)) }
    }

    @Test func groupsAndFilesOutliveKills() async throws {
        let lab = try await GatewayLab.start()
        defer { lab.stop() }
        let port = lab.gateway.port
        try await blocking {
            var tokens: [String: String] = [:]
            for name in Self.names { tokens[name] = try ChatPerson(name, port: port).token }
            let scratch = try ScratchDirectory()
            try Self.run(
                Members(
                    program: try PawlProcess.builtProgram("MessengerVictim"), scratch: scratch, port: port,
                    tokens: tokens))
        }
        #expect(try lab.backend.knows("alice 1") == false)
    }

    private static func run(_ members: Members) throws {
        var random = SeededGenerator(seed: 21)
        var accepted: Set<String> = []
        var files: Set<String> = []
        var shown: [[String]] = names.map { _ in [] }
        var processes: [ChildProcess] = []
        func take() {
            for (place, process) in processes.enumerated() {
                accepted.formUnion(lines(process.stdout, "accepted"))
                files.formUnion(lines(process.stdout, "file"))
                shown[place] += lines(process.stdout, "shown")
            }
        }
        // All know the group before the first is killed.
        processes = try members.startAll()
        try eventually("all know the group") {
            processes.allSatisfy { $0.stdout.contains("group\n") || !$0.isRunning }
        }
        try members.kill(processes)
        take()
        for _ in 0..<rounds {
            processes = try members.startAll()
            usleep(UInt32.random(in: 200_000...2_000_000, using: &random))
            try members.kill(processes)
            take()
        }
        // Nothing is killed any more: all have all texts, and the same version.
        processes = try names.map { try members.start($0, "settle") }
        func states() -> [[Substring]] {
            processes.map { (lines($0.stdout, "state").last ?? "").split(separator: " ") }
        }
        try eventually("the group converges: \(states())") {
            let states = states()
            guard states.allSatisfy({ $0.count >= 6 && $0[1] == "3" && $0[4] == "0" }) else {
                return processes.contains { !$0.isRunning }
            }
            // Version, name, and what alice and bob have; carol was away for some time.
            return Set(states.map { [$0[0]] + $0[5...] }).count == 1 && states[0][2...3] == states[1][2...3]
                && (Int(states[0][2]) ?? 0) >= accepted.count + files.count
        }
        try members.kill(processes)
        take()
        var texts: [[String]] = []
        for (place, name) in names.enumerated() {
            let list = try members.start(name, "files")
            try list.waitForExit(timeout: .seconds(180))
            #expect(list.stdout.hasSuffix("end\n"), "\(name): \(list.stderr)")
            #expect(lines(list.stdout, "damaged").isEmpty)
            let (all, whole) = (lines(list.stdout, "text"), lines(list.stdout, "whole"))
            for ids in [all, whole, shown[place]].map({ $0.map { $0.prefix(32) } }) {
                #expect(Set(ids).count == ids.count, "\(name) has a message twice")
            }
            texts.append(all.map { String($0.dropFirst(33)) })
            if place < 2 {
                #expect(accepted.subtracting(texts[place]).isEmpty, "\(name) has lost texts")
                #expect(files.subtracting(whole.map { $0.dropFirst(33) }.map(String.init)).isEmpty)
            }
            // Texts of one person are in their order.
            for other in names {
                let numbers = texts[place].compactMap { text in
                    text.hasPrefix(other + " ") ? Int(text.dropFirst(other.count + 1)) : nil
                }
                #expect(numbers == numbers.sorted(), "\(name) has the texts of \(other) in another order")
            }
        }
        #expect(Set(texts[0]) == Set(texts[1]))
    }
}
