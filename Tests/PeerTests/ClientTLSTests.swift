import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// What servers learn of a client's TLS, which ends at the gateway.
@Suite(.blocking, .serialized) struct ClientTLSTests {
    /// A client of IRC by TLS, with a certificate or without: OpenSSL carries its lines.
    final class Person {
        let nick: String
        private let peer: LinePeer

        init(
            _ nick: String, port: UInt16, certificate: Certificate? = nil, startTLS: Bool = false
        ) throws {
            self.nick = nick
            let begins = startTLS ? ["-starttls", "irc"] : []
            let shown = certificate.map { ["-cert", $0.certificatePath, "-key", $0.keyPath] } ?? []
            peer = try LinePeer(
                "/usr/bin/openssl",
                ["s_client", "-quiet", "-no_ign_eof", "-verify_quiet", "-connect", "127.0.0.1:\(port)"]
                    + shown + begins)
        }

        func send(_ line: String) throws { try peer.send(line) }

        /// The first line that has these words, without its end.
        @discardableResult
        func expect(_ words: String...) throws -> String {
            while let line = try peer.line(within: .seconds(180)) {
                if line.hasPrefix("PING") { try send("PONG" + line.dropFirst(4)) }
                if words.allSatisfy({ line.contains($0) }) { return line.filter { $0 != "\r" } }
            }
            throw PeerError("\(nick): no line with \(words)")
        }

        func register() throws -> Person {
            try send("NICK \(nick)")
            try send("USER \(nick) 0 * :\(nick)")
            try expect(" 001 \(nick) ")
            return self
        }

        /// The numerics about a nick, each with its text.
        func whois(_ other: String) throws -> [String: String] {
            try send("WHOIS \(other)")
            var found: [String: String] = [:]
            while found["318"] == nil {
                let words = try expect(" \(other) ").split(separator: " ", maxSplits: 4).map(String.init)
                if words.count == 5, words[3] == other { found[words[1]] = words[4] }
            }
            return found
        }
    }

    /// A gateway with a port for TLS, and one without.
    final class Front {
        let gateway: PawlProcess
        let plainPort: FreePort
        private let scratch: ScratchDirectory

        init(_ upstream: UInt16, scheme: String = "irc", _ environment: [String: String]) throws {
            scratch = try ScratchDirectory()
            let certificate = try Certificate(in: scratch)
            chmod(certificate.keyPath, 0o600)
            plainPort = try FreePort()
            var options = Lab.options(
                "observe", environment: environment, arguments: ["--listen", "irc://127.0.0.1:\(plainPort.number)"])
            options.listenScheme = "ircs"
            options.upstreamScheme = scheme
            options.environment["PAWL_TLS_CERTIFICATE"] = certificate.certificatePath
            options.environment["PAWL_TLS_KEY"] = certificate.keyPath
            options.environment["PAWL_UPSTREAM_TLS_VERIFY"] = "false"
            gateway = try PawlProcess(upstream: upstream, options)
        }

        func plain(_ nick: String) throws -> IRCClient {
            let client = try IRCClient(port: plainPort.number)
            try client.register(nick: nick, caps: nil)
            return client
        }
    }

    private static let modules = """
        <module name="sslinfo"><sslinfo hash="sha-256">
        <module name="sslmodes">

        """

    /// The channel of one client by TLS admits another one, and nobody else.
    private func onlyTLS(_ first: Person, _ other: Person, _ plain: IRCClient) throws {
        try first.send("JOIN #tls")
        try first.expect(" 366 ")
        try first.send("MODE #tls +z")
        try first.expect("MODE #tls", "+z")
        try other.send("JOIN #tls")
        try other.expect(" 366 ")
        plain.send("JOIN #tls")
        #expect(try plain.expect("489").text.contains("#tls"))
    }

