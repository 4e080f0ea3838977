import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import PawlConfiguration
import TestKit
import Testing

@testable import MappingFile

/// Every key of a mapping is read, and what is wrong with one is said in words, with the line and what to write.
@Suite struct GrammarTests {
    /// Every key there is.
    static let whole = """
        name: mine
        account:
          credential: [header X-Token, query token, cookie session]
          ask: GET /me?full=1
          name: user.id
        members:
          ask: GET /rooms/{conversation}/people
          accounts: names of people.*
        content:
          text: text.body
          also: [text.html, title]
          keep: [id, room]
          flag: pawl.encrypted
          envelope: pawl.envelope
          fallback: Encrypted.
        messages:
          written:
          page:
            containers: [rooms.*, "old[*]"]
            messages: ["list[*]", pinned]
            within: [reply]
            when: kind == "text"
            conversation: container id
            content: body
            sender: from.id
            recipients: to[*]
            remote_id: id
            local_id: tag
          spoken:
            like: page
            containers: $
            messages: $
            within: []
            conversation: room
            text: words
        routes:
          POST|PUT /v(1|2)/rooms/{conversation}/send/{local_id}?notify&!draft&mode=chat:
            label: content written -> page
            remote_id: result.id
            references: [path conversation, reply_to, query thread]
            at_once: {status: 202, body: '{"id":"{local_id}"}'}
          "* /rooms/{room}/pin":
            label: control
            conversation: path room
          GET /rooms/{conversation}/list: history -> page
        frames:
          from client:
            op == 1 && text: content spoken
          from backend:
            op == 2: sync spoken
            any other: passthrough
        refusal:
          status: 451
          content_type: application/problem+json
          body: '{"title":"{reason}","code":"{code}"}'
        """

