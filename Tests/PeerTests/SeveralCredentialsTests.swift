import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Logins of several values, as Rocket.Chat and the web clients of Mattermost send them, and members in pages.
@Suite(.blocking, .serialized) struct SeveralCredentialsTests {
    private static let c = GenericLab.conversation

    /// The generic mapping with other lines, as an operator would write them.
    private func lab(
        _ changes: [(String, String)], in directory: ScratchDirectory, environment: [String: String] = [:]
    ) throws -> GenericLab {
        var text = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
        for (old, new) in changes {
            guard text.contains(old) else { throw PeerError("the generic mapping has changed") }
            text = text.replacing(old, with: new)
        }
        let path = directory.path + "/mapping.yaml"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        let lab = try GenericLab(policy: "hosted", mapping: path, environment: environment)
        return lab
    }

    private static let places = (
        "credential: [header Authorization, query token]",
        "credential: [header Authorization, header X-Auth-Token, header X-User-Id, cookie session]"
    )

    private func client(_ lab: GenericLab, _ headers: [(String, String)]) -> WebClient {
        let client = WebClient(port: lab.gateway.port)
        client.headers = headers
        return client
    }

    private func post(_ client: WebClient, _ text: String, _ id: String) throws -> WebAnswer {
        try client.request("POST", "/conversations/\(Self.c)/messages", ["id": .string(id), "text": .string(text)])
    }

