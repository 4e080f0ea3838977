import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// What an operator does to single requests, by the program's own commands.
@Suite(.blocking, .serialized) struct QueueTests {
    /// A gateway that people are connected to, and its metrics.
    private struct QueueLab {
        let lab: Lab
        let metrics: FreePort

        init(_ backend: Backend = .ngircd) throws {
            metrics = try FreePort()
            lab = try Lab(
                backend.start(), policy: "hosted", arguments: ["--metrics", "127.0.0.1:\(metrics.number)"])
        }

        func json(_ words: [String]) throws -> Any {
            let output = try lab.gateway.admin(words + ["--json"])
            guard output.succeeded else { throw PeerError("\(words): \(output.stderr)") }
            return try JSONSerialization.jsonObject(with: Data(output.stdout.utf8))
        }

        func rows(_ state: String) throws -> [[String: Any]] {
            try json(["queue", "list", "--state", state]) as? [[String: Any]] ?? []
        }

        func ids(_ state: String) throws -> [String] { try rows(state).compactMap { $0["id"] as? String } }

        /// The samples of `/metrics` by name and labels.
        func scrape() throws -> [String: Int] {
            let client = try IRCClient(port: metrics.number)
            client.send("GET /metrics HTTP/1.1")
            client.send("Host: 127.0.0.1")
            client.send("")
            try client.expectEnd()
            var samples: [String: Int] = [:]
            for line in client.transcript.map(\.text) where line.hasPrefix("pawl_") {
                let parts = line.split(separator: " ")
                samples[String(parts[0])] = parts.count == 2 ? Int(parts[1]) : nil
            }
            return samples
        }

        /// Whether what the gateway counts adds up, and how much waits.
        func waiting() throws -> Int {
            let samples = try scrape()
            func sample(_ name: String) throws -> Int { try #require(samples[name], "\(name)") }
            let waiting = try sample("pawl_requests_waiting")
            #expect(
                try sample("pawl_requests_accepted_total")
                    == sample("pawl_requests_finished_total{outcome=\"done\"}")
                    + sample("pawl_requests_finished_total{outcome=\"dead\"}") + waiting)
            #expect(try sample("pawl_requests_held") <= waiting)
            #expect(try sample("pawl_requests_oldest_seconds") >= 0)
            return waiting
        }
    }

    @Test(arguments: Backend.allCases) func holdReleaseDropRetry(_ backend: Backend) throws {
        let queue = try QueueLab(backend)
        let (lab, gateway) = (queue.lab, queue.lab.gateway)
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        alice.send("PRIVMSG bob :zero")
        try bob.expectMessage("zero")
        try eventually("the first is done") { try queue.ids("done").count == 1 && queue.waiting() == 0 }

        // Held: nothing is sent.
        let held = try gateway.admin(["queue", "hold", "--account", "alice"])
        #expect(held.succeeded && held.stdout.contains("pawl queue release --account alice"), "\(held)")
        for text in ["one", "two", "three"] { alice.send("PRIVMSG bob :\(text)") }
        try eventually("they are accepted") { try queue.rows("pending").count == 3 }
        _ = try alice.synchronize()
        _ = try bob.synchronize()
        let ids = try queue.ids("pending")
        #expect(try queue.rows("pending").allSatisfy { $0["held"] as? Bool == true })
        #expect(try queue.waiting() == 3)
        #expect(try queue.scrape()["pawl_requests_held"] == 3)
        let sent = lab.tap.lines(.fromClient).count { $0.text.contains("?PAWL:") }
        #expect(sent == 1, "\(sent)")
        let report = try queue.json(["queue", "show", ids[0]]) as? [String: Any]
        #expect(report?["held"] as? Bool == true && report?["target"] as? String == "bob")
        #expect(report?["waitsFor"] is String)

        // Dropped: asked first, told, never sent.
        let asked = try gateway.admin(["queue", "drop", ids[1]])
        #expect(asked.status == .exited(75) && asked.token != nil)
        #expect(try queue.ids("pending") == ids)
        let dropped = try gateway.admin(["queue", "drop", ids[1], "--yes"])
        #expect(dropped.succeeded, "\(dropped)")
        #expect(try alice.expect("531").body.contains(Notices.dropped(target: "bob")))
        #expect(try queue.rows("dead").first?["reason"] as? String == Notices.droppedReason)

        // Released: in order.
        #expect(try gateway.admin(["queue", "release", "--account", "alice"]).succeeded)
        try bob.expectMessage("one")
        try bob.expectMessage("three")
        alice.send("PRIVMSG bob :four")
        try bob.expectMessage("four")
        #expect(!bob.transcript.contains { $0.body == "two" })
        try eventually("all are done") { try queue.ids("done").count == 4 && queue.waiting() == 0 }

        // Sent again all the same: the recipient's session has kept the key.
        let retried = try gateway.admin(["queue", "retry", ids[1]])
        #expect(retried.succeeded, "\(retried)")
        try bob.expectMessage("two")
        let twice = try gateway.admin(["queue", "retry", ids[1]])
        #expect(twice.status == .exited(1) && twice.failureCode == "request-not-dead", "\(twice)")
        let bodies = bob.transcript.filter { $0.command == "PRIVMSG" && $0.nick == "alice" }.map(\.body)
        #expect(bodies == ["zero", "one", "three", "four", "two"])
        let audit = try gateway.admin(["audit"]).stdout
        for action in ["queue.hold", "queue.drop", "queue.release", "queue.retry"] {
            #expect(audit.contains(action))
        }
        #expect(!lab.tap.shows("three"))
    }

