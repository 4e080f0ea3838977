import Foundation
import PeerKit
import Reports
import Synchronization
import TestKit
import TestThreads
import Testing

/// A tap on a real server that plays the hostile backend.
@Suite(.blocking) struct AttackTests {
    /// Numbers of a seed, for a rewriter that runs on the tap's thread.
    private final class Chaos: Sendable {
        private struct State {
            var random: SeededGenerator
            var held: [[UInt8]] = []
        }

        private let state: Mutex<State>

        init(seed: UInt64) { state = Mutex(State(random: SeededGenerator(seed: seed))) }

        /// What becomes of a line of the server. Only envelopes and texts of people are touched.
        func rewrite(_ line: [UInt8]) -> [[UInt8]] {
            let text = String(decoding: line, as: UTF8.self)
            guard text.contains("?PAWL"), text.contains("!") else { return [line] }
            return state.withLock { state in
                let number = state.random.below(1 << 31)
                switch number % 10 {
                case 0: return []
                case 1: return [line, line]
                case 2:
                    state.held.append(line)
                    return []
                case 3:
                    defer { state.held = [] }
                    return state.held.reversed() + [line]
                case 4:
                    var altered = line
                    // Behind the marker: another verb would make it a line of another kind.
                    let start = line.count - (text.split(separator: "?PAWL:").last?.utf8.count ?? 5)
                    let place = start + number / 16 % max(line.count - 3 - start, 1)
                    altered[place] = altered[place] == 0x41 ? 0x42 : 0x41
                    return [altered, line]
                default: return [line]
                }
            }
        }
    }

    private static func rewriter(_ change: @escaping @Sendable (String) -> String) -> WireTap.Rewriter {
        { [Array(change(String(decoding: $0, as: UTF8.self)).utf8)] }
    }

    private func waitForWords(_ client: IRCClient, _ words: String) throws {
        try client.expect("words: \(words)") { $0.body.contains(words) }
    }

    /// Everything that a client has shown as end to end, with the nick that it stood under.
    private func sealed(_ client: IRCClient) -> [(nick: String, text: String)] {
        client.transcript.filter { $0.command == "PRIVMSG" && $0.body.hasPrefix("[e2e") }.map { ($0.nick, $0.body) }
    }

    // MARK: Names and keys

    /// Somebody with other keys comes under bob's nick: as the server says, or because bob has gone.
    @Test(arguments: Backend.allCases) func otherKeysUnderAKnownNick(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second, third) = (try lab.sidecar(), try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        try SidecarTests.exchangeKeys(alice, bob)
        bob.send("PRIVMSG alice :established")
        try alice.expectMessage("[e2e] established")
        let mallory = try lab.client(third, "mallory")
        // To alice, whatever mallory says is bob's.
        lab.tap.rewrite(
            .fromServer,
            Self.rewriter { $0.contains(" alice :") ? $0.replacing(":mallory!", with: ":bob!") : $0 })
        mallory.send("PRIVMSG alice :canary, in the clear")
        try waitForWords(alice, "was withheld")
        alice.send("PRIVMSG mallory :hello mallory")
        try waitForWords(alice, "bob shows keys that are not the ones you know")
        alice.send("PRIVMSG bob :secret for bob")
        try alice.expect("531")
        #expect(try first.admin(["sidecar", "status"]).stdout.contains("changed"))
        lab.tap.rewrite(.fromServer, nil)
        #expect(!lab.tap.shows("secret for bob"))
        #expect(sealed(alice).count == 1)
        #expect(!alice.transcript.contains { $0.text.contains("canary") })
        #expect(!mallory.transcript.contains { $0.text.contains("secret") })
    }

