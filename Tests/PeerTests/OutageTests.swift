import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Real backends that die under traffic and come back, while their people stay connected to the gateway.
@Suite(.blocking, .serialized) struct OutageTests {
    private static let gone = "does not answer"
    private static let back = "chat server is back"

    private func count(_ client: IRCClient, _ words: String) -> Int {
        client.transcript.count { $0.command == "NOTICE" && $0.body.contains(words) }
    }

    /// Reads until each of them has been told as often that the backend is back as that it has gone.
    private func waitForReturn(_ people: [IRCClient], times: Int, read: (Int, [IRCLine]) -> Void) throws {
        try eventually("everybody is back") {
            for (number, person) in people.enumerated() { read(number, person.drain(for: .milliseconds(20))) }
            return people.allSatisfy { count($0, Self.gone) >= times && count($0, Self.back) == count($0, Self.gone) }
        }
    }

    @Test(arguments: Backend.allCases) func killedUnderTraffic(_ backend: Backend) throws {
        let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil
        let rounds = isLong ? 50 : 5
        let server: any IRCServer
        let accounts: AccountLab?
        switch backend {
        case .ngircd: (server, accounts) = (try NgIRCd(), nil)
        case .inspircd:
            accounts = try AccountLab(accounts: ["anna", "bert", "cora"])
            server = try #require(accounts).server
        }
        let lab = try Lab(server, policy: "hosted")
        defer {
            lab.stop()
            accounts?.services.stop()
        }
        let people = try ["anna", "bert", "cora"].map { name in
            try accounts == nil
                ? lab.person(name) : AccountLab.login(lab.gateway.port, nick: name, account: name)
        }
        for person in people {
            person.send("JOIN #room")
            try person.expect("366")
        }
        var read = [[String]](repeating: [], count: 3)
        func take(_ number: Int, _ lines: [IRCLine]) {
            read[number] += lines.filter { $0.command == "PRIVMSG" }.map(\.body)
            #expect(lines.allSatisfy { $0.command != "ERROR" && $0.command != "001" })
        }
        var sent = 0
        func sendMessages(_ count: Int) {
            for _ in 0..<count {
                people[0].send("PRIVMSG bert :nobody-else \(sent)")
                people[1].send("PRIVMSG #room :nobody-else \(sent)")
                sent += 1
            }
        }
        var slowest = Duration.zero
        defer { print("\(backend): the slowest return took \(slowest)") }
        for round in 1...rounds {
            sendMessages(5)
            // Known to be with the backend and its readers, or not: both must do.
            if round % 2 == 0 { for (number, person) in people.enumerated() { take(number, try person.synchronize()) } }
            if round % 2 == 0 { server.stop() } else { server.kill() }
            sendMessages(5)
            try server.start()
            let restarted = ContinuousClock.now
            try waitForReturn(people, times: round, read: take)
            slowest = max(slowest, ContinuousClock.now - restarted)
        }
        sendMessages(1)
        let last = "nobody-else \(sent - 1)"
        try eventually("the last") {
            for (number, person) in people.enumerated() { take(number, person.drain(for: .milliseconds(30))) }
            return read[2].last == last && read[1].last == last && read[0].last == last
        }
        #expect(read[2] == read[0], "the room")
        for (who, texts) in read.enumerated() {
            let numbers = texts.compactMap { Int($0.dropFirst(12)) }
            #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count, "\(who): \(numbers)")
        }
        // With accounts nothing is lost. Without, what was under way when the backend died ends, and says so.
        if accounts != nil {
            #expect(read[1].count == sent && read[2].count == sent, "\(read[1].count) and \(read[2].count) of \(sent)")
        } else {
            let notices = people[0].transcript.count { $0.command == "531" }
            #expect(read[1].count + notices >= sent, "\(read[1].count) and \(notices) of \(sent)")
        }
        #expect(!lab.tap.shows("nobody-else"))
    }

