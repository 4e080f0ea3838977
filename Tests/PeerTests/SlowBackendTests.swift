import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// A backend that does not answer in some conversations, or is slow, over real sockets and with the limits that are shipped: its
/// other conversations go on.
@Suite(.blocking, .serialized) struct SlowBackendTests {
    /// Eve, and ten people who have nothing to do with her. Each has conversations with bob.
    private final class Town {
        let lab: GenericLab
        let eve: ChatPerson
        let people: [ChatPerson]

        init(people count: Int = 10, conversations: Int = 1, ofEve: Int = 12) throws {
            lab = try GenericLab(policy: "hosted")
            eve = try ChatPerson("eve", port: lab.gateway.port)
            people = try (0..<count).map { [lab] in try ChatPerson("p\($0)", port: lab.gateway.port) }
            for number in 0..<ofEve { try eve.open("eve-\(number)", with: ["bob"]) }
            for person in people {
                for number in 0..<conversations { try person.open("\(person.name)-\(number)", with: ["bob"]) }
            }
        }

        /// A message whose answer is waited for later.
        func begin(_ person: ChatPerson, in conversation: String, _ text: String) throws -> PendingRequest {
            try person.begin("POST", Self.target(conversation), Self.body(of: person, text))
        }

        /// The same on a connection that there is.
        func send(_ text: String, of person: ChatPerson, in conversation: String, on client: WebClient) throws {
            try person.send("POST", Self.target(conversation), Self.body(of: person, text), on: client)
        }

        private static func target(_ conversation: String) -> String { "/conversations/\(conversation)/messages" }

        private static func body(of person: ChatPerson, _ text: String) -> JSONValue {
            ["id": .string(person.nextID()), "text": .string(text)]
        }

        /// How often the backend was sent a message, by conversation.
        func sent() throws -> [String: Int] {
            var counts: [String: Int] = [:]
            for item in try lab.backend.received() where item["method"] == "POST" {
                let path = (item["target"].string ?? "").split(separator: "/")
                if path.count == 3, path[2] == "messages" { counts[String(path[1]), default: 0] += 1 }
            }
            return counts
        }

        /// How many messages the backend has, by conversation.
        func stored() throws -> [String: Int] {
            try lab.backend.messages().reduce(into: [:]) { $0[$1["conversation"].string ?? "", default: 0] += 1 }
        }

        func waiting() throws -> [JSONValue] {
            let output = try lab.gateway.admin(["queue", "list", "--state", "pending", "--json"])
            guard output.succeeded else { throw PeerError("no list: \(output.stderr)") }
            return try JSONValue(Array(output.stdout.utf8)).array
        }
    }

    private static let evens = (0..<12).map { "eve-\($0)" }

