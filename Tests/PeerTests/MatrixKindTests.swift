import Foundation
import PeerKit
import TestThreads
import Testing

/// Reactions, topics, names of rooms and polls, sealed in front of a real Synapse.
@Suite(.blocking, .serialized) struct MatrixKindTests {
    /// Words that stand nowhere else, and a reaction that is one.
    private enum Word {
        static let reaction = "Nachtkerzenduft"
        static let topic = "Wegwartenblau"
        static let name = "Eisenhutgarten"
        static let question = "Rittersporn"
        static let answer = "Fingerhutweg"
        static let note = "Akeleischatten"
        static let widget = "Goldlackturm"
        static let all = [reaction, topic, name, question, answer, note, widget]
    }

    private static let padlock = "\u{1F512}"
    private static let poll = "org.matrix.msc3381.poll"

    private static func client(_ person: Nio, port: UInt16) -> WebClient {
        let client = WebClient(port: port)
        client.headers = [("Authorization", "Bearer \(person.token)")]
        return client
    }

    private static func segment(_ id: String) -> String {
        id.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? id
    }

    private static func put(_ client: WebClient, _ room: String, _ path: String, _ content: JSONValue) throws -> String
    {
        let answer = try client.request("PUT", "/_matrix/client/v3/rooms/\(segment(room))/\(path)", content)
        guard answer.status == 200, let event = answer.json["event_id"].string else {
            throw PeerError("\(path): \(answer.status) \(answer.text)")
        }
        return event
    }

    /// All events of a room as a first synchronisation has them, by id.
    private static func events(_ client: WebClient, _ room: String) throws -> [String: JSONValue] {
        let answer = try client.request("GET", "/_matrix/client/v3/sync?full_state=true&timeout=0")
        let joined = answer.json["rooms"]["join"][room]
        let all = joined["timeline"]["events"].array + joined["state"]["events"].array
        return Dictionary(all.compactMap { event in event["event_id"].string.map { ($0, event) } }) { first, _ in first
        }
    }

