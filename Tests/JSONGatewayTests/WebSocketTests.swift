import CapableApp
import DeviceDirectory
import Envelope
import Foundation
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Testing
import Vault

/// Messages of a WebSocket connection through the gateway, before a backend in memory.
@Suite struct WebSocketTests {
    /// One person's socket.
    private final class Socket {
        let world: JSONWorld
        let name: String
        private(set) var machine: WebSocketMachine
        var toBackend: [String] = []
        var toClient: [String] = []
        var closed: UInt16?
        /// Answers of the vault that have not come yet.
        var held: [JSONReply] = []
        var holdsVault = false

        init(_ world: JSONWorld, _ name: String, token: String? = nil) {
            self.world = world
            self.name = name
            let head = RequestHead("GET", "/socket", headers: ["Authorization": "Bearer \(token ?? "t-\(name)")"])
            machine = WebSocketMachine(
                environment: world.environment, connection: ConnectionID(9), account: .services(name),
                credential: Credential(of: head, at: [.header("Authorization")]))
        }

        /// A page of another origin has opened it with a cookie.
        func beForeign() { machine.isOfForeignPage = true }

        func send(_ text: String) { run(.fromClient(ByteBuffer(string: text), isText: true)) }
        func receive(_ text: String, isText: Bool = true) {
            run(.fromBackend(ByteBuffer(string: text), isText: isText))
        }

        func release() {
            let replies = held
            held = []
            for reply in replies.reversed() { run(.vault(reply)) }
        }

        private func run(_ event: WebSocketEvent) {
            var events = [event]
            while !events.isEmpty {
                var actions: [WebSocketAction] = []
                machine.take(events.removeFirst(), at: world.now, &actions)
                for action in actions {
                    switch action {
                    case .toBackend(let bytes, _): toBackend.append(String(buffer: bytes))
                    case .toClient(let bytes, _): toClient.append(String(buffer: bytes))
                    case .answer(let bytes): toClient.append(String(buffer: bytes))
                    case .look(let lookup):
                        let answer = world.backend.answer(lookup.head, ByteBuffer())
                        events.append(answer.map { .found(lookup.id, $0.0, $0.1) } ?? .notFound(lookup.id))
                    case .submit(let job):
                        let replies = world.perform(job)
                        if holdsVault { held += replies } else { events += replies.map { .vault($0) } }
                    case .enqueue, .await: Issue.record("the mapping of these tests names no acknowledgement")
                    case .report(let defect): Issue.record(defect)
                    case .loggedIn: Issue.record("no message of these tests carries a login")
                    case .close(let code, _): closed = code
                    }
                }
            }
        }
    }

