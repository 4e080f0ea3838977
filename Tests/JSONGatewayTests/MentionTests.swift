import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Mentions that the gateway lists beside an envelope, because the backend cannot find them in it.
@Suite struct MentionTests {
    /// The lab's mapping with an envelope of its own, a fallback, and a list of mentions.
    private static func mapping() throws -> Mapping {
        var mapping = Mapping.lab
        let fields = MentionFields(
            object: try JSONPath("mentions"), accounts: "ids", beginning: "b",
            everyone: .init(member: "all", word: "bALL"), others: [try JSONPath("html")])
        func shape(_ shape: MessageShape) throws -> MessageShape {
            var shape = shape
            (shape.envelope, shape.fallback, shape.mentions) = (try JSONPath("sealed"), "*", fields)
            shape.fallbackParts = [FallbackPart(path: try JSONPath("html"), text: "<i>sealed</i>")]
            return shape
        }
        mapping.routes = try mapping.routes.map { route in
            Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label,
                request: try route.request.map(shape), response: try route.response.map(shape),
                remoteID: route.remoteID, conversation: route.conversation, references: route.references)
        }
        return mapping
    }

    private static func written(_ body: String, _ policy: Policy = .hosted) throws -> (JSONWorld, String) {
        let world = try JSONWorld(policy, mapping: mapping())
        #expect(world.send("GET", "/me", as: "t-bob")?.status == 200)
        #expect(world.send("POST", "/c/all", as: "t-alice", body)?.status == 201)
        return (world, try #require(world.backend.messages["all"]?.last?.body))
    }

    @Test(arguments: [
        (#"{"text":"hi bob, see (bob)."}"#, #""mentions":{"ids":["bob"]}"#),
        (#"{"text":"hi bobby, xbob and bo"}"#, #""mentions":{}"#), (#"{"text":"canary"}"#, #""mentions":{}"#),
        (#"{"text":"bALL!"}"#, #""mentions":{"all":true}"#),
        (#"{"text":"x","html":"<a href='/#/%62ob'>B</a>"}"#, #""mentions":{"ids":["bob"]}"#),
        (#"{"text":"100%, 5%zz %6"}"#, #""mentions":{}"#),
        (#"{"text":"bob","mentions":{"ids":[]}}"#, #""mentions":{"ids":[]}"#),
    ]) func mentionsAreFilledFromTheText(_ body: String, _ part: String) throws {
        let (world, sealed) = try Self.written(body)
        #expect(sealed.contains(part), "\(sealed)")
        #expect(!world.backend.hasReceived("canary"))
    }

    /// What the server could take for words of the sender stands only where it does not look.
    @Test func theFallbackIsRemovedWhenTheMessageIsOpened() throws {
        let (world, sealed) = try Self.written(#"{"text":"canary bob"}"#)
        #expect(sealed.contains(#""text":"*""#) && sealed.contains(#""html":"<i>sealed</i>""#))
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[0].data.text"] == "canary bob" && read["messages[0].data.html"] == nil)
        #expect(read["messages[0].data.mentions.ids[0]"] == "bob")
        let (other, _) = try Self.written(#"{"text":"canary","html":"<b>canary</b>"}"#)
        #expect(other.send("GET", "/c/all", as: "t-bob")?["messages[0].data.html"] == "<b>canary</b>")
    }

    @Test func aMessageInTheClearStaysAsItIs() throws {
        #expect(try Self.written(#"{"text":"bob"}"#, .observe).1 == #"{"text":"bob"}"#)
    }

    /// Names of many people, and a text that is one name, cost no more than a bound.
    @Test func namesAreBounded() throws {
        let many = (0..<1000).map { "b\($0)" }.joined(separator: " ") + " bob"
        #expect(try Self.written(#"{"text":"\#(many)"}"#).1.contains(#""mentions":{}"#))
        let long = String(repeating: "b", count: 20_000)
        #expect(try Self.written(#"{"text":"\#(long) bob"}"#).1.contains(#""mentions":{"ids":["bob"]}"#))
    }
}