    @Test(arguments: Backend.allCases) func awayAndModesAreSentAgain(_ backend: Backend) throws {
        let server = try backend.start()
        let lab = try Lab(server, policy: "hosted")
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        alice.send("AWAY :gone fishing")
        try alice.expect("306")
        alice.send("MODE alice +w")
        try alice.expect("MODE")
        server.kill()
        for person in [alice, bob] { try person.expect("a remark") { $0.body.contains(Self.gone) } }
        try server.start()
        for person in [alice, bob] {
            try person.expect("a remark") { $0.body.contains(Self.back) }
        }
        // The server has what alice's connection says before it is asked by another one.
        _ = try alice.synchronize()
        bob.send("WHOIS alice")
        try bob.expect("301")
        alice.send("MODE alice")
        try alice.expect("the modes") { $0.command == "221" && $0.body.contains("w") }
        #expect(alice.transcript.count { $0.command == "306" } == 1)
        #expect(!lab.tap.shows("fishing"))
    }

    @Test func patienceEnds() throws {
        let server = try NgIRCd()
        let lab = try Lab(server, policy: "hosted", environment: ["PAWL_UPSTREAM_OUTAGE_PATIENCE": "1"])
        defer { lab.stop() }
        let alice = try lab.person("alice")
        server.stop()
        try alice.expect("a remark") { $0.body.contains(Self.gone) }
        try alice.expectEnd()
    }

    @Test func quittingMeanwhileEnds() throws {
        let server = try NgIRCd()
        let lab = try Lab(server, policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        server.stop()
        try alice.expect("a remark") { $0.body.contains(Self.gone) }
        #expect(try alice.synchronize().allSatisfy { $0.command != "ERROR" })
        alice.send("QUIT")
        try alice.expectEnd()
        try eventually("nobody is connected") { try lab.connections() == 0 }
    }

    /// Below `hosted` a dead backend ends the connection, as it does without a gateway.
    @Test func underObserveTheConnectionEnds() throws {
        let server = try NgIRCd()
        let lab = try Lab(server, policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        server.kill()
        try alice.expectEnd()
    }

    // MARK: A planned stop

    /// What the pacer still holds goes out before the gateway ends, and to people who are behind it as well.
    @Test func whatIsPacedGoesOutBeforeTheEnd() throws {
        let lab = try Lab(Backend.ngircd.start(), policy: "hosted", paced: true)
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        alice.send("PRIVMSG bob :canary 1")
        try bob.expectMessage("canary 1")
        lab.tap.stall(.fromServer)
        for number in 2...5 { alice.send("PRIVMSG bob :canary \(number)") }
        try eventually("they are accepted") { try lab.queue("pending").count >= 4 }
        lab.gateway.signal(SIGTERM)
        try alice.expect("the announcement") { $0.body.contains(Notices.stopping) }
        lab.tap.stall(.fromServer, false)
        for number in 2...5 { try bob.expectMessage("canary \(number)") }
        try alice.expect("ERROR")
        #expect(!alice.transcript.contains { $0.body.contains("ot sent: the gateway was stopped") })
        #expect(!lab.tap.shows("canary"))
    }

    /// What does not go out in time is named to its sender, and is exactly what was not delivered.
    @Test func whatIsNotSentIsNamed() throws {
        let lab = try Lab(Backend.ngircd.start(), policy: "hosted", paced: true)
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        for number in 1...60 { alice.send("PRIVMSG bob :canary \(number)") }
        try bob.expectMessage("canary 1")
        lab.gateway.signal(SIGTERM)
        try alice.expect("ERROR")
        _ = try? bob.expectEnd()
        let pattern = /before it could send ([0-9]+) messages of yours to bob/
        let named = alice.transcript.compactMap { $0.body.firstMatch(of: pattern).flatMap { Int($0.1) } }
        let perhaps = alice.transcript.count { $0.body.contains("Perhaps not sent") }
        let delivered = bob.transcript.count { $0.body.hasPrefix("canary") }
        #expect(named.count == 1 && perhaps <= 1)
        #expect(delivered > 1 && delivered < 60 && abs(60 - delivered - (named.first ?? 0)) <= perhaps)
    }
}
