import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// A backend that comes and goes, and people behind the gateway who do not read, while others write.
@Suite(.blocking, .serialized) struct BackendTroubleTests {
    @Test func downThenUp() throws {
        let server = try NgIRCd()
        defer { server.stop() }
        let gateway = try PawlProcess(upstream: server.port, Lab.options("hosted"))
        defer { gateway.stop() }
        server.stop()
        let early = try IRCClient(port: gateway.port)
        early.send("NICK early")
        let error = try early.expect("ERROR")
        #expect(error.body.contains("cannot be reached"))
        try early.expectEnd()
        try server.start()
        let late = try IRCClient(port: gateway.port)
        try late.register(nick: "late", caps: nil)
        late.send("PRIVMSG late :up again")
        try late.expectMessage("up again")
    }

    /// The connection to the backend is torn at many places of the traffic; people stay connected and nothing is lost.
    @Test func tornInTheMiddle() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        var sent = 0
        var read: [String] = []
        func collect(_ client: IRCClient, _ duration: Duration) {
            read += client.drain(for: duration).filter { $0.command == "PRIVMSG" }.map(\.body)
        }
        let places: [(WireTap.Direction, Int)] = [
            (.fromClient, 900), (.fromServer, 4100), (.fromClient, 2047), (.fromServer, 6001), (.fromClient, 5003),
        ]
        func notices(_ client: IRCClient, _ words: String) -> Int {
            client.transcript.count { $0.command == "NOTICE" && $0.body.contains(words) }
        }
        let bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        for (direction, count) in places {
            let before = notices(anna, "does not answer")
            lab.tap.resetAfter(count, of: direction)
            for _ in 0..<60 {
                anna.send("PRIVMSG bert :torn \(sent)")
                sent += 1
            }
            try eventually("torn") {
                collect(bert, .milliseconds(5))
                _ = anna.drain(for: .milliseconds(5))
                return notices(anna, "does not answer") > before
            }
            lab.tap.resetAfter(nil, of: direction)
            try eventually("both are back") {
                collect(bert, .milliseconds(20))
                _ = anna.drain(for: .milliseconds(20))
                return [anna, bert].allSatisfy { notices($0, "server is back") == notices($0, "does not answer") }
            }
        }
        try eventually("nothing is pending") {
            collect(bert, .milliseconds(50))
            return try lab.queue("pending").isEmpty
        }
        anna.send("PRIVMSG \(bert.nick) :torn \(sent)")
        sent += 1
        let last = "torn \(sent - 1)"
        try eventually("the last") {
            collect(bert, .milliseconds(20))
            return read.last == last
        }
        let numbers = read.compactMap { Int($0.dropFirst(5)) }
        #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count, "\(numbers)")
        #expect(numbers.count == sent, "\(numbers.count) of \(sent)")
        #expect(!lab.tap.shows("torn "))
    }

    @Test func stalledAtRegistration() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        lab.tap.stall(.fromServer)
        let waiting = try IRCClient(port: lab.gateway.port)
        waiting.send("NICK waiting")
        waiting.send("USER waiting 0 * :x")
        try eventually("its connection is with the backend") { lab.tap.recordings.count == 2 }
        // The operator sees it, and who gives up is gone on both sides.
        try eventually("two connections") { try lab.connections() == 2 }
        waiting.close()
        lab.tap.stall(.fromServer, false)
        try eventually("one connection") { try lab.connections() == 1 }
        try eventually("gone at the backend") { lab.tap.recordings.filter(\.isOpen).count == 1 }
        alice.send("PRIVMSG alice :here")
        try alice.expectMessage("here")
    }

    /// Under `hosted` each line for somebody who does not read would wait in the vault and the gateway.
    @Test(arguments: Backend.allCases) func protectedTextForSomebodyWhoNeverReads(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let deaf = try IRCClient(port: lab.gateway.port, receiveBuffer: 4096)
        try deaf.register(nick: "deaf", caps: nil)
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carl = try lab.person("carl")
        alice.send("PRIVMSG deaf :warm")
        let before = try lab.memory()
        let flood = (0..<3000).map { "PRIVMSG deaf :\($0) \(String(repeating: "x", count: 380))\r\n" }.joined()
        alice.sendRaw(Array(flood.utf8), timeout: .seconds(2))
        // Others do not notice.
        for number in 0..<20 {
            bob.send("PRIVMSG carl :meanwhile \(number)")
            try carl.expectMessage("meanwhile \(number)")
        }
        let grown = try lab.memory() - before
        #expect(grown < 60_000, "the gateway grew by \(grown) KB")
    }
}

extension Lab {
    func connections() throws -> Int {
        (try json(["status"]) as? [String: Any])?["connections"] as? Int ?? -1
    }

    /// Resident memory of the gateway, in KB.
    func memory() throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(gateway.pid ?? 0)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
        return Int(line.split(separator: " ").dropFirst().first ?? "") ?? 0
    }
}
