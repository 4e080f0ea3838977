import PeerKit
import TestKit
import TestThreads
import Testing

@Suite(.blocking) struct IrssiTests {
    @Test func irssiTalksWithARawClientThroughNgIRCd() throws {
        let server = try NgIRCd()
        try talk(through: server.port)
    }

    @Test func irssiTalksWithARawClientThroughInspIRCd() throws {
        let server = try InspIRCd()
        try talk(through: server.port)
    }

    private func talk(through port: UInt16) throws {
        let bob = try IRCClient(port: port)
        try bob.register(nick: "bob")
        let irssi = try Irssi(port: port, nick: "alice")
        try irssi.send("/msg bob hello from a terminal; it's me")
        #expect(try bob.expectMessage("hello from a terminal; it's me").nick == "alice")
        bob.send("PRIVMSG alice :hello from a socket")
        let screen = try irssi.waitFor("hello from a socket")
        #expect(screen.contains("[bob(bob@") || screen.contains("[bob(~bob@"))
        #expect(screen.contains("[msg(bob)] hello from a terminal"))
        irssi.stop()
        // its connection ends with it
        try eventually("alice gone") {
            bob.send("WHOIS alice")
            return try bob.expect("answer") { $0.command == "401" || $0.command == "311" }.command == "401"
        }
    }
}
