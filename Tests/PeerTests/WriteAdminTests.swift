import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// What an operator sees of writes to a JSON backend, and does to them.
@Suite(.blocking, .serialized) struct WriteAdminTests {
    private static let c = GenericLab.conversation
    private static let messages = "/conversations/\(c)/messages"

    /// A lab where a message went through, so that accounts and members are known.
    private func warm(
        _ credentials: String = "memory", environment: [String: String] = [:], metrics: String = ""
    ) throws -> GenericLab {
        let environment = environment.merging(["PAWL_QUEUE_CREDENTIALS": credentials]) { $1 }
        let lab = try GenericLab(policy: "hosted", environment: environment, metrics: metrics)
        try lab.alice.post("warm", in: Self.c, id: "warm")
        #expect(try lab.bob.texts(Self.c) == ["warm"])
        return lab
    }

    private func json(_ lab: GenericLab, _ words: [String]) throws -> JSONValue {
        let output = try lab.gateway.admin(words + ["--json"])
        guard output.succeeded else { throw PeerError("\(words): \(output.stderr)") }
        return try JSONValue(Array(output.stdout.utf8))
    }

    private func ids(_ lab: GenericLab, _ state: String) throws -> [String] {
        try json(lab, ["queue", "list", "--state", state]).array.compactMap { $0["id"].string }
    }

    private func message(_ number: Int) -> JSONValue {
        ["id": .string("own-\(number)"), "text": .string("text \(number)")]
    }

    /// Alice's messages of these numbers, all of which wait.
    private func begin(_ lab: GenericLab, _ numbers: ClosedRange<Int>) throws -> [PendingRequest] {
        var clients: [PendingRequest] = []
        for number in numbers {
            clients.append(try lab.begin("POST", Self.messages, message(number)))
            try eventually("\(clients.count) wait") { try JSONLab.waiting(lab.gateway) == clients.count }
        }
        return clients
    }

    /// The samples of `/metrics`, which have to add up.
    private func scrape(_ port: FreePort) throws -> [String: Int] {
        let page = try WebClient(port: port.number).request("GET", "/metrics").text
        var samples: [String: Int] = [:]
        for line in page.split(separator: "\n") where line.hasPrefix("pawl_") {
            let parts = line.split(separator: " ")
            samples[String(parts[0])] = Int(parts[1])
        }
        func sample(_ name: String) throws -> Int { try #require(samples[name], "\(name)") }
        #expect(
            try sample("pawl_requests_accepted_total")
                == sample("pawl_requests_finished_total{outcome=\"done\"}")
                + sample("pawl_requests_finished_total{outcome=\"dead\"}") + sample("pawl_requests_waiting"))
        #expect(!page.contains("alice") && !page.contains(Self.c))
        return samples
    }

    @Test func holdReleaseDropRetry() throws {
        let metrics = try FreePort()
        let lab = try warm(metrics: "127.0.0.1:\(metrics.number)")
        let gateway = lab.gateway
        let held = try gateway.admin(["queue", "hold", "--account", "alice"])
        #expect(held.succeeded && held.stdout.contains("pawl queue release --account alice"), "\(held)")
        let clients = try begin(lab, 1...3)
        let waiting = try ids(lab, "pending")
        #expect(try json(lab, ["queue", "list", "--state", "pending"]).array.allSatisfy { $0["held"] == true })
        let requests = try json(lab, ["status"])["requests"]
        #expect(
            requests["waiting"] == 3 && requests["held"] == 3 && requests["heldAccounts"] == ["alice"], "\(requests)")
        let samples = try scrape(metrics)
        #expect(samples["pawl_requests_held"] == 3 && samples["pawl_requests_waiting"] == 3)
        #expect(samples["pawl_accounts_behind"] == 2 && (samples["pawl_http_requests_total"] ?? 0) > 5)
        #expect(try lab.backend.messages().count == 1)
        let shown = try json(lab, ["queue", "show", waiting[0]])
        #expect(shown["held"] == true && shown["waitsFor"].string != nil, "\(shown)")
        #expect(shown["target"] == .string(Self.c))

