import Foundation
import PeerKit
import Testing

/// Two servers of one network, one of them behind a gateway: what becomes of a room when they lose each other.
@Suite(.serialized) struct SplitTests {
    private final class Network {
        let first: NgIRCd
        let second: NgIRCd
        let lab: Lab
        /// Between the servers.
        let link: WireTap
        /// In front of the second server: its people have other keys.
        let other: PawlProcess

        init() throws {
            var options = NgIRCd.Options()
            options.serverName = "one.pawl.test"
            options.peer = ("two.pawl.test", nil)
            first = try NgIRCd(options)
            options.serverName = "two.pawl.test"
            link = try WireTap(backend: first.port)
            options.peer = ("one.pawl.test", link.port)
            second = try NgIRCd(options)
            lab = try Lab(first, policy: "hosted")
            other = try PawlProcess(upstream: second.port, Lab.options("hosted"))
        }

        func stop() {
            other.stop()
            second.stop()
            link.stop()
            lab.stop()
        }

        func outsiders() throws -> Set<String> {
            let text = try lab.gateway.admin(["status"]).stdout
            return Set(["alice", "bob", "carol", "dora"].filter { text.contains("\($0) in #room") })
        }
    }

    private func join(_ person: IRCClient) throws {
        person.send("JOIN #room")
        try person.expect("366")
    }

    private func linked(_ network: Network, _ person: IRCClient) throws {
        try eventually("the servers are linked", timeout: .seconds(30), every: .milliseconds(100)) {
            person.send("LINKS")
            let lines = try person.synchronize()
            return lines.contains { $0.command == "364" && $0.text.contains("two.pawl.test") }
        }
    }

    private func readsNothingElse(_ person: IRCClient) throws {
        #expect(try person.synchronize().allSatisfy { $0.command != "PRIVMSG" })
    }

    @Test func aServerDiesAndComesBack() throws {
        let network = try Network()
        let lab = network.lab
        defer { network.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        try linked(network, alice)
        func outsider() throws -> IRCClient {
            let carol = try IRCClient(port: network.second.port)
            try carol.register(nick: "carol", caps: nil)
            try join(carol)
            return carol
        }
        for person in [alice, bob] { try join(person) }
        var carol = try outsider()
        let dora = try IRCClient(port: network.other.port)
        try dora.register(nick: "dora", caps: nil)
        try join(dora)
        for nick in ["carol", "dora"] { try alice.expect("JOIN") { $0.command == "JOIN" && $0.nick == nick } }
        #expect(try network.outsiders() == ["carol", "dora"])
        var sent = 0
        func talk() throws {
            alice.send("PRIVMSG #room :nobody-else \(sent)")
            try bob.expectMessage("nobody-else \(sent)")
            bob.send("PRIVMSG #room :nobody-else back \(sent)")
            try alice.expectMessage("nobody-else back \(sent)")
            alice.send("PRIVMSG bob :nobody-else to bob \(sent)")
            try bob.expectMessage("nobody-else to bob \(sent)")
            sent += 1
        }
        for round in 0..<3 {
            try talk()
            carol.send("PRIVMSG #room :in the open \(round)")
            try bob.expectMessage("[not encrypted] in the open \(round)")
            try alice.expectMessage("[not encrypted] in the open \(round)")
            for person in [alice, bob] { try readsNothingElse(person) }
            network.second.kill()
            // Nobody has spoken between the split and its notice, or in it, that would be lost.
            alice.send("PRIVMSG #room :nobody-else at the split \(round)")
            try bob.expectMessage("nobody-else at the split \(round)")
            for person in [alice, bob] {
                for nick in ["carol", "dora"] {
                    try person.expect("QUIT of \(nick)") { $0.command == "QUIT" && $0.nick == nick }
                }
            }
            #expect(try network.outsiders().isEmpty)
            try dora.expect("a remark") { $0.body.contains("You stay connected") }
            dora.send("PRIVMSG #room :nobody-else of dora \(round)")
            try talk()
            alice.send("PRIVMSG carol :nobody-else has gone \(round)")
            try alice.expect("531")
            try network.second.start()
            try dora.expect("a remark", timeout: .seconds(30)) { $0.body.contains("server is back") }
            try linked(network, alice)
            carol = try outsider()
            for nick in ["carol", "dora"] {
                try bob.expect("JOIN of \(nick)", timeout: .seconds(30)) { $0.command == "JOIN" && $0.nick == nick }
            }
            #expect(try network.outsiders() == ["carol", "dora"])
            carol.send("PRIVMSG #room :hello \(round)")
            for person in [alice, bob, dora] { try person.expectMessage("[not encrypted] hello \(round)") }
        }
        try talk()
        for person in [alice, bob] { try readsNothingElse(person) }
        #expect(carol.transcript.allSatisfy { !$0.text.contains("nobody-else") })
        #expect(dora.transcript.allSatisfy { $0.command != "PRIVMSG" || $0.body.hasPrefix("[not encrypted]") })
        #expect(!lab.tap.shows("nobody-else"))
        try eventually("nothing is pending") { try lab.queue("pending").isEmpty }
        #expect(try lab.queue("dead").isEmpty)
    }

    /// Both servers live, and their people stay on their sides.
    @Test func theLinkBreaksAndIsMadeAgain() throws {
        let network = try Network()
        let lab = network.lab
        defer { network.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        try linked(network, alice)
        let carol = try IRCClient(port: network.second.port)
        try carol.register(nick: "carol", caps: nil)
        for person in [alice, bob, carol] { try join(person) }
        try alice.expect("JOIN") { $0.command == "JOIN" && $0.nick == "carol" }
        for round in 0..<2 {
            #expect(try network.outsiders() == ["carol"])
            for person in [alice, bob] { try readsNothingElse(person) }
            network.link.refuse()
            network.link.resetAll()
            for person in [alice, bob] { try person.expect("QUIT") { $0.command == "QUIT" && $0.nick == "carol" } }
            #expect(try network.outsiders().isEmpty)
            carol.send("PRIVMSG #room :on my side")
            bob.send("PART #room")
            try alice.expect("PART")
            try join(bob)
            alice.send("PRIVMSG #room :nobody-else \(round)")
            try bob.expectMessage("nobody-else \(round)")
            network.link.refuse(false)
            try bob.expect("JOIN of carol", timeout: .seconds(30)) { $0.command == "JOIN" && $0.nick == "carol" }
            #expect(try network.outsiders() == ["carol"])
            bob.send("PRIVMSG #room :nobody-else again \(round)")
            try alice.expectMessage("nobody-else again \(round)")
            carol.send("PRIVMSG #room :hello \(round)")
            for person in [alice, bob] { try person.expectMessage("[not encrypted] hello \(round)") }
        }
        try readsNothingElse(bob)
        #expect(!lab.tap.shows("nobody-else"))
        #expect(carol.transcript.allSatisfy { !$0.text.contains("nobody-else") })
    }
}
