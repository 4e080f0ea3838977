import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Two servers of one network, one of them behind a gateway: what becomes of a room when they lose each other.
@Suite(.blocking, .serialized) struct SplitTests {
    private final class Network {
        let servers: TwoServers
        let lab: Lab
        /// In front of the second server: its people have other keys.
        let other: PawlProcess

        init(_ backend: Backend) throws {
            servers = try TwoServers(backend)
            lab = try Lab(servers.first, policy: "hosted")
            other = try PawlProcess(upstream: servers.second.port, Lab.options("hosted"))
        }

        func stop() {
            other.stop()
            lab.stop()
            servers.stop()
        }

        func outsiders() throws -> Set<String> {
            let text = try lab.gateway.admin(["status"]).stdout
            return Set(text.matches(of: /(\S+) in #room/).map { String($0.1) })
        }

        /// Somebody on the second server, without a gateway.
        func outsider(_ nick: String) throws -> IRCClient {
            let client = try IRCClient(port: servers.second.port)
            try client.register(nick: nick, caps: nil)
            return client
        }
    }

    private func readsNothingElse(_ person: IRCClient) throws {
        #expect(try person.synchronize().allSatisfy { $0.command != "PRIVMSG" })
    }

    @Test(arguments: Backend.allCases) func aServerDiesAndComesBack(_ backend: Backend) throws {
        let network = try Network(backend)
        let lab = network.lab
        defer { network.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        try network.servers.waitForLink(alice)
        func outsider() throws -> IRCClient {
            let carol = try network.outsider("carol")
            try carol.join()
            return carol
        }
        for person in [alice, bob] { try person.join() }
        var carol = try outsider()
        let dora = try IRCClient(port: network.other.port)
        try dora.register(nick: "dora", caps: nil)
        try dora.join()
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
        for round in 0..<2 {
            try talk()
            carol.send("PRIVMSG #room :in the open \(round)")
            try bob.expectMessage("[not encrypted] in the open \(round)")
            try alice.expectMessage("[not encrypted] in the open \(round)")
            for person in [alice, bob] { try readsNothingElse(person) }
            network.servers.second.kill()
            // Nobody has spoken between the split and its notice, or in it, that would be lost.
            alice.send("PRIVMSG #room :nobody-else at the split \(round)")
            try bob.expectMessage("nobody-else at the split \(round)")
            for person in [alice, bob] {
                for nick in ["carol", "dora"] {
                    try person.expect("QUIT of \(nick)") { $0.command == "QUIT" && $0.nick == nick }
                }
            }
            #expect(try network.outsiders().isEmpty)
            try dora.expect("a remark") { $0.body.contains(Notices.backendUnreachable) }
            dora.send("PRIVMSG #room :nobody-else of dora \(round)")
            try talk()
            alice.send("PRIVMSG carol :nobody-else has gone \(round)")
            try alice.expect("531")
            try network.servers.second.start()
            try dora.expect("a remark") { $0.body.contains(Notices.backendBack) }
            try network.servers.waitForLink(alice)
            carol = try outsider()
            for nick in ["carol", "dora"] {
                try bob.expect("JOIN of \(nick)") { $0.command == "JOIN" && $0.nick == nick }
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
    @Test(arguments: Backend.allCases) func theLinkBreaksAndIsMadeAgain(_ backend: Backend) throws {
        let network = try Network(backend)
        let lab = network.lab
        defer { network.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        try network.servers.waitForLink(alice)
        let carol = try network.outsider("carol")
        for person in [alice, bob, carol] { try person.join() }
        try alice.expect("JOIN") { $0.command == "JOIN" && $0.nick == "carol" }
        for round in 0..<(backend == .ngircd ? 2 : 1) {
            #expect(try network.outsiders() == ["carol"])
            for person in [alice, bob] { try readsNothingElse(person) }
            network.servers.split()
            for person in [alice, bob] { try person.expect("QUIT") { $0.command == "QUIT" && $0.nick == "carol" } }
            #expect(try network.outsiders().isEmpty)
            carol.send("PRIVMSG #room :on my side")
            bob.send("PART #room")
            try alice.expect("PART")
            try bob.join()
            alice.send("PRIVMSG #room :nobody-else \(round)")
            try bob.expectMessage("nobody-else \(round)")
            network.servers.heal()
            try bob.expect("JOIN of carol") { $0.command == "JOIN" && $0.nick == "carol" }
            #expect(try network.outsiders() == ["carol"])
            bob.send("PRIVMSG #room :nobody-else again \(round)")
            try alice.expectMessage("nobody-else again \(round)")
            carol.send("PRIVMSG #room :hello \(round)")
            for person in [alice, bob] { try person.expectMessage("[not encrypted] hello \(round)") }
        }
        try readsNothingElse(bob)
        #expect(try lab.gateway.admin(["conversations", "list"]).stdout.contains("#room"))
        #expect(!lab.tap.shows("nobody-else"))
        #expect(carol.transcript.allSatisfy { !$0.text.contains("nobody-else") })
    }

    /// An operator of the network moves and renames people, and a member puts one out.
    @Test func forcedChanges() throws {
        let network = try Network(.inspircd)
        let lab = network.lab
        defer { network.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        try network.servers.waitForLink(alice)
        let carol = try network.outsider("carol")
        try alice.join()
        try carol.join()
        carol.send("OPER oper operpassword")
        try carol.expect("381")
        func sendAndExpect(_ text: String, _ reader: IRCClient) throws {
            alice.send("PRIVMSG #room :nobody-else \(text)")
            try reader.expectMessage("nobody-else \(text)")
        }
        carol.send("SAJOIN bob #room")
        try bob.expect("366")
        try alice.expect("JOIN", of: "bob")
        try sendAndExpect("for who was made to join", bob)
        #expect(try network.outsiders() == ["carol"])

        carol.send("SANICK bob robert")
        // Carol's server too has to know it, before the nick is free there.
        for person in [alice, bob, carol] { try person.expect("NICK", of: "bob") }
        carol.send("NICK bob")
        try alice.expect("NICK", of: "carol")
        alice.send("PRIVMSG robert :nobody-else to robert")
        try bob.expectMessage("nobody-else to robert")
        alice.send("PRIVMSG bob :nobody-else to another bob")
        try alice.expect("531")
        try sendAndExpect("for robert", bob)
        #expect(try network.outsiders() == ["bob"])

        alice.send("MODE #room +b robert!*@*")
        alice.send("KICK #room robert :out")
        try bob.expect("KICK", of: "alice")
        alice.send("PRIVMSG #room :nobody-else after the kick")
        _ = try alice.synchronize()
        bob.send("JOIN #room")
        try bob.expect("474")
        bob.send("PRIVMSG #room :nobody-else from outside")
        try bob.expect("404")
        // The operator's word is above the ban.
        carol.send("SAJOIN robert #room")
        try bob.expect("366")
        try sendAndExpect("in spite of the ban", bob)
        carol.send("SAPART robert #room")
        try bob.expect("PART", of: "robert")
        try alice.expect("PART", of: "robert")
        alice.send("PRIVMSG #room :nobody-else after the part")
        alice.send("MODE #room -b robert!*@*")
        _ = try alice.synchronize()
        try bob.join()
        try alice.expect("JOIN", of: "robert")
        try sendAndExpect("at last", bob)
        try readsNothingElse(bob)
        #expect(!lab.tap.shows("nobody-else"))
        #expect(carol.transcript.allSatisfy { !$0.text.contains("nobody-else") })
        #expect(bob.transcript.allSatisfy { !$0.text.contains("else after the") })
    }

    /// During a split somebody on the other side takes the nick of somebody behind the gateway.
    @Test(arguments: Backend.allCases) func nicksCollide(_ backend: Backend) throws {
        let network = try Network(backend)
        let lab = network.lab
        defer { network.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        try network.servers.waitForLink(alice)
        let carol = try network.outsider("carol")
        for person in [alice, bob, carol] { try person.join() }
        try alice.expect("JOIN", of: "carol")
        alice.send("PRIVMSG bob :nobody-else before")
        try bob.expectMessage("nobody-else before")
        network.servers.split()
        try alice.expect("QUIT", of: "carol")
        carol.send("NICK double")
        try carol.expect("NICK", of: "carol")
        bob.send("NICK double")
        try bob.expect("NICK", of: "bob")
        try alice.expect("NICK", of: "bob")
        alice.send("PRIVMSG double :nobody-else to the nearer one")
        try bob.expectMessage("nobody-else to the nearer one")
        network.servers.heal()
        try network.servers.waitForLink(alice)
        switch backend {
        case .inspircd:
            // Both get other nicks.
            for person in [bob, carol] { try person.expect("NICK", of: "double") }
        case .ngircd:
            // Both are put out, and the gateway comes back for its own.
            try carol.expectEnd()
            try bob.expect("a remark") { $0.body.contains(Notices.backendBack) }
            try eventually("bob is in the room again") {
                _ = try alice.synchronize()
                let seen = alice.transcript.filter { $0.nick == "double" && ["QUIT", "JOIN"].contains($0.command) }
                return seen.map(\.command) == ["QUIT", "JOIN"]
            }
        }
        let name = bob.latestNick
        #expect(name.hasPrefix("double") == (backend == .ngircd))
        if backend == .inspircd {
            alice.send("PRIVMSG double :nobody-else to nobody")
            try alice.expect("531")
        }
        alice.send("PRIVMSG \(name) :nobody-else to bob")
        try bob.expectMessage("nobody-else to bob")
        alice.send("PRIVMSG #room :nobody-else to the room")
        try bob.expectMessage("nobody-else to the room")
        bob.send("PRIVMSG alice :nobody-else back")
        #expect(try alice.expectMessage("nobody-else back").nick == name)
        #expect(try network.outsiders() == (backend == .ngircd ? [] : [carol.latestNick.lowercased()]))
        #expect(!lab.tap.shows("nobody-else"))
        #expect(carol.transcript.allSatisfy { !$0.text.contains("nobody-else") })
    }

    /// Sidecars on both sides of a split: what was on the link when it broke is told as lost, and later words are read.
    @Test(arguments: Backend.allCases) func sidecarsOnBothSides(_ backend: Backend) throws {
        let servers = try TwoServers(backend)
        let (near, far) = (try SidecarLab(servers.first), try SidecarLab(servers.second))
        defer {
            near.stop()
            far.stop()
            servers.stop()
        }
        let alice = try near.client(near.sidecar(), "alice")
        let dora = try near.client(near.sidecar(), "dora")
        let bob = try far.client(far.sidecar(), "bob")
        try servers.waitForLink(alice)
        for (one, other) in [(alice, dora), (alice, bob), (dora, bob)] { try SidecarTests.exchangeKeys(one, other) }
        for person in [alice, dora, bob] { try person.join() }
        for person in [alice, dora] { try person.expect("JOIN", of: "bob") }
        func sendAndExpect(_ who: IRCClient, _ text: String, to readers: [IRCClient]) throws {
            who.send("PRIVMSG #room :\(text)")
            for reader in readers { try reader.expectMessage("[e2e] \(text)") }
        }
        try sendAndExpect(alice, "canary 1", to: [dora, bob])
        try sendAndExpect(bob, "canary 2", to: [alice, dora])
        alice.send("PRIVMSG bob :canary 3")
        try bob.expectMessage("[e2e] canary 3")
        // It is with the first server, which has told everybody there, and on its way to the second one.
        servers.link.stall(.fromServer)
        try sendAndExpect(alice, "canary on the link 1", to: [dora])
        try sendAndExpect(alice, "canary on the link 2", to: [dora])
        alice.send("PRIVMSG bob :canary on the link 3")
        _ = try alice.synchronize()
        servers.split()
        for person in [alice, dora] { try person.expect("QUIT", of: "bob") }
        for nick in ["alice", "dora"] { try bob.expect("QUIT", of: nick) }
        try sendAndExpect(alice, "canary without bob", to: [dora])
        bob.send("PRIVMSG #room :canary alone")
        servers.link.stall(.fromServer, false)
        servers.heal()
        for person in [alice, dora] { try person.expect("JOIN", of: "bob") }
        for nick in ["alice", "dora"] { try bob.expect("JOIN", of: nick) }
        try sendAndExpect(alice, "canary 4", to: [dora, bob])
        // The letter with the room's next key tells both: what was lost in the room, and what was lost for bob alone.
        try bob.expect("a gap") { $0.body.contains(Notices.gap(3, from: "alice")) }
        try sendAndExpect(bob, "canary 5", to: [alice, dora])
        try sendAndExpect(dora, "canary 6", to: [alice, bob])
        alice.send("PRIVMSG bob :canary 7")
        try bob.expectMessage("[e2e] canary 7")
        for person in [alice, dora, bob] {
            #expect(try person.synchronize().allSatisfy { !$0.body.contains("lost") && $0.command != "PRIVMSG" })
        }
        #expect(!near.tap.shows("canary") && !far.tap.shows("canary"))
    }
}
