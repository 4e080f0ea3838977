import CapableApp
import Foundation
import PeerKit
import Reports
import TestKit
import TestThreads
import Testing

/// Apps that can encrypt, before the generic chat and a real gateway: what an app developer writes with DoubleRatchet and the
/// calls of the control plane.
@Suite(.blocking, .serialized) struct CapableAppTests {
    private static let secret = "Ackerwachtelweizen"
    private static let c = GenericLab.conversation

    private func base64(_ bytes: [UInt8]) -> String {
        Data(bytes).base64EncodedString().trimmingCharacters(in: CharacterSet(charactersIn: "="))
    }

    private func bytes(_ value: JSONValue) throws -> [UInt8] {
        let text = try #require(value.string)
        let padded = text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        return Array(try #require(Data(base64Encoded: padded)))
    }

    private func message(_ bytes: [UInt8]) -> JSONValue { ["message": .string(base64(bytes))] }

    /// Proves a device over HTTP.
    private func prove(_ device: AppDevice, as person: ChatPerson) throws {
        let challenge = try person.ask("POST", "/_pawl/v1/challenge")
        #expect(challenge["account"].string == person.name)
        let proof = device.publication(over: try bytes(challenge["challenge"]))
        #expect(try person.ask("PUT", "/_pawl/v1/device", message(proof))["device"].string == device.name)
    }

    /// A call in band.
    private func call(
        _ method: String, _ path: String, _ body: JSONValue = [:], as person: ChatPerson
    ) throws -> JSONValue {
        let socket = try person.socket()
        let call: JSONValue = [
            "id": 7, "method": .string(method), "path": .string("/_pawl/v1/" + path), "body": body,
        ]
        try socket.send(["pawl": call])
        let answer = try socket.expect("the answer to \(path)") { $0["pawl"]["id"].integer == 7 }
        #expect(answer["pawl"]["status"].integer == 200)
        return answer["pawl"]["body"]
    }

    private func sealed(_ envelope: [UInt8], id: String) -> JSONValue {
        ["id": .string(id), "text": .string(base64(envelope)), "encrypted": true]
    }

    private func devices(_ lab: GenericLab) throws -> (alice: AppDevice, bob: AppDevice) {
        let (alice, bob) = (AppDevice("alice", id: 0xA11CE), AppDevice("bob", id: 0xB0B))
        try prove(alice, as: lab.alice)
        // The other one in band.
        let challenge = try call("POST", "challenge", as: lab.bob)
        _ = try call("PUT", "device", message(bob.publication(over: try bytes(challenge["challenge"]))), as: lab.bob)
        try alice.begin(try bytes(lab.alice.ask("POST", "/_pawl/v1/accounts/bob/bundles")["message"]))
        return (alice, bob)
    }

    @Test func twoAppsAndAnOldClient() throws {
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        let (alice, bob) = try devices(lab)
        let envelope = try alice.seal(Self.secret, in: Self.c)
        try lab.alice.ask("POST", "/conversations/\(Self.c)/messages", sealed(envelope, id: "own-1"))
        let text = base64(envelope)
        let received = try lab.bob.expect("message", text)
        #expect(received["encrypted"] == true)
        #expect(try bob.open(try bytes(received["text"]), in: Self.c) == #"{"text":"\#(Self.secret)"}"#)
        // The answer, over the socket.
        let answer = try bob.seal("thanks", in: Self.c)
        var frame = sealed(answer, id: "own-2")
        frame["type"] = "send"
        frame["conversation"] = .string(Self.c)
        try lab.bob.socket().send(frame)
        let history = { try lab.alice.history(Self.c) }
        try eventually("the answer") { try history().count == 2 }
        #expect(try alice.open(try bytes(history()[1]["text"]), in: Self.c) == #"{"text":"thanks"}"#)
        // A login of bob's that has proven nothing.
        let phone = try ChatPerson("bob", port: lab.gateway.port)
        #expect(try phone.texts(Self.c)[0] == Notices.forOwnDevice(from: "alice"))
        // Its words do not follow, and nothing of what was said is anywhere.
        #expect(try phone.tryPosting(Self.secret, in: Self.c).json["error"] == "pawl_latched")
        #expect(try lab.backend.messages().count == 2)
        #expect(JSONLab.shows(lab.gateway, Self.secret).isEmpty)
        let listed = try lab.gateway.admin(["devices", "list", "--json"]).stdout
        let rows = try JSONValue(Array(listed.utf8)).array
        #expect(rows.count == 2 && rows.allSatisfy { $0["sealing"] == true && $0["connected"] == true })
        let users = try JSONValue(Array(lab.gateway.admin(["users", "--json"]).stdout.utf8)).array
        #expect(users.filter { $0["capability"] == "verified" && $0["custody"] == "device" }.count == 2)
        try eventually("the evidence") {
            let clients = try JSONValue(Array(lab.gateway.admin(["clients", "--json"]).stdout.utf8)).array
            return clients.contains { ($0["capable"].integer ?? 0) > 0 }
        }
    }

    /// The id of a hosted device stands in the clear in each of its envelopes. Publishing it takes nobody's messages away.
    @Test func theIDOfAHostedDeviceCannotBePublished() throws {
        let lab = try GenericLab(policy: "hosted")
        defer { lab.stop() }
        try lab.alice.post("\(Self.secret) one", in: Self.c)
        let envelope = try bytes(try #require(lab.backend.messages().last)["text"])
        let id = envelope[1..<9].reduce(0) { $0 << 8 | UInt64($1) }
        let mallory = try ChatPerson("mallory", port: lab.gateway.port)
        for number in [id, id | 1] {
            let device = AppDevice("mallory", id: number)
            let challenge = try mallory.ask("POST", "/_pawl/v1/challenge")
            let proof = message(device.publication(over: try bytes(challenge["challenge"])))
            let refusal = #expect(throws: PeerError.self) { try mallory.ask("PUT", "/_pawl/v1/device", proof) }
            #expect(refusal?.description.contains("409") == true, "\(String(describing: refusal))")
        }
        try lab.alice.post("\(Self.secret) two", in: Self.c)
        for person in [lab.alice, lab.bob] {
            #expect(try person.texts(Self.c) == ["\(Self.secret) one", "\(Self.secret) two"])
        }
        try lab.gateway.restart()
        for person in [lab.alice, lab.bob] {
            #expect(try person.texts(Self.c) == ["\(Self.secret) one", "\(Self.secret) two"])
        }
    }

    @Test func mailboxEntriesReceiptsAndBlobs() throws {
        let lab = try GenericLab(policy: "observe")
        defer { lab.stop() }
        let (alice, bob) = try devices(lab)
        let blob = try lab.alice.ask("POST", "/_pawl/v1/blobs", ["blob": .string(base64(Array(Self.secret.utf8)))])
        let envelope = try alice.seal("see the blob", in: "direct")
        let recipient: JSONValue = [
            "account": "bob", "device": .string(bob.name), "message": .string(base64(envelope)),
        ]
        #expect(
            try lab.alice.ask("POST", "/_pawl/v1/messages", ["id": "l1", "recipients": .array([recipient])])["accepted"]
                == 1)
        let entry = try call("GET", "messages", as: lab.bob)["messages"][0]
        #expect(entry["from"] == "alice" && entry["id"] == "l1")
        #expect(try bob.open(try bytes(entry["message"]), in: "direct") == #"{"text":"see the blob"}"#)
        let id = try #require(blob["id"].string)
        #expect(try bytes(lab.bob.ask("GET", "/_pawl/v1/blobs/\(id)")["blob"]) == Array(Self.secret.utf8))
        _ = try call("PUT", "messages/acknowledged", ["through": entry["sequence"]], as: lab.bob)
        #expect(try lab.bob.ask("GET", "/_pawl/v1/messages")["messages"].array.isEmpty)
        try lab.bob.ask("POST", "/_pawl/v1/receipts", ["to": "alice", "id": "l1", "kind": "read"])
        #expect(try lab.alice.ask("GET", "/_pawl/v1/messages")["messages"][0]["kind"] == "read")
    }

    @Test func requiredLetsAppsThroughAndNobodyElse() throws {
        let lab = try GenericLab(policy: "required")
        defer { lab.stop() }
        #expect(try lab.alice.tryPosting(Self.secret, in: Self.c).json["error"] == "pawl_required")
        let (alice, bob) = try devices(lab)
        let envelope = try alice.seal(Self.secret, in: Self.c)
        try lab.alice.ask("POST", "/conversations/\(Self.c)/messages", sealed(envelope, id: "own-1"))
        #expect(try bob.open(try bytes(lab.bob.history(Self.c)[0]["text"]), in: Self.c) != nil)
        #expect(JSONLab.shows(lab.gateway, Self.secret).isEmpty)
    }
}
