import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Testing
import Vault

/// Logins inside a WebSocket: whose it is, only the backend says.
@Suite struct SocketLoginTests {
    private final class Socket {
        let world: JSONWorld
        private(set) var machine: WebSocketMachine
        var toBackend: [String] = []
        var toClient: [String] = []
        var closed: UInt16?
        var loggedIn: [AccountID] = []
        var asked = 0
        /// Lookups of the account, whose answers have not come.
        var held: [Lookup] = []
        var holdsLookups = false

        /// - Parameter name: whose it is from the beginning; nil if a message is to say so.
        init(_ world: JSONWorld, _ name: String? = nil) {
            self.world = world
            guard let name else {
                machine = WebSocketMachine(
                    environment: world.environment, connection: ConnectionID(9), software: "Chat/2",
                    asksForEncryption: false)
                return
            }
            let head = RequestHead("GET", "/socket", headers: ["Authorization": "Bearer t-\(name)"])
            machine = WebSocketMachine(
                environment: world.environment, connection: ConnectionID(9), account: .services(name),
                credential: Credential(of: head, at: [.header("Authorization")]))
        }

        func send(_ text: String) { run(.fromClient(ByteBuffer(string: text), isText: true)) }
        func receive(_ text: String) { run(.fromBackend(ByteBuffer(string: text), isText: true)) }

        func release() {
            let lookups = held
            held = []
            for lookup in lookups { answer(lookup) }
        }

        private func answer(_ lookup: Lookup) {
            let answer = world.backend.answer(lookup.head, ByteBuffer())
            run(answer.map { .found(lookup.id, $0.0, $0.1) } ?? .notFound(lookup.id))
        }

        private func run(_ event: WebSocketEvent) {
            var actions: [WebSocketAction] = []
            machine.take(event, at: world.now, &actions)
            for action in actions where closed == nil {
                switch action {
                case .toBackend(let bytes, _): toBackend.append(String(buffer: bytes))
                case .toClient(let bytes, _): toClient.append(String(buffer: bytes))
                case .answer(let bytes): toClient.append(String(buffer: bytes))
                case .look(let lookup):
                    asked += 1
                    if holdsLookups { held.append(lookup) } else { answer(lookup) }
                case .submit(let job): for reply in world.perform(job) { run(.vault(reply)) }
                case .loggedIn(let account, _): loggedIn.append(account)
                case .enqueue, .await: Issue.record("the mapping of these tests names no acknowledgement")
                case .report(let defect): Issue.record(defect)
                case .close(let code, _): closed = code
                }
            }
        }
    }

    private static func path(_ text: String) -> JSONPath {
        guard let path = try? JSONPath(text) else { preconditionFailure("\(text) is no path") }
        return path
    }

