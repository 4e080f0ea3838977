import Foundation
import PeerKit
import TestThreads
import Testing

/// What clients other than matrix-nio need of Matrix: sliding sync, pages before a login, media, pages in browsers, services.
@Suite(.blocking, .serialized) struct MatrixWebTests {
    private static let page = ("Origin", "https://app.example.org")

    private func client(_ person: Nio?, _ port: UInt16) -> WebClient {
        let client = WebClient(port: port)
        if let person { client.headers = [("Authorization", "Bearer \(person.token)")] }
        return client
    }

    private static let sliding = "/_matrix/client/unstable/org.matrix.simplified_msc3575/sync"
    private static let list: JSONValue = [
        "lists": ["all": ["ranges": [[0, 20]], "required_state": [], "timeline_limit": 20]]
    ]

    /// The texts of a room in an answer of sliding sync, and where the next one goes on.
    private func slide(_ client: WebClient, _ room: String, from pos: String? = nil) throws -> ([String], String) {
        let answer = try client.request(
            "POST", Self.sliding + (pos.map { "?pos=\($0)&timeout=1000" } ?? ""), Self.list)
        guard answer.status == 200, let pos = answer.json["pos"].string else {
            throw PeerError("no sliding sync: \(answer.status) \(answer.text)")
        }
        let timeline = answer.json["rooms"][room]["timeline"].array.filter { $0["type"] == "m.room.message" }
        return (timeline.map(Nio.text), pos)
    }