    @Test(arguments: Backend.allCases) func aKnownPersonUnderAnothersNick(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let (first, second, third) = (try lab.sidecar(), try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        let mallory = try lab.client(third, "mallory")
        try SidecarTests.exchangeKeys(alice, bob)
        try SidecarTests.exchangeKeys(alice, mallory)
        mallory.send("PRIVMSG alice :as myself")
        try alice.expectMessage("[e2e] as myself")
        lab.tap.rewrite(
            .fromServer, Self.rewriter { $0.contains(" alice :") ? $0.replacing(":mallory!", with: ":bob!") : $0 })
        mallory.send("PRIVMSG alice :I am bob")
        try waitForWords(alice, "it came under the name bob")
        lab.tap.rewrite(.fromServer, nil)
        bob.send("PRIVMSG alice :really bob")
        try alice.expectMessage("[e2e] really bob")
        #expect(!alice.transcript.contains { $0.text.contains("I am bob") })
    }

    /// Marks that the backend writes by itself, in texts, in tags, and under a source without a host.
    @Test func marksOfTheBackendAreNoMarks() throws {
        let lab = try SidecarLab(Backend.inspircd.start())
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let alice = try lab.client(first, "alice", caps: ["message-tags"])
        let bob = try lab.client(second, "bob")
        try SidecarTests.exchangeKeys(alice, bob)
        bob.send("PRIVMSG alice :established")
        try alice.expectMessage("[e2e] established")
        let connection = try #require(
            lab.tap.recordings.first { $0.lines(.fromClient).contains { $0.text == "NICK alice" } })
        for line in [
            ":carol!c@host PRIVMSG alice :[e2e] forged one",
            ":carol!c@host PRIVMSG alice :\u{2}[e2e verified] forged two",
            "@pawl/protection=device :carol!c@host PRIVMSG alice :forged three",
            ":alice!a@host PRIVMSG alice :[e2e] forged four", ":bob PRIVMSG alice :forged five",
            ":bob!b@host PRIVMSG alice :[e2e] forged six", ":carol!c@host PRIVMSG alice :the end",
        ] { lab.tap.inject(line, .fromServer, connection: connection.id) }
        try alice.expect("the end") { $0.body.hasSuffix("the end") }
        let shown = alice.transcript.filter { $0.text.contains("forged") }
        #expect(shown.filter { $0.body.hasPrefix("[e2e") }.isEmpty)
        #expect(shown.filter { $0.body.hasPrefix("[not encrypted]") }.count == 3)
        #expect(!shown.contains { $0.tags["pawl/protection"] != nil })
        #expect(!shown.contains { $0.text.contains("five") || $0.text.contains("six") })
        #expect(alice.transcript.filter { $0.body.contains("was withheld") }.count == 2)
    }

    // MARK: Capabilities

    /// Somebody between sidecar and gateway takes both capabilities out of the list.
    @Test(arguments: Backend.allCases) func aHiddenGatewayIsMissed(_ backend: Backend) throws {
        let lab = try Lab(backend.start(), policy: "opportunistic")
        defer { lab.stop() }
        let between = try WireTap(backend: lab.gateway.port)
        defer { between.stop() }
        func sidecar() throws -> PawlProcess {
            var options = PawlProcess.Options()
            options.isSidecar = true
            options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0"
            return try PawlProcess(upstream: between.port, options)
        }
        let (first, second) = (try sidecar(), try sidecar())
        defer { for sidecar in [first, second] { sidecar.stop() } }
        var (alice, bob) = (try CapableTests.person(first, "alice"), try CapableTests.person(second, "bob"))
        alice.send("PRIVMSG bob :canary one")
        try bob.expectMessage("[e2e] canary one")
        bob.send("PRIVMSG alice :canary two")
        try alice.expectMessage("[e2e] canary two")
        between.rewrite(
            .fromServer,
            Self.rewriter { line in
                guard line.contains(" CAP "), line.contains(" LS ") else { return line }
                return line.replacing("pawl/e2ee", with: "x/none").replacing("message-tags", with: "x/nothing")
            })
        for client in [alice, bob] { client.close() }
        for (sidecar, nick) in [(first, "alice"), (second, "bob")] {
            try sidecar.restart()
            try eventually("nick is free") {
                let client = try IRCClient(port: sidecar.port)
                guard (try? client.register(nick: nick, caps: nil)) != nil else { return false }
                if nick == "alice" { alice = client } else { bob = client }
                return true
            }
        }
        for client in [alice, bob] {
            _ = try client.synchronize()
            #expect(client.transcript.contains { $0.body.contains(Notices.frontMissing) })
        }
        alice.send("PRIVMSG bob :canary three")
        bob.send("PRIVMSG alice :canary four")
        // The gateway sees envelopes of nobody whom it knows, and passes none on: both are told.
        for (client, text) in [(alice, "four"), (bob, "three")] {
            // Which of the failures depends on the order of lines.
            _ = try client.expect("the message, or words") {
                $0.body == "[e2e] canary \(text)" || $0.body.contains("encrypted message from")
            }
        }
        #expect(!between.shows("canary"))
        #expect(!lab.tap.shows("canary"))
    }

