import CapableApp
import DeviceDirectory
import Envelope
import HTTPCodec
import NIOCore
import Protection
import StorePort
import Synchronization
import Testing

@testable import JSONGateway

/// WebSockets over which devices get their messages: the upgrade, the machine, and the table.
@Suite struct MailSocketTests {
    private let world: JSONWorld
    private let alice: AppDevice
    private let bob: AppDevice
    private static let upgrade: HeaderFields = [
        "Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    ]

    init() throws {
        world = try JSONWorld(.hosted)
        alice = world.device("alice", id: 1)
        bob = world.device("bob", id: 2)
    }

    /// Alice's WebSocket, and what came over it.
    private struct Socket {
        let world: JSONWorld
        private var machine: MailSocketMachine
        private(set) var pages: [String] = []
        private(set) var pings = 0
        private(set) var closed: (code: UInt16, reason: String)?
        private(set) var wake: Int64 = 0
        /// How often the backend was asked about the login.
        private(set) var questions = 0
        var backendAnswers = true

        init?(_ world: JSONWorld, fields: HeaderFields = MailSocketTests.upgrade) {
            var steps = ExchangeSteps(world)
            _ = steps.begin("GET", "/_pawl/v1/socket", fields: fields)
            guard case .beginMailSocket(let head, let machine)? = steps.take(.requestBody(ByteBuffer())).last,
                head.status == 101, head.headers["Sec-WebSocket-Accept"] == ["s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]
            else { return nil }
            (self.world, self.machine) = (world, machine)
        }

        /// Handles an event, and all that follows from it.
        mutating func take(_ event: MailSocketMachine.Event) {
            var events = [event]
            while !events.isEmpty, closed == nil {
                var actions: [MailSocketMachine.Action] = []
                machine.take(events.removeFirst(), at: world.now, &actions)
                for action in actions {
                    switch action {
                    case .send(let bytes): pages.append(String(buffer: bytes))
                    case .ping: pings += 1
                    case .look(let lookup):
                        questions += 1
                        if backendAnswers, let (head, body) = world.backend.answer(lookup.head, ByteBuffer()) {
                            events.append(.found(lookup.id, head, body))
                        } else {
                            events.append(.notFound(lookup.id))
                        }
                    case .submit(let job): events += world.perform(job).map { .reply($0) }
                    case .wake(let time): wake = time
                    case .close(let code, let reason): closed = (code, reason)
                    }
                }
            }
        }

        mutating func say(_ text: String) { take(.text(ByteBuffer(string: text))) }
        mutating func acknowledge(_ number: Int) { say(#"{"through":\#(number)}"#) }

        /// The sequences of a page.
        func sequences(_ page: Int) -> [String] {
            let answer = JSONWorld.Answer(status: 200, text: pages[page])
            return (0..<60).compactMap { answer["messages[\($0)].sequence"] }
        }
    }

    /// Bob sends a message to Alice.
    private func post(_ number: Int) {
        let recipient = MailJob.Recipient(account: .services("alice"), device: DeviceID(alice.id), content: [1])
        let job = MailJob(
            connection: ConnectionID(71), id: 1000, account: .services("bob"), device: DeviceID(bob.id),
            request: .post(id: "m\(number)", [recipient], body: []))
        #expect(!world.perform(.mail(job)).isEmpty)
    }

    /// The answer to a call that waits, which this world gives to nobody.
    private static let notice = MailSocketMachine.Event.reply(.mail(id: 0, .entries([], more: true)))

    private func begun() throws -> Socket {
        var socket = try #require(Socket(world))
        socket.take(.begun)
        return socket
    }

    // MARK: The upgrade

    @Test func othersAreRefused() throws {
        for (name, value) in [
            ("Connection", "keep-alive"), ("Upgrade", "pawl-relay"), ("Sec-WebSocket-Version", "8"),
            ("Sec-WebSocket-Key", "short"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZ!=="),
        ] {
            var fields = Self.upgrade
            fields.set(name, to: value)
            var steps = ExchangeSteps(world)
            _ = steps.begin("GET", "/_pawl/v1/socket", fields: fields)
            guard case .respond(let head, _)? = steps.take(.requestBody(ByteBuffer())).last else {
                Issue.record("\(name) \(value)")
                continue
            }
            #expect(head.status == 426 && head.headers["Upgrade"] == ["websocket"])
        }
        #expect(world.call("GET", "socket", as: nil).status == 401)
        // A login that has proven no device.
        world.backend.tokens["t-tablet"] = "alice"
        #expect(world.call("GET", "socket", as: "t-tablet").status == 403)
        #expect(world.call("POST", "socket", as: "t-alice").status == 404)
    }

    // MARK: Messages

    @Test func messagesComeInOrderAndAreRemovedWhenAcknowledged() throws {
        var socket = try begun()
        #expect(socket.pages.count == 1 && socket.sequences(0).isEmpty, "the first page is empty")
        for number in 1...3 { post(number) }
        socket.take(Self.notice)
        #expect(socket.sequences(1) == ["1", "2", "3"])
        post(4)
        socket.take(Self.notice)
        #expect(socket.sequences(2) == ["4"])
        // Two pages are not acknowledged: more wait at the gateway.
        for number in 5...6 { post(number) }
        socket.take(Self.notice)
        #expect(socket.pages.count == 3)
        socket.acknowledge(2)
        #expect(socket.pages.count == 3, "a part of a page")
        socket.acknowledge(3)
        #expect(socket.sequences(3) == ["5", "6"])
        socket.acknowledge(6)
        #expect(socket.closed == nil && socket.pages.count == 4)
        #expect(try world.store.records(.mailboxEntry).isEmpty)
    }

    @Test func whatWasNotAcknowledgedComesAgain() throws {
        for number in 1...60 { post(number) }
        var socket = try begun()
        #expect(socket.sequences(0) == (1...50).map { "\($0)" } && socket.sequences(1) == (51...60).map { "\($0)" })
        socket.acknowledge(20)
        let again = try begun()
        #expect(again.sequences(0) == (21...60).map { "\($0)" })
    }

    @Test(arguments: ["", "{}", #"{"through":1}"#, #"{"through":-1}"#, "[1]", #"{"through":"0"}"#, "\u{0}"])
    func otherTextsEndIt(_ text: String) throws {
        var socket = try begun()
        socket.say(text)
        #expect(socket.closed?.code == 1008)
    }

    // MARK: The login

    /// An answer of the backend counts for five seconds; nothing is sent after a login has ended.
    @Test func theLoginIsCheckedAgain() throws {
        var socket = try begun()
        let asked = socket.questions
        post(1)
        world.now.monotonic += 4_000_000_000
        socket.take(Self.notice)
        #expect(socket.sequences(1) == ["1"] && socket.questions == asked)
        world.now.monotonic += 6_000_000_000
        socket.acknowledge(1)
        #expect(socket.questions == asked + 1 && socket.closed == nil)
        post(2)
        world.backend.tokens["t-alice"] = "carol"
        world.now.monotonic += 6_000_000_000
        socket.take(Self.notice)
        #expect(socket.pages.count == 2 && socket.closed?.code == 1008)
        #expect(socket.closed?.reason == "pawl_not_logged_in")
    }

    @Test func withoutTheBackendNothingIsSent() throws {
        var socket = try begun()
        post(1)
        socket.backendAnswers = false
        world.now.monotonic += 6_000_000_000
        socket.take(Self.notice)
        #expect(socket.pages.count == 1 && socket.closed?.code == 1013)
    }

    @Test func aDeviceThatIsNoLongerProvenIsCutOff() throws {
        var socket = try begun()
        post(1)
        let source = world.environment.mapping.account
        let head = RequestHead("GET", "/", headers: ["Authorization": "Bearer t-alice"])
        let digest = try #require(Credential(of: head, at: source.credentials, actingAs: source.actingAs)).digest
        world.environment.devices.prove(DeviceID(9), of: .services("alice"), by: digest)
        socket.take(Self.notice)
        #expect(socket.pages.count == 1 && socket.closed?.reason == "pawl_not_proven")
    }

    // MARK: Times

    /// A ping is sent, and messages are looked for, as long as something comes from the device.
    @Test func silentDevicesAreEnded() throws {
        var socket = try begun()
        let begin = world.now.monotonic
        #expect(socket.wake == begin + MailSocketMachine.period)
        post(1)
        world.now.monotonic = begin + MailSocketMachine.period
        socket.take(.woken)
        #expect(socket.pings == 1 && socket.sequences(1) == ["1"], "a lost notice costs one period")
        socket.take(.heard)
        for _ in 2...3 {
            world.now.monotonic += MailSocketMachine.period
            socket.take(.woken)
            #expect(socket.closed == nil)
        }
        world.now.monotonic += MailSocketMachine.period
        socket.take(.woken)
        #expect(socket.closed?.code == 1001 && socket.pings == 3)
    }

    /// Acknowledgements above the limit of calls wait, and the device is sent no more than the window.
    @Test func tooManyCallsWait() throws {
        var socket = try begun()
        while world.environment.devices.mayCall(.services("alice"), isMail: true, now: world.now.monotonic) {}
        for number in 1...2 {
            post(number)
            socket.take(Self.notice)
        }
        socket.acknowledge(1)
        socket.acknowledge(2)
        #expect(try world.store.records(.mailboxEntry).count == 2 && socket.closed == nil)
        #expect(socket.wake == world.now.monotonic + MailSocketMachine.pause)
        world.now.monotonic += CallCounts.period
        socket.take(.woken)
        #expect(try world.store.records(.mailboxEntry).isEmpty)
    }

    // MARK: The table

    @Test func theNewestOfADeviceCounts() throws {
        let sockets = MailSockets()
        let ended = Ended()
        sockets.open(DeviceID(1), as: ConnectionID(1)) { ended.add(1) }
        sockets.open(DeviceID(2), as: ConnectionID(2)) { ended.add(2) }
        sockets.open(DeviceID(1), as: ConnectionID(3)) { ended.add(3) }
        #expect(ended.all == [1] && sockets.count == 2)
        sockets.close(DeviceID(1), as: ConnectionID(1))
        #expect(sockets.count == 2)
        sockets.close(DeviceID(1), as: ConnectionID(3))
        #expect(sockets.count == 1)
        var socket = try begun()
        socket.take(.replaced)
        #expect(socket.closed?.code == MailSocketMachine.replacedCode)
    }

    private final class Ended: Sendable {
        private let numbers = Mutex<[Int]>([])
        var all: [Int] { numbers.withLock { $0 } }
        func add(_ number: Int) { numbers.withLock { $0.append(number) } }
    }
}
