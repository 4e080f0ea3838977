import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// Logins inside a WebSocket, as clients of Mattermost and Rocket.Chat make them, through the gateway to a real backend.
@Suite(.blocking, .serialized) struct SocketLoginPeerTests {
    private static let c = GenericLab.conversation

    private func mapping(in directory: ScratchDirectory) throws -> String {
        let text = try String(contentsOfFile: JSONLab.mapping("generic"), encoding: .utf8)
            .replacing(
                "credential: [header Authorization, query token]",
                with: "credential: [header Authorization, query token, header X-Auth-Token, header X-User-Id]"
            )
            .replacing(
                "  from client:\n",
                with: """
                      from client:
                        type == "login" && token: {login: {header Authorization: "Bearer {token}"}}
                        type == "login": passthrough

                    """
            )
            .replacing(
                "  from backend:\n",
                with: """
                      from backend:
                        type == "result" && result.token:
                          login: {header X-Auth-Token: "{result.token}", header X-User-Id: "{result.id}"}

                    """
            )
        return try directory.write("login.yaml", text)
    }

    private func socket(_ lab: GenericLab) throws -> WebSocketClient {
        try WebClient(port: lab.gateway.port).webSocket("/socket", headers: [("User-Agent", "Chat/2")])
    }

    private func text(_ words: String, _ id: String) -> JSONValue {
        ["type": "send", "conversation": .string(Self.c), "id": .string(id), "text": .string(words)]
    }

    @Test func aLoginByTokenOrPasswordNamesTheAccount() throws {
        let directory = try ScratchDirectory()
        let lab = try GenericLab(policy: "hosted", mapping: try mapping(in: directory))
        // Carol has no other connection through the gateway.
        _ = try ChatPerson("carol", port: lab.backend.port)
        try lab.alice.open("two", with: ["carol"])
        #expect(try lab.alice.tryPosting("Wasserdost", in: "two").json["error"] == "pawl_outsider")

        let early = try socket(lab)
        try early.send(text("Wiesenknopf", "early"))
        #expect(try early.expect("error")["error"] == "pawl_not_logged_in")
        try early.send(["type": "login", "token": "wrong"])
        #expect(try early.expect("result")["error"] == "unauthorized", "the backend's own answer")

        // A message right behind the login keeps its place.
        let alice = try socket(lab)
        try alice.send(["type": "login", "token": .string(lab.alice.token)])
        try alice.send(text("Wiesenknopf", "own-1"))
        #expect(try alice.expect("result")["result"]["id"] == "alice")
        #expect(try alice.expect("ack")["id"] == "own-1")
        #expect(try lab.bob.texts(Self.c) == ["Wiesenknopf"])

        let carol = try socket(lab)
        try carol.send(["type": "login", "user": "carol", "password": "correct-horse"])
        #expect(try carol.expect("result")["result"]["id"] == "carol")
        try eventually("carol is behind the gateway") {
            try lab.alice.tryPosting("Wasserdost", in: "two", id: "own-2").status == 201
        }
        #expect(try carol.expect("message")["text"] == "Wasserdost")
        #expect(try !lab.backend.knows("Wiesenknopf") && !lab.backend.knows("Wasserdost"))
        // A login as another account would make one socket two people's.
        try alice.send(["type": "login", "token": .string(lab.bob.token)])
        #expect(throws: PeerError.self) { try alice.expect("ack") }
        #expect(alice.closeCode == 1008)
        for token in [lab.alice.token, lab.bob.token] { #expect(JSONLab.shows(lab.gateway, token).isEmpty) }
    }

    @Test func withoutALoginInTheMappingTheSocketIsRefused() throws {
        let lab = try GenericLab(policy: "hosted")
        let answer = try WebClient(port: lab.gateway.port).request(
            "GET", "/socket",
            headers: [
                ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ])
        #expect(answer.status == 401 && answer.json["error"] == "pawl_not_logged_in", "\(answer.text)")
    }

    @Test func theCheckExplainsALogin() throws {
        let directory = try ScratchDirectory()
        let mapping = try mapping(in: directory)
        func check(_ frame: String, _ side: String) throws -> (Bool, String) {
            let file = try directory.write("frame.json", frame)
            let run = try PawlProcess.run(
                ["config", "check", "--mapping", mapping, "--frame", file, "--from", side])
            return (run.succeeded, run.stdout)
        }
        let client = try check(#"{"type":"login","token":"geheimnis"}"#, "client")
        #expect(client.0 && client.1.contains("login           header Authorization"), "\(client.1)")
        #expect(!client.1.contains("geheimnis"))
        let backend = try check(#"{"type":"result","result":{"token":"geheimnis","id":"alice"}}"#, "backend")
        #expect(backend.0 && backend.1.contains("header X-Auth-Token, header X-User-Id"), "\(backend.1)")
        let part = try check(#"{"type":"result","result":{"token":"geheimnis"}}"#, "backend")
        #expect(!part.0 && part.1.contains("no value at a path of its login"), "\(part.1)")
    }
}
