import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import RequestQueue
import Synchronization
import Testing
import Vault

/// Messages over a WebSocket whose answers the mapping names: they are queued like requests.
@Suite struct SocketQueueTests {
    /// One person's socket, whose outcomes come as soon as they are committed.
    private final class Socket {
        private final class Outcomes: Sendable {
            let all = Mutex<[(ticket: UInt64, outcome: WriteOutcome)]>([])
        }

        let world: JSONWorld
        private var machine: WebSocketMachine
        private let outcomes = Outcomes()
        var toBackend: [String] = []
        var toClient: [String] = []
        /// How the attempts of this socket have ended.
        var ends: [SocketWrite.End] { attempts.compactMap { $0.end.value } }
        private var attempts: [(dispatch: QueueBatch.Dispatch, end: EndBox)] = []

        private final class EndBox: Sendable {
            private let state = Mutex<SocketWrite.End?>(nil)
            var value: SocketWrite.End? { state.withLock { $0 } }
            func set(_ end: SocketWrite.End) { state.withLock { $0 = end } }
        }

        init(_ world: JSONWorld, _ name: String) {
            self.world = world
            let head = RequestHead("GET", "/socket", headers: ["Authorization": "Bearer t-\(name)"])
            machine = WebSocketMachine(
                environment: world.environment, connection: ConnectionID(9), account: .services(name),
                credential: Credential(of: head, at: [.header("Authorization")]))
        }

        var awaitsAnswers: Bool { machine.awaitsAnswers }
        var waitingBytes: Int { machine.waitingBytes }

        func send(_ text: String) { run(.fromClient(ByteBuffer(string: text), isText: true)) }
        func receive(_ text: String) { run(.fromBackend(ByteBuffer(string: text), isText: true)) }
        func losesBackend() {
            run(.backendEnded)
            machine.stopCarrying()
        }

        /// Gives the next attempt of the queue to this socket.
        @discardableResult
        func carry() -> QueuedRequest? {
            guard let dispatch = world.beginAttempt(), let resolved = try? dispatch.resolved() else { return nil }
            let end = EndBox()
            let bytes = ByteBuffer(bytes: resolved.body)
            let write = SocketWrite(token: dispatch.request.token, bytes: bytes) { end.set($0) }
            attempts.append((dispatch, end))
            run(.carry(write))
            return dispatch.request
        }

        /// The same with an attempt whose end is reported too late.
        func carry(isLate: Bool) -> QueueBatch.Dispatch? {
            guard carry() != nil else { return nil }
            return attempts.removeLast().dispatch
        }

        /// Reports the ends of attempts to the queue, as the program does.
        func report() {
            for (dispatch, end) in attempts {
                switch end.value {
                case .answered(let verdict, let bytes):
                    let statuses: [Acknowledgement.Verdict: Int] = [.accepted: 200, .rejected: 400, .postponed: 429]
                    let head = ResponseHead(statuses[verdict] ?? 500)
                    world.end(dispatch, world.reply(head, bytes, to: dispatch.request))
                case .lost: world.end(dispatch, .failure(.network(.networkConnectionLost), nil))
                case .unsent: world.end(dispatch, .failure(.network(.noOpenConnection), nil))
                case .busy: world.end(dispatch, .failure(.network(.noFreeConnection), nil))
                case .timedOut, .cancelled, nil: continue
                }
            }
            attempts.removeAll { $0.end.value != nil }
            takeOutcomes()
        }

