import CallSignalling
import TestKit
import Testing

/// The routing key in all spellings.
@Suite struct CallRouteTests {
    private static let uuid = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"

    @Test(arguments: ["", "#", "conf-", "#conf-", "standup_", "#standup_", "  ", "\n"])
    func allSpellingsOfAUUIDAreOneRoute(_ prefix: String) throws {
        let route = try #require(CallRoute(Self.uuid))
        #expect(CallRoute(prefix + Self.uuid) == route)
        #expect(CallRoute(prefix + Self.uuid.uppercased() + " ") == route)
    }

    @Test func otherIdsAreComparedExactly() throws {
        #expect(CallRoute("Room") != CallRoute("room"))
        #expect(CallRoute("#room") == CallRoute("room") && CallRoute("conf-room") == CallRoute("room"))
        #expect(CallRoute("a" + Self.uuid) != CallRoute(Self.uuid))
        #expect(CallRoute(String(Self.uuid.dropLast())) != CallRoute(Self.uuid))
        #expect(CallRoute(String(Self.uuid.dropLast()) + "g") != CallRoute(Self.uuid))
        #expect(CallRoute("\u{E9}") == CallRoute("\u{E9}"))
    }

    @Test func emptyAndLongIdsAreRefused() {
        for id in ["", " ", "\t\n"] { #expect(CallRoute(id) == nil) }
        #expect(CallRoute("#") != nil)
        #expect(CallRoute(String(repeating: "a", count: CallRoute.limit)) != nil)
        #expect(CallRoute(String(repeating: "a", count: CallRoute.limit + 1)) == nil)
    }

    @Test func anyTextHasTheSameRouteTwice() {
        var random = SeededGenerator(seed: 3)
        for _ in 0..<2000 {
            let text = String(decoding: random.bytes(random.below(80)), as: UTF8.self)
            guard let route = CallRoute(text) else { continue }
            #expect(CallRoute(text) == route && !route.text.isEmpty)
        }
    }
}
