import Foundation
import PeerKit
import TestThreads
import Testing

/// A server without a gateway, a tap that keeps what goes through it, and people with a sidecar each.
final class SidecarLab {
    let server: any IRCServer
    let tap: WireTap
    private(set) var sidecars: [PawlProcess] = []

    init(_ server: any IRCServer) throws {
        self.server = server
        tap = try WireTap(backend: server.port)
    }

    /// A sidecar whose traffic goes through the tap.
    func sidecar(arguments: [String] = [], data: String? = nil, paced: Bool = false) throws -> PawlProcess {
        var options = PawlProcess.Options()
        options.isSidecar = true
        options.arguments = arguments
        options.dataDirectory = data
        if !paced { options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0" }
        let sidecar = try PawlProcess(upstream: tap.port, options)
        sidecars.append(sidecar)
        return sidecar
    }

    func client(
        _ sidecar: PawlProcess, _ nick: String, caps: [String]? = nil, login: (String, String)? = nil
    ) throws -> IRCClient {
        let client = try IRCClient(port: sidecar.port)
        try client.register(nick: nick, caps: caps, login: login.map { (account: $0.0, password: $0.1) })
        return client
    }

    func outsider(_ nick: String) throws -> IRCClient {
        let client = try IRCClient(port: server.port)
        try client.register(nick: nick, caps: nil)
        return client
    }

    func stop() {
        for sidecar in sidecars { sidecar.stop() }
        tap.stop()
        server.stop()
    }
}

/// Sidecars on real servers that know nothing of Pawl.
@Suite(.blocking) struct SidecarTests {
    /// Exchanges keys; both have been told when this returns.
    static func meet(_ one: IRCClient, _ other: IRCClient) throws {
        one.send("PRIVMSG \(other.nick) :hello, in the clear")
        try other.expectMessage("hello, in the clear")
        try one.expect("words about keys") { $0.body.contains("Keys were exchanged with \(other.nick)") }
        try other.expect("words about keys") { $0.body.contains("Keys were exchanged with \(one.nick)") }
    }

    @Test(arguments: Backend.allCases) func peopleWithSidecarsAreProtectedByThemselves(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        try Self.meet(alice, bob)
        for index in 0..<20 {
            alice.send("PRIVMSG bob :canary \(index) to bob")
            bob.send("PRIVMSG alice :canary \(index) to alice")
        }
        for index in 0..<20 {
            try bob.expectMessage("[e2e] canary \(index) to bob")
            try alice.expectMessage("[e2e] canary \(index) to alice")
        }
        #expect(!lab.tap.shows("canary"))
        #expect(!lab.tap.shows("[e2e]"))
    }

    @Test(arguments: Backend.allCases) func somebodyWithoutOneNoticesNothing(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        let carol = try lab.outsider("carol")
        try Self.meet(alice, bob)
        alice.send("PRIVMSG carol :hello carol")
        bob.send("PRIVMSG carol :hello from bob")
        _ = try carol.expect("a hello") { $0.body.hasPrefix("hello carol") }
        _ = try carol.expect("a hello") { $0.body.hasPrefix("hello from bob") }
        carol.send("PRIVMSG alice :hello alice")
        try alice.expectMessage("hello alice")
        // Carol is there first: while there are only people with keys in a room, it becomes a protected one.
        for client in [carol, alice, bob] {
            client.send("JOIN #room")
            try client.expect("366")
        }
        for client in [alice, bob, carol] { client.send("PRIVMSG #room :in the room, \(client.nick)") }
        for reader in [alice, bob, carol] {
            for writer in [alice, bob, carol] where writer !== reader {
                // Behind the first line of a sidecar stands white space that people do not see.
                try reader.expect("line of \(writer.nick)") { $0.body.hasPrefix("in the room, \(writer.nick)") }
            }
        }
        #expect(!carol.transcript.contains { $0.text.contains("?PAWL") })
    }

    @Test func restartsAndCrashesKeepKeysAndOrder() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        var alice = try lab.client(first, "alice")
        let bob = try lab.client(second, "bob")
        try Self.meet(alice, bob)
        for round in 0..<3 {
            alice.send("PRIVMSG bob :round \(round)")
            try bob.expectMessage("[e2e] round \(round)")
            if round == 0 { try first.restart() } else { first.crash(); try first.start() }
            alice.close()
            try eventually("nick is free") {
                alice = try IRCClient(port: first.port)
                return (try? alice.register(nick: "alice", caps: nil)) != nil
            }
            bob.send("PRIVMSG alice :answer \(round)")
            try alice.expectMessage("[e2e] answer \(round)")
        }
    }

    @Test func aPersonComparesAndAccepts() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        try Self.meet(alice, bob)
        let number = try first.admin(["sidecar", "verify", "bob", "--json"]).stdout
        let other = try second.admin(["sidecar", "verify", "alice", "--json"]).stdout
        let digits = try #require(number.firstMatch(of: /"safetyNumber" ?: ?"([0-9 ]+)"/)?.1)
        #expect(digits.filter(\.isNumber).count == 60)
        #expect(other.contains(digits))
        #expect(try first.admin(["sidecar", "verify", "bob", "--matches"]).succeeded)
        bob.send("PRIVMSG alice :who am I?")
        try alice.expectMessage("[e2e verified] who am I?")
        #expect(try first.admin(["sidecar", "status"]).stdout.contains("verified"))

        // Bob loses everything and starts again.
        bob.close()
        second.stop()
        let third = try lab.sidecar()
        var again = try IRCClient(port: third.port)
        try eventually("nick is free") {
            again = try IRCClient(port: third.port)
            return (try? again.register(nick: "bob", caps: nil)) != nil
        }
        alice.send("PRIVMSG bob :for the old keys")
        try alice.expect("words about other keys") { $0.body.contains("shows keys that are not the ones you know") }
        alice.send("PRIVMSG bob :canary")
        try alice.expect("531")
        let question = try first.admin(["sidecar", "accept", "bob"])
        let token = try #require(question.stderr.firstMatch(of: /--confirm ([a-z0-9-]+)/)?.1)
        #expect(try first.admin(["sidecar", "accept", "bob", "--confirm", String(token)]).succeeded)
        alice.send("PRIVMSG bob :canary for the new keys")
        try again.expectMessage("[e2e] canary for the new keys")
        #expect(!lab.tap.shows("canary"))
    }
}
