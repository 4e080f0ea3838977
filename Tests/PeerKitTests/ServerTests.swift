import Foundation
import PeerKit
import TestThreads
import Testing

@Suite(.blocking) struct ServerTests {
    @Test func ngircdRelaysMessages() throws {
        let server = try NgIRCd()
        try converse(through: server.port, caps: ["multi-prefix"])
    }

    @Test func ngircdWithItsOwnFloodLimitsAndAPassword() throws {
        var options = NgIRCd.Options()
        options.flood = .standard
        options.connectionPassword = "let me in".replacingOccurrences(of: " ", with: "-")
        let server = try NgIRCd(options)
        let client = try IRCClient(port: server.port)
        try client.register(nick: "alice", caps: nil, password: "let-me-in")
        let stranger = try IRCClient(port: server.port)
        #expect(throws: PeerError.self) { try stranger.register(nick: "bob", caps: nil) }
    }

    @Test func ngircdListensWithTLS() throws {
        var options = NgIRCd.Options()
        options.tls = true
        let server = try NgIRCd(options)
        try registerOverTLS(try #require(server.tlsPort))
    }

    @Test func inspircdRelaysMessages() throws {
        let server = try InspIRCd()
        try converse(through: server.port, caps: ["message-tags", "server-time", "echo-message", "labeled-response"])
    }

    @Test func inspircdOffersItsCapabilities() throws {
        var options = InspIRCd.Options()
        options.tls = true
        options.strictTransport = true
        options.cloaking = true
        options.webircPassword = "webirc"
        options.flood = .standard
        let server = try InspIRCd(options)
        let client = try IRCClient(port: server.port)
        try client.register(nick: "alice")
        for capability in [
            "account-notify", "account-tag", "away-notify", "batch", "cap-notify", "chghost", "echo-message",
            "extended-join", "invite-notify", "labeled-response", "message-tags", "multi-prefix", "server-time",
            "setname", "tls", "userhost-in-names",
        ] {
            #expect(client.offered[capability] != nil, "\(capability)")
        }
        #expect(client.offered["sts"] == "port=\(server.tlsPort ?? 0)")
        // without services there is no SASL to offer
        #expect(client.offered["sasl"] == nil)
        try registerOverTLS(try #require(server.tlsPort))
    }

    @Test func inspircdTakesTheProxyProtocol() throws {
        var options = InspIRCd.Options()
        options.proxyProtocol = true
        let server = try InspIRCd(options)
        let client = try IRCClient(port: server.port)
        // version 2, PROXY, TCP over IPv4, 12 bytes: 192.0.2.7:4242 to 127.0.0.1:6667
        let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
        client.sendRaw(signature + [0x21, 0x11, 0, 12, 192, 0, 2, 7, 127, 0, 0, 1, 0x10, 0x92, 0x1A, 0x0B])
        try client.register(nick: "alice")
        client.send("WHOIS alice")
        let line = try client.expect("311")
        #expect(line.parameters.contains("192.0.2.7"))
    }

    @Test func bothTakeWebIRC() throws {
        var ngircdOptions = NgIRCd.Options()
        ngircdOptions.webircPassword = "webirc-password"
        let ngircd = try NgIRCd(ngircdOptions)
        var inspircdOptions = InspIRCd.Options()
        inspircdOptions.webircPassword = "webirc-password"
        let inspircd = try InspIRCd(inspircdOptions)
        for server in [ngircd, inspircd] as [any IRCServer] {
            let client = try IRCClient(port: server.port)
            client.send("WEBIRC webirc-password pawl host.pawl.test 192.0.2.7")
            try client.register(nick: "alice")
            client.send("PRIVMSG alice :whence")
            let prefix = try client.expectMessage("whence").prefix
            #expect(prefix.hasSuffix("@host.pawl.test") || prefix.hasSuffix("@192.0.2.7"), "\(prefix)")
        }
    }

    @Test func accountsOnInspIRCd() throws {
        var options = InspIRCd.Options()
        options.servicesLink = true
        let server = try InspIRCd(options)
        let services = try Services(on: server)
        let alice = try IRCClient(port: server.port)
        try alice.register(nick: "alice", caps: ["message-tags", "account-tag"])
        alice.send("PRIVMSG NickServ :REGISTER secret-password alice@pawl.test")
        #expect(try alice.expect("900").parameters[2] == "alice")

        let phone = try IRCClient(port: server.port)
        let enabled = try phone.register(
            nick: "phone", caps: ["sasl", "account-tag", "message-tags"], login: ("alice", "secret-password"))
        #expect(enabled == ["sasl", "account-tag", "message-tags"])
        phone.send("PRIVMSG alice :from my phone")
        let line = try alice.expectMessage("from my phone")
        #expect(line.tags["account"] == "alice")
        #expect(line.nick == "phone")

        let guess = try IRCClient(port: server.port)
        #expect(throws: PeerError.self) {
            try guess.register(nick: "guess", caps: ["sasl"], login: ("alice", "wrong-password"))
        }
        phone.send("PRIVMSG NickServ :LOGOUT")
        try phone.expect("901")
        services.stop()
    }

    @Test func accountsOnNgIRCdStayWithTheServices() throws {
        var options = NgIRCd.Options()
        options.servicesLink = true
        let server = try NgIRCd(options)
        let services = try Services(on: server)
        let alice = try IRCClient(port: server.port)
        try alice.register(nick: "alice")
        alice.send("PRIVMSG NickServ :REGISTER secret-password alice@pawl.test")
        try alice.expect("registration") { $0.command == "NOTICE" && $0.body.contains("registered") }
        let rest = try alice.synchronize()
        #expect(!alice.transcript.contains { $0.command == "900" })
        #expect(rest.allSatisfy { $0.command != "900" })
        services.stop()
    }

    @Test func aServerComesBackOnItsPort() throws {
        let server = try NgIRCd()
        let client = try IRCClient(port: server.port)
        try client.register(nick: "alice", caps: nil)
        server.kill()
        try client.expectEnd()
        #expect(!SocketTable.isListening(server.port))
        try server.start()
        let again = try IRCClient(port: server.port)
        try again.register(nick: "alice", caps: nil)
    }

    private func converse(through port: UInt16, caps: [String]) throws {
        let alice = try IRCClient(port: port)
        let bob = try IRCClient(port: port)
        #expect(try alice.register(nick: "alice", caps: caps) == Set(caps))
        try bob.register(nick: "bob", caps: nil)
        alice.send("PRIVMSG bob :one")
        alice.send("NOTICE bob :two")
        let two = try bob.expectMessage("two")
        #expect(two.command == "NOTICE")
        #expect(bob.pending.contains { $0.body == "one" && $0.nick == "alice" })
        #expect(try bob.synchronize().last?.body == "one")
    }

    private func registerOverTLS(_ port: UInt16) throws {
        let output = try ChildProcess.run("openssl", ["s_client", "-connect", "127.0.0.1:\(port)", "-brief"])
        #expect(output.stderr.contains("CONNECTION ESTABLISHED"))
    }
}
