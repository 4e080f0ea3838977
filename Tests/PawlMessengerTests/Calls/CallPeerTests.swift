import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Calls between real RTC stacks (aiortc), joined to messengers in processes of their own. Media and data go over loopback.
///
/// Only with `--long`: aiortc takes 160 MB. `deploy/install-python` installs it into `.build-peers-calls`.
@Suite(.blocking, .serialized, .enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
struct CallPeerTests {
    private let scratch: ScratchDirectory
    private let victim: String
    private let python: String
    private let script: String

    init() throws {
        scratch = try ScratchDirectory()
        victim = try PawlProcess.builtProgram("CallVictim")
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let root = folder.deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        python = root.appending(path: ".build-peers-calls/bin/python").path
        script = folder.appending(path: "Peers/call_peer.py").path
    }

    /// A participant whose messenger is registered.
    private func peer(at place: String? = nil, _ words: String...) throws -> ChildProcess {
        let peer = try ChildProcess(python, [script, victim, place ?? scratch.file(".")] + words)
        try eventually("\(words) is ready") {
            peer.stdout.hasPrefix("ready\n") || !peer.isRunning
        }
        return peer
    }

    /// What it has seen; it has ended.
    private func lines(_ peer: ChildProcess, _ meanwhile: () throws -> Void = {}) throws -> [String] {
        do {
            try eventually("it is done", timeout: .seconds(100)) {
                try meanwhile()
                return peer.stdout.hasSuffix("done\n") || !peer.isRunning
            }
        } catch is TimeoutError {}
        #expect(peer.stdout.hasSuffix("done\n"), "\(peer.stdout) \(peer.stderr)")
        return peer.stdout.split(separator: "\n").map(String.init).filter { $0 != "ready" && $0 != "done" }
    }

    /// Audio in both directions and a data channel; each side recognises the tone of the other. No text was sent before.
    @Test func twoPeersHearEachOtherAndExchangeData() throws {
        try callOfTwo(at: scratch.file("."))
    }

    /// The same over an existing chat that knows nothing of encryption or calls. Its database holds no description.
    @Test func twoPeersCallEachOtherOverAnOldChat() throws {
        let backend = try ChatBackendProcess()
        try callOfTwo(at: "http://127.0.0.1:\(backend.port)")
        let held = "\(try backend.messages())"
        #expect(held.contains("hello") && !held.contains("fingerprint") && !held.contains("candidate"))
    }

    /// The same over an IRC server that knows nothing of encryption or calls.
    @Test func twoPeersCallEachOtherOverIRC() throws {
        let server = try NgIRCd(NgIRCd.Options())
        defer { server.stop() }
        let tap = try WireTap(backend: server.port)
        defer { tap.stop() }
        try callOfTwo(at: "irc://127.0.0.1:\(tap.port)")
        #expect(tap.shows("hello") && !tap.shows("fingerprint") && !tap.shows("candidate"))
    }

    private func callOfTwo(at place: String) throws {
        let bob = try peer(at: place, "answer", "bob", "alice")
        let alice = try peer(at: place, "call", "alice", "bob")
        defer { for peer in [alice, bob] { _ = peer.kill(SIGKILL) } }
        let text = "a text over the data channel"
        #expect(try lines(alice) == ["heard 880", "data back: \(text)"])
        #expect(
            try lines(bob) == [
                "offered by alice", "key k/1 an opaque key", "heard 440", "data \(text)", "end partnerInitiated",
            ])
    }

    /// The server between Alice and Bob changes Alice's offers, and sends those of Mallory under Alice's name: Bob is
    /// told, and neither rings nor answers.
    @Test func aServerThatSwapsDescriptionsIsDetected() throws {
        for name in ["alice", "bob", "mallory"] {
            try FileManager.default.createDirectory(
                atPath: scratch.file("\(name)/spool"), withIntermediateDirectories: true)
            try FileManager.default.createDirectory(atPath: scratch.file("keys"), withIntermediateDirectories: true)
            try FileManager.default.createSymbolicLink(
                atPath: scratch.file("\(name)/spool/keys"), withDestinationPath: scratch.file("keys"))
        }
        let bob = try peer(at: scratch.file("bob"), "watch", "bob", "alice")
        let alice = try peer(at: scratch.file("alice"), "ring", "alice", "bob")
        let mallory = try peer(at: scratch.file("mallory"), "ring", "mallory", "bob")
        defer { for peer in [alice, bob, mallory] { _ = peer.kill(SIGKILL) } }
        let seen = Set(try lines(bob) { try passOn(as: "alice") })
        #expect(seen == ["unreadable not_authentic", "unreadable unknown_sender"])
        #expect(try lines(alice) == ["end userInitiatedUnanswered"])
    }

    /// Moves the mail of Alice and Mallory for Bob into his mailbox: Alice's with a changed byte, Mallory's under her name.
    private func passOn(as name: String) throws {
        for sender in ["alice", "mallory"] {
            let mail = scratch.file("\(sender)/spool/mail/bob")
            for device in (try? FileManager.default.contentsOfDirectory(atPath: mail)) ?? [] {
                for message in try FileManager.default.contentsOfDirectory(atPath: "\(mail)/\(device)")
                where message.utf8.count == 33 {
                    let text = try String(contentsOfFile: "\(mail)/\(device)/\(message)", encoding: .utf8)
                    var words = text.split(separator: " ").map(String.init)
                    words[0] = name
                    if sender == name {
                        var letters = Array(words[3])
                        let place: Int = letters.count * 3 / 4
                        letters[place] = letters[place] == "A" ? "B" : "A"
                        words[3] = String(letters)
                    }
                    let mailbox = scratch.file("bob/spool/mail/bob/\(device)")
                    try FileManager.default.createDirectory(atPath: mailbox, withIntermediateDirectories: true)
                    try Data(words.joined(separator: " ").utf8).write(
                        to: URL(filePath: "\(mailbox)/\(message)"), options: .atomic)
                    try FileManager.default.removeItem(atPath: "\(mail)/\(device)/\(message)")
                }
            }
        }
    }

    /// Three participants through a server: each hears the two others, and has their keys.
    @Test func threePeersMeetThroughAServer() throws {
        let names = ["alice", "bob", "carol"]
        let tones = ["alice": 440, "bob": 880, "carol": 1320]
        let server = try peer("serve", "conference", names[0], names[1], names[2])
        let people = try names.map { name in
            let others = names.filter { $0 != name }
            return try peer("join", name, others[0], others[1])
        }
        defer { for peer in people + [server] { _ = peer.kill(SIGKILL) } }
        for (name, person) in zip(names, people) {
            let others = names.filter { $0 != name }
            #expect(
                try lines(person) == [
                    "heard " + others.compactMap { tones[$0] }.map(String.init).joined(separator: " "),
                    "keys " + others.map { "\($0)=\($0)" }.joined(separator: " "), "roster alice bob carol",
                    "data " + others.map { "from \($0)" }.joined(separator: " "),
                ])
        }
        #expect(Set(try lines(server)) == Set(names.map { "left \($0) partnerInitiated" }))
    }
}