    @Test func inspircdLearnsTLSAndCertificatesByWEBIRC() throws {
        let accounts = try AccountLab(accounts: ["anna"]) {
            $0.tls = true
            $0.webircPassword = "webpass"
            $0.extra = Self.modules
        }
        defer { accounts.services.stop() }
        let port = try #require(accounts.server.tlsPort)
        let front = try Front(
            port, scheme: "ircs",
            [
                "PAWL_UPSTREAM_WEBIRC_PASSWORD": "webpass", "PAWL_TLS_CLIENT_CERTIFICATES": "ask",
                "PAWL_STARTTLS": "terminate",
            ])
        defer { front.gateway.stop() }
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        let anna = try Person("anna", port: front.gateway.port, certificate: certificate).register()
        let bare = try Person("bare", port: front.gateway.port).register()
        let plain = try front.plain("plain")

        let shown = try anna.whois("anna")
        let fingerprint = try #require(shown["276"]?.split(separator: " ").last)
        #expect(shown["671"] != nil)
        let digest = try ChildProcess.run(
            "openssl", ["x509", "-in", certificate.certificatePath, "-noout", "-fingerprint", "-sha256"])
        #expect(digest.stdout.lowercased().filter(\.isHexDigit).hasSuffix(fingerprint))
        // The same that the server itself computes of a client that comes to it directly.
        let direct = try Person("direct", port: port, certificate: certificate).register()
        #expect(try direct.whois("direct")["276"]?.hasSuffix(fingerprint) == true)
        let other = try bare.whois("bare")
        #expect(other["671"] != nil && other["276"] == nil)
        // A client that begins TLS by a command is known by it as well.
        let starting = try Person(
            "starting", port: front.plainPort.number, certificate: certificate, startTLS: true
        ).register()
        let started = try starting.whois("starting")
        #expect(started["671"] != nil && started["276"]?.hasSuffix(fingerprint) == true)
        let third = try bare.whois("plain")
        #expect(third["311"] != nil && third["671"] == nil)
        try onlyTLS(anna, bare, plain)

        try anna.send("PRIVMSG NickServ :IDENTIFY \(AccountLab.password)")
        try anna.expect(" 900 ")
        try anna.send("PRIVMSG NickServ :CERT ADD")
        try anna.expect("NOTICE anna", "\(fingerprint)")
        let again = try Person("again", port: front.gateway.port, certificate: certificate)
        try again.send("CAP LS 302")
        #expect(try again.expect(" LS ", "sasl=").contains("EXTERNAL"))
        try again.send("CAP REQ :sasl")
        try again.expect(" ACK ")
        try again.send("AUTHENTICATE EXTERNAL")
        try again.expect("AUTHENTICATE", "+")
        try again.send("AUTHENTICATE +")
        #expect(try again.expect(" 900 ").contains(" anna "))
        try again.expect(" 903 ")
    }

    @Test func inspircdLearnsTLSByTheProxyProtocol() throws {
        var options = InspIRCd.Options()
        options.proxyProtocol = true
        options.extra = Self.modules
        let server = try InspIRCd(options)
        defer { server.stop() }
        let front = try Front(
            server.port, ["PAWL_UPSTREAM_PROXY_PROTOCOL": "v2", "PAWL_STARTTLS": "terminate"])
        defer { front.gateway.stop() }
        let anna = try Person("anna", port: front.gateway.port).register()
        let bea = try Person("bea", port: front.gateway.port).register()
        let plain = try front.plain("plain")
        #expect(try anna.whois("anna")["671"] != nil)
        let other = try anna.whois("plain")
        #expect(other["311"] != nil && other["671"] == nil)
        let starting = try Person("starting", port: front.plainPort.number, startTLS: true).register()
        #expect(try starting.whois("starting")["671"] != nil)
        try onlyTLS(anna, bea, plain)
    }

    /// The options of WEBIRC do no harm there; what the page of operators says of TLS to this server is true.
    @Test func ngircdTakesAddressesOnly() throws {
        var options = NgIRCd.Options()
        options.tls = true
        options.webircPassword = "webpass"
        let server = try NgIRCd(options)
        defer { server.stop() }
        let tlsPort = try #require(server.tlsPort)
        for (port, scheme) in [(server.port, "irc"), (tlsPort, "ircs")] {
            let front = try Front(
                port, scheme: scheme,
                ["PAWL_UPSTREAM_WEBIRC_PASSWORD": "webpass", "PAWL_TLS_CLIENT_CERTIFICATES": "ask"])
            defer { front.gateway.stop() }
            let scratch = try ScratchDirectory()
            let certificate = try Certificate(in: scratch)
            let anna = try Person("anna\(scheme)", port: front.gateway.port, certificate: certificate).register()
            let plain = try front.plain("plain\(scheme)")
            for nick in [anna.nick, plain.nick] {
                let shown = try anna.whois(nick)
                #expect(shown["311"] != nil && (shown["275"] != nil) == (scheme == "ircs") && shown["276"] == nil)
            }
        }
    }
}