    @Test func kindsAreSealedIfTheyAreToBe() throws {
        let kinds = ["REACTIONS", "TOPICS", "NAMES", "POLLS", "CUSTOM"].map { ("PAWL_KINDS_\($0)", "seal") }
        let lab = try MatrixLab(policy: "hosted", environment: Dictionary(uniqueKeysWithValues: kinds))
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let carol = try lab.person("carol", isOutside: true)
        let room = try lab.room([alice, bob, carol])
        let (writer, reader) = (
            Self.client(alice, port: lab.gateway.port), Self.client(bob, port: lab.gateway.port)
        )
        let outsider = Self.client(carol, port: lab.synapse.port)

        let message = try alice.send("hello", to: room)
        let reaction = try Self.put(
            writer, room, "send/m.reaction/1",
            [
                "m.relates_to": [
                    "rel_type": "m.annotation", "event_id": .string(message), "key": .string(Word.reaction),
                ]
            ])
        let name = try Self.put(writer, room, "state/m.room.name", ["name": .string(Word.name)])
        let topic = try Self.put(
            writer, room, "state/m.room.topic/",
            ["topic": .string(Word.topic), "m.topic": ["m.text": [["body": .string(Word.topic)]]]])
        let start = try Self.put(
            writer, room, "send/\(Self.poll).start/2",
            [
                "org.matrix.msc1767.text": .string(Word.question),
                "\(Self.poll).start": [
                    "question": ["org.matrix.msc1767.text": .string(Word.question)],
                    "answers": [["id": "1", "org.matrix.msc1767.text": .string(Word.answer)]],
                ],
            ])
        let vote = try Self.put(
            writer, room, "send/\(Self.poll).response/3",
            [
                "m.relates_to": ["rel_type": "m.reference", "event_id": .string(start)],
                "\(Self.poll).response": ["answers": [.string(Word.answer)]],
            ])

        let note = try Self.put(
            writer, room, "send/org.example.note/4",
            ["body": .string(Word.note), "org.example.pages": [["line": .string(Word.note)]], "number": 7])
        let widget = try Self.put(
            writer, room, "state/org.example.widget/one",
            ["url": .string("https://example.org/" + Word.widget), "data": [:]])
        _ = try Self.put(writer, room, "state/org.example.widget/gone", [:])

        for client in [reader, writer] {
            let seen = try Self.events(client, room)
            #expect(seen[reaction]?["content"]["m.relates_to"]["key"].string == Word.reaction)
            #expect(seen[name]?["content"]["name"].string == Word.name)
            #expect(seen[topic]?["content"]["topic"].string == Word.topic)
            #expect(seen[topic]?["content"]["m.topic"]["m.text"].array.first?["body"].string == Word.topic)
            let poll = seen[start]?["content"] ?? .null
            #expect(poll["org.matrix.msc1767.text"].string == Word.question, "\(poll)")
            #expect(poll["\(Self.poll).start"]["answers"].array.first?["org.matrix.msc1767.text"].string == Word.answer)
            #expect(poll["body"] == .null && poll["pawl.envelope"] == .null && poll["encrypted"] == .null)
            let answers = seen[vote]?["content"]["\(Self.poll).response"]["answers"].array
            #expect(answers?.first?.string == Word.answer)
            let noted = seen[note]?["content"] ?? .null
            #expect(noted["body"].string == Word.note && noted["number"] == 7, "\(noted)")
            #expect(noted["org.example.pages"].array.first?["line"].string == Word.note)
            #expect(noted["pawl.envelope"] == .null && noted["encrypted"] == .null)
            #expect(seen[widget]?["content"] == ["url": .string("https://example.org/" + Word.widget), "data": [:]])
        }
        let path = "/_matrix/client/v3/rooms/\(Self.segment(room))"
        #expect(try reader.request("GET", "\(path)/state/m.room.topic").json["topic"].string == Word.topic)
        let state = try reader.request("GET", "\(path)/state").text
        #expect(state.contains(Word.name) && state.contains(Word.widget))
        for (query, key) in [("", "one"), ("?format=event", "one")] {
            let one = try reader.request("GET", "\(path)/state/org.example.widget/\(key)\(query)").text
            #expect(one.contains(Word.widget) && !one.contains("pawl.envelope"), "\(one)")
        }
        #expect(try reader.request("GET", "\(path)/state/org.example.widget/gone").json == [:])
        let member = try reader.request("GET", "\(path)/state/m.room.member/\(Self.segment(carol.user))")
        #expect(member.json["membership"] == "join")
        #expect(try reader.request("GET", "\(path)/event/\(Self.segment(note))").text.contains(Word.note))
        #expect(try reader.request("GET", "\(path)/event/\(Self.segment(reaction))").text.contains(Word.reaction))
        let relations = try reader.request(
            "GET",
            "/_matrix/client/v1/rooms/\(Self.segment(room))/relations/\(Self.segment(message))/m.annotation")
        #expect(relations.text.contains(Word.reaction), "\(relations.text)")

        // Past the gateway there is a padlock, and the server has nothing else.
        let past = try Self.events(outsider, room)
        #expect(past[reaction]?["content"]["m.relates_to"]["key"].string == Self.padlock)
        #expect(past[name]?["content"]["name"].string == Self.padlock)
        #expect(past[topic]?["content"]["topic"].string == Self.padlock)
        #expect(past[note]?["content"]["body"].string == Self.padlock)
        for word in Word.all {
            #expect(lab.synapse.files(showing: word).isEmpty, "\(word)")
            #expect(!lab.tap.shows(word), "\(word)")
            #expect(JSONLab.shows(lab.gateway, word).isEmpty, "\(word)")
        }

        // A room that is not there yet has no one to seal for.
        let made = try writer.request("POST", "/_matrix/client/v3/createRoom", ["topic": .string(Word.topic)])
        #expect(made.status == 403 && made.text.contains("topic"), "\(made.text)")
        #expect(!lab.tap.shows(Word.topic))
        // What an outsider sets is not taken for protected.
        _ = try Self.put(
            outsider, room, "send/m.reaction/9",
            [
                "m.relates_to": ["rel_type": "m.annotation", "event_id": .string(message), "key": "canary"]
            ])
        _ = try Self.put(outsider, room, "send/org.example.note/8", ["line": "canary"])
        let marked = try Self.events(reader, room).values
        #expect(!marked.contains { $0["content"]["m.relates_to"]["key"] == "canary" })
        #expect(!marked.contains { $0["content"]["line"] == "canary" })
    }
}