        let asked = try gateway.admin(["queue", "drop", waiting[1]])
        #expect(asked.status == .exited(75) && asked.token != nil)
        #expect(try ids(lab, "pending") == waiting)
        #expect(try gateway.admin(["queue", "drop", waiting[1], "--yes"]).succeeded)
        let dropped = try clients[1].answer(to: "POST")
        #expect(dropped.status == 410 && dropped.text.contains("pawl_dropped"), "\(dropped.text)")

        #expect(try gateway.admin(["queue", "hold", waiting[2]]).succeeded)
        #expect(try gateway.admin(["queue", "release", "--account", "alice"]).succeeded)
        #expect(try clients[0].answer(to: "POST").status == 201)
        #expect(try ids(lab, "pending") == [waiting[2]])
        #expect(try gateway.admin(["queue", "release", waiting[2]]).succeeded)
        #expect(try clients[2].answer(to: "POST").status == 201)
        #expect(try lab.bob.texts(Self.c) == ["warm", "text 1", "text 3"])

        // Given up by the backend, and sent again.
        try lab.backend.set(.refuses(1, status: 400))
        #expect(try lab.alice.tryPosting("again", in: Self.c).status == 400)
        let dead = try #require(try ids(lab, "dead").last)
        #expect(try gateway.admin(["queue", "retry", dead]).succeeded)
        try eventually("it is done") { try ids(lab, "done").contains(dead) }
        #expect(try lab.bob.texts(Self.c).last == "again")
        let twice = try gateway.admin(["queue", "retry", dead])
        #expect(twice.status == .exited(1) && twice.failureCode == "request-not-dead", "\(twice)")
        let gone = try gateway.admin(["queue", "retry", waiting[1]])
        #expect(gone.status == .exited(1) && gone.failureCode == "request-cancelled", "\(gone)")
        let audit = try gateway.admin(["audit"]).stdout
        for action in ["queue.hold", "queue.drop", "queue.release", "queue.retry"] { #expect(audit.contains(action)) }
        #expect(try scrape(metrics)["pawl_requests_waiting"] == 0)
    }

    @Test func aHoldOutlivesTheProcess() throws {
        let lab = try warm("sealed")
        #expect(try lab.gateway.admin(["queue", "hold", "--account", "alice"]).succeeded)
        let client = try begin(lab, 1...1)[0]
        lab.gateway.crash()
        try lab.gateway.start()
        let waiting = try json(lab, ["queue", "list", "--state", "pending"]).array
        #expect(waiting.count == 1 && waiting.allSatisfy { $0["held"] == true })
        #expect(try lab.backend.messages().count == 1)
        #expect(try lab.gateway.admin(["queue", "release", "--account", "alice"]).succeeded)
        try eventually("it is sent") { try lab.backend.messages().count == 2 }
        client.hangUp()
    }

    @Test func aTraceHasAllTimesInOrder() throws {
        let lab = try warm()
        try lab.backend.set(.refuses(1, status: 503, retryAfter: 1))
        try lab.alice.post("traced", in: Self.c)
        let id = try #require(try ids(lab, "done").last)
        func life() throws -> [(event: String, at: String)] {
            try json(lab, ["trace", id])["events"].array.map { ($0["event"].string ?? "", $0["at"].string ?? "") }
        }
        #expect(try life().map(\.event) == ["sealed", "accepted", "sent", "failed", "sent", "answered", "done"])
        let failure = try #require(try json(lab, ["trace", id])["events"].array.first { $0["event"] == "failed" })
        #expect(failure["detail"].string?.contains("503") == true, "\(failure)")
        let shown = try json(lab, ["queue", "show", id])
        #expect(shown["failures"].array.count == 1, "\(shown)")
        let remote = try #require(try lab.backend.messages().last?["message_id"].string)
        #expect(shown["remoteID"] == .string(remote), "\(shown)")
        #expect(try json(lab, ["queue", "list", "--state", "done"]).array.last?["remoteID"] == .string(remote))
        #expect(try lab.gateway.admin(["trace", id]).stdout.contains("Not read yet"))
        // What its sender reads does not count.
        #expect(try lab.alice.texts(Self.c).last == "traced")
        #expect(try !life().contains { $0.event == "read" })
        #expect(try lab.bob.texts(Self.c).last == "traced")
        let events = try life()
        #expect(events.last?.event == "read" && events.map(\.at) == events.map(\.at).sorted(), "\(events)")
        lab.gateway.stop()
        try lab.gateway.start()
        let after = try lab.gateway.admin(["trace", id])
        #expect(after.succeeded && after.stdout.contains("no longer known"), "\(after)")
        #expect(after.stdout.contains("accepted") && !after.stdout.contains("sent"))
    }

