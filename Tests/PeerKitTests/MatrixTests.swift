import PeerKit
import TestThreads
import Testing

/// Synapse and matrix-nio without anything between them.
@Suite(.blocking) struct MatrixTests {
    /// Each hears the other at once, and finds it again in the history, edits and redactions too.
    @Test func conversation() throws {
        let synapse = try Synapse()
        for user in ["alice", "bob"] { try synapse.register(user) }
        let alice = try Nio("alice", port: synapse.port)
        let bob = try Nio("bob", port: synapse.port)
        let room = try alice.create(inviting: ["bob"])
        try bob.follow()
        #expect(try bob.expectInvitation() == room)
        try bob.join(room)
        let word = "Fingerhutkraut"
        #expect(synapse.files(showing: word).isEmpty)
        let first = try alice.send("\(word) blooms", to: room, html: "<b>\(word)</b> blooms", transaction: "t1")
        let received = try bob.expect("\(word) blooms")
        #expect(received["event_id"] == .string(first) && received["content"]["formatted_body"].string != nil)
        #expect(synapse.files(showing: word).contains { $0.hasPrefix("homeserver.db") })
        // The same transaction is the same event.
        #expect(try alice.send("something else", to: room, transaction: "t1") == first)
        let second = try bob.send("so it does", to: room)
        try alice.edit(first, "\(word) withers", in: room)
        let edit = try bob.expect("* \(word) withers")
        #expect(edit["content"]["m.new_content"]["body"] == .string("\(word) withers"))
        try alice.redact(second, in: room)  // as who made the room
        try bob.expect("redaction") { $0["type"] == "m.room.redaction" && $0["redacts"] == .string(second) }
        #expect(try alice.texts(room) == ["\(word) blooms", "-", "* \(word) withers"])
        #expect(try alice.history(room, page: 2).map { $0["event_id"] } == alice.history(room).map { $0["event_id"] })
        #expect(Nio.texts(room, in: try alice.sync()) == ["\(word) blooms", "-", "* \(word) withers"])
        #expect(
            try alice.done("event", ["room": .string(room), "event": .string(first)])["sender"] == "@alice:pawl.test")
        #expect(try synapse.events(of: room, as: alice.token).count == 3)
        let stranger = try Nio(port: synapse.port)
        let refused = try stranger.ask("login", ["user": "alice", "password": "wrong"])
        #expect(refused.status == 403 && refused.made == "LoginError" && refused.body["errcode"] == "M_FORBIDDEN")
    }

    /// What the library would do in silence is told: that nobody answers, and that it tries again.
    @Test func troubles() throws {
        let synapse = try Synapse()
        let tap = try WireTap(backend: synapse.port)
        defer { tap.stop() }
        let token = try synapse.register("alice")
        let alice = try Nio("alice", port: tap.port)
        let room = try alice.create()
        // Answers are lost after their effect, and the same transaction is sent again: once by the HTTP library beneath, which says
        // nothing of it, on a connection that it had used before; then by matrix-nio.
        tap.loseAnswers(2, to: "PUT /_matrix/client/v3/rooms")
        let sent = try alice.send("once", to: room)
        #expect(alice.troubles.count == 1)
        #expect(try synapse.events(of: room, as: token).map { $0["event_id"] } == [.string(sent)])
        // Nobody is there, and then somebody is.
        synapse.stop()
        tap.resetAll()
        let ticket = try alice.beginSending("later", to: room)
        try alice.expectTrouble()
        #expect(try !alice.hasEnded(ticket))
        try synapse.start()
        #expect(try alice.finish(ticket).succeeded)
        #expect(try alice.texts(room) == ["once", "later"])
        // It gives up when it is told to.
        try alice.done("patience", ["retries": 0])
        synapse.kill()
        #expect { try alice.send("never", to: room) } throws: { "\($0)".contains("gave up") }
    }
}
