import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Clients that people use, behind sidecars and without one.
@Suite(.blocking) struct SidecarClientTests {
    @Test func irssiAndWeeChatAndSomebodyWithout() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let alice = try Irssi(port: first.port, nick: "alice")
        defer { alice.stop() }
        let bob = try WeeChat(port: second.port, nick: "bob")
        defer { bob.stop() }
        let carol = try Irssi(port: lab.server.port, nick: "carol")
        defer { carol.stop() }
        let dave = try WeeChat(port: lab.server.port, nick: "dave")
        defer { dave.stop() }

        try alice.send("/msg bob hello in the clear")
        try alice.waitFor("Keys were exchanged with bob")
        // In the conversation, not in the window of the server.
        try bob.waitFor("Keys were exchanged with alice", in: .chat("alice"))
        try alice.send("/msg bob canary for weechat")
        try bob.waitFor("[e2e] canary for weechat", in: .chat("alice"))
        try bob.send("/msg alice canary for irssi")
        try alice.waitFor("[e2e] canary for irssi")

        // Commands in the window of the sidecar itself.
        try alice.send("/msg *pawl status")
        try alice.waitFor("(this one)")
        try bob.send("/msg *pawl verify alice")
        try bob.waitFor("/msg *pawl verify alice --matches", in: .chat("*pawl"))

        // Somebody without a sidecar, in private and in a room with both.
        try alice.send("/msg carol plain words for carol")
        try carol.waitFor("plain words for carol")
        try alice.send("/msg dave plain words for dave")
        try dave.waitFor("plain words for dave", in: .chat("alice"))
        // The mark of a sidecar behind them is neither shown nor logged.
        #expect(try carol.screen().split(separator: "\n").contains { $0.contains(/plain words for carol *$/) })
        try eventually("the log of irssi") { carol.log("alice").hasSuffix("plain words for carol\n") }
        #expect(dave.log(.chat("alice")).hasSuffix("\tplain words for dave\n"))
        try carol.send("/msg alice plain words for alice")
        try alice.waitFor("plain words for alice")
        for client in [alice, carol] { try client.send("/join #room") }
        try carol.waitFor("#room")
        try bob.send("/join #room")
        try bob.waitFor("bob", in: .chat("#room"))
        try alice.send("/msg #room from alice to all")
        try bob.waitFor("from alice to all", in: .chat("#room"))
        try carol.waitFor("from alice to all")
        try bob.send("/msg #room from bob to all")
        try carol.waitFor("from bob to all")
        #expect(try !carol.screen().contains("PAWL"))
        #expect(!lab.tap.shows("canary"))
    }

    /// Both speak in a room of their own: it is protected from the second round on.
    @Test(arguments: Backend.allCases) func aRoomOfSidecarsIsProtected(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let nicks = ["alice", "bob", "carol"]
        let sidecars = try nicks.map { _ in try lab.sidecar() }
        let people = try zip(sidecars, nicks).map { try lab.client($0, $1) }
        for person in people {
            person.send("JOIN #room")
            try person.expect("366")
        }
        // Everybody sees the last one come before anybody speaks.
        _ = try people[0].expect("JOIN of carol") { $0.command == "JOIN" && $0.nick == "carol" }
        #expect(
            try sidecars[0].admin(["sidecar", "status"]).stdout.contains("#room  plaintext   no    2       bob, carol"))
        people[0].send("PRIVMSG #room :hello from alice")
        for reader in people.dropFirst() {
            try reader.expectMessage("hello from alice")
            try reader.expect("words about keys") { $0.body.contains(Notices.keysExchanged("alice")) }
        }
        for _ in 1...2 { try people[0].expect("words about keys") { $0.body.contains("Keys were exchanged") } }
        people[1].send("PRIVMSG #room :hello from bob")
        try people[2].expectMessage("hello from bob")
        try people[2].expect("words about keys") { $0.body.contains(Notices.keysExchanged("bob")) }
        try people[1].expect("words about keys") { $0.body.contains(Notices.keysExchanged("carol")) }
        for (index, person) in people.enumerated() {
            for round in 1...5 { person.send("PRIVMSG #room :canary \(round) of \(nicks[index])") }
        }
        for (index, reader) in people.enumerated() {
            for (other, nick) in nicks.enumerated() where other != index {
                for round in 1...5 { try reader.expectMessage("[e2e] canary \(round) of \(nick)") }
            }
        }
        #expect(!lab.tap.shows("canary"))
        let status = try sidecars[0].admin(["sidecar", "status", "--json"])
        #expect(status.stdout.contains(#""protection" : "end-to-end""#) && status.stdout.contains(#""readers" : 2"#))

        // Who has been put out reads nothing that comes later.
        people[0].send("MODE #room +m")
        people[0].send("KICK #room carol :out")
        try people[1].expect("KICK")
        people[0].send("PRIVMSG #room :canary without carol")
        people[1].send("PRIVMSG alice :canary, done")
        try people[0].expectMessage("[e2e] canary, done")
        #expect(!people[2].transcript.contains { $0.text.contains("without carol") })
        #expect(!lab.tap.shows("canary"))
    }
}