        func takeOutcomes() {
            let all = outcomes.all.withLock { all in
                defer { all = [] }
                return all
            }
            for (ticket, outcome) in all { run(.written(ticket: ticket, outcome)) }
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
                    case .submit(let job): events += world.perform(job).map { .vault($0) }
                    case .enqueue(let write): events += world.enqueue(write, nil).map { .vault($0) }
                    case .await(let token, let ticket):
                        let outcomes = outcomes
                        world.await(
                            token,
                            WriteWaiter { outcome in outcomes.all.withLock { $0.append((ticket, outcome)) } })
                    case .report(let defect): Issue.record(defect)
                    case .loggedIn: Issue.record("no message of these tests carries a login")
                    case .close(let code, _): Issue.record("closed with \(code)")
                    }
                }
            }
        }
    }

    private static func path(_ text: String) -> JSONPath {
        guard let path = try? JSONPath(text) else { preconditionFailure("\(text) is no path") }
        return path
    }

    private static func mapping(reference: String = "id") -> Mapping {
        var mapping = Mapping.lab
        let outgoing = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .message(path("room")), text: path("text"),
            also: [path("html")], flag: path("encrypted"), localID: path("id"))
        let incoming = MessageShape(
            containers: path("$"), messages: path("$"), conversation: .message(path("room")), text: path("text"),
            also: [path("html")], flag: path("encrypted"), sender: path("sender"), remoteID: path("message_id"))
        var acknowledgement = Acknowledgement(
            reference: path(reference),
            accepted: [.init(when: path(#"$[?type == "ack"]"#), reference: path("id"))],
            rejected: [.init(when: path(#"$[?type == "error"]"#), reference: path("id"))],
            messageID: path("message_id"))
        acknowledgement.postponed = [
            .init(when: path(#"$[?type == "error" && error == "slow down"]"#), reference: path("id"))
        ]
        mapping.frames = [
            FrameRoute(
                direction: .fromClient, when: path(#"$[?type == "send"]"#), label: .content, shapes: [outgoing],
                acknowledgement: acknowledgement),
            FrameRoute(direction: .fromClient, when: path(#"$[?type == "ping"]"#), label: .passthrough),
            FrameRoute(
                direction: .fromBackend, when: path(#"$[?type == "message"]"#), label: .sync, shapes: [incoming]),
            FrameRoute(direction: .fromBackend, when: nil, label: .passthrough),
        ]
        mapping.refusal.frame = #"{"type":"error","id":"{local_id}","error":"{code}","message":"{reason}"}"#
        return mapping
    }

    private static func world(_ policy: Policy = .hosted, reference: String = "id") throws -> JSONWorld {
        let world = try JSONWorld(policy, mapping: mapping(reference: reference))
        // Everybody is behind the gateway.
        for name in ["alice", "bob"] { world.send("GET", "/me", as: "t-\(name)") }
        return world
    }

    private func sent(_ text: String, id: String? = "7", room: String = "pair") -> String {
        #"{"type":"send","room":"\#(room)"\#(id.map { #","id":"\#($0)""# } ?? ""),"text":"\#(text)"}"#
    }

    private func acknowledged(_ id: String, as message: String) -> String {
        #"{"type":"ack","id":"\#(id)","message_id":"\#(message)"}"#
    }

    @Test func itIsSentWhenItIsStoredAndDoneWhenItIsAcknowledged() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("the canary sings"))
        alice.send(#"{"type":"ping"}"#)
        #expect(alice.toBackend == [#"{"type":"ping"}"#] && world.waiting.count == 1, "it is in the queue only")
        #expect(alice.awaitsAnswers && alice.waitingBytes > 0)
        let request = try #require(alice.carry())
        #expect(request.tenant == "alice" && request.lane == "pair" && !request.config.includeSessionKey)
        let frame = try #require(alice.toBackend.last)
        #expect(frame.contains(#""encrypted":true"#) && frame.contains(#""id":"7""#) && !frame.contains("canary"))
        // The answer keeps its place among the backend's messages, and waits for its commit.
        alice.receive(acknowledged("7", as: "m1"))
        alice.receive(#"{"type":"pong"}"#)
        #expect(alice.toClient.isEmpty)
        alice.report()
        #expect(alice.toClient == [acknowledged("7", as: "m1"), #"{"type":"pong"}"#])
        #expect(world.waiting.isEmpty && !alice.awaitsAnswers && alice.waitingBytes == 0)
        let reference = try #require(request.creates.first)
        #expect(world.participants.queue.remoteIdentifier(of: reference, tenant: "alice") == "m1")
    }

    @Test func onlyTheAnswerWithItsReferenceEndsIt() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        alice.carry()
        for other in [acknowledged("8", as: "m1"), #"{"type":"ack"}"#, #"{"type":"pong","id":"7"}"#] {
            alice.receive(other)
            #expect(alice.toClient.last == other)
        }
        #expect(alice.ends.isEmpty && world.waiting.count == 1)
        // A reference is the same as a string and as a number.
        alice.receive(#"{"type":"ack","id":7,"message_id":"m1"}"#)
        #expect(alice.ends.count == 1)
    }

    @Test func aRejectionIsPassedOnAndFinal() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        let rejection = #"{"type":"error","id":"7","error":"muted"}"#
        alice.send(sent("one"))
        alice.carry()
        alice.receive(rejection)
        alice.report()
        #expect(alice.toClient == [rejection] && world.waiting.isEmpty && world.beginAttempt() == nil)
    }

    /// A backend that is asked too often is asked again later, and the client gets the last answer.
    @Test func aRejectionForNowIsNotFinal() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        alice.carry()
        let first = try #require(alice.toBackend.first)
        alice.receive(#"{"type":"error","id":"7","error":"slow down"}"#)
        alice.receive(#"{"type":"pong"}"#)
        #expect(alice.toClient == [#"{"type":"pong"}"#], "nothing waits for the next attempt")
        alice.report()
        #expect(world.waiting.count == 1 && alice.awaitsAnswers)
        alice.carry()
        #expect(alice.toBackend == [first, first])
        alice.receive(acknowledged("7", as: "m1"))
        alice.report()
        #expect(alice.toClient.last == acknowledged("7", as: "m1") && world.waiting.isEmpty)
    }

    /// An answer may come when its attempt is over. What comes after it does not wait for the next attempt.
    @Test func anAnswerThatIsTooLateHoldsNothing() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        let late = try #require(alice.carry(isLate: true))
        alice.receive(acknowledged("7", as: "m1"))
        alice.receive(#"{"type":"pong"}"#)
        #expect(alice.toClient.isEmpty)
        world.end(late, .failure(.network(.timedOut), nil))
        alice.carry()
        #expect(alice.toClient == [#"{"type":"pong"}"#])
        alice.receive(acknowledged("7", as: "m1"))
        alice.report()
        #expect(alice.toClient == [#"{"type":"pong"}"#, acknowledged("7", as: "m1")])
    }

    /// The backend dies between the message and its answer: the sender is told, and the message goes over the next socket.
    @Test func itIsSentAgainOverTheNextConnection() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("once"))
        alice.carry()
        let first = try #require(alice.toBackend.first)
        alice.losesBackend()
        #expect(alice.ends == [.lost] && alice.toClient.count == 1)
        #expect(alice.toClient[0].contains("pawl_still_waiting") && alice.toClient[0].contains(#""id":"7""#))
        alice.report()
        let waiting = try #require(world.waiting.first)
        #expect(waiting.doubts == 1 && waiting.cause?.contains("the connection broke") == true)

        // The world's pauses are as short as chance allows, so that the next attempt has begun.
        let phone = Socket(world, "alice")
        phone.carry()
        #expect(phone.toBackend == [first], "the same envelope, so that readers recognise the copy")
        // Its client repeats it with the same id, and there is still one write.
        phone.send(sent("once"))
        #expect(world.waiting.count == 1 && phone.toBackend.count == 1)
        phone.receive(acknowledged("7", as: "m1"))
        phone.report()
        #expect(phone.toClient == [acknowledged("7", as: "m1")] && world.waiting.isEmpty)
        // And once more when it is done.
        phone.send(sent("once"))
        phone.takeOutcomes()
        #expect(phone.toClient == [acknowledged("7", as: "m1"), acknowledged("7", as: "m1")])
        #expect(world.waiting.isEmpty && phone.toBackend.count == 1)
    }

    /// The socket's own client has not sent the message, so that it gets no answer to it.
    @Test func anAnswerToAnotherConnectionIsForNoClient() throws {
        let world = try Self.world()
        let (gone, alice) = (Socket(world, "alice"), Socket(world, "alice"))
        gone.send(sent("one"))
        alice.carry()
        alice.receive(acknowledged("7", as: "m1"))
        alice.report()
        #expect(alice.ends.isEmpty && alice.toClient.isEmpty && world.waiting.isEmpty)
    }

    @Test func twoMessagesWithOneReferenceAreNotUnderWayTogether() throws {
        let world = try Self.world()
        for name in ["carol", "eve"] { world.send("GET", "/me", as: "t-\(name)") }
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        alice.send(sent("two", room: "all"))
        #expect(world.waiting.count == 2)
        alice.carry()
        alice.carry()
        #expect(alice.ends == [.busy] && alice.toBackend.count == 1)
    }

    @Test func aConnectionThatCannotReadItSendsNothing() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        var mapping = Self.mapping()
        mapping.frames[0].acknowledgement = nil
        world.environment.replace(
            mapping, texts: world.environment.texts, answerLimit: 64 << 20, relays: world.environment.settings.relays)
        alice.carry()
        #expect(alice.ends == [.unsent] && alice.toBackend.isEmpty && world.waiting.count == 1)
    }

    @Test func withoutAReferenceItIsSealedAndSentOnce() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("the canary sings", id: nil))
        #expect(alice.toBackend.count == 1 && world.waiting.isEmpty && !alice.toBackend[0].contains("canary"))
        // So is one whose reference is sealed with its text.
        let other = Socket(try Self.world(reference: "html"), "alice")
        other.send(#"{"type":"send","room":"pair","id":"7","text":"the canary sings","html":"h1"}"#)
        #expect(other.toBackend.count == 1 && other.world.waiting.isEmpty && !other.toBackend[0].contains("canary"))
    }

    @Test func whatIsNotProtectedIsNotQueued() throws {
        let world = try Self.world(.observe)
        let alice = Socket(world, "alice")
        alice.send(sent("plain"))
        alice.receive(acknowledged("7", as: "m1"))
        #expect(alice.toBackend == [sent("plain")] && alice.toClient == [acknowledged("7", as: "m1")])
    }

    @Test func anOperatorDropsIt() throws {
        let world = try Self.world()
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        world.drop(try #require(world.waiting.first).token)
        alice.takeOutcomes()
        #expect(alice.toClient.count == 1 && alice.toClient[0].contains("pawl_dropped"))
    }

    @Test func aFullQueueRefusesIt() throws {
        let world = try JSONWorld(.hosted, mapping: Self.mapping(), requestsPerAccount: 1)
        for name in ["alice", "bob"] { world.send("GET", "/me", as: "t-\(name)") }
        let alice = Socket(world, "alice")
        alice.send(sent("one"))
        alice.send(sent("two", id: "8"))
        #expect(alice.toClient.count == 1 && alice.toClient[0].contains("pawl_queue_full"))
        #expect(alice.toClient[0].contains(#""id":"8""#) && world.waiting.count == 1 && alice.toBackend.isEmpty)
    }

    // MARK: Connections

    private static func write() -> SocketWrite {
        SocketWrite(token: RequestToken(high: 1, low: 2), bytes: ByteBuffer()) { _ in }
    }

    @Test func itGoesOverAConnectionOfItsAccount() {
        let (sockets, log) = (SocketWrites(), Log())
        sockets.notify { log.add("opened \($0.text)") }
        sockets.add(ConnectionID(1), of: .services("alice")) { _ in log.add("one") }
        sockets.add(ConnectionID(2), of: .services("alice")) { _ in log.add("two") }
        sockets.send(Self.write(), of: .services("alice"), preferring: ConnectionID(1))
        sockets.send(Self.write(), of: .services("alice"), preferring: ConnectionID(7))
        let lost = Self.write()
        sockets.send(lost, of: .services("bob"), preferring: ConnectionID(1))
        #expect(log.all == ["one", "two"] && lost.isOver)
        sockets.remove(ConnectionID(2), of: .services("alice"))
        sockets.remove(ConnectionID(1), of: .services("alice"))
        let waiting = Self.write()
        sockets.send(waiting, of: .services("alice"), preferring: nil)
        #expect(waiting.isOver && !waiting.end(.lost))
        for number in 3...4 { sockets.add(ConnectionID(UInt64(number)), of: .services("alice")) { _ in } }
        #expect(log.all == ["one", "two", "opened alice"], "once, and not for an account without writes")
    }

    /// A connection that is about to end refuses a write. Another one is opened before it does, or after.
    @Test(arguments: [false, true]) func aRefusedWriteGoesOverTheNextConnection(opensBefore: Bool) {
        let (sockets, log) = (SocketWrites(), Log())
        let alice = AccountID.services("alice")
        sockets.notify { log.add("opened \($0.text)") }
        func open() { sockets.add(ConnectionID(2), of: alice) { _ in log.add("two") } }
        let held = Mutex<SocketWrite?>(nil)
        sockets.add(ConnectionID(1), of: alice) { write in held.withLock { $0 = write } }
        sockets.send(Self.write(), of: alice, preferring: ConnectionID(1))
        if opensBefore { open() }
        held.withLock { $0 }?.end(.unsent)
        if !opensBefore { open() }
        #expect(log.all == ["opened alice"])
        // No connection is new after that.
        sockets.send(Self.write(), of: alice, preferring: ConnectionID(1))
        held.withLock { $0 }?.end(.unsent)
        #expect(log.all == ["opened alice"])
    }

    private final class Log: Sendable {
        private let lines = Mutex<[String]>([])
        var all: [String] { lines.withLock { $0 } }
        func add(_ line: String) { lines.withLock { $0.append(line) } }
    }

    @Test(arguments: ["", "1", "1 2 alice", "x 00000000000000010000000000000002 alice"])
    func aDamagedFieldIsRefused(_ value: String) { #expect(SocketWrites.parse(value) == nil) }

    @Test func theFieldIsReadBack() throws {
        let found = try #require(SocketWrites.parse("5 00000000000000010000000000000002 a b"))
        #expect(found.connection == ConnectionID(5) && found.token == RequestToken(high: 1, low: 2))
        #expect(found.account.text == "a b")
    }
}

extension AttemptReply {
    fileprivate static func failure(_ failure: AttemptFailure, _ retryAfter: Int64?) -> AttemptReply {
        .failure(failure, retryAfter: retryAfter, headers: [], body: [])
    }
}