    @Test func everyFormOfLoginWritesAndReads() throws {
        let directory = try ScratchDirectory()
        let lab = try lab([Self.places], in: directory)
        let (alice, bob) = (lab.alice.token, lab.bob.token)
        let basic = Data("alice:\(alice)".utf8).base64EncodedString()
        let logins: [[(String, String)]] = [
            [("X-Auth-Token", alice), ("X-User-Id", "alice")],
            [("Cookie", "theme=dark; session=\(alice)"), ("X-Requested-With", "XMLHttpRequest")],
            // The backend prefers the header; the gateway need not know.
            [("Authorization", "Bearer \(alice)"), ("Cookie", "session=\(bob)")], [("Authorization", "Basic \(basic)")],
        ]
        for (number, login) in logins.enumerated() {
            let client = client(lab, login)
            let sent = try post(client, "Wiesenraute \(number)", "own-\(number)")
            #expect(sent.status == 201, "\(login.map(\.0)) \(sent.text)")
            let page = try client.request("GET", "/conversations/\(Self.c)/messages").json["messages"].array
            #expect(page.last?["text"] == .string("Wiesenraute \(number)") && page.last?["sender"] == "alice")
        }
        #expect(try !lab.backend.knows("Wiesenraute"))
        #expect(try lab.bob.texts(Self.c) == logins.indices.map { "Wiesenraute \($0)" })

        // A part of a login, one with the name of another, and two values in one place.
        let wrong: [[(String, String)]] = [
            [("X-Auth-Token", alice)], [("X-Auth-Token", alice), ("X-User-Id", "bob")],
            [("Authorization", "Bearer \(alice)"), ("authorization", "Bearer \(bob)")],
            [("Cookie", "session=\(alice)"), ("Cookie", "session=\(bob)")],
            [("X-Auth-Token", alice), ("X_Auth_Token", bob), ("X-User-Id", "alice")],
        ]
        for login in wrong {
            let sent = try post(client(lab, login), "Blutweiderich", "wrong")
            #expect(sent.status == 401, "\(login.map(\.0)) \(sent.text)")
        }
        #expect(try !lab.backend.knows("Blutweiderich"))
        for token in [alice, bob] { #expect(JSONLab.shows(lab.gateway, token).isEmpty) }
    }

    /// A write is sent with all values of its login, also by the process after this one.
    @Test(arguments: ["memory", "sealed"]) func aWriteWaitsWithAllOfItsLogin(_ credentials: String) throws {
        let directory = try ScratchDirectory()
        let lab = try lab([Self.places], in: directory, environment: ["PAWL_QUEUE_CREDENTIALS": credentials])
        let login = [("X-Auth-Token", lab.alice.token), ("X-User-Id", "alice")]
        #expect(try post(client(lab, login), "warm", "warm").status == 201)
        try lab.backend.set(.away)
        let body = JSONValue.object(["id": "own-1", "text": "Sumpfdotterblume"]).bytes
        let head = [
            "POST /conversations/\(Self.c)/messages HTTP/1.1", "Host: chat", "X-Auth-Token: \(lab.alice.token)",
            "X-User-Id: alice", "Content-Length: \(body.count)", "", "",
        ]
        let pending = client(lab, [])
        try pending.send(Array(head.joined(separator: "\r\n").utf8) + body)
        try lab.wait(for: 1)
        pending.hangUp()
        if credentials == "sealed" { lab.gateway.crash() }
        try lab.backend.behave()
        if credentials == "sealed" { try lab.gateway.start() }
        try lab.wait(for: 0)
        let sent = try #require(lab.backend.received().last { $0["method"] == "POST" })
        let fields = sent["headers"].array.map { ($0[0].string ?? "", $0[1].string ?? "") }
        #expect(fields.contains { $0 == ("X-Auth-Token", lab.alice.token) })
        #expect(fields.contains { $0 == ("X-User-Id", "alice") })
        #expect(try lab.bob.texts(Self.c) == ["warm", "Sumpfdotterblume"])
        #expect(JSONLab.shows(lab.gateway, lab.alice.token).isEmpty)
    }

    @Test func theCheckNamesTheLoginAndNotItsValues() throws {
        let directory = try ScratchDirectory()
        let text = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
        let mapping = try directory.write("m.yaml", text.replacing(Self.places.0, with: Self.places.1))
        let begin = "GET /me\nX-User-Id: alice\nX-Auth-Token: geheimnis\n"
        let good = try directory.write("good", begin + "\n")
        let run = try PawlProcess.run(["config", "check", "--mapping", mapping, "--request", good])
        #expect(run.succeeded && run.stdout.contains("login           header X-Auth-Token, header X-User-Id"))
        #expect(!run.stdout.contains("geheimnis"))
        let bad = try directory.write("bad", begin + "X_User_Id: bob\n\n")
        let failed = try PawlProcess.run(["config", "check", "--mapping", mapping, "--request", bad])
        #expect(!failed.succeeded && failed.stdout.contains("`header X-User-Id` has several values"))
    }

    // MARK: Members in pages

    private static let members = "ask: GET /conversations/{conversation}\n  accounts: members[*]"

    @Test(arguments: [
        #""page={page}&count=2""#, #""offset={offset}&count=2""#, #"{query: "cursor={cursor}", next: next}"#,
    ]) func anOutsiderOnTheSecondPageIsReported(_ page: String) throws {
        let directory = try ScratchDirectory()
        let paged = "ask: GET /conversations/{conversation}/members\n  accounts: people[*].id\n  page: \(page)"
        let lab = try lab([(Self.members, paged)], in: directory)
        // Carol and dave have never been at the gateway.
        let others = try ["carol", "dave"].map { try ChatPerson($0, port: lab.backend.port) }
        try lab.alice.open("big", with: ["bob"] + others.map(\.name))
        try lab.alice.post("Mauerpfeffer", in: "big")
        let status = try lab.gateway.admin(["status"])
        #expect(
            status.succeeded && status.stdout.contains("carol") && status.stdout.contains("dave"), "\(status.stdout)")
        #expect(try !lab.backend.knows("Mauerpfeffer"))

        let mapping = directory.path + "/mapping.yaml"
        _ = try directory.write("ask", "GET /conversations/big/members\n\n")
        _ = try directory.write("answer", #"{"people":[{"id":"alice"},{"id":"bob"}],"next":"2"}"#)
        let check = try PawlProcess.run(
            [
                "config", "check", "--mapping", mapping, "--request", directory.file("ask"), "--response",
                directory.file("answer"),
            ])
        #expect(check.succeeded && check.stdout.contains("members         2: alice, bob"), "\(check.stdout)")
        #expect(check.stdout.contains("next page       "), "\(check.stdout)")
    }
}
