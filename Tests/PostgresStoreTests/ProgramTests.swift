import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

@testable import PostgresStore

/// `pawl` on a database, with real clients and a real server.
@Suite(.blocking, .enabled(if: Database.obstacle == nil, "no PostgreSQL can run here"))
struct ProgramTests {
    private static func options(_ database: Database) -> PawlProcess.Options {
        var options = PawlProcess.Options(policy: "hosted", arguments: ["--metrics", ""])
        options.environment = ["PAWL_STORE_URL": database.url, "PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "0"]
        return options
    }

    /// A message in each direction between two new clients; the server sees neither.
    private static func talk(_ gateway: PawlProcess, _ tap: WireTap, _ round: Int) throws {
        let clients = try ["anna", "bert"].map { name in
            let client = try IRCClient(port: gateway.port)
            try client.register(nick: name + "\(round)")
            return client
        }
        for (sender, recipient) in [(clients[0], clients[1]), (clients[1], clients[0])] {
            let text = "a text of \(sender.nick)"
            sender.send("PRIVMSG \(recipient.nick) :\(text)")
            try recipient.expectMessage(text)
            #expect(!tap.shows(text))
        }
        for client in clients { client.close() }
    }

    @Test func aGatewayOnADatabase() throws {
        let database = try Database()
        let server = try NgIRCd()
        let tap = try WireTap(backend: server.port)
        let gateway = try PawlProcess(upstream: tap.port, Self.options(database))
        try Self.talk(gateway, tap, 1)
        #expect(!FileManager.default.fileExists(atPath: gateway.dataDirectory + "/pawl.sqlite"))
        #expect(try database.number("SELECT count(*)::int8 FROM pawl.gateway") == 1)
        // A backup is the database's.
        let backup = try gateway.admin(["backup", gateway.dataDirectory + "/backup"])
        #expect(backup.status == .exited(1) && backup.stderr.contains("store-in-database"), "\(backup)")
        // It is killed, and the next one takes over when its beat has not risen for a while.
        gateway.crash()
        try gateway.start()
        try Self.talk(gateway, tap, 2)
        // All its connections are ended by the database's administrator.
        try database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pawl %'")
        try eventually("the gateway commits again") {
            if !gateway.isRunning { try gateway.start() }
            return (try? Self.talk(gateway, tap, 3)) != nil
        }
        #expect(gateway.stop() == .exited(0))
        #expect(try database.number("SELECT count(*)::int8 FROM pawl.gateway") == 0)
        #expect(try database.number("SELECT count(*)::int8 FROM pawl.shard WHERE epoch >= 2") == 256)
    }

    /// Two processes on one database: what the one that stands by answers, and who serves after a drain.
    @Test func aGatewayThatStandsBy() throws {
        let database = try Database()
        let server = try NgIRCd()
        let key = try ScratchDirectory()
        func start(_ name: String) throws -> (gateway: PawlProcess, metrics: FreePort) {
            let metrics = try FreePort()
            var options = Self.options(database)
            options.arguments = ["--metrics", "127.0.0.1:\(metrics.number)"]
            options.environment["PAWL_STORE_GATEWAY"] = name
            options.environment["PAWL_STORAGE_KEY_FILE"] = key.file("storage.key")
            options.startTexts = ["pawl is ready", "pawl stands by"]
            return (try PawlProcess(upstream: server.port, options), metrics)
        }
        let (first, firstMetrics) = try start("one")
        let (second, secondMetrics) = try start("two")
        #expect(second.output.contains("pawl stands by: one serves"))
        #expect(throws: (any Error).self) { try IRCClient(port: second.port).register(nick: "nobody") }
        #expect(try WebClient(port: firstMetrics.number).request("GET", "/ready").status == 200)
        let watch = WebClient(port: secondMetrics.number)
        let ready = try watch.request("GET", "/ready")
        #expect(ready.status == 503 && ready.text == "standing by: one serves\n", "\(ready)")
        #expect(try watch.request("GET", "/live").status == 200)
        #expect(try watch.request("GET", "/metrics").text.contains("pawl_gateway_serving 0"))
        let status = try second.admin(["status"])
        #expect(status.succeeded && status.stdout.contains("one serves"), "\(status)")
        let refused = try second.admin(["queue", "list"])
        #expect(refused.status == .exited(1) && refused.stderr.contains("standing-by"), "\(refused)")
        for gateway in [first, second] {
            let list = try gateway.admin(["gateways"])
            #expect(list.stdout.contains("serving") && list.stdout.contains("standing by"), "\(list)")
            let shards = try gateway.admin(["shards", "--json"])
            #expect(shards.stdout.matches(of: /"name" : "one"/).count == 256)
        }
        let direct = try PawlProcess.run(["gateways", "--database", database.url])
        #expect(direct.stdout.contains("serving") && direct.stdout.contains("standing by"), "\(direct)")
        let none = try PawlProcess.run(["gateways", "forget", "one", "--database", database.url])
        #expect(none.status == .exited(1) && none.stderr.contains("gateway-runs"), "\(none)")
        // The one that does not stand by is refused.
        var strict = Self.options(database)
        strict.environment["PAWL_STORE_STANDBY"] = "false"
        strict.environment["PAWL_STORAGE_KEY_FILE"] = key.file("storage.key")
        let third = try PawlProcess.run(
            ["serve", "--listen", "irc://127.0.0.1:\(second.port)", "--data", key.file("third")],
            environment: strict.environment)
        #expect(third.status == .exited(1) && third.stderr.contains("store-locked"), "\(third)")
        // Over the one that stands by.
        #expect(try second.admin(["gateways", "drain", "one"]).succeeded)
        try eventually("the first one ends") { !first.isRunning }
        try eventually("the second one serves") { second.output.contains("pawl is ready") }
        #expect(first.stop() == .exited(0))
        try eventually("it is ready") { try watch.request("GET", "/ready").status == 200 }
        let audit = try second.admin(["audit"])
        #expect(audit.stdout.contains("gateways.drain") && audit.stdout.contains("operator at one"), "\(audit)")
        let alone = try second.admin(["gateways", "drain", "two"])
        #expect(alone.status == .exited(1) && alone.stderr.contains("no-standby"), "\(alone)")
        #expect(second.stop() == .exited(0))
    }

    @Test func refusals() throws {
        let place = try ScratchDirectory()
        for (words, environment, code) in [
            (["serve"], ["PAWL_STORE_URL": "postgresql://pawl:secret@127.0.0.1/x"], "store-unavailable"),
            (["serve"], ["PAWL_STORE_URL": "postgresql://pawl@192.0.2.1/x"], "store-unavailable"),
            (["sidecar"], ["PAWL_STORE_URL": "postgresql://pawl@127.0.0.1/x"], "configuration-refused"),
        ] {
            let port = try FreePort()
            let output = try PawlProcess.run(
                words + ["--listen", "irc://127.0.0.1:\(port.number)", "--data", place.file("data")],
                environment: environment)
            #expect(!output.succeeded && output.stderr.contains(code), "\(words): \(output)")
            #expect(!(output.stdout + output.stderr).contains("secret"))
        }
        // `pawl config check` needs no server.
        for (url, isGood) in [("postgresql://pawl:secret@127.0.0.1/x", false), ("postgresql://pawl@127.0.0.1/x", true)]
        {
            let file = try place.write("pawl.yaml", "store: {url: \"\(url)\"}\n")
            let output = try PawlProcess.run(["config", "check", file])
            #expect(output.succeeded == isGood, "\(output)")
            #expect(!(output.stdout + output.stderr).contains("secret"))
        }
    }
}
