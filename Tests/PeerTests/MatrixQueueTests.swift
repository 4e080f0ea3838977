import PeerKit
import TestKit
import TestThreads
import Testing

/// Messages of unmodified Matrix clients that the server does not answer in time, or at all.
@Suite(.blocking, .serialized) struct MatrixQueueTests {
    private static let sending = "/send/m.room.message/"

    /// A room whose members and accounts the gateway knows, because a message went through it.
    private struct Warm {
        let lab: MatrixLab
        let alice: Nio
        let bob: Nio
        let room: String

        init(environment: [String: String] = [:]) throws {
            lab = try MatrixLab(policy: "hosted", environment: environment)
            (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
            room = try lab.room([alice, bob])
            try alice.send("warm", to: room)
            try bob.expect("warm")
        }

        /// The server is gone.
        func stopBackend() {
            lab.synapse.stop()
            lab.tap.resetAll()
        }

        func stored() throws -> [JSONValue] { try Array(lab.stored(room).dropFirst()) }
    }

    /// The server has the event and nobody hears of it: it is asked again with the same transaction.
    @Test func answerIsLost() throws {
        let warm = try Warm()
        let (alice, lab) = (warm.alice, warm.lab)
        lab.tap.loseAnswers(2, to: Self.sending)
        let event = try alice.send("once", to: warm.room)
        #expect(lab.tap.answersToLose == 0)
        // The client's own patience is 20 seconds.
        #expect(alice.troubles.allSatisfy { $0.contains("TimeoutError") }, "\(alice.troubles)")
        #expect(try warm.stored().map { $0["event_id"] } == [.string(event)])
        #expect(try warm.bob.expect("once")["event_id"] == .string(event))
        // What comes after it comes after it.
        try alice.send("after", to: warm.room)
        #expect(try warm.bob.texts(warm.room) == ["warm", "once", "after"])
    }

    /// The client tries again what the gateway has under way already.
    @Test func sameTransactionTwice() throws {
        let warm = try Warm()
        warm.stopBackend()
        let first = try warm.alice.beginSending("once", to: warm.room, transaction: "same")
        let second = try warm.alice.beginSending("once", to: warm.room, transaction: "same")
        try warm.lab.synapse.start()
        let events = try [first, second].map { try warm.alice.finish($0, timeout: .seconds(600)).body["event_id"] }
        #expect(events[0].string != nil && events[0] == events[1])
        #expect(try warm.stored().map { $0["event_id"] } == [events[0]])
    }

    /// An edit and a redaction name the message by the transaction that it has as long as it has no other name.
    @Test func editAndRedactionWhileItWaits() throws {
        let warm = try Warm()
        let (alice, room) = (warm.alice, JSONValue.string(warm.room))
        warm.stopBackend()
        // Each of them when the one before it is in the queue: the library sends them over connections of their own.
        let verbs: [(String, JSONValue)] = [
            ("send", ["room": room, "text": "draft", "txn": "local1"]),
            ("edit", ["room": room, "text": "final", "event": "local1"]),
            ("send", ["room": room, "text": "mistake", "txn": "local2"]),
            ("redact", ["room": room, "event": "local2"]),
        ]
        var tickets: [Nio.Ticket] = []
        for (verb, arguments) in verbs {
            tickets.append(try alice.begin(verb, arguments))
            try eventually("\(tickets.count) wait") { try JSONLab.waiting(warm.lab.gateway) == tickets.count }
        }
        for ticket in tickets { #expect(try !alice.hasEnded(ticket)) }
        try warm.lab.synapse.start()
        let answers = try tickets.map { try alice.finish($0, timeout: .seconds(600)) }
        #expect(answers.allSatisfy { $0.succeeded }, "\(answers)")
        let stored = try warm.stored()
        #expect(stored.count == 3)
        #expect(stored[1]["content"]["m.relates_to"]["event_id"] == answers[0].body["event_id"])
        #expect(stored[2]["unsigned"]["redacted_because"] != .null)
        // No local name was ever said to the server but as a transaction.
        let request = String(decoding: warm.lab.tap.bytes(.fromClient), as: UTF8.self)
        #expect(!request.contains("/redact/local2") && !request.contains("\"event_id\":\"local1\""))
        #expect(try warm.bob.texts(warm.room) == ["warm", "draft", "* final", "-"])
    }

    /// With the credential under the storage key the write goes on by itself; in memory it waits for its sender.
    @Test(arguments: ["sealed", "memory"]) func gatewayIsKilledWhileItWaits(_ credentials: String) throws {
        let warm = try Warm(environment: ["PAWL_QUEUE_CREDENTIALS": credentials])
        let (alice, lab) = (warm.alice, warm.lab)
        warm.stopBackend()
        let ticket = try alice.beginSending("survives", to: warm.room, transaction: "t-kill")
        try eventually("it waits") { try JSONLab.waiting(lab.gateway) == 1 }
        #expect(JSONLab.shows(lab.gateway, "survives").isEmpty && JSONLab.shows(lab.gateway, alice.token).isEmpty)
        lab.gateway.crash()
        try lab.synapse.start()
        try lab.gateway.start()
        // The library tries again with the same transaction, as it does whenever it got no answer.
        let answer = try alice.finish(ticket, timeout: .seconds(600))
        #expect(answer.succeeded, "\(answer)")
        try warm.bob.expect("survives")
        #expect(try warm.stored().map { $0["event_id"] } == [answer.body["event_id"]])
        #expect(try warm.bob.texts(warm.room) == ["warm", "survives"])
    }
}
