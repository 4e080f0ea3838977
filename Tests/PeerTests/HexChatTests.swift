import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// An IRC client with windows, behind a sidecar, behind a gateway, and with neither.
@Suite(.blocking, .serialized, .enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
struct HexChatTests {
    private static let patience = Duration.seconds(600)

    @Test func behindASidecar() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let alice = try HexChat(port: first.port, nick: "alice", timeout: Self.patience)
        defer { alice.stop() }
        let carol = try HexChat(port: lab.server.port, nick: "carol", timeout: Self.patience)
        defer { carol.stop() }
        let bob = try lab.client(second, "bob")

        // The mark of a sidecar behind the first line to somebody without one is not in the log.
        try alice.send("query carol")
        try alice.send("msg carol plain words for carol")
        let log = try carol.waitFor("plain words for carol", in: "alice")
        #expect(log.hasSuffix("\tplain words for carol\n"), "\(log)")
        #expect(lab.tap.shows("plain words for carol\u{2}\u{1F}\u{2}"))
        #expect(try alice.waitFor("plain words for carol", in: "carol").contains("\tplain words for carol\n"))

        try alice.send("query bob")
        try alice.send("msg bob hello in the clear")
        try bob.expectMessage("hello in the clear")
        // In the conversation, not in the window of the server.
        try alice.waitFor(Notices.keysExchanged("bob"), in: "bob")
        try alice.send("msg bob canary of hexchat")
        try bob.expectMessage("[e2e] canary of hexchat")
        bob.send("PRIVMSG alice :canary for hexchat")
        try alice.waitFor("[e2e] canary for hexchat", in: "bob")

        // Commands in a window of the sidecar's own.
        try alice.send("query *pawl")
        try alice.send("msg *pawl status")
        try alice.waitFor("(this one)", in: "*pawl")
        #expect(!lab.tap.shows("canary") && !lab.tap.shows("*pawl"))
    }

    @Test func behindAGateway() throws {
        let lab = try Lab(Backend.ngircd.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try HexChat(port: lab.gateway.port, nick: "alice", timeout: Self.patience)
        defer { alice.stop() }
        let bob = try lab.person("bob")
        bob.send("JOIN #den")
        try bob.expect("366")
        try alice.send("join #den")
        _ = try bob.expect("JOIN of alice") { $0.command == "JOIN" && $0.nick == "alice" }
        for target in ["bob", "#den"] {
            try alice.send("\(target == "bob" ? "query" : "join") \(target)")
            try alice.send("msg \(target) canary to \(target)")
            try bob.expectMessage("canary to \(target)")
            bob.send("PRIVMSG \(target == "bob" ? "alice" : target) :canary from \(target)")
            try alice.waitFor("canary from \(target)", in: target)
        }
        // What is refused is told in the conversation.
        let carol = try lab.outsider("carol")
        try alice.send("query carol")
        try alice.send("msg carol canary for an outsider")
        try alice.waitFor("Not sent", in: "carol")
        _ = try carol.synchronize()
        #expect(!carol.transcript.contains { $0.text.contains("canary") })
        #expect(!lab.tap.shows("canary"))
    }
}
