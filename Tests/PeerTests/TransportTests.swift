import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// TLS on both sides, what is said of it to clients, and PROXY headers of both versions.
@Suite(.blocking, .serialized) struct TransportTests {
    /// A gateway with a certificate on its listener, and a second one in front of it that speaks TLS for plain clients.
    final class TLSFront {
        let certificate: Certificate
        let gateway: PawlProcess
        let client: PawlProcess
        private let scratch: ScratchDirectory
        private let between: HAProxy?

        /// - Parameter between: makes a proxy that stands between the two, of the port that it is to reach.
        init(
            upstream: UInt16, policy: String, overTLS: Bool, trusts: Bool = true, environment: [String: String] = [:],
            between: ((UInt16) throws -> HAProxy)? = nil
        ) throws {
            scratch = try ScratchDirectory()
            certificate = try Certificate(in: scratch)
            chmod(certificate.keyPath, 0o600)
            var options = Lab.options(policy)
            options.listenScheme = "ircs"
            options.environment["PAWL_TLS_CERTIFICATE"] = certificate.certificatePath
            options.environment["PAWL_TLS_KEY"] = certificate.keyPath
            if overTLS {
                options.upstreamScheme = "ircs"
                // The server of the kit signs for itself.
                options.environment["PAWL_UPSTREAM_TLS_VERIFY"] = "false"
            }
            options.environment.merge(environment) { $1 }
            gateway = try PawlProcess(upstream: upstream, options)
            self.between = try between?(gateway.port)
            var front = Lab.options("off")
            front.upstreamScheme = "ircs"
            if trusts { front.environment["PAWL_UPSTREAM_TLS_CA"] = certificate.certificatePath }
            client = try PawlProcess(upstream: self.between?.port ?? gateway.port, front)
        }

        func person(_ nick: String) throws -> IRCClient {
            let person = try IRCClient(port: client.port)
            try person.register(nick: nick, caps: nil)
            return person
        }
    }

