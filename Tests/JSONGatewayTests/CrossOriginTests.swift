import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// What pages in browsers can read of the gateway's own answers.
@Suite struct CrossOriginTests {
    private static let page = "https://app.example.org"

    private func world(_ crossOrigin: CrossOrigin?) throws -> JSONWorld {
        var mapping = Mapping.lab(answer: .atOnce(status: 202, body: #"{"message_id":"{local_id}"}"#))
        mapping.crossOrigin = crossOrigin
        return try JSONWorld(.hosted, mapping: mapping)
    }

    /// A refusal, an answer at once, no login, and a call of the control plane.
    private func answers(_ world: JSONWorld, from origin: String) -> [JSONWorld.Answer] {
        let fields = [("Origin", origin)]
        return [
            world.send("POST", "/files", as: "t-alice", "x", fields: fields),
            world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"x"}"#, fields: fields),
            world.send("POST", "/c/all", #"{"id":"1","text":"x"}"#, fields: fields),
            world.send("GET", "/_pawl/v1/me", as: "t-alice", fields: fields),
            world.send("GET", "/_pawl/v1/me", fields: fields),
        ].compactMap { $0 }
    }

    @Test func everyPageMayReadWhereTheMappingAllowsIt() throws {
        let answers = answers(try world(CrossOrigin(origins: .any)), from: Self.page)
        #expect(answers.map(\.status) == [403, 202, 401, 200, 401])
        for answer in answers { #expect(answer.headers["Access-Control-Allow-Origin"] == ["*"]) }
    }

    @Test func listedPagesAloneMayRead() throws {
        let world = try world(CrossOrigin(origins: .listed([Self.page]), allowsCredentials: true))
        for answer in answers(world, from: Self.page) {
            #expect(answer.headers["Access-Control-Allow-Origin"] == [Self.page])
            #expect(answer.headers["Access-Control-Allow-Credentials"] == ["true"])
            #expect(answer.headers["Vary"] == ["Origin"])
        }
        for answer in answers(world, from: Self.page + ".evil.example") {
            #expect(answer.headers["Access-Control-Allow-Origin"] == [])
            #expect(answer.headers["Access-Control-Allow-Credentials"] == [])
            #expect(answer.headers["Vary"] == ["Origin"])
        }
    }

    @Test func withoutAWordOfTheMappingNothingIsAdded() throws {
        for answer in answers(try world(nil), from: Self.page) {
            #expect(answer.headers["Access-Control-Allow-Origin"] == [] && answer.headers["Vary"] == [])
        }
    }

    @Test func theControlPlaneAnswersPreflights() throws {
        let asked = [("Origin", Self.page), ("Access-Control-Request-Method", "PUT")]
        let world = try world(CrossOrigin(origins: .listed([Self.page])))
        let before = world.backend.received.count
        let answer = try #require(world.send("OPTIONS", "/_pawl/v1/device", fields: asked))
        #expect(answer.status == 204)
        #expect(answer.headers["Access-Control-Allow-Origin"] == [Self.page])
        #expect(answer.headers["Access-Control-Allow-Methods"] == ["GET, POST, PUT, DELETE"])
        #expect(answer.headers["Access-Control-Allow-Headers"] == ["Authorization, Content-Type"])
        #expect(answer.headers["Vary"] == ["Origin"])
        let other = [("Origin", "https://evil.example"), asked[1]]
        let refused = try #require(world.send("OPTIONS", "/_pawl/v1/device", fields: other))
        #expect(refused.headers["Access-Control-Allow-Methods"] == [])
        #expect(refused.headers["Vary"] == ["Origin"])
        #expect(world.backend.received.count == before, "no backend sees it")
        // What is no preflight is a call without a login.
        #expect(world.send("OPTIONS", "/_pawl/v1/device")?.status == 401)
    }

    @Test func faultsOfTheConnectionCanBeReadToo() throws {
        var mapping = Mapping.lab
        mapping.crossOrigin = CrossOrigin(origins: .listed([Self.page]))
        let (head, _) = GatewayFault.unavailable("busy").answer(mapping, to: ["Origin": Self.page])
        #expect(head.headers["Access-Control-Allow-Origin"] == [Self.page])
        #expect(head.headers["Access-Control-Expose-Headers"] == ["Retry-After"])
        #expect(GatewayFault.requestTimeout.answer(mapping, to: nil).0.headers["Access-Control-Allow-Origin"] == [])
    }

    // MARK: Outages

    private func preflight(_ fields: [(String, String)]) -> RequestHead {
        RequestHead(
            "OPTIONS", "/c/all", headers: HeaderFields(fields.map { HeaderFields.Field($0.0, $0.1) }))
    }

    /// A page can read that the server is away only if its preflight succeeds.
    @Test(arguments: [GatewayFault.upstreamUnreachable, .upstreamTimeout, .unavailable("busy")])
    func theGatewayAnswersPreflightsInAnOutage(_ fault: GatewayFault) {
        var mapping = Mapping.lab
        let fields = [
            ("Origin", Self.page), ("Access-Control-Request-Method", "PUT"),
            ("Access-Control-Request-Headers", "authorization,content-type"),
        ]
        for origins in [CrossOrigin.Origins.any, .listed([Self.page])] {
            mapping.crossOrigin = CrossOrigin(origins: origins)
            let (head, body) = fault.answer(mapping, toRequest: preflight(fields))
            #expect(head.status == 204 && body.readableBytes == 0)
            #expect(head.headers["Access-Control-Allow-Origin"] == [origins == .any ? "*" : Self.page])
            #expect(head.headers["Access-Control-Allow-Methods"] == ["PUT"])
            #expect(head.headers["Access-Control-Allow-Headers"] == ["authorization,content-type"])
            #expect(head.headers["Access-Control-Max-Age"] == ["0"], "the backend decides when it is back")
        }
        // Pages that are not listed, requests that are no preflights, and mappings that say nothing of pages.
        var others = [preflight([("Origin", "https://evil.example"), fields[1]]), preflight([fields[0]])]
        others.append(RequestHead("PUT", "/c/all", headers: ["Origin": Self.page]))
        others.append(preflight(fields + [("Content-Length", "1")]))
        for request in others { #expect(fault.answer(mapping, toRequest: request).0.status == fault.status) }
        mapping.crossOrigin = nil
        #expect(fault.answer(mapping, toRequest: preflight(fields)).0.status == fault.status)
    }

    @Test func aFaultOfThePreflightItselfIsRefused() {
        var mapping = Mapping.lab
        mapping.crossOrigin = CrossOrigin(origins: .any)
        let request = preflight([("Origin", Self.page), ("Access-Control-Request-Method", "PUT")])
        for fault in [GatewayFault.message(.malformed), .requestTimeout, .requestTooLong] {
            #expect(fault.answer(mapping, toRequest: request).0.status == fault.status)
        }
    }

    // MARK: Foreign pages

    private static let host = ("Host", "chat.example")

    private func isForeign(_ fields: [(String, String)], _ crossOrigin: CrossOrigin? = nil) -> Bool {
        var mapping = Mapping.lab
        mapping.crossOrigin = crossOrigin
        return mapping.isOfForeignPage(HeaderFields(fields.map { HeaderFields.Field($0.0, $0.1) }))
    }

    @Test func pagesAreForeignUnlessTheyAreOwnOrListed() {
        let listed = CrossOrigin(origins: .listed([Self.page]), allowsCredentials: true)
        let page = ("Origin", Self.page)
        #expect(!isForeign([Self.host]), "a client that is no browser")
        #expect(!isForeign([Self.host, ("Origin", "https://chat.example")]))
        #expect(!isForeign([("Host", "Chat.example:8443"), ("Origin", "https://chat.example:8443")]))
        #expect(
            !isForeign([("Host", "inside:8080"), ("Origin", "https://chat.example"), ("Sec-Fetch-Site", "same-origin")])
        )
        #expect(!isForeign([Self.host, ("Sec-Fetch-Site", "none")]))
        #expect(!isForeign([Self.host, page], listed))
        #expect(!isForeign([Self.host, page, ("Sec-Fetch-Site", "cross-site")], listed))

        #expect(isForeign([Self.host, page]))
        #expect(isForeign([Self.host, page], CrossOrigin(origins: .any)))
        #expect(isForeign([Self.host, page], CrossOrigin(origins: .listed([Self.page]))))
        #expect(isForeign([Self.host, ("Origin", "https://evil.example")], listed))
        for origin in ["null", "", "https://chat.example.evil", "https://chat.example:444", "chat.example"] {
            #expect(isForeign([Self.host, ("Origin", origin)]), "\(origin)")
        }
        for site in ["cross-site", "same-site", "", "same-origin, none"] {
            #expect(isForeign([Self.host, ("Origin", "https://chat.example"), ("Sec-Fetch-Site", site)]), "\(site)")
            #expect(isForeign([Self.host, ("Sec-Fetch-Site", site)]), "\(site) without an origin")
        }
        #expect(isForeign([Self.host, page, page], listed))
        #expect(isForeign([("Origin", "https://chat.example")]))
        #expect(isForeign([Self.host, ("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "same-origin")]))
    }

    /// Cookies and remembered passwords come with the requests of every page; a token does not.
    @Test func foreignPagesCannotUseLoginsOfTheBrowserForCalls() throws {
        var mapping = Mapping.lab
        mapping.account.credentials.append(.cookie("session"))
        mapping.crossOrigin = CrossOrigin(origins: .listed([Self.page]), allowsCredentials: true)
        let world = try JSONWorld(.hosted, mapping: mapping)
        let evil = ("Origin", "https://evil.example")
        for login in [
            ("Cookie", "session=t-alice"), ("Authorization", "Basic YWxpY2U6eA=="), ("authorization", "NEGOTIATE x"),
        ] {
            let before = world.backend.received.count
            for call in ["POST /_pawl/v1/challenge", "GET /_pawl/v1/me", "POST /_pawl/v1/registrations"] {
                let words = call.split(separator: " ").map(String.init)
                let answer = try #require(world.send(words[0], words[1], fields: [evil, login]))
                #expect(answer.status == 403 && answer["error"] == "pawl_foreign_page", "\(login) \(call)")
                #expect(answer.headers["Access-Control-Allow-Origin"] == [])
            }
            #expect(world.backend.received.count == before, "not even a lookup")
        }
        #expect(world.send("GET", "/_pawl/v1/me", as: "t-alice", fields: [evil])?.status == 200)
        let both = world.send("GET", "/_pawl/v1/me", as: "t-alice", fields: [evil, ("Cookie", "session=t-alice")])
        #expect(both?.status == 403, "the backend may prefer the cookie")
        let own = world.send("GET", "/_pawl/v1/me", fields: [("Origin", Self.page), ("Cookie", "session=t-alice")])
        #expect(own?.status != 403)
    }
}
