import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Rooms under `hosted` in front of real servers.
@Suite(.blocking, .serialized) struct RoomTests {
    private func join(_ people: [IRCClient], _ room: String = "#room") throws {
        for person in people {
            person.send("JOIN \(room)")
            try person.expect("366")
        }
    }

    /// Many people at once: a server may let each of them wait for a second.
    private func crowd(_ count: Int, in lab: Lab) throws -> [IRCClient] {
        var people: [IRCClient] = []
        for batch in stride(from: 0, to: count, by: 50) {
            let some = try (batch..<min(batch + 50, count)).map { _ in try IRCClient(port: lab.gateway.port) }
            for (number, person) in some.enumerated() {
                person.send("NICK p\(batch + number)")
                person.send("USER p 0 * :p")
            }
            for person in some {
                try person.expect("end of MOTD") { ["376", "422"].contains($0.command) }
            }
            people += some
        }
        return people
    }

    /// Five hundred where there is time.
    static let sizes = ProcessInfo.processInfo.environment["PAWL_LONG"] == nil ? [3, 50] : [3, 50, 500]

    @Test(arguments: Backend.allCases) func aloneInARoom(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        try join([alice])
        for number in 0..<5 { alice.send("PRIVMSG #room :nobody-else \(number)") }
        #expect(try alice.synchronize().allSatisfy { $0.command != "PRIVMSG" && $0.command != "531" })
        try eventually("all are acknowledged") {
            try lab.queue().count == 5 && lab.queue().allSatisfy { $0["state"] as? String == "done" }
        }
        let bob = try lab.person("bob")
        try join([bob])
        alice.send("PRIVMSG #room :nobody-else to bob")
        try bob.expectMessage("nobody-else to bob")
        #expect(bob.transcript.allSatisfy { !$0.body.contains("lost") })
        #expect(!lab.tap.shows("nobody-else"))
    }