    @Test func anExpiredCredentialIsReportedAtOnce() throws {
        let lab = try warm()
        try ChatPerson(lab.alice, port: lab.backend.port).ask("POST", "/logout")
        let refused = try lab.alice.tryPosting("later", in: Self.c, id: "own-1")
        #expect(refused.status == 401 && refused.text.contains("unauthorized"), "\(refused.text)")
        // The backend has refused it as it would have without a gateway: nothing waits that another login could send.
        #expect(try JSONLab.waiting(lab.gateway) == 0)
        // Said again under the same name after a login, it is one message.
        let again = try ChatPerson("alice", port: lab.gateway.port)
        #expect(try again.tryPosting("later", in: Self.c, id: "own-1").status == 201)
        #expect(try JSONLab.waiting(lab.gateway) == 0)
        #expect(try lab.bob.texts(Self.c) == ["warm", "later"])
        #expect(try lab.backend.messages().count == 2)
        // What has no name is given up, since nobody could ask for it again.
        try ChatPerson(again, port: lab.backend.port).ask("POST", "/logout")
        #expect(try again.client.request("POST", Self.messages, ["text": "unnamed"]).status == 401)
        try eventually("it is given up") { try JSONLab.waiting(lab.gateway) == 0 }
        _ = try ChatPerson("alice", port: lab.gateway.port).ask("GET", "/me")
        #expect(try lab.backend.messages().count == 2)
    }

    /// What was taken while the backend was away, and whose login has ended meanwhile.
    @Test func whatOutlivesItsCredentialWaitsForTheNextLogin() throws {
        let lab = try warm()
        try lab.backend.set(.refuses(1000, status: 503, retryAfter: 1))
        let waiting = try lab.begin("POST", Self.messages, ["id": "own-1", "text": "patient"])
        try lab.wait(for: 1)
        try ChatPerson(lab.alice, port: lab.backend.port).ask("POST", "/logout")
        try lab.backend.behave()
        #expect(try waiting.answer(to: "POST").status == 401)
        #expect(try JSONLab.waiting(lab.gateway) == 1)
        let status = try lab.gateway.admin(["status"]).stdout
        #expect(status.contains("1 write waits for the next login of alice"), "\(status)")
        _ = try ChatPerson("alice", port: lab.gateway.port).ask("GET", "/me")
        try eventually("it is sent") { try lab.backend.messages().count == 2 }
        #expect(try lab.bob.texts(Self.c) == ["warm", "patient"])
    }

    /// A proxy's error page is no word of the backend's: the write waits. The same status in the backend's form is final.
    @Test(arguments: [403, 404, 407, 502]) func aProxysPageKillsNothing(_ status: Int) throws {
        let lab = try warm()
        try lab.backend.set(.page(2, status: status))
        try lab.alice.post("patient", in: Self.c)
        #expect(try lab.backend.faultsToCome().refuses == 0)
        #expect(try lab.bob.texts(Self.c) == ["warm", "patient"])
        let text = try lab.gateway.admin(["status"]).stdout
        #expect(text.contains("2 unexpected answers since the start"), "\(text)")
        guard status < 500 else { return }
        try lab.backend.set(.refuses(1, status: status))
        #expect(try lab.alice.tryPosting("refused", in: Self.c).status == status)
        #expect(try ids(lab, "dead").count == 1)
    }