    private static let mapping: Mapping = {
        var mapping = Mapping.lab
        func path(_ text: String) -> JSONPath {
            guard let path = try? JSONPath(text) else { preconditionFailure("\(text) is no path") }
            return path
        }
        let outgoing = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .message(path("room")), text: path("text"),
            also: [path("html")], flag: path("encrypted"), localID: path("id"))
        let incoming = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .message(path("room")), text: path("text"),
            also: [path("html")], flag: path("encrypted"), sender: path("sender"), remoteID: path("message_id"))
        var edit = outgoing
        edit.edited = path("message_id")
        mapping.frames = [
            FrameRoute(direction: .fromClient, when: path(#"$[?type == "send"]"#), label: .content, shapes: [outgoing]),
            FrameRoute(direction: .fromClient, when: path(#"$[?type == "edit"]"#), label: .content, shapes: [edit]),
            FrameRoute(direction: .fromClient, when: path(#"$[?type == "ping"]"#), label: .passthrough),
            FrameRoute(
                direction: .fromBackend, when: path(#"$[?type == "message"]"#), label: .sync, shapes: [incoming]),
        ]
        mapping.refusal.frame = #"{"type":"error","id":"{local_id}","error":"{code}","message":"{reason}"}"#
        return mapping
    }()

    private func sent(_ text: String, room: String = "all") -> String {
        #"{"type":"send","room":"\#(room)","id":"7","text":"\#(text)"}"#
    }

    /// As the backend gives it to the others.
    private func relayed(_ frame: String, from name: String) -> String {
        frame.replacingOccurrences(of: #""type":"send""#, with: #""type":"message","sender":"\#(name)""#)
    }

    @Test func sentByOneAndReadByAnother() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let (alice, bob) = (Socket(world, "alice"), Socket(world, "bob"))
        alice.send(sent("the canary sings"))
        let frame = try #require(alice.toBackend.first)
        #expect(!frame.contains("canary"))
        #expect(frame.contains(#""encrypted":true"#))
        bob.receive(relayed(frame, from: "alice"))
        #expect(bob.toClient == [relayed(sent("the canary sings"), from: "alice")])
        bob.receive(relayed(frame, from: "eve"))
        #expect(bob.toClient[1].contains("withheld"))
    }

    /// All protection is lowered again, and the vault has the keys of what was sealed before.
    @Test(arguments: [false, true]) func whatWasSealedBeforeIsStillOpened(_ restarts: Bool) throws {
        let store = InMemoryStore()
        var world = try JSONWorld(.hosted, mapping: Self.mapping, store: store)
        let alice = Socket(world, "alice")
        alice.send(sent("the canary sings"))
        let frame = try #require(alice.toBackend.first)
        #expect(!frame.contains("canary"))
        try world.lowerProtection()
        if restarts { world = try JSONWorld(.observe, mapping: Self.mapping, store: store) }
        #expect(world.environment.latches.isEmpty)
        let bob = Socket(world, "bob")
        bob.receive(relayed(frame, from: "alice"))
        bob.receive("no document")
        #expect(bob.toClient == [relayed(sent("the canary sings"), from: "alice"), "no document"])
        #expect(!bob.machine.passesBackend && !bob.machine.passesLongMessages(fromClient: false))
        #expect(bob.machine.passesLongMessages(fromClient: true), "what a client sends is not opened")
        let other = Socket(try JSONWorld(.observe, mapping: Self.mapping), "bob")
        #expect(other.machine.passesBackend && other.machine.passesLongMessages(fromClient: false))
    }

    @Test func nothingOvertakesWhatWaitsForTheVault() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        alice.holdsVault = true
        alice.send(sent("one"))
        alice.send(sent("two"))
        alice.send(#"{"type":"ping"}"#)
        #expect(alice.toBackend.isEmpty)
        alice.release()
        #expect(alice.toBackend.count == 3)
        #expect(alice.toBackend[2] == #"{"type":"ping"}"#)
        let bob = Socket(world, "bob")
        bob.holdsVault = true
        for frame in alice.toBackend.prefix(2) { bob.receive(relayed(frame, from: "alice")) }
        bob.receive(#"{"type":"pong"}"#)
        #expect(bob.toClient.isEmpty)
        bob.release()
        #expect(bob.toClient.map { $0.contains("one") } == [true, false, false])
        #expect(bob.toClient[1].contains("two"))
    }

    @Test(arguments: [
        #"{"type":"other","text":"the canary sings"}"#, "the canary sings",
        #"{"type":"send","room":"all","txt":"the canary sings"}"#,
        #"{"type":"send","room":"all","text":"x","text":"the canary sings"}"#,
        #"{"type":"send","text":"the canary sings"}"#,
    ])
    func whatNobodyCanReadIsRefusedAndTheRestGoesOn(frame: String) throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        alice.send(frame)
        #expect(alice.toBackend.isEmpty)
        #expect(alice.toClient.first?.contains(#""type":"error""#) == true)
        alice.send(#"{"type":"ping"}"#)
        #expect(alice.toBackend == [#"{"type":"ping"}"#])
        let observe = try JSONWorld(.observe, mapping: Self.mapping)
        let carol = Socket(observe, "carol")
        carol.send(frame)
        #expect(carol.toBackend == [frame])
    }

    /// What a client may read otherwise than the gateway: nobody puts words into a protected conversation that way.
    @Test(arguments: [
        (#"{"type":"pong","type":"message","room":"all","sender":"eve","text":"the canary sings"}"#, true),
        ("\u{FEFF}" + #"{"type":"message","room":"all","sender":"eve","text":"the canary sings"}"#, true),
        ("the canary sings", true), ("\u{1}the canary sings", false),
        (#"{"type":"message","room":"all","sender":"eve","text":["the canary sings"]}"#, true),
        (#"{"type":"message","room":"all","sender":"eve","text":"the canary sings"}"#, false),
    ])
    func whatTheGatewayCannotReadIsNotShown(frame: String, isText: Bool) throws {
        let world = try JSONWorld(.observe, mapping: Self.mapping)
        let bob = Socket(world, "bob")
        bob.receive(frame, isText: isText)
        #expect(bob.toClient == [frame])
        world.environment.latches.raise(ConversationID(.room("all"), .room("all")), to: .gateway)
        for policy in [Policy.observe, .hosted] {
            world.environment.policies.update { $0.everyone = policy }
            bob.toClient = []
            bob.receive(frame, isText: isText)
            #expect(bob.toClient.count == 1)
            #expect(bob.toClient.first?.contains("canary") == false)
            bob.receive(#"{"type":"pong"}"#)
            #expect(bob.toClient.last == #"{"type":"pong"}"#, "the rest goes on")
        }
        world.environment.policies.update { $0.accounts[.services("bob")] = .off }
        bob.toClient = []
        bob.receive(frame, isText: isText)
        #expect(bob.toClient == [frame])
    }

    @Test func anOutsiderOfTwoIsRefusedInTheBackendsWords() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        alice.send(sent("the canary sings", room: "pair"))
        #expect(alice.toBackend.isEmpty)
        #expect(alice.toClient.first?.contains(#""id":"7","error":"pawl_outsider""#) == true)
    }

    /// The backend goes by the message alone.
    @Test func anEditNamesTheConversationOfItsMessage() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        world.backend.rooms["side"] = ["alice", "bob", "carol"]
        world.backend.messages["all"] = [.init(id: "m1", sender: "alice", body: "{}")]
        let alice = Socket(world, "alice")
        func edit(_ id: String, in room: String) {
            alice.send(#"{"type":"edit","room":"\#(room)","message_id":"\#(id)","id":"8","text":"the canary sings"}"#)
        }
        edit("m1", in: "side")
        edit("m2", in: "all")
        #expect(alice.toBackend.isEmpty)
        #expect(alice.toClient.map { $0.contains(#""id":"8""#) } == [true, true])
        #expect(alice.toClient[0].contains("another conversation") && alice.toClient[1].contains("is not known"))
        edit("m1", in: "all")
        #expect(alice.toBackend.count == 1 && alice.toBackend[0].contains(#""encrypted":true"#))
        // The account has met this one, so the backend is not asked.
        alice.receive(#"{"type":"message","room":"all","sender":"bob","message_id":"m5","text":"plain"}"#)
        edit("m5", in: "side")
        #expect(alice.toClient.last?.contains("another conversation") == true)
        edit("m5", in: "all")
        #expect(alice.toBackend.count == 2 && !world.backend.hasReceived("GET /m/m5"))
        // An edit keeps its place.
        alice.holdsVault = true
        edit("m1", in: "all")
        alice.send(#"{"type":"ping"}"#)
        #expect(alice.toBackend.count == 2)
        alice.release()
        #expect(alice.toBackend.last == #"{"type":"ping"}"# && alice.toBackend.count == 4)
    }

    // MARK: Clients that number requests and events

    private static let numbered: Mapping = {
        var mapping = WebSocketTests.mapping
        func path(_ text: String) -> JSONPath {
            guard let path = try? JSONPath(text) else { preconditionFailure("\(text) is no path") }
            return path
        }
        mapping.refusal.frame = #"{"answers":-1,"error":"{code}"}"#
        mapping.refusal.replyTo = CopiedValues([.init(path("answers"), from: path("seq"))])
        mapping.withheld = WithheldForm(
            frame: #"{"type":"withheld","n":0,"why":"{code}"}"#, kept: CopiedValues([.init(path("n"), from: path("n"))])
        )
        return mapping
    }()

    @Test(arguments: [
        (#"{"type":"other","seq":9}"#, "9", "pawl_verb"),
        (#"{"type":"other","seq":"\u0061"}"#, #""\u0061""#, "pawl_verb"),
        (#"{"type":"send","seq":123456789012345,"room":"pair","text":"x"}"#, "123456789012345", "pawl_outsider"),
        (#"{"type":"send","seq":8,"room":"all"}"#, "8", "pawl_unreadable"),
        (#"{"type":"other"}"#, "-1", "pawl_verb"), (#"{"type":"other","seq":{"a":1}}"#, "-1", "pawl_verb"),
        (#"{"type":"other","seq":null}"#, "-1", "pawl_verb"),
        (#"{"type":"other","seq":1,"seq":2}"#, "-1", "pawl_verb"),
        (#"{"type":"other","seq":"\#(String(repeating: "x", count: CopiedValues.valueLimit))"}"#, "-1", "pawl_verb"),
        ("no JSON", "-1", "pawl_verb"),
    ]) func aRefusalAnswersItsRequest(frame: String, number: String, code: String) throws {
        let alice = Socket(try JSONWorld(.hosted, mapping: Self.numbered), "alice")
        alice.send(frame)
        #expect(alice.toClient == [#"{"answers":\#(number),"error":"\#(code)"}"#])
    }

    /// A client that counts events would take a missing one for a lost one.
    @Test func aWithheldEventKeepsItsPlace() throws {
        let world = try JSONWorld(.hosted, mapping: Self.numbered)
        let (alice, bob) = (Socket(world, "alice"), Socket(world, "bob"))
        alice.send(sent("the canary sings"))
        let frame = relayed(try #require(alice.toBackend.first), from: "alice")
        for number in 1...2 {
            bob.receive(frame.replacing(#""room""#, with: #""n":\#(number),"message_id":"m\#(number)","room""#))
        }
        #expect(bob.toClient.count == 2 && bob.toClient[0].contains("canary"))
        #expect(bob.toClient.last == #"{"type":"withheld","n":2,"why":"pawl_copy"}"#)
        for unreadable in [#"{"n":3,"n":4,"type":"message"}"#, "no JSON"] {
            bob.receive(unreadable)
            #expect(bob.toClient.last == #"{"type":"withheld","n":0,"why":"pawl_answer_unreadable"}"#)
        }
    }

    @Test func tooManyThatWaitCloseTheConnection() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        alice.holdsVault = true
        for _ in 0...WebSocketMachine.waitingLimit { alice.send(sent("x")) }
        #expect(alice.closed == 1008)
    }

    // MARK: Clients that can encrypt

    private func call(_ socket: Socket, _ method: String, _ path: String, _ message: [UInt8]? = nil) -> JSONWorld.Answer
    {
        let body = message.map { #","body":{"message":"\#(JSONWorld.base64($0))"}"# } ?? ""
        socket.send(#"{"pawl":{"id":7,"method":"\#(method)","path":"/_pawl/v1/\#(path)"\#(body)}}"#)
        return JSONWorld.Answer(status: 0, text: socket.toClient.last ?? "")
    }

    /// A call in band is answered at once, because others are behind it. A notice comes when there is something to fetch.
    @Test func aNoticeInBandTellsOfMessages() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let bob = Socket(world, "bob")
        let device = AppDevice("bob", id: 2)
        let challenge = call(bob, "POST", "challenge").bytes("pawl.body.challenge")
        #expect(call(bob, "PUT", "device", device.publication(over: challenge))["pawl.status"] == "200")
        #expect(call(bob, "GET", "messages?wait=20")["pawl.body.more"] == "false")
        bob.held = [.mail(id: 5, .entries([], more: true))]
        bob.release()
        #expect(bob.toClient.last == #"{"pawl":{"notice":"messages"}}"#)
    }

    @Test func callsAndEnvelopesInBand() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let (alice, bob) = (Socket(world, "alice"), Socket(world, "bob"))
        let (first, second) = (AppDevice("alice", id: 1), AppDevice("bob", id: 2))
        for (socket, device) in [(alice, first), (bob, second)] {
            let challenge = call(socket, "POST", "challenge").bytes("pawl.body.challenge")
            #expect(call(socket, "PUT", "device", device.publication(over: challenge))["pawl.status"] == "200")
            #expect(call(socket, "GET", "me")["pawl.body.device"] == device.name)
        }
        try first.begin(call(alice, "POST", "accounts/bob/bundles").bytes("pawl.body.message"))
        #expect(call(alice, "GET", "nothing")["pawl.body.error"] == "pawl_unknown_call")
        #expect(alice.toBackend.isEmpty && bob.toBackend.isEmpty, "no call reaches the backend")
        let envelope = try first.seal("the canary sings", in: "pair")
        let frame =
            #"{"type":"send","room":"pair","id":"7","text":"\#(JSONWorld.base64(envelope))","encrypted":true}"#
        alice.send(frame)
        #expect(alice.toBackend == [frame])
        bob.receive(relayed(frame, from: "alice"))
        #expect(bob.toClient.last == relayed(frame, from: "alice"))
        #expect(world.latch("pair") == .device)
        // Another client of bob's, whose login has proven nothing, reads words.
        let phone = Socket(world, "bob", token: "t-bob-phone")
        phone.receive(relayed(frame, from: "alice"))
        #expect(phone.toClient.last?.contains(Notices.forOwnDevice(from: "alice")) == true)
        alice.send(sent("the canary sings", room: "pair"))
        #expect(alice.toClient.last?.contains("pawl_unsealed") == true)
        #expect(alice.toBackend.count == 1)
    }

    @Test(arguments: [
        #"{"pawl":{"id":7,"status":200,"body":{"message":"AAAA"}}}"#,
        #"{"a":"                                                                                ","pawl":{}}"#,
        #"{"\u0070awl":{"id":7}}"#,
        #"{"pawl":{"id":7"#,
    ]) func theBackendCannotAnswerCalls(_ forged: String) throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        _ = call(alice, "GET", "me")
        alice.receive(forged)
        #expect(alice.toClient.count == 1)
        #expect(world.environment.tally[.unknownFromBackend] == 1)
    }

    @Test func callsAreAnsweredInOrderAndBounded() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        alice.holdsVault = true
        for id in 0..<40 { alice.send(#"{"pawl":{"id":\#(id),"method":"POST","path":"/_pawl/v1/challenge"}}"#) }
        #expect(alice.toClient.count == 7, "one is under way, 32 wait")
        alice.toClient = []
        while !alice.held.isEmpty { alice.release() }
        let ids = alice.toClient.compactMap { JSONWorld.Answer(status: 0, text: $0)["pawl.id"] }
        #expect(ids == (0..<33).map(String.init))
    }

    @Test func callsThatWaitCountAndLongOnesAreRefused() throws {
        let world = try JSONWorld(.hosted)
        let alice = Socket(world, "alice")
        func call(_ id: Int, _ size: Int) -> String {
            let text = String(repeating: "A", count: size)
            return #"{"pawl":{"id":\#(id),"method":"POST","path":"/_pawl/v1/challenge","body":{"a":"\#(text)"}}}"#
        }
        alice.holdsVault = true
        alice.send(call(1, 10))
        #expect(alice.machine.waitingBytes == 0)
        alice.send(call(2, 1000))
        #expect((1000..<1100).contains(alice.machine.waitingBytes))
        alice.send(call(3, 512 << 10))
        #expect(alice.toClient.last?.contains(#""id":3,"status":413"#) == true)
        #expect((1000..<1100).contains(alice.machine.waitingBytes))
        alice.holdsVault = false
        alice.release()
        #expect(alice.toClient.last?.contains(#""id":2,"status":200"#) == true && alice.machine.waitingBytes == 0)
    }

    /// A socket stays open when its login ends: the backend is asked again before a call is carried out.
    @Test func aLoginThatHasEndedCallsNoMore() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        world.backend.tokens["t-alice-phone"] = "alice"
        let phone = Socket(world, "alice", token: "t-alice-phone")
        #expect(call(phone, "GET", "me")["pawl.body.account"] == "alice")
        let asked = world.backend.received.count
        #expect(call(phone, "GET", "me")["pawl.status"] == "200")
        #expect(world.backend.received.count == asked, "not for every call")
        world.now.monotonic += CredentialCache.memoryForCalls
        world.backend.isUp = false
        #expect(call(phone, "POST", "challenge")["pawl.status"] == "502")
        world.backend.isUp = true
        #expect(call(phone, "POST", "challenge")["pawl.status"] == "200")
        world.now.monotonic += CredentialCache.memoryForCalls
        world.backend.tokens["t-alice-phone"] = nil
        #expect(call(phone, "POST", "challenge")["pawl.body.error"] == "pawl_not_logged_in")
        // Somebody else's by now.
        world.now.monotonic += CredentialCache.memoryOfRefusals
        world.backend.tokens["t-alice-phone"] = "eve"
        #expect(call(phone, "POST", "challenge")["pawl.body.error"] == "pawl_not_logged_in")
    }

    /// Nothing of the connection depends on such an answer, but it means that the gateway has a defect.
    @Test func anAnswerForWhichNothingWaitsIsReported() throws {
        let world = try JSONWorld(.hosted)
        var machine = WebSocketMachine(
            environment: world.environment, connection: ConnectionID(9), account: .services("alice"), credential: nil)
        let token = RequestToken(high: 1, low: 2)
        let events: [WebSocketEvent] = [
            .notFound(.members), .notFound(.account), .notFound(.login), .vault(.opened(ticket: 7, [])),
            .vault(.foundWrite(nil)),
            .vault(.queued(token, .failure(.notQueued(.full)))), .vault(.mail(id: 3, .done)),
        ]
        for event in events {
            var actions: [WebSocketAction] = []
            machine.take(event, at: world.now, &actions)
            #expect(actions.count == 1, "\(event)")
            guard case .report? = actions.first else {
                Issue.record("\(event) is swallowed")
                continue
            }
        }
        #expect(world.environment.tally[.unexpectedEvents] == events.count)
    }

    /// A line of IRC, say, of any bytes. Where something is protected, such a text could be read in two ways.
    @Test(
        arguments: [Policy.observe, .opportunistic, .hosted],
        [(true, true), (true, false), (false, true), (false, false)]
    ) func textsThatAreNotUTF8(_ policy: Policy, _ message: (isFromClient: Bool, isText: Bool)) throws {
        let (isFromClient, isText) = message
        let world = try JSONWorld(policy, mapping: Self.mapping)
        var machine = WebSocketMachine(
            environment: world.environment, connection: ConnectionID(9), account: .services("alice"), credential: nil)
        let bytes = ByteBuffer(bytes: Array("PRIVMSG bob :caf".utf8) + [0xE9])
        var actions: [WebSocketAction] = []
        let event: WebSocketEvent =
            isFromClient ? .fromClient(bytes, isText: isText) : .fromBackend(bytes, isText: isText)
        machine.take(event, at: world.now, &actions)
        switch (actions.first, isFromClient) {
        case (.close(1007, _), _): #expect(policy == .hosted && isText)
        case (.toBackend(bytes, isText), true), (.toClient(bytes, isText), false): #expect(policy != .hosted)
        // A binary message is no text, and its place has a refusal or a notice.
        case (.toClient, _): #expect(policy == .hosted && !isText)
        default: Issue.record("\(actions)")
        }
        #expect(actions.count == 1)
    }

    @Test func aForeignPageMakesNoCallsOnASocket() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world, "alice")
        let call = #"{"pawl":{"id":7,"method":"POST","path":"/_pawl/v1/challenge"}}"#
        alice.send(call)
        #expect(alice.toClient.last?.contains(#""status":200"#) == true, "\(alice.toClient)")
        alice.beForeign()
        alice.send(call)
        #expect(alice.toClient.last?.contains("pawl_foreign_page") == true, "\(alice.toClient)")
        #expect(alice.toClient.last?.contains("challenge") == false && alice.toBackend.isEmpty)
    }
}
