import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// What one protected account means for people without a login, and what can be read under `hosted`.
@Suite struct PublicPageTests {
    @Test func pagesWithoutALoginStayOpenWhileSomebodyIsProtected() throws {
        let world = try JSONWorld(.observe, accounts: ["alice": .hosted])
        for method in ["GET", "HEAD"] {
            #expect(world.send(method, "/welcome")?["error"] == "who", "the backend's own answer")
        }
        #expect(world.send("GET", "/welcome", fields: [("Cookie", "theme=dark")])?["error"] == "who")
    }

    /// A query can hold words and a login that the mapping does not know; other methods can change something.
    @Test func whatCouldCarryWordsIsRefused() throws {
        let world = try JSONWorld(.observe, accounts: ["alice": .hosted])
        #expect(world.send("GET", "/say?to=bob&text=canary&key=alice")?["error"] == "pawl_no_route")
        #expect(world.send("POST", "/say", "canary")?["error"] == "pawl_no_route")
        #expect(world.send("GET", "/say", "canary", fields: [("Content-Length", "6")])?["error"] == "pawl_no_route")
        #expect(world.send("GET", "/say", fields: [("X-HTTP-Method-Override", "POST")])?["error"] == "pawl_no_route")
        #expect(world.send("GET", "/a/../say")?["error"] == "pawl_no_route")
        #expect(world.send("GET", "/say", as: "t-mallory")?["error"] == "pawl_no_route")
        #expect(!world.backend.hasReceived("canary") && !world.backend.hasReceived("/say"))
    }

    @Test func underHostedForAllTheTableIsClosed() throws {
        #expect(try JSONWorld(.hosted).send("GET", "/welcome")?["error"] == "pawl_no_route")
    }

    @Test func filesAreReadAndNotSent() throws {
        var mapping = Mapping.lab
        mapping.routes.append(
            Mapping.Route(methods: ["GET"], path: try PathPattern("/files/{file}"), label: .media))
        let world = try JSONWorld(.hosted, mapping: mapping)
        for token in ["t-alice", nil] as [String?] {
            #expect(world.send("GET", "/files/f1", as: token)?["error"] != "pawl_media")
            #expect(world.send("GET", "/files/f1", as: token, fields: [("X-Method-Override", "PUT")])?.status == 403)
            #expect(world.send("POST", "/files", as: token, "x")?["error"] == "pawl_media")
        }
    }

    @Test func whatIsLookedForIsNotShownToTheBackend() throws {
        var mapping = Mapping.lab
        let list = try #require(mapping.routes.first { $0.label == .history }).response
        mapping.routes.append(
            Mapping.Route(
                methods: ["GET"], path: try PathPattern("/c/{conversation}/find"), label: .search, response: list))
        let hosted = try JSONWorld(.hosted, mapping: mapping)
        for token in ["t-alice", nil] as [String?] {
            let answer = hosted.send("GET", "/c/all/find?words=canary", as: token)
            #expect(answer?.status == 403 && answer?["error"] == "pawl_search")
        }
        #expect(!hosted.backend.hasReceived("canary"))
        let observe = try JSONWorld(.observe, mapping: mapping)
        #expect(observe.send("GET", "/c/all/find?words=canary", as: "t-alice")?.status == 404)
        #expect(observe.backend.hasReceived("canary"))
    }

    /// A client asks for the text of messages only, so what opens them is missing. That is no forgery.
    @Test func aMessageWithoutItsEnvelopeIsNamedAsSuch() throws {
        var mapping = Mapping.lab
        let lab = try #require(mapping.routes.first { $0.label == .history }?.response.first)
        var shape = lab
        shape.envelope = try path("sealed")
        shape.fallback = "This message is encrypted."
        mapping.routes = mapping.routes.map { route in
            guard route.label == .history || route.label == .sync else { return route }
            return Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label, response: [shape])
        }
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"x"}"#)
        world.backend.messages["all"] = [
            .init(id: "m1", sender: "alice", body: #"{"text":"This message is encrypted."}"#),
            .init(id: "m2", sender: "alice", body: #"{"text":"This message is encrypted. Or is it?"}"#),
        ]
        for target in ["/c/all", "/c/all?since=1"] {
            let read = try #require(world.send("GET", target, as: "t-alice"))
            #expect(read["messages[0].data.text"] == Notices.withoutEnvelope(from: "alice"), "\(read.text)")
            #expect(read["messages[1].data.text"]?.contains("not encrypted") == true, "\(read.text)")
        }
    }

    // MARK: What is read comes as it is

    @Test func anAnswerThatIsReadComesUncompressed() throws {
        var steps = ExchangeSteps(try JSONWorld(.hosted))
        guard case .passRequest(let head)? = steps.begin("GET", "/c/all", fields: ["Accept-Encoding": "gzip, br"]).last
        else {
            Issue.record("history is not looked at")
            return
        }
        #expect(head.headers["Accept-Encoding"] == ["identity"])
        steps = ExchangeSteps(try JSONWorld(.hosted))
        guard case .pass(let other)? = steps.begin("GET", "/me", fields: ["Accept-Encoding": "gzip"]).last else {
            Issue.record("what holds no messages is looked at")
            return
        }
        #expect(other.headers["Accept-Encoding"] == ["gzip"])
    }

    @Test func aWebSocketThatIsReadIsNotCompressed() throws {
        var mapping = Mapping.lab
        mapping.routes.append(
            Mapping.Route(methods: ["GET"], path: try PathPattern("/socket"), label: .passthrough))
        var steps = ExchangeSteps(try JSONWorld(.hosted, mapping: mapping))
        let handshake: HeaderFields = [
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x",
            "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
        ]
        guard case .passRequest(let head)? = steps.begin("GET", "/socket", fields: handshake).last else {
            Issue.record("the WebSocket is not looked at")
            return
        }
        #expect(head.headers["Sec-WebSocket-Extensions"] == [] && head.headers["Upgrade"] == ["websocket"])
    }
}
