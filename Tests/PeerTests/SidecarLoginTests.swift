import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// Logins through a sidecar, which shows the person's own certificate.
@Suite(.blocking, .serialized) struct SidecarLoginTests {
    /// The certificate logs the person in at real services, and only through the sidecar that has it.
    @Test func theCertificateLogsIn() throws {
        let accounts = try AccountLab(accounts: ["anna"]) {
            $0.tls = true
            $0.extra = "<module name=\"sslinfo\">\n"
        }
        defer {
            accounts.services.stop()
            accounts.server.stop()
        }
        let port = try #require(accounts.server.tlsPort)
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        chmod(certificate.keyPath, 0o600)
        var options = PawlProcess.Options()
        options.isSidecar = true
        options.upstreamScheme = "ircs"
        options.environment["PAWL_UPSTREAM_TLS_VERIFY"] = "false"
        let bare = try PawlProcess(upstream: port, options)
        options.arguments = ["--certificate", certificate.certificatePath, "--key", certificate.keyPath]
        let sidecar = try PawlProcess(upstream: port, options)
        defer {
            bare.stop()
            sidecar.stop()
        }
        let first = try IRCClient(port: sidecar.port)
        try first.register(nick: "anna", caps: nil)
        first.send("PRIVMSG NickServ :IDENTIFY \(AccountLab.password)")
        try first.expect("900")
        first.send("PRIVMSG NickServ :CERT ADD")
        try first.expect("the fingerprint") {
            $0.command == "NOTICE" && $0.nick == "NickServ" && $0.body.contains("cert")
        }
        for (sidecar, nick, shows) in [(sidecar, "again", true), (bare, "other", false)] {
            let client = try IRCClient(port: sidecar.port)
            client.send("CAP LS 302")
            #expect(try client.expect("CAP").body.contains("EXTERNAL") == shows)
            client.send("CAP REQ :sasl")
            try client.expect("CAP")
            client.send("NICK \(nick)")
            client.send("USER \(nick) 0 * :\(nick)")
            client.send("AUTHENTICATE EXTERNAL")
            guard shows else {
                #expect(try client.expect("904").body.contains("--certificate"))
                continue
            }
            try client.expect("AUTHENTICATE")
            client.send("AUTHENTICATE +")
            #expect(try client.expect("900").parameters.contains("anna"))
            try client.expect("903")
            client.send("CAP END")
            try client.expect("001")
        }
    }
}