    /// With what is shipped: what waits while the process ends three times is sent, each once or more, and nothing is dead.
    @Test func threeEndsOfTheProcessKillNothing() throws {
        let lab = try warm("sealed")
        let conversations = (1...8).map { "k\($0)" }
        for conversation in conversations { try lab.alice.open(conversation, with: ["bob"]) }
        try lab.backend.set(.trouble("hang", in: conversations))
        var clients: [PendingRequest] = []
        for (number, conversation) in conversations.enumerated() {
            clients.append(try lab.begin("POST", "/conversations/\(conversation)/messages", message(number)))
            try lab.wait(for: number + 1)
        }
        for _ in 0..<2 {
            lab.gateway.crash()
            try lab.gateway.start()
            try eventually("one is under way") {
                try lab.gateway.admin(["queue", "list"]).stdout.contains("in flight")
            }
        }
        for client in clients { client.hangUp() }
        try lab.backend.behave()
        lab.gateway.crash()
        try lab.gateway.start()
        try eventually("all are sent") { try JSONLab.waiting(lab.gateway) == 0 }
        #expect(try ids(lab, "dead").isEmpty)
        #expect(try lab.backend.messages().count == 9)
    }

    @Test func deadWritesAreSentAgainOrRemovedTogether() throws {
        let lab = try warm()
        try lab.backend.set(.refuses(4, status: 400))
        for number in 1...4 { #expect(try lab.alice.tryPosting("text \(number)", in: Self.c).status == 400) }
        let dead = try ids(lab, "dead")
        #expect(dead.count == 4)
        let status = try lab.gateway.admin(["status"]).stdout
        #expect(status.contains("4 writes were given up and are kept"), "\(status)")
        // Kept over a restart, until somebody removes them.
        lab.gateway.stop()
        try lab.gateway.start()
        let asked = try lab.gateway.admin(["queue", "purge"])
        #expect(asked.status == .exited(75) && asked.token != nil, "\(asked)")
        #expect(try lab.gateway.admin(["queue", "purge", dead[0], "--yes"]).succeeded)
        #expect(try ids(lab, "dead") == Array(dead.dropFirst()))
        let again = try lab.gateway.admin(["queue", "retry", "--dead"])
        #expect(again.status == .exited(75), "\(again)")
        _ = try lab.alice.ask("GET", "/me")
        #expect(try json(lab, ["queue", "retry", "--dead", "--yes"]).array.first?["done"] == true)
        try eventually("they are sent") { try lab.backend.messages().count == 4 }
        #expect(try lab.bob.texts(Self.c) == ["warm", "text 2", "text 3", "text 4"])
        try lab.backend.set(.refuses(1, status: 400))
        _ = try lab.alice.tryPosting("never", in: Self.c)
        #expect(try json(lab, ["queue", "purge", "--yes"]).array.first?["text"] == "1 dead request removed.")
        #expect(try ids(lab, "dead").isEmpty)
        #expect(try !lab.gateway.admin(["status"]).stdout.contains("given up"))
        #expect(try lab.gateway.admin(["audit"]).stdout.contains("queue.purge"))
        #expect(!(try lab.gateway.admin(["queue", "retry"]).succeeded))
    }

    @Test func wrongWordsAreRefused() throws {
        let lab = try warm()
        for words in [
            ["queue", "show"], ["queue", "drop", "--yes"], ["queue", "hold"], ["queue", "release"], ["queue", "retry"],
            ["trace"],
        ] {
            for id in ["7", "0", "18446744073709551615"] {
                let refused = try lab.gateway.admin(words + [id])
                #expect(
                    refused.status == .exited(1) && refused.failureCode == "no-such-request", "\(words) \(refused)")
            }
        }
        let done = try #require(try ids(lab, "done").first)
        for words in [["queue", "drop", "--yes"], ["queue", "hold"], ["queue", "release"], ["queue", "retry"]] {
            let refused = try lab.gateway.admin(words + [done])
            let code = words.last == "retry" ? "request-not-dead" : "request-done"
            #expect(refused.status == .exited(1) && refused.failureCode == code, "\(words) \(refused)")
        }
        #expect(try lab.gateway.admin(["queue", "release", "--account", "nobody"]).status == .exited(1))
        #expect(try lab.gateway.admin(["audit"]).stdout.contains("queue.") == false)
        let running = try lab.gateway.admin(["queue", "repair"])
        #expect(running.status == .exited(1) && running.failureCode == "no-queue-file", "\(running)")
    }

