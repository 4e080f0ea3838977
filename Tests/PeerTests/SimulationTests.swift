import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// What `pawl policy simulate` says before a policy is set, against what the policy refuses then.
@Suite(.blocking, .serialized) struct SimulationTests {
    // MARK: Matrix

    /// One request of somebody's. `{…}` in target and body is filled from what earlier answers have named.
    private struct Step {
        var person: String
        var method: String
        var target: String
        var body: String?

        init(_ person: String, _ line: String, _ body: String? = nil) {
            let words = line.split(separator: " ").map(String.init)
            (self.person, method, target, self.body) = (person, words[0], words[1], body)
        }
    }

    /// What was refused in a run, by person and by method.
    private struct Refusals: Equatable {
        var people: [String: Int] = [:]
        var methods: [String: Int] = [:]

        mutating func add(_ person: String, _ method: String, _ count: Int = 1) {
            people[person, default: 0] += count
            methods["\(person) \(method)", default: 0] += count
        }
    }

    private static let nobody = "(not logged in)"

    /// What clients do in an afternoon, most of which has nothing to do with texts.
    private static let programme: [Step] = {
        let (client, media) = ("/_matrix/client/v3", "/_matrix/media/v3")
        var steps = [
            "GET /_matrix/client/versions", "GET \(client)/login", "GET /.well-known/matrix/client",
            "POST \(media)/upload", "GET \(client)/nonsense", "POST \(client)/sync",
        ].map { Step(nobody, $0) }
        for (person, other) in [("alice", "bob"), ("bob", "alice")] {
            let user = "%40\(person)%3Apawl.test"
            func add(_ line: String, _ body: String? = nil) { steps.append(Step(person, line, body)) }
            for path in [
                "account/whoami", "capabilities", "pushrules/", "joined_rooms", "devices", "notifications",
                "voip/turnServer", "publicRooms", "profile/\(user)", "presence/\(user)/status", "sync?timeout=0",
            ] {
                add("GET \(client)/\(path)")
            }
            add("PUT \(client)/profile/\(user)/displayname", #"{"displayname":"\#(person)"}"#)
            add("PUT \(client)/presence/\(user)/status", #"{"presence":"online"}"#)
            add("POST \(client)/user/\(user)/filter", "{}")
            add("POST \(client)/keys/query", #"{"device_keys":{}}"#)
            add("PUT \(client)/user/\(user)/account_data/org.example.app", "{}")
            add("POST \(client)/user_directory/search", #"{"search_term":"\#(other)"}"#)
            add("POST \(client)/search", #"{"search_categories":{"room_events":{"search_term":"text"}}}"#)
            for number in 1...9 {
                add(
                    "PUT \(client)/rooms/{room}/send/m.room.message/\(person)-{round}-\(number)",
                    #"{"msgtype":"m.text","body":"text \#(number)"}"#)
            }
            add("PUT \(client)/rooms/{room}/typing/\(user)", #"{"typing":false}"#)
            add(
                "PUT \(client)/rooms/{room}/send/m.reaction/\(person)-{round}-r",
                #"{"m.relates_to":{"rel_type":"m.annotation","event_id":"{event}","key":"+{round}"}}"#)
            for type in ["m.sticker", "m.poll.start", "m.beacon", "org.example.custom", "im.vector.modular.widgets"] {
                add(
                    "PUT \(client)/rooms/{room}/send/\(type)/\(person)-{round}-\(type)",
                    #"{"body":"x","url":"mxc://a/b"}"#)
            }
            add("PUT \(client)/rooms/{room}/send/m.room.encrypted/\(person)-{round}-e", #"{"ciphertext":"x"}"#)
            add("PUT \(client)/rooms/{room}/state/m.room.topic", #"{"topic":"t {round}"}"#)
            add("PUT \(client)/rooms/{room}/state/io.element.functional_members/", #"{"service_members":[]}"#)
            for path in ["state", "members", "joined_members", "messages?dir=b", "context/{event}", "event/{event}"] {
                add("GET \(client)/rooms/{room}/\(path)")
            }
            add("GET /_matrix/client/v1/rooms/{room}/relations/{event}")
            add("GET /_matrix/client/v1/rooms/{room}/threads")
            add("POST \(client)/rooms/{room}/receipt/m.read/{event}", "{}")
            add("POST \(client)/rooms/{room}/read_markers", #"{"m.fully_read":"{event}"}"#)
            for number in 1...3 { add("POST \(media)/upload?filename=\(number)", "bytes") }
            add("GET \(media)/config")
            add("GET /_matrix/client/v1/media/download/pawl.test/nothing")
            add("GET \(media)/thumbnail/pawl.test/nothing?width=32&height=32")
            add("GET /_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device")
            add("GET /_matrix/client/unstable/org.matrix.msc4143/rtc/transports")
            add("POST /_matrix/client/unstable/org.example.msc9999/sync", "{}")
            add("GET /_synapse/admin/v1/server_version")
            add("GET \(client)/nonsense")
            for number in 1...4 { add("GET \(client)/sync?timeout=0&filter=\(number)") }
        }
        for number in 1...3 {
            steps.append(
                Step(
                    "alice", "PUT \(client)/rooms/{pair}/send/m.room.message/pair-{round}-\(number)",
                    #"{"msgtype":"m.text","body":"to carol"}"#))
        }
        return steps
    }()

    private func client(_ token: String?, port: UInt16) -> WebClient {
        let client = WebClient(port: port)
        if let token { client.headers = [("Authorization", "Bearer \(token)")] }
        return client
    }

    private func run(
        _ lab: MatrixLab, _ tokens: [String: String], _ values: [String: String], round: String
    ) throws -> Refusals {
        var values = values
        values["round"] = round
        func filled(_ text: String, escaped: Bool) -> String {
            values.reduce(text) { text, value in
                let value = (value.key, escaped ? Self.escaped(value.value) : value.value)
                return text.replacingOccurrences(of: "{\(value.0)}", with: value.1)
            }
        }
        var refusals = Refusals()
        for step in Self.programme {
            let client = client(tokens[step.person], port: lab.gateway.port)
            let answer = try client.request(
                step.method, filled(step.target, escaped: true), headers: [("Content-Type", "application/json")],
                body: step.body.map { Array(filled($0, escaped: false).utf8) })
            client.hangUp()
            let person = step.person == Self.nobody ? step.person : Synapse.id(step.person)
            if answer.text.contains(/Not (sent|done|searched):/) {
                refusals.add(person, step.method)
            }
        }
        return refusals
    }

    private static func escaped(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? text
    }

    /// Every refusal is foreseen, by person and by route, and nothing else.
    @Test func hostedRefusesWhatTheSimulationCounted() throws {
        #expect(Self.programme.count >= 130)
        let lab = try MatrixLab(policy: "observe")
        var tokens: [String: String] = [:]
        for name in ["alice", "bob", "carol"] { tokens[name] = try lab.synapse.register(name) }
        /// Carol is past the gateway.
        func ask(_ person: String, _ method: String, _ path: String, _ body: JSONValue = [:]) throws -> JSONValue {
            let port = person == "carol" ? lab.synapse.port : lab.gateway.port
            let answer = try client(tokens[person], port: port).request(method, "/_matrix/client/v3/\(path)", body)
            guard answer.status == 200 else { throw PeerError("\(path): \(answer.status) \(answer.text)") }
            return answer.json
        }
        func room(_ first: String, _ second: String) throws -> String {
            let made = try ask(first, "POST", "createRoom", ["invite": [.string(Synapse.id(second))]])
            let room = try #require(made["room_id"].string)
            _ = try ask(second, "POST", "join/\(Self.escaped(room))")
            return room
        }
        let (room, pair) = (try room("alice", "bob"), try room("alice", "carol"))
        let event = try ask(
            "bob", "PUT", "rooms/\(Self.escaped(room))/send/m.room.message/first",
            ["msgtype": "m.text", "body": "before"])
        let values = ["room": room, "pair": pair, "event": event["event_id"].string ?? ""]
        #expect(try run(lab, tokens, values, round: "1") == Refusals(), "observe refuses nothing")

        let output = try lab.gateway.admin(["policy", "simulate", "hosted", "--json"])
        #expect(output.succeeded, "\(output)")
        let report = try #require(try JSONValue(Array(output.stdout.utf8)).array.first)
        var foreseen = Refusals()
        for row in report["refused"].array {
            let (sender, target) = (row["sender"].string ?? "", row["target"].string ?? "")
            let method = target.contains(" ") ? String(target.prefix { $0 != " " }) : "PUT"
            foreseen.add(sender, method, row["messages"].integer ?? 0)
        }
        #expect(report["refusedMessages"].integer == foreseen.people.values.reduce(0, +))
        #expect(report["byPerson"][Synapse.id("alice")].integer == foreseen.people[Synapse.id("alice")])
        #expect(report["byRoute"]["GET /_matrix/client/v3/nonsense"].integer == 3, "\(report["byRoute"])")
        #expect(report["latches"].array.contains { $0["conversation"] == .string(room) })
        #expect(!report["latches"].array.contains { $0["conversation"] == .string(pair) })
        let status = try lab.gateway.admin(["status"]).stdout
        #expect(status.contains("file") && status.contains("/nonsense"), "\(status)")

        let asked = try lab.gateway.admin(["policy", "set", "hosted"])
        #expect(asked.status == .exited(75) && asked.stderr.contains(room), "\(asked)")
        #expect(try lab.gateway.admin(["policy", "set", "hosted", "--yes"]).succeeded)
        let refused = try run(lab, tokens, values, round: "2")
        #expect(refused == foreseen)
        #expect(refused.people.values.reduce(0, +) > 20)
    }

    // MARK: IRC

    @Test func commandsLatchesAndOutsidersAreNamed() throws {
        let lab = try Lab(try NgIRCd(), policy: "observe")
        defer { lab.stop() }
        let alice = try lab.person("alice")
        let bob = try lab.person("bob")
        let carol = try lab.outsider("carol")
        for person in [alice, bob, carol] {
            person.send("JOIN #room")
            try person.expect("366")
        }
        let lines = [
            "PRIVMSG #room :one", "PRIVMSG bob :two", "PRIVMSG carol :three", "TOPIC #room :four", "TOPIC #room",
            "PRIVMSG bob :\u{1}DCC SEND x 1 2 3\u{1}", "PRIVMSG carol :\u{1}DCC CHAT x 1 2\u{1}", "WALLOPS :five",
            "AWAY :lunch", "PART #elsewhere :nothing to do",
            "FROBNICATE :six", "PRIVMSG #elsewhere :seven",
        ]
        func refusals() throws -> Int {
            for line in lines { alice.send(line) }
            return try alice.synchronize().count {
                ["531", "404", "421"].contains($0.command) && $0.body.contains(/^Not (sent|done)/)
            }
        }
        #expect(try refusals() == 0)
        var report: [String: Any] = [:]
        try eventually("all of it is in the simulation", every: .milliseconds(100)) {
            report = (try lab.json(["policy", "simulate", "hosted"]) as? [[String: Any]])?.first ?? [:]
            return (report["messages"] as? Int ?? 0) >= 11
        }
        let foreseen = report["refusedMessages"] as? Int
        #expect(report["byRoute"] as? [String: Int] == ["TOPIC": 1, "WALLOPS": 1, "an unknown command": 1])
        #expect(report["strippedTexts"] as? [String: Int] == ["AWAY": 1, "PART": 1])
        #expect(report["byPerson"] as? [String: Int] == ["alice": 7], "\(report)")
        #expect(report["outsiders"] as? [String] == ["carol"])
        let latches = (report["latches"] as? [[String: Any]] ?? []).map { $0["conversation"] as? String }
        #expect(latches == ["#room", "alice and bob"])
        let blinded = report["blinded"] as? [[String: Any]] ?? []
        #expect(blinded.map { $0["name"] as? String } == ["carol"])
        #expect(blinded.first?["conversations"] as? [String] == ["#room"])
        #expect(report["neverObserved"] as? [String] == ["bob"])
        let text = try lab.gateway.admin(["policy", "simulate", "hosted"]).stdout
        #expect(text.contains("Protected for good") && text.contains("carol"), "\(text)")
        #expect(text.contains("1 AWAY, 1 PART"), "\(text)")
        #expect(try lab.gateway.admin(["policy", "set", "hosted", "--yes"]).succeeded)
        #expect(try refusals() == foreseen)
    }

    /// A policy in the file protects nothing for good before an operator has agreed, whatever reads it.
    @Test func aReloadAsksBeforeItProtectsForGood() throws {
        let scratch = try ScratchDirectory()
        let file = try scratch.write("pawl.yaml", "policy: observe\n")
        let options = PawlProcess.Options(policy: nil, arguments: ["--metrics", "", "--config", file])
        let server = try NgIRCd()
        defer { server.stop() }
        let gateway = try PawlProcess(upstream: server.port, options)
        defer { gateway.stop() }
        let (alice, bob) = (try IRCClient(port: gateway.port), try IRCClient(port: gateway.port))
        try alice.register(nick: "alice", caps: nil)
        try bob.register(nick: "bob", caps: nil)
        alice.send("PRIVMSG bob :before")
        try bob.expectMessage("before")
        func policy() throws -> String { try gateway.admin(["policy", "get"]).stdout }
        try eventually("it is observed") {
            try gateway.admin(["policy", "simulate", "hosted"]).stdout.contains("alice and bob")
        }

        try scratch.write("pawl.yaml", "policy: hosted\nlimits:\n  connections: 77\n")
        gateway.signal(SIGHUP)
        try eventually("the rest is read") { gateway.output.contains("policy: hosted is not applied") }
        #expect(try policy().contains("observe"))
        let asked = try gateway.admin(["config", "reload"])
        #expect(asked.status == .exited(75) && asked.stderr.contains("alice and bob"), "\(asked)")
        #expect(try policy().contains("observe"))
        let token = try #require(asked.token)
        let agreed = try gateway.admin(["config", "reload", "--confirm", token])
        #expect(agreed.succeeded && agreed.stdout.contains("policy: hosted (applied)"), "\(agreed)")
        #expect(try policy().contains("hosted"))
        // Milder ones are applied at once.
        try scratch.write("pawl.yaml", "policy: observe\n")
        #expect(try gateway.admin(["config", "reload"]).stdout.contains("policy: observe (applied)"))
    }
}
