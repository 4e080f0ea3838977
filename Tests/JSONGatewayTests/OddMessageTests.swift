import Envelope
import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import Testing

/// Messages that cannot be read: they show nothing unmarked, and take nothing else with them.
@Suite struct OddMessageTests {
    private static let secret = "the canary sings"
    /// What stands in the place of a message, in a mapping that names `text`, `html` and `extra.note`.
    private static let odd = [
        #"{"text":5,"html":"the canary sings"}"#, #"{"text":{"x":"the canary sings"}}"#,
        #"{"text":"\ud800 the canary sings"}"#, #"{"text":"x","html":"\ud800 the canary sings"}"#,
        #"{"text":"x","text":"the canary sings"}"#, #"{"extra":{"note":1,"note":"the canary sings"},"text":"x"}"#,
        #"{"text":null,"encrypted":{"a":1,"a":2},"html":["the canary sings"]}"#,
        #"{"text":"x","encrypted":true,"extra":{"note":{"text":"x","html":"\ud800","text":"the canary sings"}}}"#,
    ]

    /// A room with an outsider's plain text, something odd, and a sealed message.
    private static func world(_ policy: Policy, mapping: Mapping = .lab, odd: String, from sender: String = "eve")
        throws
        -> JSONWorld
    {
        let world = try JSONWorld(.hosted, mapping: mapping)
        _ = world.direct("POST", "/c/all", as: "t-eve", #"{"text":"before"}"#)
        world.backend.messages["all"]?.append(.init(id: "odd", sender: sender, body: odd))
        #expect(world.send("POST", "/c/all", as: "t-alice", #"{"id":"1","text":"sealed"}"#)?.status == 201)
        world.environment.policies.update { $0.everyone = policy }
        return world
    }

    @Test(arguments: odd, ["/c/all", "/c/all?since=1"])
    func theOthersAreReadAllTheSame(_ body: String, _ target: String) throws {
        for policy in [Policy.hosted, .required, .opportunistic, .observe] {
            let world = try Self.world(policy, odd: body)
            let read = try #require(world.send("GET", target, as: "t-bob"))
            #expect(read.status == 200)
            #expect(!read.text.contains("canary"))
            #expect(read.text.contains(#""text":"sealed""#))
            #expect(read.text.contains("before") == (target == "/c/all"))
            #expect(world.environment.tally[.withheld] >= 1)
        }
    }

    @Test(arguments: odd) func whereNothingIsProtectedTheyStayWhatTheyAre(_ body: String) throws {
        let world = try Self.world(.opportunistic, odd: body)
        world.backend.messages["pair"] = [.init(id: "odd", sender: "eve", body: body)]
        let read = world.send("GET", "/c/pair", as: "t-bob")
        #expect(read?.text == world.direct("GET", "/c/pair", as: "t-bob").text)
    }

    @Test func whoWritesUnderAnOddNameIsNotRead() throws {
        let world = try Self.world(.hosted, odd: #"{"text":"the canary sings","kept":1}"#, from: "e\u{2003}ve")
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[1].data.text"] == Notices.withheldUnread)
        #expect(read["messages[1].data.kept"] == "1")
        #expect(read["messages[2].data.text"] == "sealed")
    }

    /// A mapping that seals all but what it keeps seals 256 members at most, and a stranger may write more.
    @Test func moreMembersThanCanBeSealed() throws {
        let mapping = try Mapping.lab { shape in
            MessageShape(
                containers: shape.containers, messages: shape.messages, conversation: shape.conversation,
                text: shape.text, flag: shape.flag, sender: shape.sender, remoteID: shape.remoteID,
                content: shape.content, kept: ["kind"])
        }
        let many = (0..<300).map { #","n\#($0)":"the canary sings""# }.joined()
        let world = try Self.world(.hosted, mapping: mapping, odd: #"{"kind":"t","text":"x"\#(many)}"#)
        let read = try #require(world.send("GET", "/c/all", as: "t-bob"))
        #expect(read["messages[1].data.kind"] == "t")
        #expect(read["messages[1].data.text"] == Notices.withheldUnread)
        #expect(!read.text.contains("canary"))
        #expect(read["messages[2].data.text"] == "sealed")
    }

    /// A copy goes with the message that stands in it, whatever was to be done to that.
    @Test func aCopyWithAMessageInIt() throws {
        let world = try Self.world(.hosted, mapping: try Mapping.lab(within: "messages[*].data.last"), odd: "{}")
        let sealed = try #require(world.backend.messages["all"]?.last?.body)
        let inner =
            sealed.dropLast() + #","last":{"message_id":"i","sender":"eve","data":{"text":"the canary sings"}}}"#
        world.backend.messages["all"]?.append(.init(id: "copy", sender: "alice", body: String(inner)))
        for _ in 0..<2 {
            let read = try #require(world.send("GET", "/c/all?since=1", as: "t-bob"))
            #expect(read.status == 200)
            #expect(read["messages[2].data.text"] == "sealed")
            #expect(read["messages[3].data.text"] == nil)
            #expect(!read.text.contains("canary"))
        }
    }

    // MARK: Whole answers

    private static let unreadable: [(HeaderFields, String)] = [
        (["Content-Type": "application/json"], "\u{FEFF}{\"messages\":[]}"),
        (["Content-Type": "application/json"], String(repeating: "[", count: 200) + String(repeating: "]", count: 200)),
        (["Content-Type": "application/json"], #"{"messages":["#),
        (["Content-Type": "text/plain"], #"{"messages":[]}"#),
        (["Content-Type": "application/json", "Content-Encoding": "gzip"], #"{"messages":[]}"#),
        (["Content-Type": "application/json", "content-type": "text/html"], #"{"messages":[]}"#),
        (["Content-Type": "application/json"], #"{"messages":[],"messages":[]}"#),
    ]

    @Test(arguments: unreadable.indices) func anAnswerThatNobodyCanLookInto(_ number: Int) throws {
        let (fields, text) = Self.unreadable[number]
        func answer(_ policy: Policy, latch: Bool) throws -> (status: Int, isAsItCame: Bool)? {
            let world = try JSONWorld(policy)
            if latch { world.environment.latches.raise(ConversationID(.room("x"), .room("x")), to: .gateway) }
            if policy == .off { world.environment.policies.update { $0.accounts[.services("eve")] = .hosted } }
            var steps = ExchangeSteps(world)
            guard case .passRequest = steps.begin("GET", "/c/all").last else { return nil }
            return steps.answer(ResponseHead(200, headers: fields), ByteBuffer(string: text))
        }
        for (policy, latch) in [(Policy.hosted, false), (.required, true), (.opportunistic, true), (.observe, true)] {
            let refused = try #require(try answer(policy, latch: latch))
            #expect(refused.status == 502 && !refused.isAsItCame)
        }
        for (policy, latch) in [(Policy.opportunistic, false), (.off, true)] {
            let passed = try #require(try answer(policy, latch: latch))
            #expect(passed.status == 200 && passed.isAsItCame)
        }
    }

    @Test func whatHoldsNothingIsNoAnswerToLookInto() throws {
        let world = try JSONWorld(.hosted)
        for (method, head, body) in [
            ("HEAD", ResponseHead(200, headers: ["Content-Type": "text/html", "Content-Length": "7"]), ""),
            ("GET", ResponseHead(200, headers: ["Content-Length": "0"]), ""), ("GET", ResponseHead(200), ""),
            ("GET", ResponseHead(204, headers: ["Content-Type": "text/html"]), ""),
            ("GET", ResponseHead(500, headers: ["Content-Type": "text/html"]), "<p>no</p>"),
        ] {
            var steps = ExchangeSteps(world)
            _ = steps.begin(method, "/c/all")
            let passed = steps.answer(head, ByteBuffer(string: body))
            #expect(passed?.status == head.status && passed?.isAsItCame == true)
        }
    }
}

extension Mapping {
    /// The lab's with other messages in its answers.
    fileprivate static func lab(_ change: (MessageShape) throws -> MessageShape) throws -> Mapping {
        try lab { [try change($0)] }
    }

    /// The lab's with messages inside of messages.
    fileprivate static func lab(within place: String) throws -> Mapping {
        try lab { shape in
            let inner = MessageShape(
                containers: shape.containers, messages: try path(place), conversation: shape.conversation,
                text: shape.text, flag: shape.flag, sender: shape.sender, remoteID: shape.remoteID,
                content: shape.content)
            return [shape, inner]
        }
    }

    private static func lab(_ change: (MessageShape) throws -> [MessageShape]) throws -> Mapping {
        var mapping = Mapping.lab
        mapping.routes = try mapping.routes.map { route in
            guard let shape = route.response.first else { return route }
            return Route(
                methods: route.methods, path: route.path, query: route.query, label: route.label,
                response: try change(shape))
        }
        return mapping
    }
}