    @Test func oneProtectedPersonAmongOthers() throws {
        let lab = try MatrixLab(policy: "observe")
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        try alice.send("said before", to: room)
        let set = try lab.gateway.admin(["policy", "set", "hosted", "--account", alice.user, "--yes"])
        #expect(set.succeeded, "\(set.stderr)")
        try alice.send("sealed first", to: room)
        #expect(lab.synapse.files(showing: "sealed first").isEmpty)

        // Rooms that come into view bring what was said before; what comes then is live.
        let (first, pos) = try slide(client(bob, lab.gateway.port), room)
        #expect(first == ["[not encrypted] said before", "sealed first"])
        try alice.send("sealed second", to: room)
        let (second, next) = try slide(client(bob, lab.gateway.port), room, from: pos)
        #expect(second == ["sealed second"])
        _ = try client(bob, lab.synapse.port).request(
            "PUT", "/_matrix/client/v3/rooms/\(room.replacing("!", with: "%21"))/send/m.room.message/forged",
            ["msgtype": "m.text", "body": "forged plain"])
        let (third, _) = try slide(client(bob, lab.gateway.port), room, from: next)
        #expect(third.count == 1 && third[0].contains("withheld") && !third[0].contains("forged"), "\(third)")
        #expect(try slide(client(alice, lab.gateway.port), room).0.contains("sealed second"))

        // Nobody's login page depends on alice.
        for target in [
            "/", "/health", "/_matrix/static/", "/_matrix/client/versions", "/_matrix/client/v3/login",
            "/_synapse/client/pick_idp?redirectUrl=x", "/_synapse/client/oidc/callback", "/favicon.ico",
        ] {
            let direct = try client(nil, lab.synapse.port).request("GET", target)
            let through = try client(nil, lab.gateway.port).request("GET", target)
            #expect(
                through.status == direct.status && through.body.count == direct.body.count, "\(target) \(through.text)")
        }
    }

    /// What clients do about a refusal depends on its code: Synapse's own where the reason is the same.
    private func refusalsHaveTheServersCodes(_ lab: MatrixLab, _ web: WebClient, _ path: String) throws {
        let send = "/_matrix/client/v3/rooms/\(path)/send/m.room.message/"
        let text: JSONValue = ["msgtype": "m.text", "body": "Ackerwinde"]
        func codes(_ ask: (WebClient) throws -> WebAnswer, _ headers: [(String, String)]) throws -> [[String]] {
            try [lab.synapse.port, lab.gateway.port].map { port in
                let client = WebClient(port: port)
                client.headers = headers
                let answer = try ask(client)
                return ["\(answer.status)", answer.json["errcode"].string ?? answer.text]
            }
        }
        // Feature detection, no login, and a login that is none.
        for (method, target) in [
            ("GET", "/_matrix/client/unstable/org.example.feature/x"), ("PUT", "/_matrix/client/v3/nonsense"),
        ] {
            let found = try codes({ try $0.request(method, target) }, web.headers)
            #expect(found == Array(repeating: ["404", "M_UNRECOGNIZED"], count: 2), "\(method) \(target)")
        }
        let missing = try codes({ try $0.request("PUT", send + "c1", text) }, [])
        #expect(missing == Array(repeating: ["401", "M_MISSING_TOKEN"], count: 2))
        for _ in 0..<2 {
            let unknown = try codes(
                { try $0.request("PUT", send + "c2", text) }, [("Authorization", "Bearer syt_nobody")])
            #expect(unknown == Array(repeating: ["401", "M_UNKNOWN_TOKEN"], count: 2))
        }
        var long = text
        long["body"] = .string(String(repeating: "x", count: 300_000))
        let tooLong = try codes({ try $0.request("PUT", send + "c3", long) }, web.headers)
        #expect(tooLong == Array(repeating: ["413", "M_TOO_LARGE"], count: 2))
        let refused = try web.request("PUT", "/_matrix/client/v3/rooms/\(path)/send/org.example.poll/c4", text)
        #expect(refused.status == 403 && refused.json["errcode"] == "M_FORBIDDEN", "\(refused.text)")
        #expect(lab.synapse.files(showing: "Ackerwinde").isEmpty && !lab.tap.shows("Ackerwinde"))
    }

    @Test func aFilterWithoutTheEnvelopeGetsIt() throws {
        let lab = try MatrixLab(policy: "hosted")
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        try alice.send("sealed words", to: room)
        let filter = #"{"event_fields":["type","sender","content.body","event_id"]}"#
        let web = client(bob, lab.gateway.port)
        let user = bob.user.replacing("@", with: "%40").replacing(":", with: "%3A")
        let made = try web.request(
            "POST", "/_matrix/client/v3/user/\(user)/filter", try JSONValue(Array(filter.utf8)))
        let id = try #require(made.json["filter_id"].string)
        let inline = try #require(filter.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        for value in [id, inline] {
            let answer = try web.request("GET", "/_matrix/client/v3/sync?timeout=0&filter=\(value)")
            let events = answer.json["rooms"]["join"][room]["timeline"]["events"].array
            #expect(events.filter { $0["type"] == "m.room.message" }.map(Nio.text) == ["sealed words"])
        }
    }

    @Test func hostedForAll() throws {
        let lab = try MatrixLab(policy: "hosted", hasService: true)
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        let path = room.replacing("!", with: "%21").replacing(":", with: "%3A")
        let web = client(alice, lab.gateway.port)
        for target in ["/health", "/_matrix/static/", "/_synapse/client/pick_idp", "/_synapse/admin/v1/server_version"]
        {
            let direct = try client(alice, lab.synapse.port).request("GET", target)
            #expect(try web.request("GET", target).status == direct.status, "\(target)")
        }

        // Files that the server has can be read; what is not one file by itself is not sent.
        let uploaded = try client(alice, lab.synapse.port).request(
            "POST", "/_matrix/media/v3/upload", headers: [("Content-Type", "text/plain")], body: Array("old file".utf8))
        let file = try #require(uploaded.json["content_uri"].string).dropFirst("mxc://".count)
        #expect(try web.request("GET", "/_matrix/client/v1/media/download/\(file)").text == "old file")
        let refused = try web.request(
            "POST", "/_matrix/media/v3/upload",
            headers: [("Content-Type", "multipart/form-data; boundary=x"), Self.page],
            body: Array("new file".utf8))
        #expect(refused.status == 403)

        // Pages in browsers can read a refusal as they read the server's own answers.
        let direct = try client(alice, lab.synapse.port).request(
            "GET", "/_matrix/client/v3/sync?since=x", headers: [Self.page])
        let allowed = try #require(direct.header("access-control-allow-origin"))
        #expect(refused.header("access-control-allow-origin") == allowed)
        let nobody = try client(nil, lab.gateway.port).request(
            "PUT", "/_matrix/client/v3/rooms/\(path)/send/m.room.message/x", ["body": "x"], headers: [Self.page])
        #expect(nobody.status == 401 && nobody.header("access-control-allow-origin") == allowed)
        let preflight = try client(nil, lab.gateway.port).request(
            "OPTIONS", "/_pawl/v1/device",
            headers: [
                Self.page, ("Access-Control-Request-Method", "PUT"),
                ("Access-Control-Request-Headers", "authorization"),
            ])
        #expect(preflight.status == 204 && preflight.header("access-control-allow-origin") == allowed)
        #expect(preflight.header("access-control-allow-headers")?.contains("Authorization") == true)
        #expect(preflight.header("access-control-allow-methods")?.contains("PUT") == true)
        #expect(
            try web.request("GET", "/_pawl/v1/me", headers: [Self.page]).header("access-control-allow-origin")
                == allowed)

        try refusalsHaveTheServersCodes(lab, web, path)

        // What people look for is not shown to the server.
        let search: JSONValue = ["search_categories": ["room_events": ["search_term": "Suchwortkanarie"]]]
        let answer = try web.request("POST", "/_matrix/client/v3/search", search)
        #expect(answer.status == 403 && answer.text.contains("Not searched"), "\(answer.text)")
        #expect(!lab.tap.shows("Suchwortkanarie"))

        // A service writes in the name of one of its users.
        let service = WebClient(port: lab.gateway.port)
        service.headers = [("Authorization", "Bearer \(Synapse.serviceToken)")]
        let ghost = Synapse.id("br_x")
        let made = try service.request(
            "POST", "/_matrix/client/v3/register", ["type": "m.login.application_service", "username": "br_x"])
        #expect(made.status == 200, "\(made.text)")
        #expect(try alice.ask("invite", ["room": .string(room), "user": .string(ghost)]).succeeded)
        let joined = try service.request("POST", "/_matrix/client/v3/join/\(path)?user_id=\(ghost)", [:])
        #expect(joined.status == 200, "\(joined.text)")
        let sent = try service.request(
            "PUT", "/_matrix/client/v3/rooms/\(path)/send/m.room.message/t1?user_id=\(ghost)",
            ["msgtype": "m.text", "body": "over the bridge"])
        #expect(sent.status == 200, "\(sent.text)")
        let received = try bob.expect("over the bridge")
        #expect(received["sender"] == .string(ghost))
        #expect(lab.synapse.files(showing: "over the bridge").isEmpty)

        // Where the server is away, a page can read that.
        lab.synapse.stop()
        let gone = try web.request("GET", "/_matrix/client/v3/joined_rooms", headers: [Self.page])
        #expect(gone.status == 502 && gone.header("access-control-allow-origin") == allowed)
        let asked = try client(nil, lab.gateway.port).request(
            "OPTIONS", "/_matrix/client/v3/joined_rooms",
            headers: [
                Self.page, ("Access-Control-Request-Method", "GET"),
                ("Access-Control-Request-Headers", "authorization"),
            ])
        #expect(asked.status == 204 && asked.header("access-control-allow-origin") == allowed)
        #expect(asked.header("access-control-allow-headers") == "authorization")
    }
}
