import Foundation
import PeerKit
import TestThreads
import Testing

/// Writes of the generic chat that are said again, or by somebody with more than one login.
@Suite(.blocking, .serialized) struct GenericRepeatTests {
    private static let c = GenericLab.conversation
    private static let messages = "/conversations/\(c)/messages"

    private func warm(
        policy: String = "hosted", mapping: String = JSONLab.mapping("generic"), environment: [String: String] = [:]
    ) throws -> GenericLab {
        let lab = try GenericLab(policy: policy, mapping: mapping, environment: environment)
        try lab.alice.post("warm", in: Self.c, id: "warm")
        return lab
    }

    /// The fields of the last write that the backend has had.
    private func lastWrite(_ lab: GenericLab) throws -> [String: String] {
        let request = try lab.backend.received().last { $0["target"].string == Self.messages && $0["method"] == "POST" }
        var fields: [String: String] = [:]
        for field in request?["headers"].array ?? [] {
            fields[(field.array.first?.string ?? "").lowercased()] = field.array.last?.string
        }
        return fields
    }

    @Test func aRefusedWriteIsTriedAgainWhenItIsRepeated() throws {
        let lab = try warm()
        try lab.backend.set(.refuses(1, status: 403))
        #expect(try lab.alice.tryPosting("again", in: Self.c, id: "own-1").status == 403)
        #expect(try lab.alice.tryPosting("again", in: Self.c, id: "own-1").status == 201)
        #expect(try lab.bob.texts(Self.c) == ["warm", "again"])
    }

    /// Nobody says when a client has left, so of many who wait for one write the first is told to ask again.
    @Test func manyWaitForOneWrite() throws {
        let lab = try warm()
        try lab.backend.set(.away)
        let body: JSONValue = ["id": "own-1", "text": "one"]
        var clients = [try lab.begin("POST", Self.messages, body)]
        try lab.wait(for: 1)
        for _ in 0..<16 { clients.append(try lab.begin("POST", Self.messages, body)) }
        #expect(try clients.removeFirst().client.answer(to: "POST").status == 504)
        try lab.backend.behave()
        for client in clients { #expect(try client.answer(to: "POST").status == 201) }
        #expect(try lab.bob.texts(Self.c) == ["warm", "one"])
        // Who asks again, and who asks for what ended with nobody waiting, hears the same.
        #expect(try lab.alice.tryPosting("one", in: Self.c, id: "own-1").status == 201)
        #expect(try JSONLab.waiting(lab.gateway) == 0)
    }

    /// What ends while its client is away is told when it comes back.
    @Test func aSenderWhoLeavesIsNotifiedLater() throws {
        let lab = try warm()
        try lab.backend.set(.away)
        let gone = try lab.begin("POST", Self.messages, ["id": "own-1", "text": "one"])
        try lab.wait(for: 1)
        gone.hangUp()
        try lab.backend.behave()
        try lab.wait(for: 0)
        #expect(try lab.alice.tryPosting("one", in: Self.c, id: "own-1").status == 201)
        #expect(try lab.bob.texts(Self.c) == ["warm", "one"])
    }

    /// Also an edit, which has no id of its own but the one that its client gives it.
    @Test func anEditIsTriedAgainAsWell() throws {
        let lab = try warm()
        let message = try lab.alice.post("one", in: Self.c)
        try lab.backend.set(.refuses(1, status: 403))
        let edit: JSONValue = ["id": "edit-1", "text": "two"]
        #expect(try lab.alice.client.request("PATCH", Self.messages + "/\(message)", edit).status == 403)
        #expect(try lab.alice.client.request("PATCH", Self.messages + "/\(message)", edit).status == 200)
        #expect(try lab.bob.texts(Self.c) == ["warm", "two"])
    }

    @Test func anotherTextUnderTheSameIDIsSent() throws {
        let lab = try warm()
        let one = try lab.alice.post("one", in: Self.c, id: "own-1")
        try lab.alice.edit(one, "two", in: Self.c)
        try lab.alice.edit(one, "three", in: Self.c)
        #expect(try lab.bob.texts(Self.c) == ["warm", "three"])
        // This backend knows the id; whether it takes another text under it is for it to say.
        #expect(try lab.alice.tryPosting("other", in: Self.c, id: "own-1").status < 500)
        #expect(
            try lab.backend.received().filter { $0["target"].string == Self.messages && $0["method"] == "POST" }.count
                == 3)
    }

