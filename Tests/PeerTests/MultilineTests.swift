import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Messages of several lines before servers that know nothing of them.
@Suite(.blocking) struct MultilineTests {
    /// Between sidecars: one reader's client has batches, the other's is WeeChat 3, which has none.
    @Test(arguments: Backend.allCases) func sidecarsSealABatchAsOneMessage(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let sidecars = try (1...3).map { _ in try lab.sidecar() }
        let caps = ["batch", "draft/multiline", "message-tags"]
        let alice = try lab.client(sidecars[0], "alice", caps: caps)
        let bob = try lab.client(sidecars[1], "bob", caps: caps)
        #expect(alice.enabled.isSuperset(of: ["batch", "draft/multiline"]))
        let carol = try WeeChat(port: sidecars[2].port, nick: "carol")
        defer { carol.stop() }
        try SidecarTests.exchangeKeys(alice, bob)
        alice.send("PRIVMSG carol :hello, in the clear")
        try alice.expect("words about keys") { $0.body.contains(Notices.keysExchanged("carol")) }
        try carol.waitFor("Keys were exchanged with alice", in: .chat("alice"))
        for target in ["bob", "carol"] {
            alice.send("BATCH +1 draft/multiline \(target)")
            for line in ["canary one", "", "canary two is "] { alice.send("@batch=1 PRIVMSG \(target) :\(line)") }
            alice.send("@batch=1;draft/multiline-concat PRIVMSG \(target) :long")
            alice.send("BATCH -1")
        }
        let begin = try bob.expect("a batch") { $0.command == "BATCH" && $0.parameters.first?.first == "+" }
        #expect(begin.nick == "alice" && Array(begin.parameters.dropFirst()) == ["draft/multiline", "bob"])
        let reference = try #require(begin.parameters.first?.dropFirst())
        for text in ["[e2e] canary one", "", "[e2e] canary two is ", "long"] {
            let line = try bob.expect("\(text) in it") { $0.command == "PRIVMSG" }
            #expect(line.body == text && line.text.hasPrefix("@batch=\(reference)"))
        }
        try bob.expect("its end") { $0.command == "BATCH" && $0.parameters.first == "-\(reference)" }
        try carol.waitFor("\t[e2e] long\n", in: .chat("alice"))
        #expect(carol.log(.chat("alice")).contains("[e2e] canary two is"))
        #expect(!lab.tap.shows("canary") && !lab.tap.shows("multiline"))
    }

    @Test(arguments: Backend.allCases) func aBatchIsSealedAsOneMessage(_ backend: Backend) throws {
        let lab = try Lab(backend.start(), policy: "hosted")
        defer { lab.stop() }
        let caps = ["batch", "draft/multiline", "echo-message", "labeled-response", "message-tags"]
        let (alice, bob) = (try lab.person("alice", caps: caps), try lab.person("bob", caps: caps))
        let carol = try lab.person("carol")
        #expect(alice.enabled.isSuperset(of: ["batch", "draft/multiline"]))
        for person in [alice, bob, carol] {
            person.send("JOIN #den")
            try person.expect("366")
        }
        for target in ["#den", "bob"] {
            alice.send("BATCH +1 draft/multiline \(target)")
            for line in ["canary one", "", "canary two is "] { alice.send("@batch=1 PRIVMSG \(target) :\(line)") }
            alice.send("@batch=1;draft/multiline-concat PRIVMSG \(target) :long")
            alice.send("BATCH -1")
            let begin = try bob.expect("a batch") { $0.command == "BATCH" && $0.parameters.first?.first == "+" }
            #expect(begin.nick == "alice" && Array(begin.parameters.dropFirst()) == ["draft/multiline", target])
            let reference = try #require(begin.parameters.first?.dropFirst())
            for text in ["canary one", "", "canary two is ", "long"] {
                let line = try bob.expect("\(text) in it") { $0.command == "PRIVMSG" }
                #expect(line.body == text && line.text.hasPrefix("@batch=\(reference)"))
            }
            try bob.expect("its end") { $0.command == "BATCH" && $0.parameters.first == "-\(reference)" }
            if target == "#den" {
                for text in ["canary one", "canary two is ", "long"] { try carol.expectMessage(text) }
            }
            if backend == .inspircd {
                try alice.expect("the echo") { $0.command == "BATCH" && $0.parameters.contains(target) }
            }
        }
        alice.send("BATCH +2 draft/multiline bob")
        alice.send("@batch=2 PRIVMSG carol :canary elsewhere")
        #expect(try alice.expect("FAIL").parameters.prefix(2) == ["BATCH", "MULTILINE_INVALID_TARGET"])
        alice.send("BATCH -2")
        #expect(!lab.tap.shows("canary") && !lab.tap.shows("multiline"))
        #expect(!carol.transcript.contains { $0.command == "BATCH" || $0.text.contains("canary elsewhere") })
    }
}
