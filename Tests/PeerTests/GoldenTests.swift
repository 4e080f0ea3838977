import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Data directories that earlier versions have written, that before the Triple Ratchet (schema 2), that before kept keys of
/// messages (3), that before rows had authentication codes (7) and that before programs without padded headers refused the store
/// (8): a gateway with two accounts, in 2 and 3 with a message under way, and two sidecars that knew each other. They are kept as
/// they were, in `Golden`. Schema 7 is that of the last three orders of changes; its directories were those of schema 3 before,
/// and those of schema 8 were these. For a gateway in front of a JSON backend see `EarlierQueueLab`.
@Suite(.blocking) struct GoldenTests {
    private let directory: String

    init() throws {
        directory = FileManager.default.temporaryDirectory.appendingPathComponent("pawl-golden-\(UUID())").path
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    }

    private func unpack(_ schema: Int) throws {
        let tar = Process()
        tar.executableURL = URL(fileURLWithPath: "/bin/tar")
        let archive = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Golden/schema\(schema).tar.gz").path
        tar.arguments = ["xzf", archive, "-C", directory, "--no-same-owner"]
        try tar.run()
        tar.waitUntilExit()
        try #require(tar.terminationStatus == 0)
    }

    private func remove() { try? FileManager.default.removeItem(atPath: directory) }

    private func options(_ name: String) -> PawlProcess.Options {
        var options = PawlProcess.Options()
        options.dataDirectory = "\(directory)/\(name)"
        options.environment["PAWL_UPSTREAM_NETWORK"] = "example"
        options.environment["PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND"] = "0"
        return options
    }

