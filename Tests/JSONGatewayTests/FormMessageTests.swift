import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// Messages in forms, whose envelopes stand in the text because no other member is kept.
@Suite struct FormMessageTests {
    private static func mapping(_ armour: EnvelopeArmour) -> Mapping {
        var mapping = Mapping.lab
        mapping.routes = mapping.routes.map { route in
            var request = route.request
            request?.bodies = [.form]
            request?.flag = nil
            request?.armour = .text
            let response = route.response.map { shape in
                var shape = shape
                (shape.flag, shape.armour) = (nil, armour)
                return shape
            }
            return Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label, request: request,
                response: response, remoteID: route.remoteID, conversation: route.conversation,
                references: route.references)
        }
        return mapping
    }

    private static let type = [("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")]

    private static func world(_ armour: EnvelopeArmour = .text) throws -> JSONWorld {
        try JSONWorld(.hosted, mapping: mapping(armour))
    }

    /// The text of the last message as the backend got it. It is put where the backend shows it, as `render` makes it.
    private static func written(_ world: JSONWorld, _ render: (String) -> String) throws -> String {
        let body = try #require(world.backend.messages["all"]?.last?.body)
        let form = try JSONDocument(form: ByteBuffer(string: body))
        let text = try form.text(try #require(try form.place(JSONPath("text"))))
        let shown = JSONFragment.object([("text", .string(render(text)))])
        world.backend.messages["all"]?[0].body = String(decoding: shown.bytes, as: UTF8.self)
        return text
    }

    @Test func aFormIsSealedAndIsAForm() throws {
        let world = try Self.world()
        let form = "id=7%2E1&text=the+canary+%26+%C3%A9&html=%3Cb%3Ecanary&topic=a%20b"
        #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.type)?.status == 201)
        #expect(!world.backend.hasReceived("canary"))
        let body = try #require(world.backend.messages["all"]?.first?.body)
        #expect(body.hasPrefix("id=7%2E1&text=%3FPAWL%3A") && body.hasSuffix(".&topic=a%20b"))
        let text = try Self.written(world) { $0 }
        #expect(text.hasPrefix("?PAWL:") && text.hasSuffix("."))
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[0].data.text"] == "the canary & é")
        #expect(read["messages[0].data.html"] == "<b>canary")
        // Of a repeated write the backend hears once.
        #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.type)?.status == 201)
        #expect(world.backend.messages["all"]?.count == 1)
    }

    /// JSON whose head says that it is a form: as a form it has a text of its own.
    @Test(arguments: [
        "application/x-www-form-urlencoded", "application/json, application/x-www-form-urlencoded",
        "Application/X-WWW-Form-URLEncoded; charset=latin1",
    ])
    func aBodyThatIsBothIsRefused(_ type: String) throws {
        var mapping = Mapping.lab
        mapping.routes = mapping.routes.map { route in
            var request = route.request
            request?.bodies = [.json, .form]
            return Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label, request: request,
                response: route.response, remoteID: route.remoteID, conversation: route.conversation,
                references: route.references)
        }
        for mapping in [mapping, .lab] {
            let world = try JSONWorld(.hosted, mapping: mapping)
            let both = #"{"id":"1","text":"x","topic":"&text=the canary sings&"}"#
            #expect(world.send("POST", "/c/all", as: "t-alice", both, fields: [("Content-Type", type)])?.status == 400)
            #expect(!world.backend.hasReceived("canary"))
        }
        // What many programs say of all that they send.
        let world = try JSONWorld(.hosted)
        let json = #"{"id":"1","text":"a=b"}"#
        #expect(world.send("POST", "/c/all", as: "t-alice", json, fields: [("Content-Type", type)])?.status == 201)
    }

    @Test(arguments: [EnvelopeArmour.html, .detect])
    func anEnvelopeInHTMLIsOpenedAsHTML(_ armour: EnvelopeArmour) throws {
        let renders: [(String) -> String] = [
            { "<p>\($0)</p>" },
            { text in
                let escaped = text.replacing("+", with: "&#43;").replacing("/", with: "&#x2F;")
                return "<div class=\"a\">\n<p>\(escaped)</p></div>"
            },
        ]
        for render in renders {
            let world = try Self.world(armour)
            let form = "text=%3Cscript%3Ealert(1)%3C/script%3E%0A%22x%22+%26amp"
            #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.type)?.status == 201)
            _ = try Self.written(world, render)
            let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
            #expect(
                read["messages[0].data.text"]
                    == "<p>&lt;script&gt;alert(1)&lt;/script&gt;<br>\n&quot;x&quot; &amp;amp</p>")
        }
    }

    @Test func anEnvelopeWithoutHTMLIsDetected() throws {
        let world = try Self.world(.detect)
        #expect(world.send("POST", "/c/all", as: "t-alice", "text=%3Cb%3E", fields: Self.type)?.status == 201)
        _ = try Self.written(world) { $0 }
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "<b>")
    }

    @Test func wordsOfTheGatewayAreHTMLToo() throws {
        let world = try Self.world(.html)
        let body = #"{"text":"<p>the canary</p>"}"#
        world.backend.messages["all"] = [.init(id: "m1", sender: "eve<img/src=x>", body: body)]
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[0].data.text"] == "<p>[not encrypted] the canary</p>")
        let form = "text=x"
        #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.type)?.status == 201)
        // The backend of this test would show the form as it is, which is no JSON.
        world.backend.messages["all"]?.removeLast()
        let live = try #require(world.send("GET", "/c/all?since=1", as: "t-bob")?["messages[0].data.text"])
        #expect(live.hasPrefix("<p>") && live.hasSuffix("</p>") && !live.contains("canary") && !live.contains("<img"))
    }

    /// What is left of an envelope is no text of its sender.
    @Test(
        arguments: [
            { (text: String) in String(text.dropLast(20)) }, { $0 + "x" }, { $0.replacing("?PAWL:", with: "?PAWL:1,") },
            { "<p>" + $0.prefix(300) + "[message truncated]</p>" },
        ] as [@Sendable (String) -> String]) func aDamagedEnvelopeIsNotOpened(_ damage: @Sendable (String) -> String)
        throws
    {
        let world = try Self.world(.detect)
        #expect(world.send("POST", "/c/all", as: "t-alice", "text=canary", fields: Self.type)?.status == 201)
        _ = try Self.written(world, damage)
        let read = try #require(world.send("GET", "/c/all?since=1", as: "t-bob"))
        #expect(!read.text.contains("canary") && !read.text.contains("?PAWL:"))
        #expect(world.environment.tally[.flagWithoutEnvelope] == 1)
    }

    @Test(arguments: [
        "text=the+canary;x=1", "text=the+canary&text=x", "text=the+canary%", "text=the+canary%ff", "text=the canary",
        "te%78t=x&text=the+canary", #"{"text":"the canary"}"#, "html=the+canary", "text",
    ]) func anAmbiguousFormIsNotSent(_ form: String) throws {
        let world = try Self.world()
        #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.type)?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test(arguments: [
        "application/json", "text/plain", "application/x-www-form-urlencoded; charset=utf-16", "",
        "multipart/form-data; boundary=x",
    ]) func whatIsNoFormIsNotSent(_ type: String) throws {
        let world = try Self.world()
        let answer = world.send(
            "POST", "/c/all", as: "t-alice", "text=the+canary", fields: [("Content-Type", type)])
        #expect(answer?.status == 400)
        let twice = Self.type + [("Content-Type", "application/json")]
        #expect(world.send("POST", "/c/all", as: "t-alice", "text=the+canary", fields: twice)?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
    }

    // MARK: Multipart

    private static let boundary = "--the-boundary"
    private static let multipartType = [("Content-Type", "multipart/form-data; boundary=\"\(boundary)\"")]

    private static func multipart(_ parts: [String]) -> String {
        parts.map { "--\(boundary)\r\nContent-Disposition: form-data; name=\($0)\r\n" }.joined() + "--\(boundary)--\r\n"
    }

    private static func multipartWorld() throws -> JSONWorld {
        var mapping = Self.mapping(.text)
        mapping.routes = mapping.routes.map { route in
            var request = route.request
            request?.bodies = [.multipart, .form]
            return Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label, request: request,
                response: route.response, remoteID: route.remoteID, conversation: route.conversation,
                references: route.references)
        }
        return try JSONWorld(.hosted, mapping: mapping)
    }

    @Test func aMultipartFormIsSealedAndIsOne() throws {
        let world = try Self.multipartWorld()
        let form = Self.multipart([
            "id\r\n\r\n7.1", "\"text\"\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\nthe canary\r\n& \u{e9}",
            "html\r\n\r\n<b>canary", "\"topic\"\r\nX: 1\r\n\r\na\r\nb",
        ])
        #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.multipartType)?.status == 201)
        #expect(!world.backend.hasReceived("canary"))
        let body = try #require(world.backend.messages["all"]?.first?.body)
        let start = Self.multipart([
            "id\r\n\r\n7.1", "\"text\"\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n?PAWL:",
        ]).replacing("\r\n--\(Self.boundary)--\r\n", with: "")
        let end = Self.multipart(["\"topic\"\r\nX: 1\r\n\r\na\r\nb"])
        #expect(body.hasPrefix(start) && body.hasSuffix(".\r\n" + end), "\(body)")
        let bytes = Array(body.utf8).dropFirst(start.utf8.count - 6).dropLast(end.utf8.count + 2)
        let text = String(decoding: bytes, as: UTF8.self)
        world.backend.messages["all"]?[0].body = "{\"text\":\"\(text)\"}"
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[0].data.text"] == "the canary\r\n& \u{e9}")
        #expect(read["messages[0].data.html"] == "<b>canary")
        // Of a repeated write the backend hears once, and other forms are read as before.
        #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: Self.multipartType)?.status == 201)
        #expect(world.backend.messages["all"]?.count == 1)
        #expect(world.send("POST", "/c/all", as: "t-alice", "text=canary", fields: Self.type)?.status == 201)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test(arguments: [
        ["text; filename=a\r\n\r\nthe canary"], ["text\r\n\r\nthe canary", "text\r\n\r\nx"],
        ["text\r\nContent-Type: image/png\r\n\r\nthe canary"], ["html\r\n\r\nthe canary"],
        ["text\r\nContent-Type: text/plain; charset=utf-16\r\n\r\nthe canary"],
        ["text\r\n\r\nthe canary", "_charset_\r\n\r\nutf-16"],
        ["text\r\n\r\nx\n--\(boundary)\nthe canary"], ["text\r\nContent-Transfer-Encoding: base64\r\n\r\nthe canary"],
        ["text\r\n\r\nthe canary", "file; filename=\"a\"\r\n\r\nx"],
    ]) func anAmbiguousMultipartFormIsNotSent(_ parts: [String]) throws {
        let world = try Self.multipartWorld()
        let answer = world.send(
            "POST", "/c/all", as: "t-alice", Self.multipart(parts), fields: Self.multipartType)
        #expect(answer?.status == 400)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func aMultipartFormIsReadWhole() throws {
        let world = try Self.multipartWorld()
        let form = Self.multipart(["text\r\n\r\nthe canary"])
        for count in 1..<(form.utf8.count - 2) {
            let cut = String(decoding: form.utf8.prefix(count), as: UTF8.self)
            #expect(world.send("POST", "/c/all", as: "t-alice", cut, fields: Self.multipartType)?.status == 400)
        }
        for type in ["multipart/form-data", "multipart/mixed; boundary=\"\(Self.boundary)\""] {
            #expect(world.send("POST", "/c/all", as: "t-alice", form, fields: [("Content-Type", type)])?.status == 400)
        }
        let broken = form.replacing("canary", with: "canary\u{1}")
        #expect(world.send("POST", "/c/all", as: "t-alice", broken, fields: Self.multipartType)?.status == 201)
        #expect(!world.backend.hasReceived("canary"))
    }

    @Test func aTextThatWouldBecomeTooLongIsRefused() throws {
        var mapping = Self.mapping(.text)
        mapping.routes = mapping.routes.map { route in
            var request = route.request
            request?.limit = .characters(2000)
            return Mapping.Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label, request: request,
                response: route.response, remoteID: route.remoteID, conversation: route.conversation)
        }
        let longest = try #require(mapping.routes[0].request?.longestText)
        #expect(longest > 500 && longest < 1500)
        let world = try JSONWorld(.hosted, mapping: mapping)
        for length in [1, longest - 1, longest] {
            let text = "text=" + String(repeating: "x", count: length)
            #expect(world.send("POST", "/c/all", as: "t-alice", text, fields: Self.type)?.status == 201)
            let body = try #require(world.backend.messages["all"]?.last?.body)
            let sealed = try JSONDocument(form: ByteBuffer(string: body))
            #expect(try sealed.text(try #require(try sealed.place(JSONPath("text")))).utf8.count <= 2000)
        }
        let count = world.backend.received.count
        let text = "text=" + String(repeating: "x", count: longest + 1)
        let answer = try #require(world.send("POST", "/c/all", as: "t-alice", text, fields: Self.type))
        #expect(answer.status == 413 && answer.text.contains("\(longest) characters"))
        #expect(!world.backend.received.dropFirst(count).contains { $0.hasPrefix("POST") })
    }
}
