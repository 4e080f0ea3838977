import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Backends that are down, stall, reset or close, and clients that misbehave.
@Suite(.blocking, .serialized) struct TroubleTests {
    @Test func aBackendThatIsDown() throws {
        let nobody = try FreePort()
        let gateway = try PawlProcess(upstream: nobody.number, Lab.options("observe"))
        defer { gateway.stop() }
        let client = try IRCClient(port: gateway.port)
        let line = try client.expect("ERROR")
        #expect(line.body.contains("cannot be reached"))
        _ = try client.expectEnd()
    }

    @Test(arguments: ["observe", "hosted"]) func aBackendThatCloses(_ policy: String) throws {
        let lab = try Lab(try NgIRCd(), policy: policy)
        defer { lab.stop() }
        let client = try lab.person("alice")
        client.send("QUIT :bye")
        try client.expect("ERROR")
        _ = try client.expectEnd()
        let other = try lab.person("bob")
        lab.server.kill()
        if policy == "observe" {
            try other.expectEnd()
        } else {
            try other.expect("a remark") { $0.body.contains(Notices.backendUnreachable) }
        }
    }

    @Test func aBackendThatResetsAtAnyByte() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        for count in [1, 7, 60, 200, 700] {
            lab.tap.resetAfter(count, of: .fromServer)
            let client = try IRCClient(port: lab.gateway.port)
            client.send("NICK reset\(count)")
            client.send("USER reset 0 * :x")
            // Torn before the backend has let it in, it ends; afterwards it stays.
            try eventually("it is told") {
                _ = client.drain(for: .milliseconds(10))
                let stays = client.transcript.contains { $0.body.contains(Notices.backendUnreachable) }
                return stays || client.ending != nil
            }
            client.close()
        }
        lab.tap.resetAfter(nil, of: .fromServer)
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.send("PRIVMSG bob :all is well")
        try bob.expectMessage("all is well")
    }

    @Test func aStalledBackendHoldsNobodyElseUp() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        lab.tap.stall(.fromServer)
        alice.send("PRIVMSG bob :after the stall")
        // A refusal needs no backend.
        alice.send("PRIVMSG nobody :refused at once")
        try alice.expect("531")
        lab.tap.stall(.fromServer, false)
        try bob.expectMessage("after the stall")
    }

    @Test func aClientThatNeverReadsHarmsNobody() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let deaf = try IRCClient(port: lab.gateway.port, receiveBuffer: 4096)
        deaf.send("NICK deaf")
        deaf.send("USER deaf 0 * :x")
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        try eventually("deaf is there") {
            alice.send("ISON deaf")
            return try alice.expect("303").body.contains("deaf")
        }
        let before = try Self.memory(lab.gateway)
        for number in 0..<4000 { alice.send("PRIVMSG deaf :\(String(repeating: "x", count: 400)) \(number)") }
        alice.send("PRIVMSG bob :still here")
        try bob.expectMessage("still here")
        #expect(try Self.memory(lab.gateway) - before < 40_000, "the gateway grew by more than 40 MB")
    }

    /// Without a tap: it connects one by one, and would be what everybody waits for.
    @Test func aThousandSilentClients() throws {
        let server = try InspIRCd()
        defer { server.stop() }
        let gateway = try PawlProcess(upstream: server.port, Lab.options("hosted"))
        defer { gateway.stop() }
        let silent = try (0..<1000).map { _ in try IRCClient(port: gateway.port) }
        let alice = try IRCClient(port: gateway.port)
        try alice.register(nick: "alice", caps: nil)
        let bob = try IRCClient(port: gateway.port)
        try bob.register(nick: "bob", caps: nil)
        alice.send("PRIVMSG bob :among the silent")
        try bob.expectMessage("among the silent")
        #expect(try Self.memory(gateway) < 250_000, "in KB")
        for client in silent { client.close() }
    }

    @Test(arguments: Backend.allCases) func badLines(_ backend: Backend) throws {
        let lab = try Lab(try backend.start(), policy: "hosted")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        alice.sendRaw(Array("PRIVMSG bob :nul \u{0} byte\r\n".utf8))
        try alice.expect("421")
        alice.sendRaw(Array("\u{1}\u{2}\u{3} nonsense\r\n".utf8))
        try alice.expect("421")
        alice.sendRaw(Array("@broken\r\n".utf8))
        try alice.expect("421")
        alice.sendRaw(Array(repeating: UInt8(ascii: "x"), count: 20_000) + [0x0D, 0x0A])
        try alice.expect("417")
        alice.sendRaw(Array("PRIVMSG bob :".utf8) + [0xFF, 0xFE, 0x41] + [0x0D, 0x0A])
        let odd = try bob.expect("PRIVMSG")
        #expect(Array(odd.bytes.suffix(3)) == [0xFF, 0xFE, 0x41])
        alice.send("PRIVMSG bob :fine again")
        try bob.expectMessage("fine again")
    }

    /// Resident memory of a gateway, in KB.
    private static func memory(_ gateway: PawlProcess) throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(gateway.pid ?? 0)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
        return Int(line.split(separator: " ").dropFirst().first ?? "") ?? 0
    }
}
