import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Testing

@testable import MappingFile

/// What the shipped mappings find in documents as the backends write them.
@Suite struct ShippedTests {
    private static func reading(
        _ mapping: Mapping, _ method: String, _ target: String, _ text: String, isRequest: Bool = false
    ) throws -> MessageReading {
        let head = RequestHead(method, target)
        let match = try #require(mapping.route(for: head))
        return MessageReading(
            try JSONDocument(ByteBuffer(string: text)),
            isRequest ? [try #require(match.route.request)] : match.route.response,
            target: match.target, isRequest: isRequest)
    }

    private static func sealed(_ document: String, _ reading: MessageReading) throws -> (text: String, content: String)
    {
        let source = try JSONDocument(ByteBuffer(string: document))
        let message = try #require(reading.messages.first)
        var edits = MessageEdits(source)
        try edits.seal(message, envelope: [1, 2, 3])
        let content = try SealedContent(source, message)
        return (String(buffer: try edits.apply()), String(decoding: content.bytes, as: UTF8.self))
    }

    // MARK: Matrix

    private static let fallback =
        "This message is encrypted. Sign in through your organisation's gateway to read it."

    private static let send = "/_matrix/client/v3/rooms/%21room%3Aa/send/m.room.message/t1"

    @Test func aMatrixMessageIsSealed() throws {
        let mapping = try shipped("matrix")
        let text = """
            {"msgtype":"m.text","body":"hi","format":"org.matrix.custom.html","formatted_body":"<b>hi</b>",\
            "org.matrix.msc1767.text":"hi","m.mentions":{}}
            """
        let reading = try Self.reading(mapping, "PUT", Self.send, text, isRequest: true)
        #expect(reading.faults.isEmpty)
        #expect(reading.messages[0].conversation == "!room:a")
        let (sealed, content) = try Self.sealed(text, reading)
        #expect(
            sealed == #"{"msgtype":"m.text","body":"\#u{1F512}","encrypted":true,"pawl.envelope":"AQID","#
                + #""format":"org.matrix.custom.html","formatted_body":"\#(Self.fallback)","m.mentions":{}}"#)
        #expect(
            content == #"{"body":"hi","format":"org.matrix.custom.html","formatted_body":"<b>hi</b>","#
                + #""\"org.matrix.msc1767.text\"":"hi"}"#)
    }

    @Test func aMatrixEditIsSealed() throws {
        let mapping = try shipped("matrix")
        let text = """
            {"msgtype":"m.text","body":"* hallo","m.new_content":{"msgtype":"m.text","body":"hallo"},\
            "m.relates_to":{"rel_type":"m.replace","event_id":"$1"}}
            """
        let (sealed, content) = try Self.sealed(
            text, try Self.reading(mapping, "PUT", Self.send, text, isRequest: true))
        #expect(
            !sealed.contains("hallo") && sealed.hasSuffix(#""m.relates_to":{"rel_type":"m.replace","event_id":"$1"}}"#))
        #expect(content == #"{"body":"* hallo","\"m.new_content\"":{"msgtype":"m.text","body":"hallo"}}"#)
        let route = try #require(mapping.route(for: RequestHead("PUT", Self.send))).route
        #expect(route.remoteID?.text == "event_id" && route.localID == .capture("local_id"))
        #expect(
            route.references == [
                .message(try JSONPath("\"m.relates_to\".event_id")),
                .message(try JSONPath("\"m.relates_to\".\"m.in_reply_to\".event_id")),
            ])
    }

    private static func event(_ id: String, _ more: String = "") -> String {
        #"{"type":"m.room.message","event_id":"\#(id)","sender":"@a:a","room_id":"!r","#
            + #""content":{"msgtype":"m.text","body":"x","pawl.envelope":"AQID","encrypted":true}\#(more)}"#
    }

    private static let other = #"{"type":"m.room.topic","content":{"topic":"x","body":"y"}}"#

    @Test(arguments: [
        ("/v3/sync?since=s", #"{"rooms":{"join":{"!r":{"timeline":{"events":[OTHER,EVENT]}}}}}"#),
        ("/v3/sync", #"{"rooms":{"leave":{"!r":{"timeline":{"events":[EVENT]},"state":{"events":[OTHER]}}}}}"#),
        ("/r0/rooms/%21r/messages?dir=b", #"{"chunk":[EVENT,OTHER],"start":"a"}"#),
        ("/v3/rooms/%21r/context/%24x", #"{"event":OTHER,"events_before":[EVENT],"events_after":[]}"#),
        ("/v3/rooms/%21r/context/%24x", #"{"event":EVENT,"events_before":[OTHER]}"#),
        ("/v3/rooms/%21r/event/%24x", "EVENT"),
        ("/v1/rooms/%21r/relations/%24x/m.thread/m.room.message", #"{"chunk":[EVENT]}"#),
        ("/v1/rooms/%21r/threads", #"{"chunk":[EVENT]}"#),
        ("/v3/notifications", #"{"notifications":[{"room_id":"!r","event":EVENT},{"room_id":"!r","event":OTHER}]}"#),
        ("/v3/events?from=x", #"{"chunk":[EVENT]}"#),
        ("/v3/events/%24x", "EVENT"),
        ("/v3/initialSync", #"{"rooms":[{"room_id":"!r","messages":{"chunk":[EVENT]}}]}"#),
        ("/v3/rooms/%21r/initialSync", #"{"room_id":"!r","messages":{"chunk":[EVENT]}}"#),
    ]) func matrixMessagesAreFound(_ target: String, _ form: String) throws {
        let mapping = try shipped("matrix")
        let edited = Self.event(
            "$1",
            #","unsigned":{"m.relations":{"m.replace":\#(Self.event("$2")),"m.thread":{"latest_event":"#
                + Self.event("$3", #","unsigned":{"m.relations":{"m.replace":\#(Self.event("$4"))}}"#) + "}}}")
        for (event, ids) in [(Self.event("$1"), ["$1"]), (edited, ["$1", "$2", "$3", "$4"])] {
            let text = form.replacing("EVENT", with: event).replacing("OTHER", with: Self.other)
            let reading = try Self.reading(mapping, "GET", "/_matrix/client" + target, text)
            #expect(reading.faults.isEmpty)
            #expect(reading.messages.compactMap(\.remoteID).sorted() == ids)
            for message in reading.messages {
                #expect(message.conversation == "!r" && message.sender == "@a:a" && message.envelope == [1, 2, 3])
                #expect(message.isFlagged)
            }
        }
    }

    /// Rooms that come into view bring older messages, the others what is live.
    @Test(arguments: ["simplified_msc3575/sync", "simplified_msc3575/sync?pos=1", "msc3575/sync?pos=1"])
    func slidingSyncIsFound(_ path: String) throws {
        let text =
            #"{"pos":"2","rooms":{"!r":{"timeline":[\#(Self.other),\#(Self.event("$1"))]},"!s":{"initial":true,"timeline":"#
            + #"[\#(Self.event("$2"))]},"!t":{"unstable_expanded_timeline":true,"timeline":[\#(Self.event("$3"))]},"#
            + #""!u":{"invite_state":[\#(Self.other)]}}}"#
        let reading = try Self.reading(
            try shipped("matrix"), "POST", "/_matrix/client/unstable/org.matrix." + path, text)
        #expect(reading.faults.isEmpty)
        let found = reading.messages.map { ($0.remoteID, $0.conversation, $0.shape.isHistory) }.sorted { $0.1 < $1.1 }
        #expect(found.map(\.0) == ["$1", "$2", "$3"] && found.map(\.1) == ["!r", "!s", "!t"])
        #expect(found.map(\.2) == [false, true, true])
    }

    @Test func whatMatrixFindsIsFound() throws {
        let text =
            #"{"search_categories":{"room_events":{"results":[{"result":\#(Self.event("$1")),"context":"#
            + #"{"events_before":[\#(Self.event("$2"))],"events_after":[\#(Self.event("$3"))]}}]}}}"#
        let reading = try Self.reading(try shipped("matrix"), "POST", "/_matrix/client/v3/search", text)
        #expect(reading.messages.compactMap(\.remoteID) == ["$1", "$2", "$3"])
    }

    /// A rule of another kind may look for words in texts too.
    @Test(arguments: ["override", "underride"]) func wordsOfEveryRuleAreKeywords(_ kind: String) throws {
        var kinds = KindTreatments.standard
        kinds[.keywords] = .refuse
        let mapping = try MappingFile.read(path: root.appending(path: "config/mappings/matrix.yaml").path, kinds: kinds)
        let head = RequestHead("PUT", "/_matrix/client/v3/pushrules/global/\(kind)/x")
        let route = try #require(mapping.route(for: head)?.route)
        let part = try #require(route.parts.first)
        #expect(route.label == .passthrough && part.kind == .keywords)
        func finds(_ key: String) throws -> Bool {
            let rule = #"{"conditions":[{"kind":"event_match","key":"\#(key)","pattern":"canary"}],"actions":[]}"#
            return try !JSONDocument(ByteBuffer(string: rule)).places(part.path).isEmpty
        }
        #expect(try finds("content.body") && !finds("room_id"))
    }

    // MARK: Zulip

    /// A widget of a bot has texts that the server would read.
    @Test func aWidgetOfZulipIsRefused() throws {
        let mapping = try shipped("zulip")
        let match = try #require(mapping.route(for: RequestHead("POST", "/api/v1/messages")))
        let shape = try #require(match.route.request)
        func faults(_ more: String) throws -> [MessageFault] {
            let body = ByteBuffer(string: "type=stream&to=5&topic=a&content=hi" + more)
            let document = try shape.document(body, ["Content-Type": "application/x-www-form-urlencoded"])
            return MessageReading(document, [shape], target: match.target, isRequest: true).faults
        }
        #expect(try faults("").isEmpty)
        #expect(try faults("&widget_content=%7B%22widget_type%22%3A%22zform%22%7D") == [.noMessage])
        #expect(try faults("&widget%5Fcontent=%7B%7D") == [.noMessage])
        for query in ["widget_content=x", "widget%5Fcontent", "a=b&content=x"] {
            #expect(mapping.route(for: RequestHead("POST", "/api/v1/messages?" + query)) == nil, "\(query)")
        }
    }

    /// In quotes it is the name of a channel, whose number messages have: the gateway would judge another conversation.
    @Test(arguments: ["general", "%22general%22", "%225%22", "%5B%22general%22%5D"])
    func aChannelOfZulipIsNamedByItsNumber(_ channel: String) throws {
        let mapping = try shipped("zulip")
        let match = try #require(mapping.route(for: RequestHead("POST", "/api/v1/messages")))
        let shape = try #require(match.route.request)
        let body = ByteBuffer(string: "type=stream&to=\(channel)&topic=a&content=hi")
        do throws(MessageFault) {
            let document = try shape.document(body, ["Content-Type": "application/x-www-form-urlencoded"])
            #expect(!MessageReading(document, [shape], target: match.target, isRequest: true).faults.isEmpty)
        } catch {
            guard case .notADocument = error else {
                Issue.record("\(error)")
                return
            }
        }
    }

    // MARK: Mattermost

    /// Go reads names in any case, and takes the last.
    @Test(arguments: [
        #""message":"hi","Message":"canary""#, #""Message":"canary","message":"hi""#,
        "\"message\":\"hi\",\"me\u{17F}sage\":\"canary\"",
        #""message":"hi","CHANNEL_ID":"other""#, #""message":"hi","Props":{"attachments":[{"text":"canary"}]}"#,
    ]) func namesOfMattermostInAnotherCaseAreRefused(_ members: String) throws {
        let mapping = try shipped("mattermost")
        let text = "{\"channel_id\":\"c\",\(members)}"
        for (method, target) in [("POST", "/api/v4/posts"), ("POST", "/api/v4/drafts")] {
            let reading = try Self.reading(mapping, method, target, text, isRequest: true)
            #expect(reading.faults == [.similarNames(at: 0)] && reading.messages.isEmpty)
        }
    }

    // MARK: Rocket.Chat

    /// The server posts to `channel` if a message names both, and the gateway would judge the other room.
    @Test func aMessageOfRocketChatNamesOneRoom() throws {
        let mapping = try shipped("rocketchat")
        func faults(_ more: String) throws -> [MessageFault] {
            try Self.reading(
                mapping, "POST", "/api/v1/chat.postMessage", #"{"text":"hi","roomId":"r1"\#(more)}"#, isRequest: true
            ).faults
        }
        #expect(try faults("").isEmpty && faults(#","channel":"""#).isEmpty && faults(#","channel":null"#).isEmpty)
        #expect(try faults(##","channel":"#general""##) == [.noMessage])
        #expect(try faults(#","channel":["@bo"]"#) == [.noMessage])
        // `roomId` may be the name of a room or of a person, which has another id.
        let head = RequestHead("POST", "/api/v1/chat.postMessage")
        #expect(mapping.route(for: head)?.route.request?.isConfirmed == true)
        let source = try #require(mapping.conversationsByID)
        #expect(source.target == "/api/v1/rooms.info?roomId={conversation}" && source.id.text == "room._id")
    }

    /// The server goes by the message alone, and the gateway judges the room.
    @Test func anEditOfRocketChatNamesItsMessage() throws {
        let mapping = try shipped("rocketchat")
        let id = try #require(mapping.messagesByID)
        #expect(id.target == "/api/v1/chat.getMessage?msgId={message_id}" && id.conversation.text == "message.rid")
        func edited(_ reading: MessageReading) -> [String] {
            reading.messages.map { "\($0.edited ?? "none") in \($0.conversation)" }
        }
        for (body, faults) in [
            (#"{"roomId":"r1","msgId":"m1","text":"hi"}"#, []), (#"{"roomId":"r1","text":"hi"}"#, [.unknownMessage]),
        ] as [(String, [MessageFault])] {
            let reading = try Self.reading(mapping, "POST", "/api/v1/chat.update", body, isRequest: true)
            #expect(reading.faults == faults && edited(reading) == (faults.isEmpty ? ["m1 in r1"] : []))
        }
        let call = #"{"msg":"method","id":"5","method":"updateMessage","params":[{"_id":"m1","rid":"r1","msg":"hi"}]}"#
        let frame = try JSONDocument(ByteBuffer(string: call))
        let shapes = try #require(mapping.frame(for: frame, .fromClient)).shapes
        #expect(edited(MessageReading(frame, shapes, isRequest: true)) == ["m1 in r1"])
        let head = RequestHead("POST", "/api/v1/method.call/updateMessage")
        let route = try #require(mapping.route(for: head)).route
        let shape = try #require(route.request)
        let text = #"{"message":"\#(call.replacing("\"", with: "\\\""))"}"#
        let whole = try JSONDocument(ByteBuffer(string: text)).parsing(for: [shape])
        #expect(edited(MessageReading(whole, [shape], isRequest: true)) == ["m1 in r1"])
        // Two equal edits of a message are two edits: that between them would be lost.
        #expect(route.localID == nil)
    }

    /// Clients pin, star and mark a message with all that is in it, and the server reads its id.
    @Test(arguments: ["pinMessage", "unpinMessage", "starMessage", "unreadMessages", "loadSurroundingMessages"])
    func aPinnedMessageOfRocketChatIsSealed(_ method: String) throws {
        let mapping = try shipped("rocketchat")
        let message = #"{"_id":"m1","rid":"r1","msg":"canary","md":[{"value":"canary"}],"u":{"_id":"ada"}}"#
        for message in [message, #"{"_id":"m1","rid":"r1"}"#] {
            let call = #"{"msg":"method","id":"5","method":"\#(method)","params":[\#(message)]}"#
            let frame = try JSONDocument(ByteBuffer(string: call))
            let route = try #require(mapping.frame(for: frame, .fromClient))
            let reading = MessageReading(frame, route.shapes, isRequest: true)
            #expect(route.label == .content && reading.faults.isEmpty && reading.messages.map(\.edited) == ["m1"])
            let (sealed, _) = try Self.sealed(call, reading)
            #expect(!sealed.contains("canary") && sealed.contains(#""_id":"m1","rid":"r1""#))
            let head = RequestHead("POST", "/api/v1/method.call/\(method)")
            let shape = try #require(mapping.route(for: head)?.route.request)
            let text = #"{"message":"\#(call.replacing("\"", with: "\\\""))"}"#
            let whole = try JSONDocument(ByteBuffer(string: text)).parsing(for: [shape])
            let found = MessageReading(whole, [shape], isRequest: true)
            #expect(found.faults.isEmpty && found.messages.map(\.edited) == ["m1"])
        }
    }

    // MARK: The generic chat

    @Test func aGenericMessageIsSealed() throws {
        let mapping = try shipped("generic")
        let text = #"{"id":"c1","text":"hi","html":"<b>hi</b>","reply_to":"m0","note":"hi"}"#
        let reading = try Self.reading(mapping, "POST", "/conversations/r1/messages", text, isRequest: true)
        #expect(reading.faults.isEmpty)
        #expect(reading.messages[0].conversation == "r1" && reading.messages[0].localID == "c1")
        let (sealed, content) = try Self.sealed(text, reading)
        #expect(sealed == #"{"id":"c1","text":"AQID","encrypted":true,"reply_to":"m0"}"#)
        #expect(content == #"{"text":"hi","html":"<b>hi</b>","note":"hi"}"#)
        let route = try #require(mapping.route(for: RequestHead("POST", "/conversations/r1/messages"))).route
        let id = try JSONPath("id")
        #expect(route.remoteID?.text == "message_id" && route.localID == .message(id))
        #expect(route.references == [.message(try JSONPath("reply_to"))])
        let edit = try #require(mapping.route(for: RequestHead("PATCH", "/conversations/r1/messages/m1"))).route
        #expect(edit.references == [.capture("message_id")] && edit.label == .content)
    }

    private static let message =
        #"{"message_id":"m1","id":"c1","conversation":"r1","sender":"al","text":"AQID","encrypted":true,"time":1}"#

    @Test(arguments: [
        ("/conversations/r1/messages", #"{"messages":[MESSAGE]}"#), ("/conversations/r1/messages/m1", "MESSAGE"),
        ("/conversations", #"{"conversations":[{"id":"r1","last":MESSAGE},{"id":"r2","last":null}]}"#),
        ("/search?text=x", #"{"messages":[MESSAGE]}"#),
        ("/updates?since=1", #"{"next":2,"conversations":{"r1":{"messages":[MESSAGE]}}}"#),
        ("/updates", #"{"next":2,"conversations":{"r1":{"messages":[MESSAGE]}}}"#),
    ]) func genericMessagesAreFound(_ target: String, _ form: String) throws {
        let text = form.replacing("MESSAGE", with: Self.message)
        let reading = try Self.reading(try shipped("generic"), "GET", target, text)
        #expect(reading.faults.isEmpty && reading.messages.count == 1)
        let message = reading.messages[0]
        #expect(message.conversation == "r1" && message.sender == "al" && message.remoteID == "m1")
        #expect(message.also.isEmpty && message.isFlagged && message.envelope == [1, 2, 3])
    }

    @Test func genericFramesAreKnown() throws {
        let mapping = try shipped("generic")
        func label(_ text: String, _ direction: FrameRoute.Direction) throws -> Mapping.Label? {
            mapping.frame(for: try JSONDocument(ByteBuffer(string: text)), direction)?.label
        }
        for type in ["send", "edit"] { #expect(try label(#"{"type":"\#(type)"}"#, .fromClient) == .content) }
        #expect(try label(#"{"type":"delete"}"#, .fromClient) == .control)
        #expect(try label(#"{"type":"shout"}"#, .fromClient) == nil)
        for type in ["message", "edited"] { #expect(try label(#"{"type":"\#(type)"}"#, .fromBackend) == .sync) }
        #expect(try label(#"{"type":"ack","id":"c1","message_id":"m1"}"#, .fromBackend) == .passthrough)
        let text = #"{"type":"send","conversation":"r1","id":"c1","text":"hi","html":"hi"}"#
        let source = try JSONDocument(ByteBuffer(string: text))
        let frame = try #require(mapping.frame(for: source, .fromClient))
        let reading = MessageReading(source, frame.shapes, isRequest: true)
        #expect(reading.messages[0].conversation == "r1")
        #expect(
            try Self.sealed(text, reading).text
                == #"{"type":"send","conversation":"r1","id":"c1","text":"AQID","encrypted":true}"#)
    }

    /// Clients wait for an answer with the id of their request.
    @Test(arguments: ["generic", "rocketchat", "mattermost"]) func refusedFramesAreNamed(_ name: String) throws {
        let form = try shipped(name).refusal
        let frame = form.frame(.noRoute, words: "no", localID: nil)
        let copies = try #require(form.replyTo)
        let source = try #require(copies.copies.first)
        for id in [#""x7""#, "7"] {
            let refused = try JSONDocument(ByteBuffer(string: #"{"msg":"method","id":\#(id),"seq":\#(id)}"#))
            let answer = try JSONDocument(ByteBuffer(string: copies.put(refused, into: frame)))
            let place = try #require(try answer.place(source.target))
            #expect((try? answer.text(place)) ?? answer.numberText(place) == id.replacing("\"", with: ""))
        }
    }

    @Test(arguments: [
        ("POST", "/login", Mapping.Label.passthrough), ("POST", "/accounts", .passthrough),
        ("GET", "/me", .passthrough),
        ("GET", "/socket?token=x", .passthrough), ("POST", "/files", .upload), ("GET", "/files/f1", .download),
        ("DELETE", "/conversations/c/messages/m", .control), ("PUT", "/conversations/c/read", .control),
        ("PUT", "/conversations/c/messages/m/reactions/like", .control),
        ("PUT", "/conversations/c/title", .passthrough),
        ("POST", "/conversations/c/typing", .passthrough), ("GET", "/conversations/c", .passthrough),
        ("DELETE", "/conversations/c/members/u", .control), ("POST", "/logout", .passthrough),
        ("GET", "/users/u", .passthrough), ("GET", "/health", .passthrough), ("POST", "/conversations", .passthrough),
    ]) func genericRoutesHaveALabel(_ method: String, _ target: String, _ label: Mapping.Label) throws {
        #expect(try shipped("generic").route(for: RequestHead(method, target))?.route.label == label)
    }
}
