import Foundation
import PeerKit
import TestThreads
import Testing

/// Two unmodified Matrix clients behind the gateway, in front of a real Synapse, under each policy.
@Suite(.blocking, .serialized) struct MatrixPolicyTests {
    /// Words that stand nowhere else.
    private enum Word {
        static let first = "Wiesenknopfauge"
        static let markup = "Kornblumenrand"
        static let edited = "Ackerrittersporn"
        static let removed = "Lungenkrautblatt"
        static let reply = "Frauenspiegelchen"
        static let all = [first, markup, edited, removed, reply]
    }

    /// What alice and bob say, and what both of them hear: the same under every policy that lets them.
    private func converse(_ lab: MatrixLab) throws {
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        let first = try alice.send(Word.first, to: room, html: "<b>\(Word.markup)</b>")
        let received = try bob.expect(Word.first)
        #expect(received["event_id"] == .string(first) && received["sender"] == .string(alice.user))
        #expect(received["content"]["formatted_body"] == .string("<b>\(Word.markup)</b>"))
        #expect(received["content"]["encrypted"] == .null)
        // Her own client hears it as well.
        try alice.expect(Word.first)

        let reply = try bob.send(Word.reply, to: room)
        try alice.expect(Word.reply)
        try alice.edit(first, Word.edited, in: room)
        let edit = try bob.expect("* \(Word.edited)")
        #expect(edit["content"]["m.new_content"]["body"] == .string(Word.edited))
        #expect(edit["content"]["m.relates_to"]["event_id"] == .string(first))
        let removed = try bob.send(Word.removed, to: room)
        try alice.expect(Word.removed)
        try bob.redact(removed, in: room)
        try alice.expect("redaction") { $0["type"] == "m.room.redaction" && $0["redacts"] == .string(removed) }

        // Backwards, page by page, again and again, and with a login that was never there.
        let texts = [Word.first, Word.reply, "* \(Word.edited)", "-"]
        for _ in 0..<3 {
            #expect(try bob.texts(room) == texts)
            #expect(try alice.history(room, page: 1).reversed().map(Nio.text) == texts)
        }
        let again = try lab.person("bob")
        #expect(try again.texts(room) == texts)
        #expect(Nio.texts(room, in: try again.sync()) == texts)
        let arguments: JSONValue = ["room": .string(room), "event": .string(reply)]
        #expect(Nio.text(try again.done("event", arguments)) == Word.reply)
        let around = try again.done("context", arguments)
        #expect(Nio.text(around["event"]) == Word.reply)
        #expect(around["events_before"].array.map(Nio.text).contains(Word.first))
        // The server puts the edit into the event that it belongs to.
        let original = try again.done("event", ["room": .string(room), "event": .string(first)])
        let aggregated = original["unsigned"]["m.relations"]["m.replace"]
        #expect(aggregated == .null || aggregated["content"]["m.new_content"]["body"] == .string(Word.edited))
        #expect(try lab.stored(room).count == 4)
    }

    @Test(arguments: LegacyOutcome.plain) func plainPolicies(_ outcome: LegacyOutcome) throws {
        let lab = try MatrixLab(policy: outcome.policy)
        try converse(lab)
        for word in Word.all {
            #expect(lab.synapse.files(showing: word).contains { $0.hasPrefix("homeserver.db") }, "\(word)")
            // What passes as it is is never stored here.
            #expect(JSONLab.shows(lab.gateway, word).isEmpty, "\(word)")
        }
    }

    @Test func hosted() throws {
        let lab = try MatrixLab(policy: LegacyOutcome.hosted.policy)
        try converse(lab)
        for word in Word.all {
            #expect(lab.synapse.files(showing: word).isEmpty, "\(word)")
            #expect(!lab.tap.shows(word), "\(word)")
            #expect(JSONLab.shows(lab.gateway, word).isEmpty, "\(word)")
        }
        for token in lab.tokens.values { #expect(JSONLab.shows(lab.gateway, token).isEmpty) }
    }

    @Test func required() throws {
        let lab = try MatrixLab(policy: LegacyOutcome.required.policy)
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        let refused = try alice.ask("send", ["room": .string(room), "text": .string(Word.first)])
        #expect(refused.status == 403 && refused.made == "RoomSendError", "\(refused)")
        // In words that its person can do something with.
        #expect((refused.body["error"].string ?? "").contains(" "), "\(refused)")
        #expect(try lab.stored(room).isEmpty)
        #expect(!lab.tap.shows(Word.first))
        // What is no text goes on.
        #expect(try alice.ask("typing", ["room": .string(room)]).succeeded)
        #expect(try bob.ask("members", ["room": .string(room)]).body["joined"].object.count == 2)
    }

    /// Who reads past the gateway sees words that say what this is, and nothing of what was written.
    @Test func pastTheGateway() throws {
        let lab = try MatrixLab(policy: "hosted")
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let carol = try lab.person("carol", isOutside: true)
        let room = try lab.room([alice, bob, carol])
        let event = try alice.send(Word.first, to: room, html: "<b>\(Word.markup)</b>")
        try bob.expect(Word.first)
        let seen = try carol.expect("the envelope") { $0["event_id"] == .string(event) }
        #expect(!seen.description.contains(Word.first) && !seen.description.contains(Word.markup))
        #expect(seen["content"]["encrypted"] == true && Nio.text(seen) == "\u{1F512}", "\(seen)")
        #expect(seen["content"]["formatted_body"].string?.contains("encrypted") == true, "\(seen)")
        #expect(JSONLab.isBase64(seen["content"]["pawl.envelope"]), "\(seen)")
        // What she says is read behind the gateway, marked or withheld, never taken for protected.
        try carol.send(Word.reply, to: room)
        let received = try bob.expect("carol's words") {
            $0["sender"] == .string(carol.user) && $0["type"] == "m.room.message"
        }
        #expect(Nio.text(received) != Word.reply)
    }

    @Test(arguments: ["observe", "hosted"]) func media(_ policy: String) throws {
        let lab = try MatrixLab(policy: policy)
        let alice = try lab.person("alice")
        let answer = try alice.ask("upload", ["data": .string(Word.first), "name": "a.txt"])
        #expect(answer.status == 200, "\(answer)")
        // A sealed file shows nothing.
        #expect(lab.synapse.files(showing: Word.first).isEmpty == (policy == "hosted"))
    }
}
