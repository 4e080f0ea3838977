import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Requests whose backend goes by a body that repeats the last segment of the path.
@Suite struct RepeatedSegmentTests {
    private static func world(_ policy: Policy) throws -> JSONWorld {
        var mapping = Mapping.lab
        let list = try #require(mapping.routes.first { $0.label == .history }?.response)
        let method = RepeatedSegment(path: try JSONPath("message.method"), parsed: [try JSONPath("message")])
        let calls = [
            Mapping.Route(
                methods: ["POST"], path: try PathPattern("/call/{name}"), label: .passthrough, repeated: method),
            Mapping.Route(
                methods: ["GET"], path: try PathPattern("/c/{conversation}"), label: .history, response: list,
                repeated: method),
        ]
        mapping.routes = calls + mapping.routes
        return try JSONWorld(policy, mapping: mapping)
    }

    private static func body(_ method: String) -> String {
        #"{"message":"{\"method\":\"\#(method)\",\"params\":[\"canary\"]}"}"#
    }

    private static let code = "pawl_no_route"

    @Test(arguments: ["read", "rooms:get", "rooms%3Aget"]) func theSameMethodPasses(_ name: String) throws {
        let world = try Self.world(.hosted)
        let method = name == "read" ? name : "rooms/get"
        let answer = try #require(world.send("POST", "/call/" + name, as: "t-alice", Self.body(method)))
        #expect(answer["error"] != Self.code && world.backend.hasReceived("canary"))
    }

    @Test(arguments: [
        body("send"), body("Read"), body("read/"), "", "{}", "canary", #"{"message":"canary"}"#, #"{"message":"[]"}"#,
        #"{"message":"{\"method\":\"read\",\"method\":\"canary\"}"}"#, #"{"message":"{\"method\":1}","x":"canary"}"#,
        #"{"message":"{\"method\":\"read\"}","message":"{\"method\":\"canary\"}"}"#,
    ]) func anotherMethodIsRefused(_ body: String) throws {
        let world = try Self.world(.hosted)
        #expect(world.send("POST", "/call/read", as: "t-alice", body)?["error"] == Self.code)
        #expect(!world.backend.hasReceived("canary"))
    }

    /// A body may be JSON and a form at once, and a login may be one that the gateway does not know.
    @Test func whatCannotBeComparedIsRefused() throws {
        let world = try Self.world(.hosted)
        let form = [("Content-Type", "application/x-www-form-urlencoded")]
        #expect(world.send("POST", "/call/read", as: "t-alice", Self.body("read"), fields: form)?["error"] == Self.code)
        #expect(world.send("POST", "/call/read", Self.body("read"))?.status == 401)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func whereNothingIsProtectedItPasses() throws {
        let world = try Self.world(.observe)
        #expect(world.send("POST", "/call/read", as: "t-alice", Self.body("send"))?["error"] != Self.code)
        #expect(world.backend.hasReceived("canary"))
    }

    @Test func messagesInTheAnswerAreOpened() throws {
        let world = try Self.world(.hosted)
        world.send("GET", "/me", as: "t-bob")
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"hello"}"#)?.status == 201)
        let read = try #require(world.send("GET", "/c/all", as: "t-bob", Self.body("all")))
        #expect(read.status == 200 && read["messages[0].data.text"] == "hello")
        #expect(world.send("GET", "/c/all", as: "t-bob", Self.body("other"))?["error"] == Self.code)
    }
}
