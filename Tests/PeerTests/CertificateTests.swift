import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// A backend that presents another certificate than the one that the gateway trusts, and later the right one again.
@Suite(.blocking, .serialized) struct CertificateTests {
    private static let c = GenericLab.conversation
    private static let messages = "/conversations/\(c)/messages"

    /// nginx ends TLS in front of the backend and swaps its certificate while the gateway runs with its shipped defaults.
    @Test func aSwappedCertificateKillsNoWrite() throws {
        let (scratch, other) = (try ScratchDirectory(), try ScratchDirectory())
        let trusted = try Certificate(in: scratch)
        let unknown = try Certificate(in: other)
        let backend = try ChatBackendProcess()
        let nginx = try Nginx(backend: backend.port, certificate: trusted)
        var options = PawlProcess.Options(policy: "hosted", arguments: ["--metrics", ""])
        (options.listenScheme, options.upstreamScheme) = ("http", "https")
        options.environment = [
            "PAWL_MAPPING": JSONLab.mapping("generic"), "PAWL_UPSTREAM_TLS_CA": trusted.certificatePath,
        ]
        let gateway = try PawlProcess(upstream: nginx.port, options)
        let alice = try ChatPerson("alice", port: gateway.port)
        let bob = try ChatPerson("bob", port: gateway.port)
        _ = try bob.ask("GET", "/me")
        try alice.open(Self.c, with: ["bob"])
        try alice.post("before", in: Self.c)

        try nginx.present(unknown)
        try eventually("the gateway refuses the certificate") { try alice.client.request("GET", "/me").status == 502 }
        let clients = try (1...5).map { number in
            let client = try alice.begin(
                "POST", Self.messages, ["id": .string("own-\(number)"), "text": .string("text \(number)")])
            try eventually("\(number) wait") { try JSONLab.waiting(gateway) == number }
            return client
        }
        func list(_ state: String) throws -> [JSONValue] {
            try JSONValue(Array(try gateway.admin(["queue", "list", "--state", state, "--json"]).stdout.utf8)).array
        }
        let first = try #require(try list("pending").first?["id"].string)
        try eventually("several attempts") {
            let report = try gateway.admin(["queue", "show", first, "--json"]).stdout
            return try JSONValue(Array(report.utf8))["failures"].array.count >= 3
        }
        let shown = try gateway.admin(["queue", "show", first]).stdout
        #expect(shown.contains("certificate"), "\(shown)")
        #expect(try list("dead").isEmpty)
        #expect(try backend.messages().count == 1)

        try nginx.present(trusted)
        for client in clients { #expect(try client.answer(to: "POST").status == 201) }
        #expect(try bob.texts(Self.c) == ["before"] + (1...5).map { "text \($0)" })
        #expect(try list("dead").isEmpty)
    }
}
