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
}