    /// Accounts and latches stay; where the ratchet is another, what had been sealed and not delivered is told as lost to its
    /// sender.
    @Test(arguments: [2, 3, 7, 8]) func aGatewayGoesOn(_ schema: Int) throws {
        defer { remove() }
        try unpack(schema)
        let accounts = try AccountLab(accounts: ["alice", "bob"])
        let tap = try WireTap(backend: accounts.server.port)
        var options = options("gateway")
        options.policy = "hosted"
        let gateway = try PawlProcess(upstream: tap.port, options)
        defer {
            gateway.stop()
            tap.stop()
            accounts.server.stop()
            accounts.services.stop()
        }
        let isNewRatchet = schema == 2
        // A store of before the name was fixed takes the configured one, once.
        #expect(gateway.output.contains("fixed in the store as example. ") == (schema < 7))
        #expect(gateway.output.contains("upstream.earlier_networks") == (schema < 7))
        #expect(try gateway.admin(["queue", "--state", "dead"]).stdout.contains("earlier version") == isNewRatchet)
        // Rows that are not sealed get their codes; sessions may have padded headers.
        #expect(try gateway.admin(["audit"]).stdout.contains("store.upgraded"))
        let alice = try AccountLab.login(gateway.port, nick: "alice", account: "alice")
        let bob = try AccountLab.login(gateway.port, nick: "bob", account: "bob")
        alice.send("PRIVMSG bob :canary three")
        try bob.expectMessage("canary three")
        bob.send("PRIVMSG alice :canary four")
        try alice.expectMessage("canary four")
        let status = try gateway.admin(["status", "--json"]).stdout
        #expect(status.contains("\"custodyGateway\" : 2"))
        if isNewRatchet { #expect(!bob.transcript.contains { $0.body.contains("under way") }) }
        #expect(!tap.shows("canary"))
    }

    /// The version that wrote the directory can still open it.
    @Test func anotherNetworkIsRefusedBeforeTheUpgrade() throws {
        defer { remove() }
        try unpack(7)
        let data = "\(directory)/gateway"
        func store() -> Data? { FileManager.default.contents(atPath: data + "/pawl.sqlite") }
        let before = try #require(store())
        let refused = try PawlProcess.run(
            ["serve", "--listen", "irc://127.0.0.1:0", "--upstream", "irc://127.0.0.1:9", "--data", data],
            environment: ["PAWL_UPSTREAM_NETWORK": "another"])
        #expect(!refused.succeeded && refused.failureCode == "other-network")
        #expect(store() == before)
    }

    /// Pins and what was compared stay; where the ratchet is another, sessions begin anew before anything is sent.
    @Test(arguments: [2, 3, 7, 8]) func sidecarsGoOn(_ schema: Int) throws {
        defer { remove() }
        try unpack(schema)
        let server = try NgIRCd()
        let tap = try WireTap(backend: server.port)
        var sidecars: [PawlProcess] = []
        defer {
            for sidecar in sidecars { sidecar.stop() }
            tap.stop()
            server.stop()
        }
        for name in ["alice", "bob"] {
            var options = options(name)
            options.isSidecar = true
            sidecars.append(try PawlProcess(upstream: tap.port, options))
        }
        let before = try sidecars[0].admin(["sidecar", "status", "--json"]).stdout
        #expect(before.contains("\"keys\" : \"verified\"") && before.contains("\"name\" : \"bob\""))
        let people = try zip(sidecars, ["alice", "bob"]).map { sidecar, nick in
            let client = try IRCClient(port: sidecar.port)
            try client.register(nick: nick, caps: nil)
            return client
        }
        people[0].send("PRIVMSG bob :canary three")
        try people[1].expectMessage("[e2e] canary three")
        people[1].send("PRIVMSG alice :canary four")
        try people[0].expectMessage("[e2e verified] canary four")
        for person in people {
            person.send("JOIN #room")
            try person.expect("366")
        }
        try people[0].expect("bob") { $0.command == "JOIN" && $0.nick == "bob" }
        people[0].send("PRIVMSG #room :canary five")
        try people[1].expectMessage("[e2e] canary five")
        let after = try sidecars[0].admin(["sidecar", "status", "--json"]).stdout
        #expect(after.contains("\"keys\" : \"verified\""))
        #expect(!people[0].transcript.contains { $0.body.contains("keys that are not the ones") })
        #expect(!tap.shows("canary"))
    }

    /// The queue of a file of its own goes on in the store: what waits is sent once, what is done is not, and what is dead is shown.
    /// So does the queue of a store of schema 7, into which an earlier start had moved it.
    @Test(arguments: [2, 7]) func writesOfAQueueGoOn(_ version: Int) throws {
        defer { remove() }
        let lab = try EarlierQueueLab(version)
        #expect(try lab.left().contains("queue.sqlite") == (version == 2))
        let gateway = try lab.start()
        defer { gateway.stop() }
        #expect(try lab.left().isEmpty)
        #expect(try lab.ids(gateway, "pending") == ["2", "4", "5"])
        #expect(try lab.ids(gateway, "done") == ["1"])
        let dead = try gateway.admin(["queue", "list", "--state", "dead"]).stdout
        #expect(try lab.ids(gateway, "dead") == ["3"] && dead.contains("status 400"), "\(dead)")
        let audit = try gateway.admin(["audit"]).stdout
        #expect(audit.contains("store.queue_taken_over") && audit.contains("5 requests"), "\(audit)")
        // Alice's client, which may never have had the answer, repeats what is done.
        let (alice, bob) = (lab.alice(gateway), lab.bob(gateway))
        let again = try alice.tryPosting("canary done", in: "c1", id: "own-1")
        #expect(again.status == 201 && again.json["message_id"] == "m3", "\(again.text)")
        #expect(try lab.writes() == ["POST /conversations/c1/messages"])
        try lab.release(gateway)
        try eventually("all are sent") { try lab.ids(gateway, "pending").isEmpty }
        #expect(try lab.ids(gateway, "done") == ["1", "2", "4", "5"])
        let sent = try lab.writes().dropFirst().sorted()
        // The edit goes to the id that the backend has given the message.
        #expect(
            sent == [
                "PATCH /conversations/c1/messages/m3", "POST /conversations/c1/messages",
                "POST /conversations/c2/messages",
            ])
        #expect(try bob.texts("c1") == ["canary edited", "canary waits"])
        #expect(try bob.texts("c2") == ["canary in flight"])
        #expect(try !lab.backend.knows("canary"))
        // The next start finds all of it in the store.
        gateway.stop()
        try gateway.start()
        #expect(try lab.ids(gateway, "dead") == ["3"] && lab.ids(gateway, "pending").isEmpty && lab.left().isEmpty)
        #expect(try alice.tryPosting("canary waits", in: "c1", id: "own-4").json["message_id"] != .null)
        #expect(try lab.writes().count == 4)
    }
}
