import Testing

@testable import PawlConfiguration

@Suite("Addresses, blocks, patterns and texts")
struct ValueTests {
    @Test func urls() throws {
        let yaml = """
            tls: {certificate: /c, key: /k}
            listen: ["irc://LOCALHOST", "ircs://irc.example.org", "irc+insecure://[2001:db8::1]", "IRCS://[::]:7000",
                     irc://127.8.9.1:6000]
            """
        #expect(
            try load(yaml).listen.map(\.description) == [
                "irc://LOCALHOST:6667", "ircs://irc.example.org:6697", "irc+insecure://[2001:db8::1]:6667",
                "ircs://[::]:7000",
                "irc://127.8.9.1:6000",
            ])
    }

    @Test(arguments: [
        ("127.0.0.1", true), ("127.9.9.9", true), ("::1", true), ("localhost", true), ("LocalHost", true),
        ("::ffff:127.0.0.1", true), ("128.0.0.1", false), ("::", false), ("0.0.0.0", false),
        ("localhost.example.org", false), ("127.0.0.1.example.org", false),
    ])
    func loopback(_ host: String, _ isLoopback: Bool) {
        #expect(PawlConfiguration.Address(host: host, port: 1).isLoopback == isLoopback)
    }

    @Test(arguments: [
        ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.1", false), ("0.0.0.0/0", "1.2.3.4", true),
        ("0.0.0.0/0", "::1", false), ("::/0", "::1", true), ("::/0", "1.2.3.4", false),
        ("192.0.2.7", "192.0.2.7", true),
        ("192.0.2.7", "192.0.2.8", false), ("2001:db8::/33", "2001:db8:7fff::1", true),
        ("2001:db8::/33", "2001:db8:8000::1", false), ("127.0.0.1/32", "::ffff:127.0.0.1", true),
    ])
    func blocks(_ block: String, _ address: String, _ isInside: Bool) throws {
        #expect(try CIDR(configuration: block).contains(#require(IPAddress(address))) == isInside)
    }

    @Test(arguments: [
        "", "/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0/8", "::/129", "localhost/8", "10.0.0.0/8/8",
    ])
    func wrongBlocks(_ block: String) {
        #expect(throws: Mismatch.self) { try CIDR(configuration: block) }
    }

    @Test func trust() throws {
        let accept = try load().accept
        #expect(try accept.trusts(#require(IPAddress("127.0.0.1"))))
        #expect(try accept.trusts(#require(IPAddress("::1"))))
        #expect(try !accept.trusts(#require(IPAddress("127.0.0.2"))))
    }

    @Test(arguments: ["1.2.3.4", "2001:db8::1", "::", "255.255.255.255"])
    func addressesAreWrittenAsRead(_ text: String) {
        #expect(IPAddress(text)?.description == text)
    }

    @Test func patterns() throws {
        let patterns = try load("services: [\"*Serv   server=services.*\", \"[Bot] host=a=b\"]").services
        #expect(
            patterns == [
                .init(nick: "*Serv", origin: .server("services.*")), .init(nick: "[Bot]", origin: .host("a=b")),
            ])
        #expect(patterns.map(\.description) == ["*Serv server=services.*", "[Bot] host=a=b"])
    }

    @Test(arguments: [
        "", "a", "server=x", "a server=", "a server", "a user=x", "a server=x host=y", "a!b@c host=d", "a host=*",
    ])
    func wrongPatterns(_ text: String) {
        #expect(throws: Mismatch.self) { try ServicePattern(configuration: text) }
    }

    @Test func refusalTexts() throws {
        #expect(
            try PawlConfiguration.Refusal.Text(
                configuration: "to {target}: "
                    + "{target}"
            ).filled(target: "{target}x") == "to {target}x: {target}x")
        #expect(try PawlConfiguration.Refusal.Text(configuration: "a { b }").template == "a { b }")
        for text in ["", "  ", "a\nb", String(repeating: "x", count: 301)] {
            #expect(throws: Mismatch.self) { try PawlConfiguration.Refusal.Text(configuration: text) }
        }
    }

    @Test(arguments: [
        ("policy", "policy"), ("polciy", "policy"), ("plicy", "policy"), ("listne", "listen"),
        ("server_name", "tls.server_name"),
        ("tls.sever_name", "tls.server_name"), ("data", nil), ("zzzzzz", nil), ("x", nil), ("", nil),
        (String(repeating: "policy", count: 1000), nil),
    ])
    func nearestName(_ word: String, _ name: String?) {
        #expect(NearestName.of(word, among: ["listen", "policy", "tls.server_name", "tls"]) == name)
    }

    @Test func distance() {
        #expect(NearestName.distance(Array("kitten".utf8), Array("sitting".utf8)) == 3)
        #expect(NearestName.distance(Array("ab".utf8), Array("ba".utf8)) == 1)
        #expect(NearestName.distance([], Array("abc".utf8)) == 3)
    }
}