    @Test func everyKeyIsRead() throws {
        let mapping = try mapping(Self.whole)
        #expect(mapping.name == "mine")
        #expect(
            mapping.account
                == AccountSource(
                    credentials: [.header("X-Token"), .query("token"), .cookie("session")], target: "/me?full=1",
                    name: try JSONPath("user.id")))
        #expect(
            mapping.members
                == MembersSource(
                    target: "/rooms/{conversation}/people", accounts: try JSONPath("people.*"), areNames: true))
        #expect(
            mapping.refusal
                == RefusalForm(
                    status: 451, contentType: "application/problem+json", body: #"{"title":"{reason}","code":"{code}"}"#
                )
        )
        #expect(
            mapping.routes.map(\.path.text) == [
                "/v1/rooms/{conversation}/send/{local_id}", "/v2/rooms/{conversation}/send/{local_id}",
                "/rooms/{room}/pin",
                "/rooms/{conversation}/list",
            ])
        let send = mapping.routes[0]
        #expect(send.methods == ["POST", "PUT"] && send.label == .content)
        #expect(
            send.query == [
                QueryCondition("notify", .present), QueryCondition("draft", .absent),
                QueryCondition("mode", .equals("chat")),
            ])
        let reply = try JSONPath("reply_to")
        #expect(send.references == [.capture("conversation"), .message(reply), .query("thread")])
        #expect(send.remoteID?.text == "result.id" && send.localID == .capture("local_id"))
        #expect(send.conversation == .capture("conversation") && send.response.count == 8)
        #expect(send.answer == .atOnce(status: 202, body: #"{"id":"{local_id}"}"#))
        #expect(mapping.routes[2].methods == [] && mapping.routes[2].conversation == .capture("room"))
        let request = try #require(send.request)
        #expect(request.text.text == "text.body" && request.also.map(\.text) == ["text.html", "title"])
        #expect(request.kept == ["id", "room", "reply_to"])
        #expect(request.flag?.text == "pawl.encrypted" && request.envelope?.text == "pawl.envelope")
        #expect(request.fallback == "Encrypted." && request.containers.text == "$" && request.content == nil)
        let page = mapping.routes[3].response
        #expect(
            page.map(\.containers.text) == Array(repeating: "rooms.*", count: 4) + Array(repeating: "old[*]", count: 4))
        #expect(
            page.prefix(4).map(\.messages.text) == [
                #"list[*][?kind == "text"]"#, #"list[*].reply[?kind == "text"]"#, #"pinned[?kind == "text"]"#,
                #"pinned.reply[?kind == "text"]"#,
            ])
        let id = try JSONPath("id")
        #expect(page[0].conversation == .container(id) && page[0].content?.text == "body")
        #expect(page[0].sender?.text == "from.id" && page[0].recipients?.text == "to[*]")
        #expect(page[0].remoteID?.text == "id" && page[0].localID?.text == "tag" && page[0].kept == ["id", "room"])
        let spoken = try #require(mapping.frames.first?.shapes.first)
        let room = try JSONPath("room")
        #expect(
            spoken.text.text == "words" && spoken.conversation == .message(room)
                && spoken.messages.text == #"$[?kind == "text"]"#)
        #expect(mapping.frames.map(\.label) == [.content, .sync, .passthrough])
        #expect(mapping.frames.map(\.when?.text) == ["[?op == 1 && text]", "[?op == 2]", nil])
        #expect(mapping.frames.map(\.direction) == [.fromClient, .fromBackend, .fromBackend])
    }

    /// Changes in the whole mapping, and what is said about them.
    @Test(arguments: [
        ("name: mine", "nmae: mine", "unknown key `nmae` of the mapping in FILE line 1; did you mean `name`?"),
        (
            "name: mine", "name: my own",
            "`name` in FILE line 1 is `my own`; expected a name without spaces: name: matrix"
        ),
        ("name: mine\n", "", "the mapping in FILE line 1 has no `name`; write `name:`"),
        ("name: mine", "name: [mine]", "`name` in FILE line 1 is a list; expected a name"),
        ("header X-Token", "head X-Token", "is `head X-Token`; expected `header NAME`, `query NAME` or `cookie NAME`"),
        ("query token", "query a b", "is `query a b`; expected"), ("query token", "query", "is `query`; expected"),
        ("GET /me?full=1", "POST /me", "`account.ask` in FILE line 4 is `POST /me`; expected GET and a target"),
        ("GET /me?full=1", "/me", "expected GET and a target, for example `GET /me`"),
        ("GET /me?full=1", "GET /{conversation}", "does not depend on a conversation"),
        ("  name: user.id", "  name: user..id", "`account.name` in FILE line 5 is no path: two dots"),
        ("  name: user.id", "  name: users[*].id", "can lead to several values"),
        ("/rooms/{conversation}/people", "/rooms/people", "must name the conversation once"),
        ("/rooms/{conversation}/people", "/{conversation}/{x}", "must name the conversation once"),
        ("names of people.*", "names of", "`members.accounts` in FILE line 8 is no path"),
        ("  text: text.body\n", "", "`content` in FILE line 9 has no `text`; write `text:`"),
        ("text: text.body", "text: list[*]", "expected names with dots only, because something is put there"),
        ("text: text.body", "text: $", "expected names with dots only"),
        ("[text.html, title]", "[text]", "paths that lead into one another: text.body and text"),
        ("[text.html, title]", "[title, title.x]", "paths that lead into one another"),
        ("flag: pawl.encrypted", "flag: pawl", "paths that lead into one another: pawl and pawl.envelope"),
        ("  envelope: pawl.envelope\n", "", "`content.fallback` in FILE line 14 is used only in an envelope"),
        ("  fallback: Encrypted.\n", "", "has no `fallback`, the words that stand where the text was"),
        ("keep: [id, room]", "keep: {id: room}", "`content.keep` in FILE line 12 is a map; expected a list of names"),
        ("  written:", "  wr itten:", "is no name for messages"),
        ("  written:", "  content:", "is no name for messages"),
        ("like: page", "like: pages", "names `pages`, which does not stand above; did you mean `page`?"),
        ("like: page", "like: spoken", "names `spoken`, which does not stand above"),
        (
            "when: kind == \"text\"", "when: kind = \"text\"",
            "`messages.page.when` in FILE line 22 is no path: compare with =="
        ),
        ("within: [reply]", "within: [.reply]", "`messages.page.within` in FILE line 21 is no path"),
        ("conversation: container id", "conversation: contaner id", "expected a path in the message"),
        ("sender: from.id", "sender: from.*", "can lead to several values"),
        (
            "sender: from.id", "sendr: from.id",
            "unknown key `sendr` of `messages.page` in FILE line 25; did you mean `sender`?"
        ),
        ("POST|PUT /v", "post /v", "a method is written in capitals"),
        ("POST|PUT /v", "/v", "expected a method, a space"),
        ("/v(1|2)/", "/v(1|2/", "alternatives"), ("/v(1|2)/", "/v(1)/", "parentheses hold alternatives"),
        ("?notify&", "?&", "after the question mark"),
        ("&!draft", "&!draft=1", "after the question mark"),
        ("/rooms/{room}/pin", "/rooms/{room/pin", "braces enclose a whole segment"),
        (
            "label: content written -> page", "label: contents written",
            "has the label `contents`; did you mean `content`?"
        ),
        ("label: content written -> page", "label: content", "names no messages; write which of `messages` it carries"),
        (
            "label: content written -> page", "label: content writen",
            "names the messages `writen`, which `messages` does not have; did you mean `written`?"
        ),
        ("label: content written -> page", "label: content page", "has several messages in its request"),
        ("label: control", "label: control page", "carries no messages; write the label alone"),
        ("POST|PUT /v", "POST|REPORT /v", "a REPORT cannot wait in the queue"),
        ("history -> page", "history page", "write which of `messages` its answer holds: `history -> page`"),
        ("history -> page", "history -> page -> page", "has more than one arrow"),
        ("history -> page", "[history]", "is a list; expected one of content, history"),
        ("remote_id: result.id", "remote_ids: result.id", "did you mean `remote_id`?"),
        ("path conversation, reply_to", "path rom, reply_to", "has no {rom}, where the rom is looked for"),
        ("conversation: path room", "conversation: path rooms", "has no {rooms}"),
        ("conversation: path room", "conversation: path conversation", "or write `conversation:` for all messages"),
        ("status: 202", "status: 404", "`at_once.status` in FILE line 41 is `404`; expected a number from 200 to 299"),
        ("status: 202, ", "", "`at_once` in FILE line 41 has no `status`"),
        ("body: '{\"id\":", "body: '{id:", "which is no JSON"),
        ("GET /rooms/{conversation}/list", "PUT /rooms/{c}/pin", "never fits: the route in line 42 takes all"),
        ("from client", "from clients", "did you mean `from client`?"),
        (
            "op == 1 && text", "op == 1 & text",
            "`frames` in FILE line 48 is no path: parts of a condition are joined by &&"
        ),
        ("content spoken", "sync spoken", "names no messages"),
        ("content spoken", "content written", "looks for its conversation in a path, and a frame has none"),
        ("sync spoken", "content spoken", "names no messages"),
        (
            "    op == 2: sync spoken\n    any other: passthrough",
            "    any other: passthrough\n    op == 2: sync spoken", "`any other` above it takes all"
        ),
        (
            "status: 451", "status: 204",
            "`refusal.status` in FILE line 53 is `204`; expected 200, or a number from 400 to 599"
        ),
        ("{\"title\":\"{reason}\",", "{", "has no {reason}"),
        ("refusal:", "refusal: 403\nx:", "`refusal` in FILE line 52 is `403`; expected keys below it"),
        (
            "  GET /rooms/{conversation}/list: history -> page\n",
            "  GET /rooms/{conversation}/list: history -> page\n  GET /rooms/{conversation}/list: refused\n",
            "is written more than once"
        ),
    ]) func mistakesAreReported(_ old: String, _ new: String, _ words: String) {
        #expect(Self.whole.contains(old))
        let text = Self.whole.replacing(old, with: new, maxReplacements: 1)
        let found = problems(text)
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    private static func small(_ more: String, account: String = "") -> String {
        "name: small\naccount: {credential: header A, ask: GET /me, name: id\(account)}\nroutes: {GET /me: passthrough}\n\(more)"
    }

    @Test func pagesInBrowsersAndNamesOfOthers() throws {
        let any = try mapping(Self.small("cors: {origins: \"*\"}", account: ", acting_as: query user_id"))
        #expect(any.crossOrigin == CrossOrigin(origins: .any) && any.account.actingAs == "user_id")
        let listed = try mapping(Self.small("cors: {origins: [https://a.example, app://b], credentials: true}"))
        #expect(
            listed.crossOrigin
                == CrossOrigin(origins: .listed(["https://a.example", "app://b"]), allowsCredentials: true))
        #expect(try mapping(Self.small("")).crossOrigin == nil)
    }

    @Test(arguments: [
        ("cors: {}", "has no `origins`"), ("cors: {origins: https://a.example/}", "expected `\"*\"`, or origins"),
        ("cors: {origins: a.example}", "is `a.example`; expected"),
        ("cors: {origins: [\"*\", https://a]}", "beside others"),
        ("cors: {origins: \"*\", credentials: true}", "for listed origins only"),
        ("cors: {origins: \"*\", credentials: yes}", "expected true or false"),
        ("cors: {origin: x}", "did you mean `origins`?"),
    ]) func mistakesAboutPagesAreReported(_ text: String, _ words: String) {
        let found = problems(Self.small(text))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func mistakesAboutNamesOfOthersAreReported() {
        for value in ["user_id", "header X", "query a b"] {
            let found = problems(Self.small("", account: ", acting_as: \(value)"))
            #expect(found.contains { $0.contains("`account.acting_as`") }, "\(found)")
        }
    }

    // MARK: Pages of members

    private static func paged(_ page: String) -> String {
        small("members: {ask: 'GET /c/{conversation}/members', accounts: members, page: \(page)}")
    }

    @Test func pagesOfMembersAreRead() throws {
        let next = try JSONPath("meta.next")
        for (text, paging) in [
            (#""page={page}&per_page=200""#, MemberPaging(query: "page={page}&per_page=200", order: .number(first: 0))),
            (#"{query: "p={page}", first: 1}"#, MemberPaging(query: "p={page}", order: .number(first: 1))),
            (#""offset={offset}&count=100""#, MemberPaging(query: "offset={offset}&count=100", order: .offset)),
            (
                #"{query: "cursor={cursor}", next: meta.next}"#,
                MemberPaging(query: "cursor={cursor}", order: .cursor(next))
            ),
            (#""after={last}""#, MemberPaging(query: "after={last}", order: .last(nil))),
            (#"{query: "after={last}", last: meta.next}"#, MemberPaging(query: "after={last}", order: .last(next))),
        ] { #expect(try mapping(Self.paged(text)).members?.paging == paging, "\(text)") }
    }

    @Test(arguments: [
        (#""page=1""#, "expected a query with {page}, {offset}, {cursor} or {last}"),
        (#""page={page}&offset={offset}""#, "expected a query with"),
        (#""page={page}&x={page}""#, "expected a query with"),
        (#""?page={page}""#, "expected a query with"), (#""page={pag}""#, "expected a query with"),
        (#""cursor={cursor}""#, "has no `next`"), (#"{query: "p={page}", next: a}"#, "with {cursor} only"),
        (#"{query: "p={page}", last: a}"#, "with {last} only"),
        (#"{query: "o={offset}", first: 1}"#, "with {page} only"), (#"{query: "p={page}", first: 2}"#, "from 0 to 1"),
        ("{first: 1}", "has no `query`"),
    ]) func mistakesAboutPagesOfMembersAreReported(_ text: String, _ words: String) {
        let found = problems(Self.paged(text))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    // MARK: Logins and refusals

    private static func frames(_ frame: String) -> String { small("frames: {from client: {\(frame)}}") }

    @Test func loginsInFramesAreRead() throws {
        let frame = try #require(
            try mapping(Self.frames("op == 2: {login: {header A: \"Bot {d.token} {d[0]}\"}}")).frames.first)
        #expect(frame.label == .passthrough && frame.shapes.isEmpty && frame.direction == .fromClient)
        let (token, first) = (try JSONPath("d.token"), try JSONPath("d[0]"))
        #expect(
            frame.login
                == FrameLogin([.init(.header("A"), [.text("Bot "), .path(token), .text(" "), .path(first)])]))
    }

    @Test(arguments: [
        ("op: {login: {header B: \"{t}\"}}", "does not name; it has `header A`"),
        ("op: {login: {header A: x}}", "a path in braces"),
        ("op: {login: {header A: \"{a.*}\"}}", "lead to several values"),
        ("op: {login: {header A: \"{a\"}}", "a path in braces"),
        ("op: {login: {header A: \"{a};\"}}", "a path in braces"),
        ("op: {login: {header A: \"{a..b}\"}}", "is no path"),
        ("op: {logn: {header A: \"{t}\"}}", "did you mean `login`?"), ("op: {login: x}", "expected lines below it"),
    ]) func mistakesAboutLoginsAreReported(_ frame: String, _ words: String) {
        let found = problems(Self.frames(frame))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func aPlaceOfACredentialIsNamedOnce() throws {
        let text = Self.small("").replacing("credential: header A", with: "credential: [header A-B, cookie A, query A]")
        #expect(try mapping(text).account.credentials == [.header("A-B"), .cookie("A"), .query("A")])
        let twice = text.replacing("cookie A", with: "header a_b")
        #expect(problems(twice).contains { $0.contains("has `header a_b` twice") }, "\(problems(twice))")
    }

    @Test func formsForCodesAreRead() throws {
        let text = """
            refusal:
              headers: {X-By: pawl, X-More: a b}
              codes:
                pawl_no_route: {status: 404, body: '{"a":"{reason}"}'}
                pawl_too_long|PAWL_TOO_LARGE: {status: 499}
            """
        let form = try mapping(Self.small(text)).refusal
        #expect(form.headers["X-By"] == ["pawl"] && form.headers["X-More"] == ["a b"])
        #expect(
            form.codes == [
                "pawl_no_route": .init(status: 404, body: #"{"a":"{reason}"}"#),
                "pawl_too_long": .init(status: 499), "PAWL_TOO_LARGE": .init(status: 499),
            ])
    }

    @Test(arguments: [
        ("codes: {pawl_no_rout: {status: 404}}", "did you mean `pawl_no_route`?"),
        ("codes: {pawl_no_route: {status: 204}}", "expected 200, or a number from 400 to 599"),
        ("codes: {pawl_no_route: 404}", "expected keys below it"),
        ("codes: {pawl_no_route: {body: '{}'}}", "has no {reason}"),
        ("codes: {pawl_no_route|pawl_no_route: {status: 404}}", "twice"),
        ("headers: {Content-Length: 5}", "cannot be set"),
        ("headers: {'A B': x}", "cannot be set"), ("headers: {A: \"x\\ny\"}", "cannot be set"),
        ("headers: x", "expected lines below it"),
    ]) func mistakesAboutFormsAreReported(_ text: String, _ words: String) {
        let found = problems(Self.small("refusal: {\(text)}"))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func valuesOfReceivedFramesAreRead() throws {
        let text = """
            refusal:
              frame: '{"answers": {"to": -1}, "why": "{reason}"}'
              reply_to: {answers.to: seq}
            withheld:
              frame: '{"event": "withheld", "seq": 0, "ids": [0]}'
              keep: {seq: d.s, "ids[0]": "d.ids[0]"}
            """
        let mapping = try mapping(Self.small(text))
        let (answers, seq) = (try JSONPath("answers.to"), try JSONPath("seq"))
        #expect(mapping.refusal.replyTo == CopiedValues([.init(answers, from: seq)]))
        let (place, id, first) = (try JSONPath("d.s"), try JSONPath("d.ids[0]"), try JSONPath("ids[0]"))
        #expect(
            mapping.withheld
                == WithheldForm(
                    frame: #"{"event": "withheld", "seq": 0, "ids": [0]}"#,
                    kept: CopiedValues([.init(seq, from: place), .init(first, from: id)])))
    }

    @Test(arguments: [
        (#"refusal: {reply_to: {a: seq}}"#, "where `refusal.frame` has no value"),
        (#"refusal: {frame: '{"a":"{reason}"}', reply_to: {b: seq}}"#, "where `refusal.frame` has no value"),
        (#"refusal: {frame: '{"a":"{reason}"}', reply_to: {a: "seq[*]"}}"#, "lead to several values"),
        (#"refusal: {frame: '{"a":"{reason}"}', reply_to: {$: seq}}"#, "where `refusal.frame` has no value"),
        (#"refusal: {frame: '{"a":"{reason}"}', reply_to: seq}"#, "expected lines below it"),
        (#"withheld: {frame: '{"a":1}'}"#, "has no `keep`"), (#"withheld: {frame: '{', keep: {a: b}}"#, "is no JSON"),
        (#"withheld: {frame: '{"a":1}', keep: {b: a}}"#, "where `withheld.frame` has no value"),
        (#"withheld: {fram: '{}', keep: {a: a}}"#, "did you mean `frame`?"),
    ]) func mistakesAboutValuesOfReceivedFramesAreReported(_ text: String, _ words: String) {
        let found = problems(Self.small(text))
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    @Test func allMistakesAreReportedAtOnce() {
        let found = problems("name: a b\naccount: {}\nroutes: {GET x: passthrough, get /: passthrough}\nx: 1\n")
        #expect(found.count == 7, "\(found)")
    }

    @Test func shapesThatNoRouteNamesAreReported() {
        let text = Self.whole.replacing("  spoken:\n", with: "  unused: {messages: x}\n  spoken:\n")
        #expect(
            problems(text) == [
                "`messages.unused` in FILE line 29 is named by no route and no frame; name it there, or take it out"
            ])
    }

    @Test(arguments: [
        ("", "the mapping in FILE line 1 is without a value; expected keys below it"),
        ("[]", "the mapping in FILE line 1 is a list; expected keys below it"), ("name", "is `name`; expected keys"),
        ("a: [", "is not YAML"), ("a: *b", "is not YAML"), ("\t", "not YAML"), ("a: 1\na: 2", "more than once"),
        ("? [a]\n: 1", "a key in FILE line 1 is no text"),
    ]) func aFileThatIsNoMappingIsReported(_ text: String, _ words: String) {
        let found = problems(text)
        #expect(found.contains { $0.contains(words) }, "\(found)")
    }

    // MARK: Limits

    @Test func bytesThatAreNoTextAreRefused() {
        #expect(throws: ConfigurationError.self) { try mapping(Data([0x6E, 0xFF, 0xFE])) }
        #expect(throws: ConfigurationError.self) { try MappingFile.read(path: "/nonexistent/mapping.yaml") }
    }

    @Test func anchorsDoNotMultiply() {
        var bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        for number in 1...9 {
            bomb +=
                "a\(number): &a\(number) [" + Array(repeating: "*a\(number - 1)", count: 9).joined(separator: ", ")
                + "]\n"
        }
        #expect(problems(bomb) == ["FILE has more than \(ConfigurationTree.nodeLimit) values; is it the right file?"])
    }

    @Test func sizesAreBounded() {
        #expect(problems("name: " + String(repeating: "x", count: 1 << 20))[0].contains("larger than 1 MiB"))
        let deep = String(repeating: "[", count: 20) + String(repeating: "]", count: 20)
        #expect(problems("name: " + deep)[0].contains("too deep"))
        let long = Self.whole.replacing("Encrypted.", with: String(repeating: "x", count: 5000))
        #expect(problems(long).contains { $0.contains("longer than \(MappingReader.textLimit) characters") })
        let wide = "/(a|b)" + String(repeating: "/(a|b)", count: 6)
        #expect(
            problems(Self.whole.replacing("/rooms/{room}/pin", with: wide + "/{room}")).contains {
                $0.contains("more than \(RouteKey.pathLimit) paths")
            })
        let many = (0..<40).map { "m\($0)" }.joined(separator: ", ")
        let shapes = Self.whole.replacing("within: [reply]", with: "within: [\(many)]").replacing(
            "[\"list[*]\", pinned]", with: "[\(many)]")
        #expect(problems(shapes).contains { $0.contains("more than \(MappingReader.shapeLimit) paths") })
        let routes = (0...MappingReader.routeLimit).map { "  GET /r\($0): passthrough\n" }.joined()
        #expect(
            problems(Self.whole.replacing("frames:", with: routes + "frames:")).contains {
                $0.contains("are more than \(MappingReader.routeLimit)")
            })
    }

    /// A mapping that is cut off anywhere, or changed anywhere, is read or refused in words.
    @Test func anyPrefixIsReadOrRefused() {
        let bytes = Array(Self.whole.utf8)
        for end in stride(from: 0, to: bytes.count, by: 3) {
            for problem in problems(String(decoding: bytes[..<end], as: UTF8.self)) {
                #expect(problem.contains("FILE"))
            }
        }
    }

    @Test(arguments: 1...8 as ClosedRange<UInt64>) func anyChangeIsReadOrRefused(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let pieces = Array(":{}[]\"'*&|?->#,. \n/()$!%=x0".utf8)
        var refused = 0
        for _ in 0..<40 {
            var bytes = Array(Self.whole.utf8)
            for _ in 0...random.below(3) { bytes[random.below(bytes.count)] = pieces[random.below(pieces.count)] }
            let found = problems(String(decoding: bytes, as: UTF8.self))
            refused += found.isEmpty ? 0 : 1
            for problem in found { #expect(problem.contains("FILE") && !problem.contains("\n\n")) }
        }
        #expect(refused > 10)
    }
}