    @Test(arguments: ["hang", "stall", "drip"])
    func messagesArriveBesideConversationsWithoutAnAnswer(_ trouble: String) throws {
        let town = try Town()
        try town.lab.backend.set(.trouble(trouble, in: Self.evens))
        let begun = ContinuousClock.now
        let hanging = try Self.evens.map { try town.begin(town.eve, in: $0, "hangs") }
        defer { withExtendedLifetime(hanging) {} }
        try eventually("the backend has been sent them") {
            try town.sent().filter { $0.key.hasPrefix("eve-") }.count == 12
        }
        let clients = town.people.map { _ in WebClient(port: town.lab.gateway.port) }
        for round in 1...10 {
            for (person, client) in zip(town.people, clients) {
                try town.send("\(round)", of: person, in: "\(person.name)-0", on: client)
            }
            for client in clients { #expect(try client.answer(to: "POST").status == 201) }
        }
        // Hers still have no answer, and none was given up and asked again. An attempt has a minute: later it is, rightly.
        let waiting = try town.waiting()
        let sent = try town.sent()
        #expect(waiting.count == 12 && waiting.allSatisfy { $0["account"] == "eve" })
        if ContinuousClock.now - begun < .seconds(60) {
            #expect(waiting.allSatisfy { $0["state"] == "in flight" } && Self.evens.allSatisfy { sent[$0] == 1 })
        }
        let stored = try town.stored()
        #expect(town.people.allSatisfy { stored["\($0.name)-0"] == 10 })
        for person in town.people {
            #expect(try town.lab.bob.texts("\(person.name)-0") == (1...10).map { "\($0)" })
        }
    }

    /// As many at a time as the queue's own limit allows, which is 64 to a host.
    @Test func asManyAtATimeAsTheQueueAllows() throws {
        let town = try Town(people: 20, conversations: 3, ofEve: 0)
        let all = town.people.flatMap { person in (0..<3).map { (person, "\(person.name)-\($0)") } }
        try town.lab.backend.set(.trouble("hang", in: all.map(\.1)))
        let begun = ContinuousClock.now
        let hanging = try all.map { try town.begin($0.0, in: $0.1, "hangs") }
        defer { withExtendedLifetime(hanging) {} }
        try eventually("all are under way") { try town.sent().count == 60 }
        // Others find room beside them.
        try town.eve.open("free", with: ["bob"])
        try town.eve.post("goes", in: "free")
        let sent = try town.sent()
        if ContinuousClock.now - begun < .seconds(60) { #expect(sent.values.allSatisfy { $0 == 1 }) }
    }

    /// A backend that takes longer than a connection may take to be set up is slow, and nothing is wrong with it.
    @Test func slowAnswersAreWaitedFor() throws {
        let town = try Town(people: 2, conversations: 12, ofEve: 0)
        let all = town.people.flatMap { person in (0..<12).map { (person, "\(person.name)-\($0)") } }
        try town.lab.backend.set(.trouble("slow", in: all.map(\.1)))
        let clients = try all.map { try town.begin($0.0, in: $0.1, "slow") }
        for client in clients { #expect(try client.answer(to: "POST").status == 201) }
        let sent = try town.sent()
        #expect(sent.count == 24 && sent.values.allSatisfy { $0 == 1 })
    }

    /// With the time that is shipped, which is a minute: nothing holds a conversation up for ever.
    @Test func whatHasNoWholeAnswerIsSentAgain() throws {
        let town = try Town(people: 0, ofEve: 4)
        var faults = ChatBackendProcess.Faults()
        faults.trouble = ["eve-0": "hang", "eve-1": "stall", "eve-2": "drip", "eve-3": "half"]
        try town.lab.backend.set(faults)
        let clients = try (0..<4).map { try town.begin(town.eve, in: "eve-\($0)", "text \($0)") }
        defer { withExtendedLifetime(clients) {} }
        try eventually("each is sent") { try town.sent().count == 4 }
        // What is sent from now on is answered.
        try town.lab.backend.behave()
        try eventually("all are done", timeout: .seconds(240), every: .milliseconds(200)) {
            try town.waiting().isEmpty
        }
        #expect(try town.sent().values.allSatisfy { $0 >= 2 })
        #expect(try town.stored() == ["eve-0": 1, "eve-1": 1, "eve-2": 1, "eve-3": 1])
        for number in 0..<4 { #expect(try town.lab.bob.texts("eve-\(number)") == ["text \(number)"]) }
    }

    @Test func whatHangsCanBeDropped() throws {
        let town = try Town(people: 0, ofEve: 1)
        try town.lab.backend.set(.trouble("hang", in: ["eve-0"]))
        let first = try town.begin(town.eve, in: "eve-0", "hangs")
        try eventually("the backend has been sent it") { try town.sent()["eve-0"] == 1 }
        let second = try town.begin(town.eve, in: "eve-0", "waits")
        try town.lab.wait(for: 2)
        let id = try #require(try town.waiting().first?["id"].string)
        let held = try town.lab.gateway.admin(["queue", "hold", id])
        #expect(!held.succeeded && held.failureCode == "request-in-flight", "\(held)")
        let dropped = try town.lab.gateway.admin(["queue", "drop", id, "--yes"])
        #expect(dropped.succeeded && dropped.stdout.contains("the backend may have done it"), "\(dropped)")
        try town.lab.backend.behave()
        #expect(try first.answer(to: "POST").status == 410)
        #expect(try second.answer(to: "POST").status == 201)
        #expect(try town.lab.bob.texts("eve-0") == ["waits"])
    }

    @Test func aTraceShowsWhyAttemptsFailed() throws {
        let town = try Town(people: 0, ofEve: 1)
        try town.lab.backend.set(.trouble("half", in: ["eve-0"]))
        let client = try town.begin(town.eve, in: "eve-0", "text")
        try eventually("it is sent again") { (try town.sent()["eve-0"] ?? 0) >= 2 }
        let id = try #require(try town.waiting().first?["id"].string)
        let trace = try town.lab.gateway.admin(["trace", id, "--json"])
        let failure = trace.json["events"].array.first { $0["event"] == "failed" }
        #expect(
            failure?["detail"].string?.isEmpty == false, "\(trace)")
        try town.lab.backend.behave()
        #expect(try client.answer(to: "POST").status == 201)
    }

    /// Whoever repeats a message at once is told one id for it, with which it can be edited.
    @Test func equalMessagesAtOnceHaveOneLocalID() throws {
        let directory = try ScratchDirectory()
        let lab = try GenericLab(policy: "hosted", mapping: GenericAtOnceTests.mapping(in: directory))
        try lab.alice.post("warm", in: GenericLab.conversation)
        try lab.wait(for: 0)
        try lab.backend.set(.trouble("hang", in: [GenericLab.conversation]))
        let messages = "/conversations/\(GenericLab.conversation)/messages"
        let clients = try (0..<40).map { _ in try lab.begin("POST", messages, ["id": "own", "text": "once"]) }
        let ids = try clients.map { try $0.answer(to: "POST").json["message_id"].string }
        #expect(Set(ids).count == 1 && ids[0]?.hasPrefix("pawl-") == true, "\(Set(ids))")
        #expect(try JSONLab.waiting(lab.gateway) == 1)
    }
}