    @Test func doubtsAreReported() throws {
        let lab = try warm()
        try lab.backend.set(.loses(1))
        try lab.alice.post("once", in: Self.c)
        let status = try lab.gateway.admin(["status"]).stdout
        #expect(status.contains("1 message may be stored twice"), "\(status)")
        let id = try #require(try ids(lab, "done").last)
        #expect(try json(lab, ["queue", "show", id])["doubts"] == 1)
    }

    @Test func conversationsOutsidersAndClients() throws {
        let lab = try warm()
        let rows = try json(lab, ["conversations", "list"]).array
        #expect(rows.map { $0["first"] } == [.string(Self.c)], "\(rows)")
        // Carol is past the gateway.
        _ = try ChatPerson("carol", port: lab.backend.port)
        try lab.alice.open("c2", with: ["carol"])
        #expect(try !(200..<300).contains(lab.alice.tryPosting("refused", in: "c2").status))
        try lab.alice.open("c3", with: ["bob", "carol"])
        // Outsiders are remembered for half a minute.
        try eventually("both are named") {
            _ = try lab.alice.tryPosting("refused", in: "c2")
            try lab.alice.post("weak", in: "c3")
            let status = try lab.gateway.admin(["status"]).stdout
            return status.contains("carol in c3") && status.contains("carol in c2")
        }
        #expect(try json(lab, ["status"])["blockers"].array.contains { $0["what"] == "outsider" && $0["name"] == "c2" })
        let simulated = try json(lab, ["policy", "simulate", "required"]).array.first
        #expect(simulated?["people"] == ["alice"], "\(String(describing: simulated))")
        #expect((simulated?["refusedMessages"].integer ?? 0) >= 3)
        #expect(try json(lab, ["clients"]).array.first?["people"] == 2)
        let asked = try lab.gateway.admin(["conversations", "reset", Self.c])
        #expect(asked.status == .exited(75), "\(asked)")
        let token = try #require(asked.token)
        #expect(try lab.gateway.admin(["conversations", "reset", Self.c, "--confirm", token]).succeeded)
        #expect(try json(lab, ["conversations", "list"]).array.map { $0["first"] } == ["c3"])
        #expect(try lab.gateway.admin(["policy", "set", "observe", "--room", Self.c]).succeeded)
        #expect(try lab.gateway.admin(["policy", "set", "default", "--room", Self.c]).succeeded)
    }

    @Test func aDrainedGatewayAnswersWhoWaits() throws {
        let lab = try warm("sealed")
        try lab.backend.set(.away)
        let client = try begin(lab, 1...1)[0]
        let drained = try lab.gateway.admin(["drain"])
        #expect(drained.succeeded && drained.stdout.contains("1 writes wait"), "\(drained)")
        // Nobody new, and whoever waits gets an answer.
        #expect(throws: PeerError.self) { try ChatPerson("alice", port: lab.gateway.port) }
        try lab.backend.behave()
        #expect(try client.answer(to: "POST").status == 201)
        for client in [client.client, lab.alice.client, lab.bob.client] { client.hangUp() }
        try eventually("it stops") { !lab.gateway.isRunning }
        lab.gateway.stop()
        try lab.gateway.start()
        #expect(try lab.bob.texts(Self.c) == ["warm", "text 1"])
    }

    @Test func whatWaitsSurvivesAStop() throws {
        let lab = try warm("sealed")
        try lab.backend.set(.away)
        let client = try begin(lab, 1...1)[0]
        #expect(lab.gateway.stop() == .exited(0))
        let answer = try client.client.answer(to: "POST")
        #expect(answer.status == 504 && answer.text.contains("pawl_still_waiting"), "\(answer.text)")
        try lab.backend.behave()
        try lab.gateway.start()
        try eventually("it is sent") { try lab.backend.messages().count == 2 }
        #expect(try !lab.gateway.admin(["status"]).stdout.contains("stored twice"))
    }
}