    @Test func aTraceHasAllTimesInOrder() throws {
        let queue = try QueueLab()
        let (lab, gateway) = (queue.lab, queue.lab.gateway)
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        alice.send("PRIVMSG bob :hello")
        try bob.expectMessage("hello")
        try eventually("it is done") { try queue.ids("done").count == 1 }
        let id = try #require(try queue.ids("done").first)
        let report = try queue.json(["trace", id]) as? [String: Any]
        let events = report?["events"] as? [[String: Any]] ?? []
        let times = Dictionary(
            uniqueKeysWithValues: events.compactMap { event in
                (event["event"] as? String).flatMap { name in (event["at"] as? String).map { (name, $0) } }
            })
        // The backend's confirmation and the recipient's copy of the line come in either order.
        let life = ["accepted", "committed", "sent", "opened", "shown"].map { times[$0] ?? "missing: \($0)" }
        #expect(life == life.sorted() && !life.contains { $0.hasPrefix("missing") }, "\(life)")
        let end = ["sent", "acknowledged", "done"].map { times[$0] ?? "missing: \($0)" }
        #expect(end == end.sorted() && !end.contains { $0.hasPrefix("missing") }, "\(end)")
        let text = try gateway.admin(["trace", id]).stdout
        #expect(text.contains("alice to bob: done") && text.contains("acknowledged"))

        // After a restart there is what the store has, and the trace says so.
        gateway.stop()
        try gateway.start()
        let after = try gateway.admin(["trace", id])
        #expect(after.succeeded && after.stdout.contains("accepted") && after.stdout.contains("no longer known"))
        #expect(!after.stdout.contains("committed "))
    }

    @Test func wrongIdsAreRefusedInWords() throws {
        let queue = try QueueLab()
        let (lab, gateway) = (queue.lab, queue.lab.gateway)
        defer { lab.stop() }
        let other = try QueueLab()
        defer { other.lab.stop() }
        let (alice, bob) = (try other.lab.person("alice"), try other.lab.person("bob"))
        alice.send("PRIVMSG bob :elsewhere")
        try bob.expectMessage("elsewhere")
        try eventually("it is done") { try other.ids("done").count == 1 }
        let foreign = try #require(try other.ids("done").first)
        for id in ["7", foreign, "18446744073709551615"] {
            for words in [
                ["queue", "show"], ["queue", "drop", "--yes"], ["queue", "hold"], ["queue", "release"],
                ["queue", "retry"], ["trace"],
            ] {
                let refused = try gateway.admin(words + [id])
                #expect(
                    refused.status == .exited(1) && refused.failureCode == "no-such-request", "\(words) \(refused)")
            }
        }
        for words in [
            ["queue", "show", "x"], ["queue", "drop"], ["queue", "hold"], ["queue", "hold", "1", "--account", "a"],
            ["queue", "show", "-1"], ["queue", "show", "18446744073709551616"], ["trace", "1; DROP TABLE request"],
        ] { #expect(try gateway.admin(words).status == .exited(64), "\(words)") }
        // What is done stays as it is.
        for words in [
            ["queue", "drop", "--yes"], ["queue", "hold"], ["queue", "release"], ["queue", "retry"],
        ] {
            let refused = try other.lab.gateway.admin(words + [foreign])
            let code = words.last == "retry" ? "request-not-dead" : "request-done"
            #expect(refused.status == .exited(1) && refused.failureCode == code, "\(words) \(refused)")
        }
        #expect(try other.ids("done") == [foreign])
        #expect(try other.waiting() == 0)
        #expect(try gateway.admin(["queue", "release", "--account", "nobody"]).status == .exited(1))
        #expect(try gateway.admin(["audit"]).stdout.contains("queue.") == false)
        // Words of an answer are for the words that they were given for.
        let held = try other.lab.gateway.admin(["queue", "hold", "--account", "alice"])
        #expect(held.succeeded)
        for text in ["a", "b"] { alice.send("PRIVMSG bob :\(text)") }
        try eventually("both wait") { try other.ids("pending").count == 2 }
        let ids = try other.ids("pending")
        let asked = try other.lab.gateway.admin(["queue", "drop", ids[0]])
        let token = try #require(asked.token)
        #expect(try other.lab.gateway.admin(["queue", "drop", ids[1], "--confirm", token]).status == .exited(75))
        #expect(try other.ids("pending") == ids)
    }
}