    @Test(arguments: Backend.allCases, sizes) func oneEnvelopeForAll(_ backend: Backend, _ size: Int) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let people = try crowd(size, in: lab)
        try join(people)
        people[0].send("PRIVMSG #room :nobody-else-warm")
        for person in people.dropFirst() { try person.expectMessage("nobody-else-warm") }
        let before = Dictionary(
            uniqueKeysWithValues: lab.tap.recordings.map { ($0.id, $0.lines(.fromClient).count) })
        let text = "nobody-else-" + String(repeating: "x", count: 88)
        people[1].send("PRIVMSG #room :\(text)")
        for person in people where person !== people[1] { try person.expectMessage(text) }
        let lines = lab.tap.recordings.flatMap { $0.lines(.fromClient).dropFirst(before[$0.id] ?? 0) }
            .filter { $0.command != "PONG" }
        #expect(lines.count <= 2, "100 bytes to \(size) members: \(lines.map(\.text))")
        for (number, person) in people.enumerated().prefix(8) {
            person.send("NOTICE #room :nobody-else-\(number)")
            person.send("PRIVMSG #room :\u{1}ACTION nobody-else-does \(number)\u{1}")
        }
        for number in 0..<min(8, size) {
            try people[size - 1 == number ? 0 : size - 1].expectMessage("nobody-else-\(number)")
        }
        #expect(!lab.tap.shows("nobody-else"))
        #expect(lab.tap.longestLine(.fromServer) <= 512)
    }

    @Test(arguments: Backend.allCases) func removalEndsReading(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let dora = try lab.person("dora")
        let carol = try lab.outsider("carol")
        try join([alice, bob, dora, carol])
        // An outsider gets one line in words, envelopes and no key; the room goes on.
        alice.send("PRIVMSG #room :nobody-else-1")
        try bob.expectMessage("nobody-else-1")
        try carol.expect("words") { $0.command == "NOTICE" && $0.body.contains(Notices.announcement()) }
        carol.send("PRIVMSG #room :in the open")
        try bob.expectMessage("[not encrypted] in the open")
        let status = try lab.gateway.admin(["status"])
        #expect(status.stdout.contains("carol in #room"), "\(status.stdout)")
        alice.send("KICK #room bob :out")
        try bob.expect("KICK")
        alice.send("PRIVMSG #room :nobody-else-2")
        try dora.expectMessage("nobody-else-2")
        #expect(try bob.synchronize().allSatisfy { $0.command != "PRIVMSG" })
        bob.send("PRIVMSG #room :nobody-else-3")
        try bob.expect("404")
        try join([bob])
        dora.send("NICK dorothea")
        try bob.expect("NICK")
        dora.send("PRIVMSG #room :nobody-else-4")
        #expect(try bob.expectMessage("nobody-else-4").nick == "dorothea")
        dora.send("PRIVMSG @#room :nobody-else-5")
        if backend == .inspircd {
            try alice.expectMessage("nobody-else-5")
        } else {
            // ngIRCd knows no messages to members with a status only.
            try dora.expect("531")
        }
        alice.send("QUIT")
        try bob.expect("QUIT")
        bob.send("PRIVMSG #room :nobody-else-6")
        try dora.expectMessage("nobody-else-6")
        #expect(!lab.tap.shows("nobody-else"))
        #expect(try carol.synchronize().allSatisfy { !$0.text.contains("nobody-else") })
    }

    @Test func aRoomOfItsOwnPolicy() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        try join([alice, bob])
        alice.send("PRIVMSG #room :in the open")
        try bob.expectMessage("in the open")
        #expect(try lab.gateway.admin(["policy", "set", "hosted", "--room", "#Room", "--yes"]).succeeded)
        alice.send("PRIVMSG #room :nobody-else-1")
        try bob.expectMessage("nobody-else-1")
        try lab.gateway.restart()
        #expect(try lab.gateway.admin(["policy", "get"]).stdout.contains("#room"))
        #expect(try lab.gateway.admin(["conversations", "list"]).stdout.contains("#room"))
        #expect(try lab.gateway.admin(["policy", "set", "default", "--room", "#room"]).succeeded)
        // The latch holds without the policy, until somebody lowers it.
        let again = [try lab.person("alice"), try lab.person("bob")]
        try join(again)
        again[0].send("PRIVMSG #room :nobody-else-2")
        try again[1].expectMessage("nobody-else-2")
        let ask = try lab.gateway.admin(["conversations", "reset", "#room"])
        let token = try #require(ask.token)
        #expect(try lab.gateway.admin(["conversations", "reset", "#room", "--confirm", token]).succeeded)
        try again[1].expect("a remark") { $0.body.contains("reset the protection of #room") }
        again[0].send("PRIVMSG #room :open again")
        try again[1].expectMessage("open again")
        #expect(!lab.tap.shows("nobody-else") && lab.tap.shows("open again"))
    }

    /// A member under `observe` sees what the backend could read, also after the policy was taken back.
    @Test func plaintextInALatchedRoomIsMarked() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        try join([alice, bob, carol])
        carol.send("PRIVMSG #room :one")
        #expect(try bob.expect("one") { $0.body.hasSuffix("one") }.body == "one")
        #expect(try lab.gateway.admin(["policy", "set", "hosted", "--room", "#room", "--yes"]).succeeded)
        carol.send("PRIVMSG #room :two")
        #expect(try bob.expect("two") { $0.body.hasSuffix("two") }.body == "[not encrypted] two")
        alice.send("PRIVMSG #room :nobody-else-1")
        try bob.expectMessage("nobody-else-1")
        #expect(try lab.gateway.admin(["policy", "set", "default", "--room", "#room"]).succeeded)
        carol.send("PRIVMSG #room :three")
        #expect(try bob.expect("three") { $0.body.hasSuffix("three") }.body == "[not encrypted] three")
        alice.send("PRIVMSG #room :nobody-else-2")
        try bob.expectMessage("nobody-else-2")
        #expect(!lab.tap.shows("nobody-else"))
    }

    /// The servers' own flood limits: everything is slower, and nobody is put out.
    @Test(arguments: Backend.allCases) func churnAtTheServersPace(_ backend: Backend) throws {
        try churn(backend, people: 5, steps: 20, .standard)
    }

    @Test(arguments: Backend.allCases, sizes) func churnAtRandom(_ backend: Backend, _ size: Int) throws {
        try churn(backend, people: size == 3 ? 10 : size, steps: size == 3 ? 150 : 40, .lifted)
    }

    private func churn(_ backend: Backend, people size: Int, steps: Int, _ flood: FloodLimits) throws {
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the churn of \(size): \(generator.seed)")
        let lab = try Lab(try backend.start(flood), policy: "hosted", paced: flood == .standard)
        defer { lab.stop() }
        let people = try crowd(size, in: lab)
        var members: Set<Int> = []
        var expected = [[String]](repeating: [], count: people.count)
        var read = expected
        // In a big room nearly everybody is there at first.
        if size > 10 {
            for person in people { person.send("JOIN #room") }
            for person in people { try person.expect("366") }
            members = Set(people.indices)
        }
        func collect(_ number: Int) throws {
            read[number] += try people[number].synchronize().filter { $0.command == "PRIVMSG" }
                .map(\.body)
        }
        for step in 0..<steps {
            let who = Int.random(in: people.indices, using: &generator)
            switch Int.random(in: 0..<6, using: &generator) {
            case 0, 1:
                people[who].send(members.contains(who) ? "PART #room" : "JOIN #room")
                try collect(who)
                if members.insert(who).inserted == false { members.remove(who) }
            default:
                guard members.contains(who) else { continue }
                people[who].send("PRIVMSG #room :nobody-else \(step)")
                for other in members where other != who { expected[other].append("nobody-else \(step)") }
                // The backend must have it, and who reads must have read, before membership changes again.
                try collect(who)
                for other in members where other != who {
                    try eventually("\(other) reads step \(step)") {
                        try collect(other)
                        return read[other].last == "nobody-else \(step)"
                    }
                }
            }
        }
        for number in people.indices { #expect(read[number] == expected[number], "p\(number)") }
        #expect(people.allSatisfy { $0.ending == nil })
        #expect(!lab.tap.shows("nobody-else"))
    }

    /// The gateway dies under traffic in a room, or the gateway and the backend; its people come back and go on.
    @Test(arguments: [false, true]) func killedUnderTraffic(withBackend: Bool) throws {
        // Services take some seconds to be linked again.
        let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
        let rounds = isLong ? 50 : withBackend ? 2 : 5
        var generator = SeededGenerator(seed: UInt64.random(in: 0...UInt64.max))
        print("seed of the kills in a room: \(generator.seed)")
        let names = ["anna", "bert", "cora"]
        let accounts = try AccountLab(accounts: names)
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        var sent = 0
        var read: [String: [Int]] = [:]
        func collect(_ people: [IRCClient], _ duration: Duration) {
            for (name, person) in zip(names, people).dropFirst() {
                read[name, default: []] += person.drain(for: duration).filter { $0.command == "PRIVMSG" }
                    .compactMap { Int($0.body.dropFirst(7)) }
            }
        }
        for round in 0...rounds {
            let people = try names.reversed().map { try KillTests.login(lab, $0, round) }.reversed().map { $0 }
            try join(people.reversed())
            if round == rounds {
                try eventually("nothing is pending") {
                    collect(people, .milliseconds(50))
                    return try lab.queue("pending").isEmpty
                }
            }
            for _ in 0..<(round == rounds ? 1 : Int.random(in: 10...40, using: &generator)) {
                people[0].send("PRIVMSG #room :number \(sent)")
                sent += 1
            }
            if round == rounds {
                try eventually("the last") {
                    collect(people, .milliseconds(50))
                    return names.dropFirst().allSatisfy { read[$0]?.last == sent - 1 }
                }
                break
            }
            collect(people, .milliseconds(Int.random(in: 1...80, using: &generator)))
            let backendDiesFirst = Bool.random(using: &generator)
            if withBackend, backendDiesFirst { lab.server.kill() }
            lab.gateway.crash()
            if withBackend {
                lab.server.kill()
                try lab.server.start()
            }
            for person in people { try person.expectEnd() }
            collect(people, .zero)
            try lab.gateway.start()
        }
        let envelopes = Set(lab.tap.lines(.fromClient).map(\.body).filter { $0.hasPrefix("?PAWL:") })
        for name in names.dropFirst() {
            var seen: Set<Int> = []
            let isFirst = (read[name] ?? []).map { seen.insert($0).inserted }
            let firsts = zip(read[name] ?? [], isFirst).filter(\.1).map(\.0)
            #expect(firsts == firsts.sorted(), "\(name): out of order: \(read[name] ?? [])")
            #expect(firsts.count == envelopes.count, "\(name): \(firsts.count) of \(envelopes.count): \(firsts)")
            // What one write had carried when the process died may come again: that may be several lines, but it is rare.
            let repeats = zip(isFirst, isFirst.dropFirst()).count { $0 && !$1 }
            #expect(repeats <= 3 * max(1, rounds / 10), "\(name): twice: \(read[name] ?? [])")
        }
        #expect(try lab.queue("dead").isEmpty)
        #expect(!lab.tap.shows("number "))
    }
}