    private static let mapping: Mapping = {
        var mapping = Mapping.lab
        let outgoing = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .message(path("room")), text: path("text"),
            flag: path("encrypted"), localID: path("id"))
        let incoming = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .message(path("room")), text: path("text"),
            flag: path("encrypted"), sender: path("sender"), remoteID: path("message_id"))
        let bearer = [FrameLogin.Value(.header("Authorization"), [.text("Bearer "), .path(path("data.token"))])]
        mapping.frames = [
            FrameRoute(
                direction: .fromClient, when: path(#"$[?type == "login"]"#), label: .passthrough,
                login: FrameLogin(bearer)),
            FrameRoute(direction: .fromClient, when: path(#"$[?type == "send"]"#), label: .content, shapes: [outgoing]),
            FrameRoute(direction: .fromClient, when: path(#"$[?type == "ping"]"#), label: .passthrough),
            FrameRoute(
                direction: .fromBackend, when: path(#"$[?type == "result"]"#), label: .passthrough,
                login: FrameLogin(bearer)),
            FrameRoute(
                direction: .fromBackend, when: path(#"$[?type == "message"]"#), label: .sync, shapes: [incoming]),
            FrameRoute(direction: .fromBackend, when: path(#"$[?type == "pong"]"#), label: .passthrough),
        ]
        mapping.refusal.frame = #"{"error":"{code}"}"#
        return mapping
    }()

    private static func login(_ token: String, type: String = "login") -> String {
        #"{"type":"\#(type)","data":{"token":"\#(token)"}}"#
    }

    private static let text = #"{"type":"send","room":"all","id":"7","text":"the canary sings"}"#

    @Test(arguments: [true, false]) func theBackendsAnswerNamesTheAccount(_ isFromClient: Bool) throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        world.send("GET", "/me", as: "t-bob")
        let alice = Socket(world)
        #expect(!world.environment.accounts.contains(.services("alice")))
        if isFromClient {
            alice.send(Self.login("t-alice"))
        } else {
            alice.receive(Self.login("t-alice", type: "result"))
        }
        #expect((isFromClient ? alice.toBackend : alice.toClient).count == 1, "it passes")
        #expect(alice.loggedIn == [.services("alice")] && alice.machine.account == .services("alice"))
        #expect(world.environment.accounts.contains(.services("alice")))
        alice.send(Self.text)
        let frame = try #require(alice.toBackend.last)
        #expect(frame.contains(#""encrypted":true"#) && !frame.contains("canary"))
        let bob = Socket(world, "bob")
        bob.receive(frame.replacing(#""type":"send""#, with: #""type":"message","sender":"alice""#))
        #expect(bob.toClient.last?.contains("the canary sings") == true)
    }

    @Test func beforeItNothingPassesThatCouldBeAMessage() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let socket = Socket(world)
        for frame in [Self.text, #"{"type":"unknown","text":"canary"}"#, "canary"] { socket.send(frame) }
        #expect(socket.toBackend.isEmpty)
        #expect(
            socket.toClient == [#"{"error":"pawl_not_logged_in"}"#]
                + Array(repeating: #"{"error":"pawl_verb"}"#, count: 2))
        socket.toClient = []
        for frame in [
            #"{"type":"message","room":"all","sender":"eve","text":"canary"}"#, #"{"type":"unknown"}"#, "canary",
        ] { socket.receive(frame) }
        #expect(socket.toClient == Array(repeating: #"{"error":"pawl_answer_unreadable"}"#, count: 3))
        socket.send(#"{"type":"ping"}"#)
        socket.receive(#"{"type":"pong"}"#)
        #expect(socket.toBackend == [#"{"type":"ping"}"#] && socket.toClient.last == #"{"type":"pong"}"#)
        // Where nothing is protected, nothing changes.
        let open = Socket(try JSONWorld(.observe, mapping: Self.mapping))
        open.send(Self.text)
        open.receive(#"{"type":"message","room":"all","sender":"eve","text":"x"}"#)
        #expect(open.toBackend == [Self.text] && open.toClient.count == 1)
    }

    /// A backend that ignores the case of names would find another message than the gateway.
    @Test func namesInAnotherCaseAreRefusedWhereSomethingIsProtected() throws {
        let frames = [
            #"{"type":"ping","Type":"send","room":"all","text":"canary"}"#,
            #"{"type":"send","room":"all","text":"x","Text":"canary"}"#,
            #"{"type":"login","data":{"token":"t-alice"},"Data":{"token":"t-bob"}}"#,
        ]
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world)
        alice.send(Self.login("t-alice"))
        for frame in frames { alice.send(frame) }
        #expect(alice.toBackend == [Self.login("t-alice")] && alice.loggedIn.count == 1)
        #expect(alice.toClient == Array(repeating: #"{"error":"pawl_unreadable"}"#, count: 3))
        let open = Socket(try JSONWorld(.observe, mapping: Self.mapping))
        for frame in frames { open.send(frame) }
        #expect(open.toBackend == frames)
    }

    /// The relay delivers nothing while the backend is asked; the machine would not let it pass either.
    @Test func whileTheBackendIsAskedNothingPasses() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let alice = Socket(world)
        alice.holdsLookups = true
        alice.send(Self.login("t-alice"))
        #expect(alice.machine.isIdentifying && alice.toBackend == [Self.login("t-alice")])
        alice.send(Self.text)
        alice.send(Self.login("t-bob"))
        #expect(alice.toBackend.count == 1 && alice.asked == 1)
        alice.release()
        #expect(!alice.machine.isIdentifying && alice.machine.account == .services("alice"))
    }

    @Test func aRejectedLoginIsTheBackendsToAnswer() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let socket = Socket(world)
        socket.send(Self.login("wrong"))
        #expect(socket.toBackend == [Self.login("wrong")] && socket.loggedIn.isEmpty && socket.closed == nil)
        socket.send(Self.text)
        #expect(socket.toBackend.count == 1 && socket.toClient.last == #"{"error":"pawl_not_logged_in"}"#)
        world.backend.isUp = false
        socket.send(Self.login("t-alice"))
        socket.send(Self.text)
        #expect(socket.toBackend.count == 2 && !socket.machine.isLoggedIn)
        world.backend.isUp = true
        socket.send(Self.login("t-alice"))
        #expect(socket.loggedIn == [.services("alice")])
    }

    @Test func aSecondLoginIsOfTheSameAccount() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        world.backend.tokens = ["t-alice-2": "alice"]
        let alice = Socket(world, "alice")
        alice.send(Self.login("t-alice"))
        #expect(alice.asked == 0 && alice.closed == nil, "it is the same credential")
        alice.send(Self.login("t-alice-2"))
        #expect(alice.loggedIn == [.services("alice")] && alice.closed == nil)
        let other = Socket(world, "alice")
        other.send(Self.login("t-bob"))
        #expect(other.closed == 1008 && other.machine.account == .services("alice"))
        // The backend may have taken what the gateway cannot confirm.
        let unknown = Socket(world, "alice")
        unknown.send(Self.login("wrong"))
        #expect(unknown.closed == 1008)
    }

    /// The backend has answered about the later login before it answers about the one with which a call came.
    @Test func aCallIsMadeWithTheLatestLogin() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        world.backend.tokens = ["t-alice": "alice", "t-alice-2": "alice"]
        let alice = Socket(world, "alice")
        alice.holdsLookups = true
        alice.send(#"{"pawl":{"id":7,"method":"GET","path":"/_pawl/v1/me"}}"#)
        alice.send(Self.login("t-alice-2"))
        alice.held.reverse()
        alice.release()
        #expect(alice.asked == 2 && alice.held.isEmpty && alice.loggedIn == [.services("alice")])
        #expect(alice.toClient.last?.contains(#""id":7,"status":200"#) == true)
    }

    /// A backend could find another token than the gateway.
    @Test(arguments: [
        #"{"type":"login","data":{"token":"t-alice","token":"t-bob"}}"#, #"{"type":"login","data":{"token":{"a":1}}}"#,
        #"{"type":"login","data":{"token":"t-alice\r\nX: y"}}"#, #"{"type":"login","data":{"token":"t alice"}}"#,
    ]) func anAmbiguousLoginIsRefused(_ frame: String) throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let socket = Socket(world)
        socket.send(frame)
        #expect(socket.toBackend.isEmpty && socket.toClient == [#"{"error":"pawl_unreadable"}"#])
        #expect(socket.asked == 0 && !socket.machine.isLoggedIn)
    }

    @Test func aMessageWithoutAValueIsNoLogin() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping)
        let socket = Socket(world)
        for frame in [#"{"type":"login"}"#, #"{"type":"login","data":{"token":null}}"#, Self.login("")] {
            socket.send(frame)
        }
        #expect(socket.toBackend.count == 3 && socket.asked == 0 && !socket.machine.isLoggedIn)
    }

    @Test func allPlacesAreFilled() throws {
        let login = FrameLogin([
            .init(.header("X-Token"), [.path(Self.path("a"))]), .init(.cookie("c"), [.path(Self.path("b"))]),
            .init(.query("q"), [.text("p "), .path(Self.path("b"))]),
        ])
        let places: [AccountSource.Credential] = [.header("X-Token"), .cookie("c"), .query("q")]
        let document = try JSONDocument(ByteBuffer(string: #"{"a":"t","b":7}"#))
        guard case .found(let credential) = login.credential(in: document, at: places) else {
            Issue.record("no credential")
            return
        }
        let question = credential.question("/me")
        #expect(question.target == "/me?q=p%207" && question.headers["Cookie"] == ["c=7"])
        #expect(question.headers["X-Token"] == ["t"])
    }
}
