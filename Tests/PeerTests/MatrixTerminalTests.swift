import Foundation
import Glibc
import PeerKit
import TestKit
import TestThreads
import Testing

/// A Matrix client that was written without knowledge of Pawl, before a real Synapse.
@Suite(.blocking, .serialized, .enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
struct MatrixTerminalTests {
    private static let words = ["observe": "Wiesenknopf", "opportunistic": "Kornblume", "hosted": "Ackerwinde"]

    @Test func weechatMatrixUnderEveryPolicy() throws {
        let synapse = try Synapse()
        defer { synapse.stop() }
        for name in ["alice", "bob"] { try synapse.register(name) }
        let scratch = try ScratchDirectory()
        let certificate = try Certificate(in: scratch)
        chmod(certificate.keyPath, 0o600)
        // For the other person, whose client has no TLS.
        let plain = try FreePort()
        var options = PawlProcess.Options(
            policy: "observe", arguments: ["--metrics", "", "--listen", "http://127.0.0.1:\(plain.number)"])
        (options.listenScheme, options.upstreamScheme) = ("https", "http")
        options.environment = [
            "PAWL_MAPPING": JSONLab.mapping("matrix"), "PAWL_TLS_CERTIFICATE": certificate.certificatePath,
            "PAWL_TLS_KEY": certificate.keyPath,
        ]
        let gateway = try PawlProcess(upstream: synapse.port, options)
        defer { _ = gateway.stop() }

        let bob = try Nio("bob", port: plain.number)
        let alice = try Nio("alice", port: plain.number)
        let room = try alice.create(inviting: ["bob"])
        try bob.join(room)
        let weechat = try WeeChatMatrix(port: gateway.port, user: "alice", inRoom: "bob")
        for policy in ["observe", "opportunistic", "hosted"] {
            if policy != "observe" {
                let set = try gateway.admin(["policy", "set", policy, "--yes"])
                #expect(set.succeeded, "\(set.stderr)")
            }
            try talk(weechat, bob, in: room, policy, synapse)
        }

        // A new terminal gets the history: earlier messages are marked.
        weechat.stop()
        let again = try WeeChatMatrix(port: gateway.port, user: "alice", inRoom: "bob")
        let lines = try again.waitFor("Answer under hosted").split(separator: "\n").map(String.init)
        for (policy, word) in Self.words {
            let line = lines.first { $0.contains("\(word) under \(policy)") }
            #expect(line?.contains("[not encrypted]") == (policy != "hosted"), "\(lines)")
        }
        again.stop()
    }

    private func talk(
        _ weechat: WeeChatMatrix, _ bob: Nio, in room: String, _ policy: String, _ synapse: Synapse
    ) throws {
        let word = try #require(Self.words[policy])
        try weechat.send("\(word) under \(policy)")
        try eventually("\(word) for bob") { try bob.texts(room).contains { $0.hasSuffix("\(word) under \(policy)") } }
        try bob.send("Answer under \(policy)", to: room)
        let seen = try weechat.waitFor("Answer under \(policy)")
        #expect(seen.contains("\tbob\tAnswer under \(policy)\n"), "\(seen)")
        for text in ["\(word) under", "Answer under \(policy)"] {
            #expect(synapse.files(showing: text).isEmpty == (policy == "hosted"), "\(text)")
        }
    }
}