    @Test(arguments: Backend.allCases) func tlsOnBothSides(_ backend: Backend) throws {
        let port: UInt16
        let server: any IRCServer
        switch backend {
        case .ngircd:
            var options = NgIRCd.Options()
            options.tls = true
            let made = try NgIRCd(options)
            (server, port) = (made, try #require(made.tlsPort))
        case .inspircd:
            var options = InspIRCd.Options()
            options.tls = true
            options.extra = "<module name=\"sslinfo\">"
            let made = try InspIRCd(options)
            (server, port) = (made, try #require(made.tlsPort))
        }
        defer { server.stop() }
        let tap = try WireTap(backend: port)
        let front = try TLSFront(upstream: tap.port, policy: "hosted", overTLS: true)
        let alice = try front.person("alice")
        let bob = try front.person("bob")
        for number in 0..<20 {
            let text = "\(number) " + String(repeating: "under TLS ", count: 30) + "end"
            alice.send("PRIVMSG bob :\(text)")
            try bob.expectMessage(text)
        }
        alice.send("WHOIS alice")
        // The backend takes the connection for a secure one.
        try alice.expect("a secure connection") { ["671", "275"].contains($0.command) }
        #expect(!tap.shows("PRIVMSG") && !tap.shows("alice"))
        alice.send("QUIT")
        try alice.expectEnd()
    }

    @Test func aCertificateNobodySignedIsRefused() throws {
        let server = try NgIRCd()
        let front = try TLSFront(upstream: server.port, policy: "observe", overTLS: false, trusts: false)
        let client = try IRCClient(port: front.client.port)
        client.send("NICK alice")
        let error = try client.expect("ERROR")
        #expect(error.body.contains("cannot be reached") || error.body.contains("certificate"), "\(error)")
        try client.expectEnd()
    }

    @Test func startTLSIsEndedHereOrHidden() throws {
        var options = InspIRCd.Options()
        options.tls = true
        let server = try InspIRCd(options)
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        chmod(certificate.keyPath, 0o600)
        for policy in ["observe", "hosted"] {
            let lab = try Lab(
                server, policy: policy,
                environment: [
                    "PAWL_STARTTLS": "terminate", "PAWL_TLS_CERTIFICATE": certificate.certificatePath,
                    "PAWL_TLS_KEY": certificate.keyPath,
                ])
            let plain = try lab.person("plain", caps: [])
            #expect(plain.offered["tls"] != nil, "\(policy)")
            // Ours is the certificate that is shown, and it verifies.
            // openssl waits for eight seconds only.
            try eventually("\(policy): the certificate is verified") {
                try ChildProcess.run(
                    "openssl",
                    [
                        "s_client", "-starttls", "irc", "-connect", "127.0.0.1:\(lab.gateway.port)", "-brief",
                        "-CAfile",
                        certificate.certificatePath, "-verify_return_error", "-verify_ip", "127.0.0.1",
                    ]
                ).stderr.contains("Verification: OK")
            }
            // The backend was never asked to change to TLS.
            #expect(!lab.tap.shows("STARTTLS"))
            lab.gateway.stop()
            lab.tap.stop()
        }
        let hidden = try Lab(server, policy: "observe")
        defer { hidden.stop() }
        let client = try hidden.person("plain", caps: [])
        #expect(client.offered["tls"] == nil)
        let refused = try ChildProcess.run(
            "openssl",
            ["s_client", "-starttls", "irc", "-connect", "127.0.0.1:\(hidden.gateway.port)", "-brief"],
            timeout: .seconds(90))
        #expect(!refused.stderr.contains("CONNECTION ESTABLISHED"))
    }

    /// What stands behind STARTTLS in the clear is not the client's word.
    @Test(arguments: ["observe", "hosted"]) func nothingBehindStartTLSCounts(_ policy: String) throws {
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        chmod(certificate.keyPath, 0o600)
        let lab = try Lab(
            try InspIRCd(), policy: policy,
            environment: [
                "PAWL_STARTTLS": "terminate", "PAWL_TLS_CERTIFICATE": certificate.certificatePath,
                "PAWL_TLS_KEY": certificate.keyPath,
            ])
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.send("NICK honest")
        // Under `hosted` the client's lines wait for the gateway's own negotiation.
        if policy == "observe" { try eventually("the backend is told") { lab.tap.shows("honest") } }
        client.sendRaw(Array("STARTTLS\r\nNICK injected\r\nUSER injected 0 * :x\r\nQUIT :inj".utf8))
        try client.expect("670")
        client.close()
        try eventually("the connection has ended") { try lab.connections() == 0 }
        #expect(!lab.tap.shows("inject") && !lab.tap.shows(":inj"))
    }

    /// InspIRCd takes the header inside TLS, and only there.
    @Test func theProxyHeaderReachesInspIRCdOverTLS() throws {
        let port = try FreePort()
        var options = InspIRCd.Options()
        options.tls = true
        options.extra = """
            <module name="haproxy">
            <bind address="127.0.0.1" port="\(port.number)" type="clients" hook="haproxy" sslprofile="clients">
            """
        let server = try InspIRCd(options)
        defer { server.stop() }
        let tap = try WireTap(backend: port.number)
        var behind = Lab.options("observe")
        behind.upstreamScheme = "ircs"
        behind.environment["PAWL_UPSTREAM_TLS_VERIFY"] = "false"
        behind.environment["PAWL_UPSTREAM_PROXY_PROTOCOL"] = "v2"
        behind.environment["PAWL_ACCEPT_PROXY_PROTOCOL"] = "true"
        let gateway = try PawlProcess(upstream: tap.port, behind)
        defer { gateway.stop() }
        let client = try IRCClient(port: gateway.port)
        client.sendRaw(Array("PROXY TCP4 192.0.2.44 127.0.0.1 40000 6667\r\n".utf8))
        try client.register(nick: "secure", caps: nil)
        client.send("WHOIS secure")
        #expect(try client.expect("311").parameters.contains("192.0.2.44"))
        #expect(!tap.shows("secure"))
    }

    /// A proxy that passes TLS through tells who the client is before the first byte of TLS.
    @Test(arguments: ["send-proxy", "send-proxy-v2"]) func theHeaderComesBeforeTLS(_ header: String) throws {
        let server = try NgIRCd()
        defer { server.stop() }
        let front = try TLSFront(
            upstream: server.port, policy: "hosted", overTLS: false,
            environment: ["PAWL_ACCEPT_PROXY_PROTOCOL": "true"]
        ) { try HAProxy(server: $0, header: header) }
        let alice = try front.person("alice")
        let bob = try front.person("bob")
        alice.send("PRIVMSG bob :behind a proxy")
        try bob.expectMessage("behind a proxy")
        // Whoever comes without a header is refused before TLS begins.
        let bare = try IRCClient(port: front.gateway.port)
        bare.send("NICK nobody")
        #expect(try bare.expect("ERROR").body.contains("PROXY"))
    }

    /// A backend that accepts and never speaks TLS.
    @Test func aHandshakeThatNeverComesIsGivenUp() throws {
        let server = try NgIRCd()
        defer { server.stop() }
        var options = Lab.options("observe")
        options.upstreamScheme = "ircs"
        options.environment["PAWL_UPSTREAM_TLS_VERIFY"] = "false"
        options.environment["PAWL_UPSTREAM_CONNECT_TIMEOUT"] = "1"
        let tap = try WireTap(backend: server.port)
        tap.stall(.fromClient)
        let gateway = try PawlProcess(upstream: tap.port, options)
        defer { gateway.stop() }
        let client = try IRCClient(port: gateway.port)
        #expect(try client.expect("ERROR").body.contains("cannot be reached"))
        try client.expectEnd()
    }

    /// A certificate that is not accepted is named as such, with what is wrong with it: it is no outage.
    @Test(arguments: ["unknown", "expired", "early", "name"], [true, false])
    func aCertificateThatCannotBeVerifiedIsNamed(_ fault: String, _ isSidecar: Bool) throws {
        let scratch = try ScratchDirectory()
        let certificate =
            switch fault {
            case "expired": try Certificate(in: scratch, from: "20200101000000Z", to: "20210101000000Z")
            case "early": try Certificate(in: scratch, from: "20900101000000Z", to: "20910101000000Z")
            case "name": try Certificate(in: scratch, names: "DNS:elsewhere.example")
            default: try Certificate(in: scratch)
            }
        let port = try FreePort()
        let server = try ChildProcess(
            "openssl",
            [
                "s_server", "-www", "-accept", "127.0.0.1:\(port.number)", "-cert", certificate.certificatePath, "-key",
                certificate.keyPath,
            ])
        defer { server.stop() }
        try server.waitForOutput("ACCEPT")
        var options = Lab.options("observe")
        options.isSidecar = isSidecar
        options.upstreamScheme = "ircs"
        if isSidecar { options.arguments = [] }
        if fault != "unknown" {
            if isSidecar {
                options.arguments += ["--ca", certificate.certificatePath]
            } else {
                options.environment["PAWL_UPSTREAM_TLS_CA"] = certificate.certificatePath
            }
        }
        let gateway = try PawlProcess(upstream: port.number, options)
        defer { gateway.stop() }
        let client = try IRCClient(port: gateway.port)
        let words = try client.expect("ERROR").body
        let reason =
            switch fault {
            case "expired": "it has expired"
            case "early": "it is not valid yet"
            case "name": "it is for another name"
            default: "no authority that is trusted here has signed it"
            }
        #expect(words.contains(reason) && words.contains("ertificate") && !words.contains("Try again later"))
        #expect(words.contains("gateway") != isSidecar)
        try client.expectEnd()
        try eventually("it is logged") {
            gateway.output.contains("is not accepted: \(reason)") && gateway.output.contains("upstream.tls.ca")
        }
    }

    /// For SASL EXTERNAL and CertFP the server has to see the person's own certificate.
    @Test func aSidecarShowsItsPersonsCertificate() throws {
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        let port = try FreePort()
        let server = try ChildProcess(
            "openssl",
            [
                "s_server", "-www", "-accept", "127.0.0.1:\(port.number)", "-cert", certificate.certificatePath, "-key",
                certificate.keyPath, "-Verify", "1", "-verify_return_error", "-CAfile", certificate.certificatePath,
            ])
        defer { server.stop() }
        try server.waitForOutput("ACCEPT")
        var options = PawlProcess.Options()
        options.isSidecar = true
        options.upstreamScheme = "ircs"
        options.arguments = [
            "--ca", certificate.certificatePath, "--certificate", certificate.certificatePath, "--key",
            certificate.keyPath,
        ]
        let sidecar = try PawlProcess(upstream: port.number, options)
        defer { sidecar.stop() }
        let client = try IRCClient(port: sidecar.port)
        client.send("NICK alice")
        // The server demands a certificate, and accepts the person's only.
        try server.waitForOutput("verify return:1")
    }

    @Test func strictTransportNamesOurPort() throws {
        var options = InspIRCd.Options()
        options.tls = true
        options.strictTransport = true
        let server = try InspIRCd(options)
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        chmod(certificate.keyPath, 0o600)
        let port = try FreePort()
        let lab = try Lab(
            server, policy: "observe",
            environment: [
                "PAWL_TLS_CERTIFICATE": certificate.certificatePath, "PAWL_TLS_KEY": certificate.keyPath,
            ], arguments: ["--listen", "ircs://127.0.0.1:\(port.number)"])
        defer { lab.stop() }
        let client = try lab.person("plain", caps: [])
        #expect(client.offered["sts"]?.split(separator: ",").first == "port=\(port.number)")
        let greeted = try ChildProcess.run(
            "openssl",
            ["s_client", "-connect", "127.0.0.1:\(port.number)", "-brief", "-CAfile", certificate.certificatePath])
        #expect(greeted.stderr.contains("CONNECTION ESTABLISHED"))
    }

    @Test func externalIsNotOffered() throws {
        let accounts = try AccountLab(accounts: ["anna"])
        let lab = try Lab(accounts.server, policy: "observe")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let direct = try IRCClient(port: accounts.server.port)
        try direct.register(nick: "direct", caps: [])
        let through = try lab.person("through", caps: [])
        #expect(direct.offered["sasl"]?.contains("EXTERNAL") == true, "the server has EXTERNAL to hide")
        let shown = through.offered["sasl"]?.split(separator: ",").map(String.init)
        #expect(shown == direct.offered["sasl"]?.split(separator: ",").map(String.init).filter { $0 != "EXTERNAL" })
        let asking = try IRCClient(port: lab.gateway.port)
        asking.send("CAP LS 302")
        try asking.expect("CAP")
        try asking.request(["sasl"])
        asking.send("AUTHENTICATE EXTERNAL")
        #expect(try asking.expect("904").body.contains("EXTERNAL"))
        #expect(!lab.tap.shows("AUTHENTICATE EXTERNAL"))
        // And PLAIN works after that.
        try asking.login(account: "anna", password: AccountLab.password)
    }

    private static let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]

    @Test func proxyHeadersOfBothVersions() throws {
        var options = InspIRCd.Options()
        options.proxyProtocol = true
        let lab = try Lab(
            try InspIRCd(options), policy: "observe",
            environment: ["PAWL_UPSTREAM_PROXY_PROTOCOL": "v2", "PAWL_ACCEPT_PROXY_PROTOCOL": "true"])
        defer { lab.stop() }
        let six = [0x20, 0x01, 0x0D, 0xB8] + [UInt8](repeating: 0, count: 11)
        let headers: [(header: [UInt8], address: String)] = [
            (Array("PROXY TCP4 192.0.2.10 127.0.0.1 40000 6667\r\n".utf8), "192.0.2.10"),
            (Array("PROXY TCP6 2001:db8::11 2001:db8::1 40000 6667\r\n".utf8), "2001:db8::11"),
            (Self.signature + [0x21, 0x11, 0, 12, 192, 0, 2, 12, 127, 0, 0, 1, 0x10, 0x92, 0x1A, 0x0B], "192.0.2.12"),
            (
                Self.signature + [0x21, 0x21, 0, 36] + six + [0x13] + six + [0x01] + [0x10, 0x92, 0x1A, 0x0B],
                "2001:db8::13"
            ),
            // With a TLV behind the addresses, to be skipped.
            (
                Self.signature + [0x21, 0x11, 0, 16, 192, 0, 2, 14, 127, 0, 0, 1, 0x10, 0x92, 0x1A, 0x0B]
                    + [0x04, 0, 1, 0], "192.0.2.14"
            ),
            // A health check of the proxy itself: the connection's own address counts.
            (Self.signature + [0x20, 0x00, 0, 0], "127.0.0.1"),
        ]
        for (number, entry) in headers.enumerated() {
            let client = try IRCClient(port: lab.gateway.port)
            // In two parts, as a network may deliver it.
            client.sendRaw(Array(entry.header.prefix(9)))
            _ = client.drain(for: .milliseconds(30))
            client.sendRaw(Array(entry.header.dropFirst(9)))
            try client.register(nick: "proxied\(number)", caps: nil)
            client.send("WHOIS proxied\(number)")
            #expect(try client.expect("311").parameters.contains(entry.address), "\(number)")
        }
        for wrong in [
            Array("PROXY TCP4 nonsense\r\n".utf8), Self.signature + [0x31, 0x11, 0, 12],
            Array(repeating: UInt8(ascii: "P"), count: 300),
        ] {
            let client = try IRCClient(port: lab.gateway.port)
            client.sendRaw(wrong)
            try client.expect("ERROR")
            try client.expectEnd()
        }
    }

    /// Nothing that a client says is believed unless the configuration says so.
    @Test func claimsOfStrangersAreTheirOwnWords() throws {
        var options = NgIRCd.Options()
        options.webircPassword = "webpass"
        let server = try NgIRCd(options)
        let lab = try Lab(
            server, policy: "observe",
            environment: [
                "PAWL_UPSTREAM_PROXY_PROTOCOL": "v1", "PAWL_ACCEPT_PROXY_PROTOCOL": "true",
                "PAWL_ACCEPT_TRUSTED": "10.0.0.0/8",
            ])
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.send("PROXY TCP4 192.0.2.10 127.0.0.1 40000 6667")
        client.send("NICK stranger")
        try eventually("the backend was told") {
            lab.tap.lines(.fromClient).contains { $0.text == "NICK stranger" }
        }
        // The first line is the gateway's own, and names the connection's address.
        let header = try #require(lab.tap.lines(.fromClient).first)
        #expect(header.text.hasPrefix("PROXY TCP4 127.0.0.1 127.0.0.1 "))
    }

    @Test func webIRCToInspIRCd() throws {
        var options = InspIRCd.Options()
        options.webircPassword = "webpass"
        let lab = try Lab(
            try InspIRCd(options), policy: "hosted",
            environment: ["PAWL_UPSTREAM_WEBIRC_PASSWORD": "webpass", "PAWL_ACCEPT_WEBIRC_PASSWORD": "frontpass"])
        defer { lab.stop() }
        let client = try IRCClient(port: lab.gateway.port)
        client.send("WEBIRC frontpass web 192.0.2.21 192.0.2.21")
        try client.register(nick: "webby", caps: [])
        let plain = try lab.person("plain")
        plain.send("WHOIS webby")
        #expect(try plain.expect("311").parameters.contains("192.0.2.21"))
        client.send("PRIVMSG plain :from the web")
        #expect(try plain.expectMessage("from the web").prefix == "webby!webby@192.0.2.21")
        #expect(!lab.tap.shows("frontpass"))
    }
}