    /// Two people with equal ids have different keys, which tell nobody anything, and the fields of each arrive.
    @Test func fieldsArriveAndKeysAreApart() throws {
        let lab = try warm()
        lab.alice.client.headers += [("X-Tenant", "blue"), ("Cookie", "csrf=1"), ("X-CSRFToken", "1")]
        try lab.alice.post("mine", in: Self.c, id: "n1")
        let hers = try lastWrite(lab)
        #expect(hers["x-tenant"] == "blue" && hers["x-csrftoken"] == "1" && hers["cookie"] == "csrf=1")
        #expect(hers["x-forwarded-proto"] == "http" && hers["x-forwarded-for"] == "127.0.0.1")
        #expect(hers["forwarded"]?.hasPrefix("for=127.0.0.1;proto=http") == true)
        #expect(hers["pawl-credential"] == nil)
        try lab.bob.post("mine", in: Self.c, id: "n1")
        let his = try lastWrite(lab)
        let keys = [hers["idempotency-key"], his["idempotency-key"]].compactMap { $0 }
        #expect(Set(keys).count == 2)
        #expect(keys.allSatisfy { !$0.contains("n1") })
    }

    /// A cookie that the backend gives with its answer is for that client, and for nothing that is kept.
    @Test func cookiesOfAnswersAreNotStored() throws {
        let lab = try warm()
        var faults = ChatBackendProcess.Faults()
        faults.cookie = "session=canary-cookie"
        try lab.backend.set(faults)
        let answer = try lab.alice.tryPosting("with a cookie", in: Self.c, id: "own-1")
        #expect(answer.header("Set-Cookie") == "session=canary-cookie")
        #expect(try lab.alice.tryPosting("with a cookie", in: Self.c, id: "own-1").header("Set-Cookie") == nil)
        #expect(JSONLab.shows(lab.gateway, "canary-cookie").isEmpty)
    }

    /// What a login has written is sent with that login again, whoever else is there meanwhile.
    @Test func aWriteKeepsItsLogin() throws {
        let lab = try warm()
        let phone = try ChatPerson("alice", port: lab.gateway.port)
        try lab.backend.set(.refuses(1000, status: 503, retryAfter: 1))
        let waiting = try lab.begin("POST", Self.messages, ["id": "own-1", "text": "from the desk"])
        try lab.wait(for: 1)
        _ = try phone.ask("GET", "/me")
        try lab.backend.behave()
        #expect(try waiting.answer(to: "POST").status == 201)
        let shown = try lab.backend.received().filter { $0["target"].string == Self.messages && $0["method"] == "POST" }
            .map { $0["headers"].array.first { $0.array.first?.string?.lowercased() == "authorization" } }
        #expect(shown.count >= 3)
        #expect(shown.allSatisfy { $0?.array.last?.string == "Bearer \(lab.alice.token)" }, "\(shown)")
    }

    /// The phone is logged out: what is written at the desk goes on, and nobody there is told that they are logged out.
    @Test func anotherLoginsEndIsNobodysBusiness() throws {
        let lab = try warm()
        let phone = try ChatPerson("alice", port: lab.gateway.port)
        try phone.post("from the phone", in: Self.c)
        try ChatPerson(phone, port: lab.backend.port).ask("POST", "/logout")
        #expect(try lab.alice.tryPosting("from the desk", in: Self.c, id: "own-1").status == 201)
        // Nor is it sent with the desk's login.
        #expect(try phone.tryPosting("too late", in: Self.c, id: "own-2").status == 401)
        #expect(try lab.alice.tryPosting("still here", in: Self.c, id: "own-3").status == 201)
        #expect(try lab.bob.texts(Self.c) == ["warm", "from the phone", "from the desk", "still here"])
    }

    @Test func anUnknownLocalIDHoldsNothingUp() throws {
        let lab = try warm()
        let answer = try lab.alice.client.request("DELETE", Self.messages + "/pawl-0123456789abcdef")
        #expect(answer.status == 404, "\(answer.text)")
        #expect(answer.text.contains("pawl_unknown_message"))
        try lab.alice.post("goes on", in: Self.c)
        #expect(try lab.bob.texts(Self.c) == ["warm", "goes on"])
    }

    /// What waited at the last process is found by its sender's own id at the next.
    @Test func aDeletionFindsItsMessageAfterARestart() throws {
        let lab = try warm(environment: ["PAWL_QUEUE_CREDENTIALS": "sealed"])
        try lab.backend.set(.away)
        _ = try lab.begin("POST", Self.messages, ["id": "own-1", "text": "mistake"])
        try lab.wait(for: 1)
        lab.gateway.crash()
        try lab.gateway.start()
        // Whose request it is, the backend has to say.
        try lab.backend.set(.refuses(1000, status: 503, retryAfter: 1))
        let deletion = try lab.begin("DELETE", Self.messages + "/own-1", [:])
        try lab.wait(for: 2)
        try lab.backend.behave()
        #expect(try deletion.answer(to: "DELETE").status == 204)
        #expect(try lab.bob.texts(Self.c) == ["warm"])
    }
}
