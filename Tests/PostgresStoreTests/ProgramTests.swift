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
