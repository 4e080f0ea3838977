import Foundation
import PeerKit
import TestThreads
import Testing

/// Notifications of a real Synapse, whose push rules cannot read what is sealed.
@Suite(.blocking, .serialized) struct MatrixMentionTests {
    /// A client that counts what a person has to look at.
    private final class Reader {
        /// Each sync continues the one before: Synapse keeps the answer to the same sync for minutes.
        private var position: String
        private let room: String
        private let client: WebClient

        init(_ person: Nio, in room: String, port: UInt16) throws {
            self.room = room
            let client = WebClient(port: port)
            client.headers = [("Authorization", "Bearer \(person.token)")]
            self.client = client
            position = ""
            _ = try sync()
        }

        private func sync() throws -> JSONValue {
            let since = position.isEmpty ? "" : "&since=\(position)"
            let answer = try client.request("GET", "/_matrix/client/v3/sync?timeout=20000\(since)")
            guard answer.status == 200, let next = answer.json["next_batch"].string else {
                throw PeerError("no sync: \(answer.status) \(answer.text)")
            }
            position = next
            return answer.json["rooms"]["join"][room]
        }

        /// The highlights after a message, which must be new.
        func highlights(after event: String) throws -> Int? {
            for _ in 0..<30 {
                let found = try sync()
                guard found["timeline"]["events"].array.contains(where: { $0["event_id"].string == event }) else {
                    continue
                }
                return found["unread_notifications"]["highlight_count"].integer
            }
            throw PeerError("no \(event) in many syncs")
        }

        func setKeyword(_ word: String) throws {
            let answer = try client.request(
                "PUT", "/_matrix/client/v3/pushrules/global/content/\(word)",
                ["pattern": .string(word), "actions": ["notify", ["set_tweak": "highlight"]]])
            guard answer.status == 200 else { throw PeerError("no rule: \(answer.status) \(answer.text)") }
        }
    }

    @Test func peopleAreNotifiedOfTheirMentionsAndOfNothingElse() throws {
        let lab = try MatrixLab(policy: "hosted")
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        let reader = try Reader(bob, in: room, port: lab.gateway.port)
        // These words stand in the fallback that clients without the gateway show.
        for word in ["message", "encrypted", "gateway"] { try reader.setKeyword(word) }
        #expect(try reader.highlights(after: alice.send("nothing here", to: room)) == 0)
        // Neither a name nor a keyword can be found in a sealed text.
        #expect(try reader.highlights(after: alice.send("bob, a message", to: room)) == 0)
        #expect(try reader.highlights(after: alice.send("hello \(bob.user)!", to: room)) == 1)
        let link = "<a href=\"https://matrix.to/#/%40bob%3A\(Synapse.serverName)\">Bob</a>"
        let linked = try alice.send("hello Bob", to: room, html: link)
        #expect(try reader.highlights(after: linked) == 2)
        #expect(try reader.highlights(after: alice.send("@room news", to: room)) == 3)
        #expect(try reader.highlights(after: alice.edit(linked, "hello \(bob.user)", in: room)) == 3)
        let stored = try lab.stored(room).map { $0["content"] }
        #expect(
            stored.map { $0["m.mentions"] } == [
                [:], [:], ["user_ids": [.string(bob.user)]], ["user_ids": [.string(bob.user)]], ["room": true], [:],
            ])
        #expect(stored.allSatisfy { $0["body"] == "\u{1F512}" && $0["encrypted"] == true }, "\(stored)")
    }
}
