import Devices
import Foundation
import PeerKit
import Reports
import TestKit
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
    /// A connection that does not answer at once is left out of the report.
    private static func expectStatus(of sidecar: PawlProcess, _ text: String) throws {
        try eventually("\(text) in the report") {
            try sidecar.admin(["sidecar", "status", "--json"]).stdout.contains(text)
        }
    }

    /// Exchanges keys; both have been told when this returns.
    static func exchangeKeys(_ one: IRCClient, _ other: IRCClient) throws {
        one.send("PRIVMSG \(other.nick) :hello, in the clear")
        try other.expectMessage("hello, in the clear")
        try one.expect("words about keys") { $0.body.contains(Notices.keysExchanged(other.nick)) }
        try other.expect("words about keys") { $0.body.contains(Notices.keysExchanged(one.nick)) }
    }

    @Test(arguments: Backend.allCases) func peopleWithSidecarsAreProtectedByThemselves(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        try Self.exchangeKeys(alice, bob)
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
        try Self.exchangeKeys(alice, bob)
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
                // Behind the first line of a sidecar stand codes that people do not see.
                try reader.expect("line of \(writer.nick)") { $0.body.hasPrefix("in the room, \(writer.nick)") }
            }
        }
        #expect(!carol.transcript.contains { $0.text.contains("?PAWL") })
    }

    /// A room of sidecars in which somebody without one is away for a moment: nothing is latched, nobody is shown envelopes
    /// without words, and nothing goes out in plain text before everybody has read that it will.
    @Test(arguments: Backend.allCases) func aRoomIsSealedWhileEverybodyCanRead(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        let gina = try lab.outsider("gina")
        for client in [gina, alice, bob] {
            client.send("JOIN #den")
            try client.expect("366")
        }
        try Self.exchangeKeys(alice, bob)
        gina.send("PART #den")
        for client in [alice, bob] { try client.expect("PART", of: "gina") }
        alice.send("PRIVMSG #den :canary while gina is away")
        try bob.expectMessage("[e2e] canary while gina is away")
        try Self.expectStatus(of: first, "\"isProtected\" : false")
        gina.send("JOIN #den")
        try gina.expect("366")
        for client in [alice, bob] {
            try client.expect("words in the room") {
                $0.command == "NOTICE" && $0.parameters.first == "#den"
                    && $0.body.contains(Notices.roomPlain("#den", ["gina"]))
            }
        }
        // Refused until there was time to read it.
        var count = 0
        try eventually("plain words of alice") {
            count += 1
            alice.send("PRIVMSG #den :in the clear \(count)")
            _ = try alice.synchronize()
            return gina.drain(for: .seconds(1)).contains { $0.body.hasPrefix("in the clear") }
        }
        let lines = gina.transcript.map(\.text)
        let announced = try #require(lines.firstIndex { $0.contains("NOTICE #den :?PAWL? Not encrypted from now on") })
        #expect(try announced < #require(lines.firstIndex { $0.contains("in the clear") }))
        #expect(!lines.contains { $0.contains("?PAWL:") } && !lab.tap.shows("canary"))
        try eventually("plain words of bob") {
            bob.send("PRIVMSG #den :and bob")
            _ = try bob.synchronize()
            return gina.drain(for: .seconds(1)).contains { $0.body.hasPrefix("and bob") }
        }
    }

    @Test(arguments: Backend.allCases) func aRoomIsProtectedByThoseWhoAgree(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        for client in [alice, bob] {
            client.send("JOIN #den")
            try client.expect("366")
        }
        try alice.expect("JOIN", of: "bob")
        try Self.exchangeKeys(alice, bob)
        func decide(_ command: String, _ sidecar: PawlProcess) throws {
            let question = try sidecar.admin(["sidecar", command, "#den"])
            let token = try #require(question.token)
            let answer = try sidecar.admin(["sidecar", command, "#den", "--confirm", token])
            #expect(answer.succeeded, "\(answer)")
        }
        try decide("protect", first)
        try bob.expect("alice's request") { $0.body.contains(Notices.asks("alice", .protect, "#den")) }
        try decide("protect", second)
        for sidecar in [first, second] {
            try Self.expectStatus(of: sidecar, "\"isProtected\" : true")
        }
        let gina = try lab.outsider("gina")
        gina.send("JOIN #den")
        for client in [alice, bob] { try client.expect("JOIN", of: "gina") }
        alice.send("PRIVMSG #den :canary one")
        try bob.expectMessage("[e2e] canary one")
        bob.send("PRIVMSG #den :canary two")
        try alice.expectMessage("[e2e] canary two")
        try gina.expect("an envelope") { $0.body.contains("?PAWL:") }
        let words = gina.transcript.filter { $0.body.contains("?PAWL") }
        #expect(words.first?.body.contains("?PAWL? Encrypted end-to-end messages are sent in this room") == true)
        #expect(!lab.tap.shows("canary"))
        // The way back: each for themselves, and both have it in their audit log.
        try decide("plain", first)
        try bob.expect("alice's request") { $0.body.contains(Notices.asks("alice", .plain, "#den")) }
        bob.send("PRIVMSG #den :canary three")
        try alice.expectMessage("[e2e] canary three")
        try decide("plain", second)
        try eventually("plain words of bob") {
            bob.send("PRIVMSG #den :in the clear")
            _ = try bob.synchronize()
            return gina.drain(for: .seconds(1)).contains { $0.body.hasPrefix("in the clear") }
        }
        for sidecar in [first, second] {
            let log = try sidecar.admin(["audit"]).stdout
            #expect(log.contains("protect #den") && log.contains("plain #den"))
        }
        #expect(!lab.tap.shows("canary"))
    }

    @Test func restartsAndCrashesKeepKeysAndOrder() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        var alice = try lab.client(first, "alice")
        let bob = try lab.client(second, "bob")
        try Self.exchangeKeys(alice, bob)
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
        try Self.exchangeKeys(alice, bob)
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
        try alice.expect("words about other keys") { $0.body.contains(Notices.changedKeys("bob")) }
        alice.send("PRIVMSG bob :canary")
        try alice.expect("531")
        // What was compared are the old keys: nothing says so of the new ones.
        let words = try first.admin(["sidecar", "verify", "bob"]).stdout
        #expect(words.contains("You compared the number of the OLD keys.") && words.contains("with the NEW keys:"))
        #expect(!words.contains("You have compared it before"))
        #expect(words.contains("2. pawl sidecar accept bob\n3. pawl sidecar verify bob --matches"))
        let report = try first.admin(["sidecar", "verify", "bob", "--json"]).stdout
        #expect(report.contains(/"changed" ?: ?true/) && report.contains(/"verified" ?: ?false/))
        let early = try first.admin(["sidecar", "verify", "bob", "--matches"])
        #expect(!early.succeeded && early.failureCode == "keys-changed")
        let question = try first.admin(["sidecar", "accept", "bob"])
        let token = try #require(question.token)
        #expect(try first.admin(["sidecar", "accept", "bob", "--confirm", token]).succeeded)
        #expect(try !first.admin(["sidecar", "verify", "bob"]).stdout.contains("You have compared it before"))
        alice.send("PRIVMSG bob :canary for the new keys")
        try again.expectMessage("[e2e] canary for the new keys")
        #expect(!lab.tap.shows("canary"))
    }

    /// As at a bouncer, without a shell.
    @Test(arguments: Backend.allCases) func aPersonCommandsItInTheChat(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        func answer(_ text: String, _ part: String, of client: IRCClient) throws -> IRCLine {
            client.send("PRIVMSG *pawl :\(text)")
            return try client.expect("an answer to \(text)") {
                $0.command == "PRIVMSG" && $0.nick == "*pawl" && $0.body.contains(part)
            }
        }
        _ = try answer("help", "plain NICK on|off", of: alice)
        _ = try answer("verify bob", "No keys of bob are known", of: alice)
        try Self.exchangeKeys(alice, bob)
        _ = try answer("status", "bob", of: alice)
        _ = try answer("verify bob", "/msg *pawl verify bob --matches", of: alice)
        // From one screen to the other.
        let card = try answer("card", "pawl:contact?name=bob&", of: bob).body
        _ = try answer("scan \(card)", "[e2e verified]", of: alice)
        bob.send("PRIVMSG alice :canary one")
        try alice.expectMessage("[e2e verified] canary one")
        _ = try answer("forget bob", "answer: yes", of: alice)
        _ = try answer("yes", "The keys of bob are forgotten", of: alice)
        _ = try answer("plain bob off", "Nothing is sent to bob in plain text", of: alice)
        alice.send("PRIVMSG bob :canary two")
        try alice.expect("531")
        alice.send("WHOIS *pawl")
        try alice.expect("311")
        #expect(try first.admin(["audit"]).stdout.contains("forget bob"))
        #expect(!lab.tap.shows("*pawl") && !lab.tap.shows("canary") && !lab.tap.shows("verify bob"))
    }

    /// The text of the card on one person's screen is all that the other one needs.
    @Test func aContactCardVerifies() throws {
        let lab = try SidecarLab(Backend.ngircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        try Self.exchangeKeys(alice, bob)
        let screen = try second.admin(["sidecar", "verify", "alice"]).stdout
        let card = try #require(screen.split(separator: "\n").first { $0.hasPrefix("pawl:contact?name=bob&key=") })
        let own = try first.admin(["sidecar", "verify", "bob"]).stdout
        let other = try #require(own.split(separator: "\n").first { $0.hasPrefix("pawl:contact?") })
        let wrong = try first.admin(["sidecar", "verify", "bob", "--card", String(other)])
        #expect(!wrong.succeeded && wrong.stderr.contains("code: card-differs"))
        let cut = try first.admin(["sidecar", "verify", "bob", "--card", String(card.dropLast())])
        #expect(!cut.succeeded && cut.stderr.contains("code: not-a-card"))
        #expect(try !first.admin(["sidecar", "status"]).stdout.contains("verified"))
        #expect(try first.admin(["sidecar", "verify", "bob", "--card", String(card)]).succeeded)
        bob.send("PRIVMSG alice :who am I?")
        try alice.expectMessage("[e2e verified] who am I?")
    }
}