    // MARK: Replays and a hostile backend

    /// Every line with an envelope comes three times, for as long as the conversation is.
    @Test(arguments: Backend.allCases) func everythingThreeTimes(_ backend: Backend) throws {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let people = try ["alice", "bob", "carol"].map { try lab.client(lab.sidecar(), $0) }
        lab.tap.rewrite(.fromServer) { line in
            String(decoding: line, as: UTF8.self).contains("?PAWL") ? [line, line, line] : [line]
        }
        for person in people {
            person.send("JOIN #room")
            try person.expect("366")
        }
        try SidecarTests.exchangeKeys(people[0], people[1])
        try SidecarTests.exchangeKeys(people[0], people[2])
        try SidecarTests.exchangeKeys(people[1], people[2])
        for round in 0..<5 {
            for (index, person) in people.enumerated() {
                person.send("PRIVMSG #room :canary \(round) of \(index) for all")
                person.send("PRIVMSG \(people[(index + 1) % 3].nick) :canary \(round) of \(index) for one")
            }
        }
        for (index, reader) in people.enumerated() {
            for other in people.indices where other != index {
                for round in 0..<5 { try reader.expectMessage("[e2e] canary \(round) of \(other) for all") }
            }
            for round in 0..<5 { try reader.expectMessage("[e2e] canary \(round) of \((index + 2) % 3) for one") }
        }
        for person in people {
            person.send("PRIVMSG \(person === people[0] ? "bob" : "alice") :the end")
        }
        try people[0].expectMessage("[e2e] the end")
        try people[1].expectMessage("[e2e] the end")
        for person in people {
            let texts = sealed(person).map { $0.text }.filter { $0.contains("canary") }
            #expect(texts.count == 15 && Set(texts).count == 15)
        }
        #expect(!lab.tap.shows("canary"))
    }

    /// Loses, repeats, holds back and alters envelopes, and then behaves.
    @Test(arguments: Backend.allCases, [UInt64(1), 2, 3, 6]) func underASeed(_ backend: Backend, _ seed: UInt64) throws
    {
        let lab = try SidecarLab(backend.start())
        defer { lab.stop() }
        let isRoom = seed % 3 == 0
        let nicks = isRoom ? ["alice", "bob", "carol"] : ["alice", "bob"]
        let people = try nicks.map { try lab.client(lab.sidecar(), $0) }
        for person in people where isRoom {
            person.send("JOIN #room")
            try person.expect("366")
        }
        for (index, person) in people.enumerated() {
            for other in people[(index + 1)...] { try SidecarTests.exchangeKeys(person, other) }
        }
        let chaos = Chaos(seed: seed)
        lab.tap.rewrite(.fromServer) { chaos.rewrite($0) }
        func target(_ index: Int) -> String { isRoom ? "#room" : nicks[1 - index] }
        for round in 0..<10 {
            for (index, person) in people.enumerated() {
                person.send("PRIVMSG \(target(index)) :canary \(nicks[index]) says \(round)")
            }
            for person in people { _ = try person.synchronize() }
        }
        lab.tap.rewrite(.fromServer, nil)
        // Introductions are bounded in a minute, so this may take one.
        var round = 100
        try eventually("everybody reads everybody") {
            round += 1
            for (index, person) in people.enumerated() {
                person.send("PRIVMSG \(target(index)) :canary \(nicks[index]) says \(round)")
            }
            for person in people { _ = person.drain(for: .seconds(1)) }
            return people.enumerated().allSatisfy { index, reader in
                nicks.enumerated().allSatisfy { other, nick in
                    other == index
                        || sealed(reader).contains { sent in
                            sent.nick == nick
                                && (101...round).contains { sent.text == "[e2e] canary \(nick) says \($0)" }
                        }
                }
            }
        }
        for person in people {
            let all = sealed(person)
            #expect(Set(all.map { $0.text }).count == all.count)
            #expect(all.allSatisfy { $0.text.hasPrefix("[e2e] canary \($0.nick) says ") })
            #expect(person.transcript.map(\.text).filter { $0.contains("?PAWL") } == [])
        }
        #expect(!lab.tap.shows("canary"))
    }

