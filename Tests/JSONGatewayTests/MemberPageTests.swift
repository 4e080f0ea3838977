import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Members that a backend gives in several answers: they are complete, or unknown.
@Suite struct MemberPageTests {
    private static let credential = Credential(
        of: RequestHead("GET", "/", headers: ["Authorization": "Bearer t"]), at: [.header("Authorization")])

    private static func source(_ order: MemberPaging.Order, _ query: String) throws -> MembersSource {
        var source = MembersSource(
            target: "/c/{conversation}/members?all=1", accounts: try JSONPath("members[*]"), areNames: false)
        source.paging = MemberPaging(query: query, order: order)
        return source
    }

    private static func pages(_ source: MembersSource) throws -> MemberPages {
        MemberPages(source, of: "a room", by: try #require(credential))
    }

    private static func body(_ members: [String], next: String = "null") -> ByteBuffer {
        let list = members.map { "\"\($0)\"" }.joined(separator: ",")
        return ByteBuffer(string: #"{"members":[\#(list)],"meta":{"next":\#(next)}}"#)
    }

    /// Plays a backend that gives these pages, one after the other.
    private static func play(
        _ source: MembersSource, _ answers: [(Int, ByteBuffer)]
    ) throws -> (asked: [String], members: [String]?) {
        var pages = try pages(source)
        var asked = [pages.lookup.head.target]
        for (status, body) in answers {
            switch pages.take(ResponseHead(status), body) {
            case .ask(let lookup): asked.append(lookup.head.target)
            case .found(let members): return (asked, members.map(\.name))
            case .unknown: return (asked, nil)
            }
        }
        Issue.record("more pages are asked for than there are")
        return (asked, nil)
    }

    private static let base = "/c/a%20room/members?all=1"

    @Test func byNumber() throws {
        let source = try Self.source(.number(first: 1), "page={page}&size=2")
        let played = try Self.play(
            source, [(200, Self.body(["a", "b"])), (200, Self.body(["c"])), (200, Self.body([]))])
        #expect(played.members == ["a", "b", "c"])
        #expect(played.asked == (1...3).map { "\(Self.base)&page=\($0)&size=2" })
    }

    /// The next offset is the number of members received, because a backend may give fewer than asked for.
    @Test func byOffset() throws {
        let source = try Self.source(.offset, "offset={offset}&count=100")
        let played = try Self.play(
            source, [(200, Self.body(["a", "b", "c"])), (200, Self.body(["d"])), (200, Self.body([]))])
        #expect(played.members == ["a", "b", "c", "d"])
        #expect(played.asked == [0, 3, 4].map { "\(Self.base)&offset=\($0)&count=100" })
    }

    @Test(arguments: ["null", #""""#]) func byCursor(_ end: String) throws {
        let source = try Self.source(.cursor(try JSONPath("meta.next")), "cursor={cursor}")
        let played = try Self.play(
            source,
            [
                (200, Self.body(["a"], next: #""x&y=""#)), (200, Self.body([], next: "7")),
                (200, Self.body(["b"], next: end)),
            ])
        #expect(played.members == ["a", "b"])
        #expect(played.asked == [Self.base, "\(Self.base)&cursor=x%26y%3D", "\(Self.base)&cursor=7"])
        let single = try Self.play(source, [(200, ByteBuffer(string: #"{"members":["a"]}"#))])
        #expect(single.members == ["a"] && single.asked.count == 1)
    }

    @Test func byTheLastOfThePageBefore() throws {
        let source = try Self.source(.last(nil), "after={last}")
        let played = try Self.play(
            source, [(200, Self.body(["a", "b&"])), (200, Self.body(["c"])), (200, Self.body([]))])
        #expect(played.members == ["a", "b&", "c"])
        #expect(played.asked == [Self.base, "\(Self.base)&after=b%26", "\(Self.base)&after=c"])
        // A value beside the members, and an end that repeats a page.
        let beside = try Self.source(.last(try JSONPath("meta.next")), "after={last}")
        let pages = [(200, Self.body(["a"], next: "7")), (200, Self.body(["a"], next: "7"))]
        #expect(try Self.play(beside, pages).members == ["a"])
        for next in ["null", "{}", "[]"] {
            #expect(try Self.play(beside, [(200, Self.body(["a"], next: next))]).members == nil, "\(next)")
        }
        let stuck = [(200, Self.body(["a"], next: "7")), (200, Self.body(["b"], next: "7"))]
        #expect(try Self.play(beside, stuck).members == nil)
    }

    /// A backend that knows no pages gives the same answer again.
    @Test func aRepeatedPageIsTheEnd() throws {
        let source = try Self.source(.number(first: 0), "page={page}")
        let played = try Self.play(source, [(200, Self.body(["a"])), (200, Self.body(["a"]))])
        #expect(played.members == ["a"] && played.asked.count == 2)
    }

    @Test(arguments: [
        (429, #"{"members":["b"]}"#), (500, ""), (404, "{}"), (200, "no JSON"), (200, #"{"members":[{}]}"#),
    ]) func aMissingPageMakesThemUnknown(_ status: Int, _ text: String) throws {
        let source = try Self.source(.number(first: 0), "page={page}")
        let played = try Self.play(source, [(200, Self.body(["a"])), (status, ByteBuffer(string: text))])
        #expect(played.members == nil)
    }

    @Test func aCursorThatComesAgainOrIsNoneMakesThemUnknown() throws {
        let source = try Self.source(.cursor(try JSONPath("meta.next")), "cursor={cursor}")
        let again = Self.body(["a"], next: #""x""#)
        #expect(try Self.play(source, [(200, again), (200, again)]).members == nil)
        for next in ["{}", "true", "[1]", "\"\(String(repeating: "x", count: MemberPages.cursorLimit + 1))\""] {
            #expect(try Self.play(source, [(200, Self.body(["a"], next: next))]).members == nil, "\(next)")
        }
    }

    @Test func pagesAreBounded() throws {
        let source = try Self.source(.number(first: 0), "page={page}")
        let endless = (0..<MemberPages.limit).map { (200, Self.body(["m\($0)"])) }
        let played = try Self.play(source, endless)
        #expect(played.members == nil && played.asked.count == MemberPages.limit)
        let half = MemberCache.memberLimit / 2 + 1
        let many = [0, half].map { start in (200, Self.body((start..<start + half).map { "m\($0)" })) }
        #expect(try Self.play(source, many).members == nil)
    }

    // MARK: In an exchange

    private static func mapping() throws -> Mapping {
        var mapping = Mapping.lab
        mapping.members?.paging = MemberPaging(query: "page={page}", order: .number(first: 0))
        return mapping
    }

    /// The one who holds a one-to-one conversation back is found, whatever the page.
    @Test func anOutsiderOnALaterPageIsFound() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping())
        world.backend.pageSize = 1
        world.send("GET", "/me", as: "t-alice")
        let sent = world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)
        #expect(sent?["error"] == "pawl_outsider" && sent?["message"]?.contains("bob") == true, "\(sent?.text ?? "")")
        world.send("GET", "/me", as: "t-bob")
        world.environment.conversations.forgetAll()
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"to bob"}"#)?.status == 201)
        #expect(world.backend.received.filter { $0.hasPrefix("GET /c/pair/members?page=") }.count == 6)
        #expect(!world.backend.hasReceived("to bob"))
    }

    /// A conversation that the backend does not show to its writer, whatever status it has for that: nothing is sent to
    /// people who are unknown, and a later answer is asked for anew.
    @Test(arguments: [400, 403, 404, 410, 500]) func aConversationWithoutMembers(_ status: Int) throws {
        let world = try JSONWorld(.observe, accounts: ["alice": .hosted])
        for name in ["alice", "bob"] { world.send("GET", "/me", as: "t-\(name)") }
        world.backend.membersStatus = status
        let sent = world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)
        #expect(sent?.status == 403 && sent?["error"] == "pawl_members", "\(sent?.text ?? "")")
        #expect(!world.backend.hasReceived("to bob"))
        world.backend.membersStatus = 200
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)?.status == 201)
        #expect(!world.backend.hasReceived("to bob"))
        // With the policy for all, it is sealed for all who may read it.
        let all = try JSONWorld(.hosted)
        all.backend.membersStatus = status
        #expect(all.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)?.status == 201)
        #expect(!all.backend.hasReceived("to bob"))
    }

    /// Without the second page nobody knows who reads the message, so it is not sent in the clear.
    @Test func aFailingPageSendsNothing() throws {
        let world = try JSONWorld(.observe, mapping: Self.mapping(), accounts: ["alice": .hosted])
        world.backend.pageSize = 1
        for name in ["alice", "bob"] { world.send("GET", "/me", as: "t-\(name)") }
        world.backend.failsPagesFrom = 1
        let sent = world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)
        #expect(sent?["error"] == "pawl_members", "\(sent?.text ?? "")")
        #expect(!world.backend.hasReceived("to bob"))
        world.backend.failsPagesFrom = nil
        #expect(world.send("POST", "/c/pair", as: "t-alice", #"{"id":"1","text":"to bob"}"#)?.status == 201)
    }
}
