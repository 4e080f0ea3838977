import JSONGateway
import Testing

/// What the mapping says nothing of is listed by its shape, and never grows.
@Suite struct UnmatchedTests {
    @Test func oneRowForOneShape() {
        let requests = UnmatchedRequests()
        for path in ["/api/v2/typing", "/api/rooms/12/pin", "/api/rooms/!x%3Ay/pin", "/api/rooms/\u{FFFD}/pin"] {
            requests.note("POST", path, at: 5)
        }
        requests.note("GET", "/api/rooms/77/pin", at: 9)
        requests.note("POST", "/api/rooms/" + String(repeating: "a", count: 33) + "/pin", at: 7)
        #expect(
            requests.all
                == [
                    .init(method: "POST", path: "/api/rooms/*/pin", count: 4, lastSeen: 7),
                    .init(method: "POST", path: "/api/v2/typing", count: 1, lastSeen: 5),
                    .init(method: "GET", path: "/api/rooms/*/pin", count: 1, lastSeen: 9),
                ].sorted { ($1.count, $0.path, $0.method) < ($0.count, $1.path, $1.method) })
    }

    /// Versions and names that begin as a domain does tell what a request is.
    @Test(arguments: [
        ("/client/v3/x", "/client/v3/x"), ("/client/r0/x", "/client/r0/x"), ("/client/v1234/x", "/client/*/x"),
        ("/unstable/org.matrix.simplified_msc3575/sync", "/unstable/org.matrix.simplified_msc3575/sync"),
        ("/rooms/!a1:org.example", "/rooms/*"), ("/user/@a:org.example", "/user/*"), ("/f/org.1/x", "/f/*/x"),
        ("/f/alexander.7/x", "/f/*/x"),
    ]) func whatNamesNoOneThingStays(_ path: String, _ shape: String) {
        let requests = UnmatchedRequests()
        requests.note("GET", path, at: 1)
        #expect(requests.all.map(\.path) == [shape])
    }

    @Test func aFloodFillsNothing() {
        let requests = UnmatchedRequests()
        let words = (0..<1000).map { number in
            String(String(number).map { Character(UnicodeScalar(UInt8($0.wholeNumberValue!) + 97)) })
        }
        for word in words { requests.note("GET", "/" + word, at: 1) }
        requests.note("GET", "/" + words[0], at: 2)
        let all = requests.all
        #expect(all.count == UnmatchedRequests.limit + 1)
        #expect(all.first == .init(method: "", path: UnmatchedRequests.others, count: 800, lastSeen: 1))
        #expect(all.reduce(0) { $0 + $1.count } == 1001)
        requests.note(String(repeating: "X", count: 999), "/" + String(repeating: "a/", count: 999), at: 3)
        #expect(requests.all.allSatisfy { $0.path.count <= 120 && $0.method.count <= 16 })
    }
}