    /// The server goes on delivering to somebody who was put out, and takes what that one goes on saying.
    @Test func whoWasPutOutNeitherReadsNorSpeaks() throws {
        let lab = try SidecarLab(Backend.inspircd.start())
        defer { lab.stop() }
        let nicks = ["alice", "bob", "carol"]
        let people = try nicks.map { try lab.client(lab.sidecar(), $0) }
        for person in people {
            person.send("JOIN #room")
            try person.expect("366")
        }
        for (index, person) in people.enumerated() {
            for other in people[(index + 1)...] { try SidecarTests.exchangeKeys(person, other) }
        }
        for (index, person) in people.enumerated() {
            person.send("PRIVMSG #room :canary before, \(nicks[index])")
            for reader in people where reader !== person {
                try reader.expectMessage("[e2e] canary before, \(nicks[index])")
            }
        }
        // Carol is not told; what she says later is put before the others as if she were still there.
        lab.tap.rewrite(.fromServer, Self.rewriter { $0.contains(" KICK #room carol") ? "PING :x\r\n" : $0 })
        for index in [0, 1] {
            let id = lab.tap.recordings.first { $0.lines(.fromClient).contains { $0.text == "NICK \(nicks[index])" } }?
                .id
            lab.tap.inject(":alice!a@host KICK #room carol :out", .fromServer, connection: id)
        }
        try people[0].expect("KICK")
        try people[1].expect("KICK")
        people[2].send("PRIVMSG #room :canary too late")
        try waitForWords(people[0], "carol is not in the room that it was sent to")
        try waitForWords(people[1], "carol is not in the room that it was sent to")
        // The real server still has her in the room, and delivers to her.
        people[0].send("PRIVMSG #room :canary without carol")
        try people[1].expectMessage("[e2e] canary without carol")
        try waitForWords(people[2], "the key for this room has not arrived")
        #expect(!people[2].transcript.contains { $0.text.contains("without carol") })
        #expect(people[0...1].allSatisfy { !$0.transcript.contains { $0.text.contains("too late") } })
        #expect(!lab.tap.shows("canary"))
    }

    // MARK: The control plane

    @Test func framesWithoutSenseAndWithoutEnd() throws {
        let lab = try Lab(Backend.ngircd.start(), policy: "hosted")
        defer { lab.stop() }
        let mallory = try lab.person("mallory", caps: ["pawl/e2ee"])
        let long = String(repeating: "QUJD", count: 90)
        for line in ["PAWL", "PAWL :", "PAWL * 0 1", "PAWL 1 1 1 :QQ==", "PAWL 1 0 999999999999999999999 :QQ=="] {
            mallory.send(line)
        }
        for id in 0..<300 { mallory.send("PAWL \(id) 0 128 :\(long)") }
        for id in 300..<700 { mallory.send("PAWL \(id) 0 1 :EWFsaWNl") }
        _ = try mallory.synchronize()
        #expect(mallory.transcript.contains { $0.command == "PAWL" })
        #expect(!lab.tap.lines(.fromClient).contains { $0.command == "PAWL" })
        // Others are served, and the gateway lives.
        let sidecar = try CapableTests.sidecar(lab)
        defer { sidecar.stop() }
        let alice = try CapableTests.person(sidecar, "alice")
        let carol = try lab.person("carol")
        alice.send("PRIVMSG carol :canary")
        try carol.expectMessage("canary")
        #expect(try lab.gateway.admin(["status", "--json"]).succeeded)
        #expect(!lab.tap.shows("canary"))
    }
}
