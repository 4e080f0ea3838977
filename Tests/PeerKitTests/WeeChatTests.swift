import PeerKit
import TestKit
import TestThreads
import Testing

@Suite(.blocking) struct WeeChatTests {
    @Test func weechatTalksWithARawClientThroughNgIRCd() throws {
        let server = try NgIRCd()
        try talk(through: server.port)
    }

    @Test func weechatTalksWithARawClientThroughInspIRCd() throws {
        let server = try InspIRCd()
        try talk(through: server.port)
    }

    private func talk(through port: UInt16) throws {
        let bob = try IRCClient(port: port)
        try bob.register(nick: "bob")
        let weechat = try WeeChat(port: port, nick: "Alice")
        // a line that ends in a semicolon, which tmux would keep
        try weechat.send("/msg bob hello from a terminal; it's me;")
        #expect(try bob.expectMessage("hello from a terminal; it's me;").nick == "Alice")
        try weechat.waitFor("MSG(bob): hello from a terminal", in: .server)
        bob.send("PRIVMSG Alice :hello from a socket")
        #expect(try weechat.waitFor("hello from a socket", in: .chat("bob")).contains("\tbob\thello from a socket\n"))
        try weechat.show(.chat("bob"))
        try weechat.send("typed where it was shown")
        _ = try bob.expectMessage("typed where it was shown")
        try eventually("both on the screen") {
            let screen = try weechat.screen()
            return screen.contains("hello from a socket") && screen.contains("typed where it was shown")
        }
        try roomTalk(weechat, bob)
        weechat.stop()
        #expect(!weechat.isRunning)
        // its connection ends with it
        try eventually("Alice gone") {
            bob.send("WHOIS Alice")
            return try bob.expect("answer") { $0.command == "401" || $0.command == "311" }.command == "401"
        }
    }

    private func roomTalk(_ weechat: WeeChat, _ bob: IRCClient) throws {
        bob.send("JOIN #Room")
        _ = try bob.expect("366")
        try weechat.send("/join #Room")
        // it changes to the room when it has seen its own join
        try weechat.waitFor("Alice", in: .chat("#Room"))
        try weechat.send("hello, room")
        #expect(try bob.expectMessage("hello, room").nick == "Alice")
        bob.send("PRIVMSG #Room :hello back")
        #expect(try weechat.waitFor("hello back", in: .chat("#Room")).contains("\tAlice\thello, room\n"))
        #expect(!weechat.log(.chat("bob")).contains("hello, room"))
        #expect(weechat.logs().contains("hello from a socket"))
    }

    /// WeeChat by itself lets a line go every two seconds, and ten of them would come too late.
    @Test func weechatIsNotHeldBack() throws {
        let server = try NgIRCd()
        let bob = try IRCClient(port: server.port)
        try bob.register(nick: "bob")
        let weechat = try WeeChat(port: server.port, nick: "alice")
        for number in 1...10 { try weechat.send("/msg bob line \(number) of ten") }
        _ = try bob.expectMessage("line 10 of ten")
    }

    @Test func weechatGivesAPassword() throws {
        var options = NgIRCd.Options()
        options.connectionPassword = "let-me-in"
        let server = try NgIRCd(options)
        let weechat = try WeeChat(port: server.port, nick: "alice", password: "let-me-in")
        #expect(weechat.log(.server).contains("Welcome"))
        #expect(weechat.log(.core).contains("Plugins loaded"))
        #expect(weechat.log(.chat("nobody")).isEmpty)
    }

    @Test func weechatThatCannotConnectReportsIt() throws {
        let port = try FreePort()
        let error = #expect(throws: PeerError.self) {
            _ = try WeeChat(port: port.number, nick: "alice")
        }
        #expect("\(String(describing: error))".contains("connection refused"))
    }
}
