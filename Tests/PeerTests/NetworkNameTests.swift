import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// The name of the network: fixed at the first start, whatever the backend's address becomes.
@Suite(.blocking, .serialized) struct NetworkNameTests {
    private static func texts(_ person: ChatPerson) throws -> [String] {
        try person.history(GenericLab.conversation).compactMap { $0["text"].string }
    }

    /// Starts a gateway on the data of another, under other settings.
    private static func gateway(
        on lab: GenericLab, upstream: String, environment: [String: String] = [:]
    ) throws -> PawlProcess {
        var options = PawlProcess.Options(policy: "hosted", arguments: ["--metrics", "", "--upstream", upstream])
        (options.listenScheme, options.upstreamScheme) = ("http", "http")
        options.environment = ["PAWL_MAPPING": JSONLab.mapping("generic")].merging(environment) { $1 }
        options.dataDirectory = lab.gateway.dataDirectory
        return try PawlProcess(upstream: lab.backend.port, options)
    }

    @Test func historyOutlivesAnotherHostName() throws {
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        #expect(lab.gateway.output.contains("The name of the network is fixed in the store as 127.0.0.1."))
        #expect(lab.gateway.output.contains("pawl store network NAME --data \(lab.gateway.dataDirectory)"))
        try lab.alice.post("before the move", in: GenericLab.conversation)
        try lab.wait(for: 0)
        lab.gateway.stop()

        let moved = try Self.gateway(on: lab, upstream: "http://localhost:\(lab.backend.port)")
        #expect(!moved.output.contains("fixed in the store"))
        let bob = ChatPerson(lab.bob, port: moved.port)
        try bob.ask("GET", "/me")
        #expect(try Self.texts(bob) == ["before the move"])
        moved.stop()
    }

    @Test func anotherNameIsRefusedAndCanBeChosen() throws {
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        let data = lab.gateway.dataDirectory
        let upstream = "http://127.0.0.1:\(lab.backend.port)"
        try lab.alice.post("under the first name", in: GenericLab.conversation)
        try lab.wait(for: 0)
        // A running gateway has the store.
        #expect(try PawlProcess.run(["store", "network", "chat", "--data", data]).status == .exited(1))
        lab.gateway.stop()

        let port = try FreePort()
        let refused = try PawlProcess.run(
            [
                "serve", "--listen", "http://127.0.0.1:\(port.number)", "--upstream", upstream, "--metrics", "",
                "--data",
                data,
            ], environment: ["PAWL_MAPPING": JSONLab.mapping("generic"), "PAWL_UPSTREAM_NETWORK": "chat"])
        #expect(!refused.succeeded && refused.failureCode == "other-network")
        // The remedy is a command to copy.
        #expect(refused.stderr.contains("pawl store network chat --data \(data)"))

        #expect(try PawlProcess.run(["store", "network", "two words", "--data", data]).status == .exited(64))
        let changed = try PawlProcess.run(["store", "network", "chat", "--data", data])
        #expect(changed.succeeded && changed.stdout.contains("upstream.earlier_networks: [127.0.0.1]"))
        #expect(try PawlProcess.run(["store", "network", "--data", data]).stdout == "chat\n")
        #expect(!(try PawlProcess.run(["store", "network", "x", "--data", data + "-none"])).succeeded)

        let renamed = try Self.gateway(
            on: lab, upstream: upstream,
            environment: ["PAWL_UPSTREAM_NETWORK": "chat", "PAWL_UPSTREAM_EARLIER_NETWORKS": "127.0.0.1"])
        let (alice, bob) = (ChatPerson(lab.alice, port: renamed.port), ChatPerson(lab.bob, port: renamed.port))
        try bob.ask("GET", "/me")
        try alice.post("under the second name", in: GenericLab.conversation)
        try eventually("both are read") {
            try Self.texts(bob) == ["under the first name", "under the second name"]
        }
        #expect(try renamed.admin(["audit"]).stdout.contains("127.0.0.1 → chat"))
        renamed.stop()
    }

    /// Between people on IRC the ratchets bind the name too.
    @Test func aServerThatMovesKeepsItsConversations() throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"])
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        func talk(_ port: UInt16, _ text: String) throws {
            let anna = try AccountLab.login(port, nick: "anna\(text.count)", account: "anna")
            let bert = try AccountLab.login(port, nick: "bert\(text.count)", account: "bert")
            anna.send("PRIVMSG bert\(text.count) :\(text)")
            try bert.expectMessage(text)
            anna.close()
            bert.close()
        }
        try talk(lab.gateway.port, "before")
        lab.gateway.stop()
        var options = Lab.options("hosted", arguments: ["--upstream", "irc://localhost:\(lab.tap.port)"])
        options.dataDirectory = lab.gateway.dataDirectory
        let moved = try PawlProcess(upstream: lab.tap.port, options)
        defer { moved.stop() }
        try talk(moved.port, "after the move")
    }
}
