import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Who the client is, told and believed; TLS on both sides.
@Suite(.blocking, .serialized) struct ProxyTests {
    @Test func webIRCInAndOut() throws {
        var options = NgIRCd.Options()
        options.webircPassword = "webpass"
        let lab = try Lab(
            try NgIRCd(options), policy: "observe",
            environment: ["PAWL_UPSTREAM_WEBIRC_PASSWORD": "webpass", "PAWL_ACCEPT_WEBIRC_PASSWORD": "frontpass"])
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.send("WEBIRC frontpass web 192.0.2.77 192.0.2.77")
        try client.register(nick: "webby", caps: nil)
        client.send("WHOIS webby")
        let whois = try client.expect("311")
        #expect(whois.text.contains("192.0.2.77"))
        let liar = try IRCClient(port: lab.gateway.port)
        liar.send("WEBIRC wrong web 192.0.2.78 192.0.2.78")
        #expect(try liar.expect("ERROR").body.contains("password"))
    }

    @Test func proxyProtocolInAndOut() throws {
        var options = InspIRCd.Options()
        options.proxyProtocol = true
        let server = try InspIRCd(options)
        let lab = try Lab(
            server, policy: "observe",
            environment: ["PAWL_UPSTREAM_PROXY_PROTOCOL": "v2", "PAWL_ACCEPT_PROXY_PROTOCOL": "true"])
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.sendRaw(Array("PROXY TCP4 192.0.2.99 127.0.0.1 40000 6667\r\n".utf8))
        try client.register(nick: "proxied", caps: nil)
        client.send("WHOIS proxied")
        let whois = try client.expect("311")
        #expect(whois.text.contains("192.0.2.99"))
        let bare = try IRCClient(port: lab.gateway.port)
        bare.send("NICK nobody")
        #expect(try bare.expect("ERROR").body.contains("PROXY"))
    }

    @Test func irssiTalksToIrssi() throws {
        let lab = try Lab(try NgIRCd(), policy: "hosted")
        defer { lab.stop() }
        let alice = try Irssi(port: lab.gateway.port, nick: "alice")
        let bob = try Irssi(port: lab.gateway.port, nick: "bob")
        defer {
            alice.stop()
            bob.stop()
        }
        try eventually("both are there") { lab.tap.lines(.fromServer).filter { $0.command == "001" }.count >= 2 }
        try alice.send("/msg bob a-word-between-irssis")
        _ = try bob.waitFor("a-word-between-irssis")
        try bob.send("/msg alice an-answer-between-irssis")
        _ = try alice.waitFor("an-answer-between-irssis")
        #expect(!lab.tap.shows("between-irssis"))
        #expect(try !bob.screen().contains("?PAWL"))
    }
}
