import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

@Suite(.blocking) struct WireTapTests {
    @Test func everythingSentIsRecorded() throws {
        let server = try NgIRCd()
        let tap = try WireTap(backend: server.port)
        let alice = try IRCClient(port: tap.port)
        let bob = try IRCClient(port: server.port)
        try alice.register(nick: "alice")
        try bob.register(nick: "bob")
        alice.send("PRIVMSG bob :attack at dawn")
        try bob.expectMessage("attack at dawn")
        let encoded = Data("..attack at noon..".utf8).base64EncodedString()
        alice.send("PRIVMSG bob :\(encoded)")
        try bob.expectMessage(encoded)
        #expect(tap.shows("attack at dawn"))
        #expect(tap.shows("attack at noon"))
        #expect(!tap.shows("attack at dusk"))
        #expect(tap.recordings.count == 1)
        #expect(tap.lines(.fromClient).contains { $0.body == "attack at dawn" })
        #expect(tap.recordings[0].fromServer == alice.received)

        alice.send("PRIVMSG alice :" + String(repeating: "x", count: 495))
        try alice.expect("cut message") { $0.body.hasPrefix("xxx") }
        #expect(tap.longestLine(.fromClient) == 512)
        #expect(tap.longestLine(.fromServer) == 512)
        // ngIRCd ends the connection of who says more
        alice.send("PRIVMSG bob :" + String(repeating: "x", count: 600))
        try alice.expectEnd()
        #expect(tap.longestLine(.fromClient) == 615)
        alice.close()
        try eventually("end of the recording") { !tap.recordings[0].isOpen }
    }

    @Test func linesAreChangedDuplicatedAndInjected() throws {
        let server = try NgIRCd()
        let tap = try WireTap(backend: server.port)
        let alice = try IRCClient(port: tap.port)
        try alice.register(nick: "alice")
        tap.rewrite(.fromServer) { line in
            let text = String(decoding: line, as: UTF8.self)
            if text.contains("drop me") { return [] }
            if text.contains("twice") { return [line, line] }
            return [Array(text.replacing("false", with: "true ").utf8)]
        }
        for body in ["drop me", "twice", "this is false"] { alice.send("PRIVMSG alice :\(body)") }
        try alice.expectMessage("this is true ")
        #expect(try alice.synchronize().map(\.body) == ["twice", "twice"])
        tap.rewrite(.fromServer, nil)
        tap.inject(":mallory!m@m PRIVMSG alice :injected", .fromServer)
        #expect(try alice.expectMessage("injected").nick == "mallory")
        tap.inject("PRIVMSG alice :in her name", .fromClient)
        #expect(try alice.expectMessage("in her name").nick == "alice")
    }

    @Test func connectionsAreStalledAndTorn() throws {
        let server = try NgIRCd()
        let tap = try WireTap(backend: server.port)
        let alice = try IRCClient(port: tap.port)
        try alice.register(nick: "alice")
        tap.stall(.fromServer)
        alice.send("PRIVMSG alice :late")
        #expect(throws: PeerError.self) { try alice.expect("PRIVMSG", timeout: .milliseconds(100)) }
        tap.stall(.fromServer, false)
        try alice.expectMessage("late")
        tap.resetAll()
        #expect(try alice.expectEnd() == .reset)

        tap.resetAfter(100, of: .fromServer)
        let bob = try IRCClient(port: tap.port)
        bob.send("NICK bob")
        bob.send("USER bob 0 * :bob")
        #expect(try bob.expectEnd() == .reset)
        #expect(tap.recordings[1].fromServer.count == 100)
        tap.resetAfter(nil, of: .fromServer)

        tap.refuse()
        let carol = try IRCClient(port: tap.port)
        try carol.expectEnd()
        tap.refuse(false)
        server.stop()
        let dave = try IRCClient(port: tap.port)
        // As long as the server is there, nobody else gets its port.
        try withExtendedLifetime(server) { _ = try dave.expectEnd() }
    }

    @Test func anEndIsPassedOnInOneDirection() throws {
        let server = try NgIRCd()
        let tap = try WireTap(backend: server.port)
        let alice = try IRCClient(port: tap.port)
        try alice.register(nick: "alice")
        alice.halfClose()
        #expect(try alice.expectEnd() == .closed)
    }
}
