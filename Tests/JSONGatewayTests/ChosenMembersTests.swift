import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Clients that ask for some members of messages get those as well by which the gateway knows a sealed message.
@Suite struct ChosenMembersTests {
    private static func mapping() throws -> Mapping {
        let list = try JSONPath("fields")
        var mapping = Mapping.lab
        mapping.routes = mapping.routes.map { route in
            guard route.label == .history || route.path.text == "/files" else { return route }
            let query = route.label == .history ? "filter" : nil
            return Mapping.Route(
                methods: route.methods, path: route.path, label: query == nil ? .passthrough : .history,
                response: route.response,
                chosenMembers: ChosenMembers(query: query, list: list, needed: ["data", "sender"]))
        }
        return mapping
    }

    @Test(arguments: [Policy.hosted, .opportunistic]) func theyAreAddedToAQueryAndToABody(_ policy: Policy) throws {
        let world = try JSONWorld(policy, mapping: Self.mapping())
        _ = world.send("GET", "/c/all?filter=%7B%22fields%22%3A%5B%22id%22%5D%7D", as: "t-bob")
        let filter = try #require(world.backend.received.last.flatMap { $0.split(separator: "filter=").last })
        let decoded = PercentCoding.decode(filter.dropLast(1).utf8).map { String(decoding: $0, as: UTF8.self) }
        #expect(decoded == #"{"fields":["id","data","sender"]}"#)
        _ = world.send("POST", "/files", as: "t-bob", #"{"a":1, "fields":["sender"]}"#)
        #expect(world.backend.received.last == #"POST /files {"a":1, "fields":["sender","data"]}"#)
        for other in [#"{"a":1}"#, #"{"fields":"x"}"#, "no JSON", #"{"fields":["data","sender"]}"#] {
            _ = world.send("POST", "/files", as: "t-bob", other)
            #expect(world.backend.received.last == "POST /files " + other)
        }
    }

    @Test func nothingIsAddedWhereNothingIsProtected() throws {
        let world = try JSONWorld(.observe, mapping: Self.mapping())
        _ = world.send("GET", "/c/all?filter={}&x={%22fields%22:[]}", as: "t-bob")
        #expect(world.backend.received.last?.hasPrefix("GET /c/all?filter={}&x={%22fields%22:[]} ") == true)
        _ = world.send("POST", "/files", as: "t-bob", #"{"fields":[]}"#)
        #expect(world.backend.received.last == #"POST /files {"fields":[]}"#)
    }
}
