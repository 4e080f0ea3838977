import Dispatch
import Envelope
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import Reports
import StorePort
import Testing

/// Messages of a WebSocket that pass without being read.
@Suite struct PassingMessageTests {
    /// A socket of alice, as a relay uses its machine.
    private final class Socket {
        let world: JSONWorld
        private var machine: WebSocketMachine
        /// Messages that the machine has read.
        var read = 0

        private let readsAll: Bool

        init(_ mapping: Mapping? = nil, readsAll: Bool = false, isLoggedIn: Bool = true) throws {
            self.readsAll = readsAll
            world = try JSONWorld(.observe, mapping: mapping ?? PassingMessageTests.mapping())
            Self.rememberMembers(of: ["all", "pair"] + (0..<50).map { "room\($0)" }, in: world)
            guard isLoggedIn else {
                machine = WebSocketMachine(
                    environment: world.environment, connection: ConnectionID(9), software: nil,
                    asksForEncryption: false)
                return
            }
            let head = RequestHead("GET", "/socket", headers: ["Authorization": "Bearer t-alice"])
            machine = WebSocketMachine(
                environment: world.environment, connection: ConnectionID(9), account: .services("alice"),
                credential: Credential(of: head, at: [.header("Authorization")]))
        }

        /// The members of these rooms are known, as after a message there.
        static func rememberMembers(of rooms: [String], in world: JSONWorld) {
            for room in rooms {
                world.environment.conversations.remember(
                    [.services("alice"), .services("bob")], of: room, now: world.now.monotonic)
            }
        }

        /// Sends messages that arrive together.
        func send(_ texts: String...) {
            for text in texts {
                if !readsAll, machine.beginPassing(at: world.now) {
                    let passes = Array(text.utf8).withUnsafeBytes { machine.passes($0) }
                    machine.endPassing()
                    if passes { continue }
                }
                read += 1
                run(.fromClient(ByteBuffer(string: text), isText: true))
            }
        }

        private func run(_ event: WebSocketEvent) {
            var events = [event]
            while !events.isEmpty {
                var actions: [WebSocketAction] = []
                machine.take(events.removeFirst(), at: world.now, &actions)
                for case .look(let lookup) in actions {
                    let answer = world.backend.answer(lookup.head, ByteBuffer())
                    events.append(answer.map { .found(lookup.id, $0.0, $0.1) } ?? .notFound(lookup.id))
                }
            }
        }

        /// Messages that were counted, by target.
        func counts() -> [String: Int] {
            var counts: [String: Int] = [:]
            for case .rare(.addObservation(let row)) in world.environment.observations.take(wall: 0) {
                counts[row.target + " " + row.recipient, default: 0] += row.messages
            }
            return counts
        }
    }

