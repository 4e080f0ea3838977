import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// What is in front of sidecars dies and comes back.
@Suite(.blocking, .serialized) struct SidecarOutageTests {
    private static let isLong = ProcessInfo.processInfo.environment["PAWL_LONG"] != nil

    /// Says and reads while something dies, and demands that what is shown is in order and once, and that what is missing is
    /// told.
    private func talk(
        _ alice: IRCClient, _ bob: IRCClient, rounds: Int, dies: (Int) throws -> Void
    ) throws {
        var sent = 0
        var read: [Int] = []
        var lost = 0
        func take(_ lines: [IRCLine]) {
            for line in lines where line.command == "PRIVMSG" {
                if let number = line.body.split(separator: " ").last.flatMap({ Int($0) }) { read.append(number) }
            }
            for line in lines where line.command == "NOTICE" && line.body.contains("lost on") {
                let words = line.body.split(separator: " ")
                lost += words.compactMap { Int($0) }.first ?? 1
            }
        }
        func sendMessages(_ count: Int) {
            for _ in 0..<count {
                alice.send("PRIVMSG bob :canary number \(sent)")
                sent += 1
            }
        }
        for round in 0..<rounds {
            sendMessages(4)
            try dies(round)
            sendMessages(4)
            try eventually("both are back") {
                take(bob.drain(for: .milliseconds(30)))
                _ = alice.drain(for: .milliseconds(30))
                return [alice, bob].allSatisfy { client in
                    let notices = client.transcript.filter { $0.command == "NOTICE" }
                    return notices.count { $0.body.contains(Notices.backendBack) } >= round + 1
                        && notices.count { $0.body.contains(Notices.backendUnreachable) }
                            == notices.count { $0.body.contains(Notices.backendBack) }
                }
            }
        }
        func refused() -> Int { alice.transcript.count { $0.command == "531" || $0.command == "401" } }
        // Somebody who is back may have to be known again: what is refused, or told as lost, is written once more.
        var known = -1
        do {
            try eventually("the last one, of which nothing was told") {
                _ = alice.drain(for: .milliseconds(10))
                take(bob.drain(for: .milliseconds(50)))
                guard read.last != sent - 1 else { return true }
                if refused() + lost > known {
                    known = refused() + lost
                    sendMessages(1)
                }
                return false
            }
        } catch {
            for (name, client) in [("alice", alice), ("bob", bob)] {
                Issue.record("\(name) saw: \(client.transcript.suffix(80).map { "\n\($0)" }.joined())")
            }
            throw error
        }
        #expect(read == read.sorted() && Set(read).count == read.count, "\(read)")
        let told = refused() + lost
        #expect(read.count + told >= sent, "\(read.count) read, \(told) told as lost or refused, of \(sent)")
    }

    @Test func theServerDiesUnderSidecars() throws {
        let server = try NgIRCd()
        let lab = try SidecarLab(server)
        defer { lab.stop() }
        let (first, second) = (try lab.sidecar(), try lab.sidecar())
        let (alice, bob) = (try lab.client(first, "alice"), try lab.client(second, "bob"))
        try SidecarTests.exchangeKeys(alice, bob)
        alice.send("PRIVMSG bob :canary, begin")
        try bob.expectMessage("[e2e] canary, begin")
        try talk(alice, bob, rounds: Self.isLong ? 25 : 3) { round in
            if round % 2 == 0 { server.kill() } else { server.stop() }
            try server.start()
        }
        #expect(!lab.tap.shows("canary"))
    }

    @Test func theGatewayInFrontIsKilled() throws {
        let lab = try Lab(NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let (first, second) = (try CapableTests.sidecar(lab), try CapableTests.sidecar(lab))
        defer { for sidecar in [first, second] { sidecar.stop() } }
        let (alice, bob) = (try CapableTests.person(first, "alice"), try CapableTests.person(second, "bob"))
        alice.send("PRIVMSG bob :canary, begin")
        try bob.expectMessage("[e2e] canary, begin")
        try talk(alice, bob, rounds: Self.isLong ? 25 : 3) { _ in
            lab.gateway.crash()
            try lab.gateway.start()
        }
        #expect(!lab.tap.shows("canary"))
    }
}
