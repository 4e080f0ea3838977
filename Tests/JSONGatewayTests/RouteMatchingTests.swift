import HTTPCodec
import JSONGateway
import NIOCore
import TestKit
import Testing

/// Which route a request fits, and which requests fit none because they can be read in two ways.
@Suite struct RouteMatchingTests {
    @Test func patternsAreRead() throws {
        let pattern = try PathPattern("/rooms/{conversation}/send/m.room.message/{local_id}")
        #expect(
            pattern.segments == [
                .literal("rooms"), .capture("conversation"), .literal("send"), .literal("m.room.message"),
                .capture("local_id"),
            ])
        #expect(pattern.captureNames == ["conversation", "local_id"])
        #expect(try PathPattern("/").segments == [.literal("")])
        #expect(try PathPattern("/rules/").segments == [.literal("rules"), .literal("")])
        #expect(try PathPattern("/**").segments == [.rest])
    }

    @Test(arguments: [
        "", "rooms", "http://a/b", "//", "/a//b", "/a/**/b", "/a/x*", "/a/{", "/a/{}", "/a/{b", "/a/b}", "/a/{b}c",
        "/a/{b c}", "/{a}/{a}", "/a?b", "/a#b", "/a%20b", "/a b", "/a/..", "/./a", "/a;b", "/a\\b", "/a\u{7F}",
        "/" + String(repeating: "a", count: 1024), String(repeating: "/a", count: 65),
    ]) func patternsAreRefused(_ text: String) {
        #expect(patternFault(text) != nil)
    }

    @Test func theFirstRouteThatFitsCounts() throws {
        let mapping = try Mapping.of([
            "POST /login", "GET /users/me", "GET|PUT /users/{user}", "* /users/{user}/{rest}", "GET /**",
            "DELETE /users/me", "GET /never",
        ])
        #expect(mapping.number("POST", "/login") == 0)
        #expect(mapping.number("GET", "/login") == 4)
        #expect(mapping.number("GET", "/users/me") == 1)
        #expect(mapping.number("PUT", "/users/me") == 2)
        #expect(mapping.number("DELETE", "/users/me") == 5)
        #expect(mapping.number("DELETE", "/users/alice") == nil)
        #expect(mapping.number("BREW", "/users/alice/keys") == 3)
        #expect(mapping.number("HEAD", "/users/me") == 1)
        #expect(mapping.number("get", "/users/me") == nil)
        #expect(mapping.number("GET", "/never") == 4)
        #expect(mapping.number("GET", "/") == 4)
    }

    @Test func aRestTakesOneSegmentOrMore() throws {
        let mapping = try Mapping.of(["GET /files/**", "GET /rules/"])
        #expect(mapping.number("GET", "/files") == nil)
        #expect(mapping.number("GET", "/files/a") == 0)
        #expect(mapping.number("GET", "/files/a/b/") == 0)
        #expect(mapping.number("GET", "/rules/") == 1)
        #expect(mapping.number("GET", "/rules") == nil)
        #expect(mapping.number("GET", "/rules/a") == nil)
    }

    @Test func capturesAreDecoded() throws {
        let mapping = try Mapping.of(["PUT /rooms/{room}/send/{kind}/{txn}"])
        let captures = try #require(mapping.captures("PUT", "/rooms/%21abc%3Aexample.org/send/m.text/t%C3%A41?x=y"))
        #expect(captures["room"] == "!abc:example.org")
        #expect(captures["txn"] == "tä1")
        #expect(captures["user"] == nil)
        #expect(captures.all.map(\.name) == ["room", "kind", "txn"])
        // what is a literal may be encoded as well
        #expect(mapping.number("PUT", "/r%6Foms/a/send/m/1") == 0)
        #expect(mapping.number("PUT", "/rooms//send/m/1") == nil)
        #expect(mapping.number("PUT", "/rooms/a/send/m/") == nil)
    }

    /// A backend that undoes them reads another path than the one that is matched here.
    @Test(arguments: [
        "/files/../messages", "/files/%2e%2e/messages", "/files/.%2E/messages", "/files/./a", "/files/%2e", "/files//a",
        "//files/a", "/files/a%2Fb", "/files/a%2fb", "/files/a%5Cb", "/files/a\\b", "/files/a;b", "/files/a%3Bb",
        "/files;x/a", "/files/%252e%252e/messages", "/files/a%00", "/files/a%0A", "/files/%", "/files/%4", "/files/%zz",
        "/files/%C3", "/files/%C0%AF", "/files/ä", "/files/a b", "/files/a#b", "http://host/files/a", "*", "",
        "files/a",
        "/" + String(repeating: "a/", count: 64),
    ]) func whatCanBeReadTwiceFitsNothing(_ target: String) throws {
        let mapping = try Mapping.of(["* /**"])
        #expect(mapping.number("GET", target) == nil)
        #expect(RequestPath.fault(RequestHead("GET", target).path) != nil)
        #expect(mapping.number("GET", "/files/a") == 0)
        #expect(RequestPath.fault("/files/a") == nil)
    }

    @Test(arguments: [
        "X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X-Original-URL", "x-rewrite-url",
        "X_HTTP_Method_Override", "x-original_URL",
    ]) func requestsThatAskToBeReadOtherwiseFitNothing(_ field: String) throws {
        let mapping = try Mapping.of(["* /**"])
        #expect(mapping.number("GET", "/files/a", [field: "POST"]) == nil)
        #expect(mapping.number("GET", "/files/a", ["X-Forwarded-For-Whom-It-Concerns": "POST"]) == 0)
    }

    @Test func queriesAreAsked() throws {
        let mapping = try Mapping.of(["GET /sync?since", "GET /sync?!since&full=yes", "GET /sync?!since", "GET /open"])
        #expect(mapping.number("GET", "/sync?since=s1") == 0)
        #expect(mapping.number("GET", "/sync?a=b&si%6Ece=") == 0)
        #expect(mapping.number("GET", "/sync?since") == 0)
        #expect(mapping.number("GET", "/sync?full=yes") == 1)
        #expect(mapping.number("GET", "/sync?full=yes+") == 2)
        #expect(mapping.number("GET", "/sync") == 2)
        #expect(mapping.number("GET", "/sync?") == 2)
        // neither there nor absent
        #expect(mapping.number("GET", "/sync?since=1&since=2") == nil)
        #expect(mapping.number("GET", "/sync?since=%zz") == nil)
        #expect(mapping.number("GET", "/sync?a=b;since=1") == nil)
        #expect(mapping.number("GET", "/open?a=b;since=1") == 3)
    }

    @Test func queriesAreRead() {
        let query = RequestQuery("a=b+c&d=%26&e&a%62=x=y&&f=%ff&g=1&g=1")
        #expect(query["a"] == .single("b c"))
        #expect(query["d"] == .single("&"))
        #expect(query["e"] == .single(""))
        #expect(query["ab"] == .single("x=y"))
        #expect(query["f"] == .ambiguous)
        #expect(query["g"] == .ambiguous)
        #expect(query["h"] == .absent)
        #expect(RequestQuery(nil)["a"] == .absent)
        #expect(RequestQuery("%zz=1&a=b")["a"] == .ambiguous)
        let many = (0...RequestQuery.pairLimit).map { "n\($0)=1" }.joined(separator: "&")
        #expect(RequestQuery(Substring(many))["n1"] == .ambiguous)
    }

    @Test func questionsNameTheConversation() {
        #expect(
            Mapping.target("/rooms/{conversation}/members?x=1", "conversation", "!a/ä:b")
                == "/rooms/%21a%2F%C3%A4%3Ab/members?x=1")
        #expect(Mapping.target("/me", "conversation", "a") == "/me")
    }

    @Test func framesAreDistinguished() throws {
        var mapping = try Mapping.of([])
        mapping.frames = [
            FrameRoute(direction: .fromClient, when: try path("[?type == \"send\"]"), label: .content),
            FrameRoute(direction: .fromBackend, when: try path("[?type == \"message\"]"), label: .sync),
            FrameRoute(direction: .fromBackend, when: nil, label: .passthrough),
        ]
        #expect(mapping.frame(for: try document(#"{"type":"send"}"#), .fromClient)?.label == .content)
        #expect(mapping.frame(for: try document(#"{"type":"message"}"#), .fromClient) == nil)
        #expect(mapping.frame(for: try document(#"{"type":"message"}"#), .fromBackend)?.label == .sync)
        #expect(mapping.frame(for: try document(#"{"type":"typing"}"#), .fromBackend)?.label == .passthrough)
        #expect(mapping.frame(for: try document("[1]"), .fromBackend)?.label == .passthrough)
        // nobody can say what kind these are
        #expect(mapping.frame(for: try document(#"{"type":"send","type":"typing"}"#), .fromClient) == nil)
        #expect(mapping.frame(for: try document(#"{"type":"typing","type":"message"}"#), .fromBackend) == nil)
        mapping.frames.removeFirst(2)
        #expect(mapping.frame(for: try document(#"{"type":"typing","type":"message"}"#), .fromBackend) == nil)
    }

    /// The index finds what a walk through all routes finds, and no bytes make it fail.
    @Test(arguments: 1...20 as ClosedRange<UInt64>) func theIndexIsAWalk(_ seed: UInt64) throws {
        var chance = SeededGenerator(seed: seed)
        let words = ["a", "b", "c", "{x}", "{y}"]
        var patterns: [String] = []
        for _ in 0..<30 {
            let parts = (0..<Int.random(in: 1...4, using: &chance)).map { _ in
                words.randomElement(using: &chance) ?? "a"
            }
            var seen: Set<String> = []
            var text =
                "/" + parts.map { $0.hasPrefix("{") && !seen.insert($0).inserted ? "a" : $0 }.joined(separator: "/")
            if Int.random(in: 0..<5, using: &chance) == 0 { text += "/**" }
            patterns.append("GET " + text)
        }
        let mapping = try Mapping.of(patterns)
        var hits = 0
        for _ in 0..<200 {
            let parts = (0..<Int.random(in: 1...5, using: &chance)).map { _ in
                ["a", "b", "c", "d", "%61", "", "..", "%2f"].randomElement(using: &chance) ?? "a"
            }
            let target = "/" + parts.joined(separator: "/")
            let segments = RequestPath(Substring(target))?.segments
            let walked = segments.flatMap { segments in
                mapping.routes.firstIndex { Self.fits($0.path.segments[...], segments[...]) }
            }
            let number = mapping.number("GET", target)
            #expect(number.map { patterns[$0] } == walked.map { patterns[$0] })
            hits += number == nil ? 0 : 1
        }
        #expect(hits > 10)
    }

    private static func fits(_ pattern: ArraySlice<PathPattern.Segment>, _ segments: ArraySlice<String>) -> Bool {
        guard let first = pattern.first else { return segments.isEmpty }
        guard let segment = segments.first else { return false }
        return switch first {
        case .rest: true
        case .literal(let text): text == segment && fits(pattern.dropFirst(), segments.dropFirst())
        case .capture: !segment.isEmpty && fits(pattern.dropFirst(), segments.dropFirst())
        }
    }
}