    private static func mapping(_ when: String = #"$[?type == "send"]"#) throws -> Mapping {
        var mapping = Mapping.lab
        let outgoing = MessageShape(
            containers: try path("$"), messages: try path("$"), conversation: .message(try path("room")),
            text: try path("text"), also: [try path("html")], flag: try path("encrypted"), localID: try path("id"))
        mapping.frames = [
            FrameRoute(direction: .fromClient, when: try path(when), label: .content, shapes: [outgoing]),
            FrameRoute(direction: .fromClient, when: try path(#"$[?type == "ping"]"#), label: .passthrough),
        ]
        return mapping
    }

    private static func sent(_ text: String, room: String = "all", id: String = "7", more: String = "") -> String {
        #"{"type":"send","room":"\#(room)","id":"\#(id)","text":"\#(text)"\#(more)}"#
    }

    @Test func theCountsAreThoseOfReading() throws {
        let (passing, reading) = (try Socket(), try Socket(readsAll: true))
        #expect(passing.counts().isEmpty)
        for (number, socket) in [passing, reading].enumerated() {
            for round in 0..<20 {
                socket.send(Self.sent("word \(round)", id: "c\(round)"), #"{"type":"ping"}"#)
                socket.send(Self.sent("word \(round)", room: "pair", id: "c\(round)", more: #","at":\#(round)"#))
                // Each of these is read.
                socket.send(Self.sent("word", id: "c \(round)"), Self.sent("word", more: #","encrypted":true"#))
            }
            #expect(number == 1 || socket.read < 60)
        }
        let counts = passing.counts()
        #expect(counts == reading.counts())
        #expect(counts.values.reduce(0, +) > 40)
        let tallies = [passing, reading].map { $0.world.environment.tally[.sentPlaintext] }
        #expect(tallies[0] == tallies[1])
    }

    @Test func whatCouldDecideIsRead() throws {
        let socket = try Socket()
        for _ in 0..<2 { socket.send(Self.sent("one"), Self.sent("two")) }
        #expect(socket.read == 1)
        for text in [
            Self.sent("one", room: "pair"), Self.sent("one").replacing("send", with: "edit"),
            #"{"pawl":{"id":1,"method":"GET","path":"/_pawl/v1/devices"}}"#, Self.sent(#"a\nb"#),
            Self.sent("one", more: #","html":"<b>one</b>""#), Self.sent("one", more: #","type":"send""#), "no document",
        ] {
            let before = socket.read
            socket.send(text)
            #expect(socket.read == before + 1, "\(text)")
        }
    }

    @Test func whatAConditionReadsIsFixed() throws {
        let socket = try Socket(Self.mapping(#"$[?type == "send" && text != "/secret"]"#))
        socket.send(Self.sent("one"), Self.sent("one"), Self.sent("two"), Self.sent("/secret"))
        #expect(socket.read == 3)
        let every = try Socket(Self.mapping("*[?x]"))
        every.send(#"{"type":"ping","id":1}"#, #"{"type":"ping","id":1}"#)
        #expect(every.read == 2)
    }

    @Test func nothingIsRememberedForLong() throws {
        let socket = try Socket()
        socket.send(Self.sent("one"), Self.sent("two"))
        #expect(socket.read == 1)
        socket.world.now.monotonic += 10_000_000_000
        socket.send(Self.sent("three"), Self.sent("four"))
        #expect(socket.read == 2)
        socket.world.environment.policies.update { $0.accounts[.services("bob")] = .off }
        socket.send(Self.sent("five"), Self.sent("six"))
        #expect(socket.read == 3)
        let settings = socket.world.environment.settings
        socket.world.environment.replace(settings.mapping, texts: settings.texts, answerLimit: settings.answerLimit)
        socket.send(Self.sent("seven"))
        #expect(socket.read == 4)
    }

    @Test func nothingPassesUnreadOnceAnythingIsProtected() throws {
        for policy in [Policy.opportunistic, .hosted] {
            let socket = try Socket()
            socket.send(Self.sent("one"), Self.sent("two"))
            #expect(socket.read == 1)
            socket.world.environment.policies.update { $0.accounts[.services("carol")] = policy }
            socket.send(Self.sent("three"))
            #expect(socket.read == 2)
        }
        let socket = try Socket()
        socket.send(Self.sent("one"), Self.sent("two"))
        socket.world.environment.latches.raise(ConversationID(.room("all"), .room("all")), to: .gateway)
        socket.send(Self.sent("three"))
        #expect(socket.read == 2)
    }

    /// Kinds that are never met again cost no memory, and end no search.
    @Test func manyKinds() throws {
        let socket = try Socket()
        for round in 0..<50 { socket.send(Self.sent("word", room: "room\(round)")) }
        #expect(socket.read == 50)
        socket.world.now.monotonic += 10_000_000_000
        socket.send(Self.sent("word"), Self.sent("word"), Self.sent("word"))
        #expect(socket.read == 51)
    }

    /// A reload while a message is judged: the next one is judged by the new mapping, which finds its room elsewhere.
    @Test func aReloadMeanwhileCountsForTheNext() throws {
        let old = try Self.mapping()
        var new = old
        new.frames[0].shapes[0].conversation = .message(try path("other"))
        new.name = "new"
        let socket = try Socket(old)
        let environment = socket.world.environment
        func send(after time: Int64) {
            socket.world.now.monotonic += time
            Socket.rememberMembers(of: ["all", "pair"], in: socket.world)
            socket.send(Self.sent("word", more: #","other":"pair""#))
        }
        for _ in 0..<200 {
            environment.replace(old, texts: NoticeTexts(), answerLimit: 64 << 20)
            let isReplaced = DispatchSemaphore(value: 0)
            DispatchQueue.global().async { [new] in
                environment.replace(new, texts: NoticeTexts(), answerLimit: 64 << 20)
                isReplaced.signal()
            }
            // Each is judged, because nothing is remembered for so long.
            while environment.mapping.name != "new" { send(after: 10_000_000_000) }
            isReplaced.wait()
            _ = socket.counts()
            send(after: 0)
            #expect(socket.counts().keys.map { $0.prefix(5) } == ["pair "])
        }
    }

    /// The conversation of two has another category for one of them.
    @Test func aLoginForgetsWhatWasJudgedBeforeIt() throws {
        var mapping = try Self.mapping()
        let token = FrameLogin.Value(.header("Authorization"), [.text("Bearer "), .path(try path("token"))])
        mapping.frames.append(
            FrameRoute(
                direction: .fromClient, when: try path(#"$[?type == "login"]"#), label: .passthrough,
                login: FrameLogin([token])))
        let socket = try Socket(mapping, isLoggedIn: false)
        let text = Self.sent("word", room: "pair")
        socket.send(text, text)
        #expect(socket.read == 1)
        let before = socket.counts()
        #expect(before.values.elementsEqual([2]))
        socket.send(#"{"type":"login","token":"t-alice"}"#, text, text)
        #expect(socket.read == 3)
        let after = socket.counts()
        #expect(after.values.elementsEqual([2]) && after.keys != before.keys)
    }
}
