import Envelope
import HTTPCodec
import NIOCore
import Protection
import Reports
import StorePort
import Synchronization
import TestKit
import Testing

@testable import JSONGateway

/// Relays between two devices: the call, the table, the link, and the allowance.
@Suite struct RelayTests {
    private let world: JSONWorld
    private let session = String(repeating: "0a", count: 32)
    private let digest: CredentialCache.Digest

    init() throws {
        world = try JSONWorld(.hosted)
        _ = world.device("alice", id: 1)
        let head = RequestHead("GET", "/", headers: ["Authorization": "Bearer t-alice"])
        let source = world.environment.mapping.account
        digest = try #require(Credential(of: head, at: source.credentials, actingAs: source.actingAs)).digest
    }

    private func ask(
        _ target: String, _ fields: HeaderFields = ["Connection": "keep-alive, Upgrade", "Upgrade": "pawl-relay"]
    ) -> (steps: ExchangeSteps, actions: [ExchangeAction]) {
        var steps = ExchangeSteps(world)
        _ = steps.begin("GET", "/_pawl/v1/relays/" + target, fields: fields)
        let actions = steps.take(.requestBody(ByteBuffer()))
        return (steps, actions)
    }

    private func status(_ actions: [ExchangeAction]) -> Int? {
        if case .respond(let head, _)? = actions.last { head.status } else { nil }
    }

    // MARK: The call

    @Test func aProvenDeviceWaitsAndIsRelayed() throws {
        let asked = ask("\(session)?account=bob&device=0000000000000002")
        var steps = asked.steps
        let actions = asked.actions
        guard case .joinRelay(let call)? = actions.last, case .wake(let time)? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        #expect(call.session == [UInt8](repeating: 10, count: 32))
        #expect(call.own == DeviceID(1) && call.account == .services("alice"))
        #expect(call.other == DeviceID(2) && call.otherAccount == .services("bob"))
        #expect(time == world.now.monotonic + RelayLimits.waitingTime)
        #expect(world.environment.mayRelay(call))
        var (late, refused) = (steps, steps)
        guard case .beginRelay(let head, call)? = steps.take(.relayMet).last else {
            Issue.record("no relay")
            return
        }
        #expect(head.status == 101 && head.headers["Upgrade"] == ["pawl-relay"])
        #expect(status(late.take(.woken)) == 504)
        #expect(status(refused.take(.relayRefused(.tooMany))) == 429)
    }

    @Test(arguments: [
        "", "0a", String(repeating: "0A", count: 32), String(repeating: "0g", count: 32),
        String(repeating: "0a", count: 33),
    ]) func aSessionHasItsForm(_ name: String) {
        #expect(status(ask("\(name)?account=bob&device=0000000000000002").actions) == 404)
    }

    @Test(arguments: [
        "", "account=bob", "device=0000000000000002", "account=bob&device=x", "account=bob&device=2",
        "account=bob&device=%2B000000000000002", "account=bob&device=00000000000000AB",
        "account=bob&device=0000000000000002&device=0000000000000002",
    ])
    func theOtherDeviceIsNamed(_ query: String) {
        #expect(status(ask("\(session)?\(query)").actions) == 400)
    }

    /// Without the upgrade, and for every device that is not proven, there is no relay.
    @Test func othersAreRefused() {
        for fields: HeaderFields in [
            [:], ["Upgrade": "pawl-relay"], ["Connection": "Upgrade", "Upgrade": "websocket"],
        ] {
            #expect(status(ask("\(session)?account=bob&device=0000000000000002", fields).actions) == 426)
        }
        #expect(world.call("GET", "relays/\(session)?account=alice&device=0000000000000001", as: "t-bob").status == 403)
        #expect(world.call("GET", "relays/\(session)?account=alice&device=0000000000000001", as: nil).status == 401)
        var relays = RelayLimits()
        relays.connections = 0
        world.environment.replace(.lab, texts: NoticeTexts(), answerLimit: 1 << 20, relays: relays)
        #expect(status(ask("\(session)?account=bob&device=0000000000000002").actions) == 404)
    }

    // MARK: The table

    private func call(
        _ account: String, _ device: UInt64, to other: String, _ otherDevice: UInt64, _ session: UInt8 = 1
    )
        -> RelayCall
    {
        RelayCall(
            session: [UInt8](repeating: session, count: 32), own: DeviceID(device), of: .services(account),
            by: digest, other: DeviceID(otherDevice), of: .services(other))
    }

    private final class Meetings: Sendable {
        private let state = Mutex<[ConnectionID: (link: RelayLink, side: RelayLink.Side)]>([:])
        subscript(_ id: ConnectionID) -> (link: RelayLink, side: RelayLink.Side)? { state.withLock { $0[id] } }
        func meet(_ id: ConnectionID) -> RelayTable.Meeting {
            { link, side in self.state.withLock { $0[id] = (link, side) } }
        }
    }

    @Test func onlyThoseWhoNameEachOtherMeet() throws {
        let (table, meetings) = (RelayTable(), Meetings())
        func join(_ call: RelayCall, _ number: UInt64) -> ControlAnswer.Fault? {
            table.join(call, as: ConnectionID(number), limit: 9, meetings.meet(ConnectionID(number)))
        }
        #expect(join(call("alice", 1, to: "bob", 2), 1) == nil)
        // Another session, another person, another device of the same person, and the own side again.
        #expect(join(call("bob", 2, to: "alice", 1, 2), 2) == nil)
        #expect(join(call("mallory", 3, to: "alice", 1), 3) == nil)
        #expect(join(call("bob", 4, to: "alice", 1), 4) == nil)
        #expect(join(call("bob", 2, to: "alice", 9), 5) == nil)
        #expect(join(call("alice", 1, to: "bob", 2), 6) == .refused("this device waits with the same session"))
        for number: UInt64 in 1...6 { #expect(meetings[ConnectionID(number)] == nil) }
        #expect(join(call("bob", 2, to: "alice", 1), 7) == nil)
        let (one, other) = (try #require(meetings[ConnectionID(1)]), try #require(meetings[ConnectionID(7)]))
        #expect(one.link === other.link && one.side == other.side.other)
        #expect(table.count == 6)
    }

    @Test func connectionsOfAnAccountAreCounted() {
        let (table, meetings) = (RelayTable(), Meetings())
        func join(_ account: String, _ number: UInt64, _ session: UInt8) -> ControlAnswer.Fault? {
            table.join(
                call(account, 1, to: "bob", 2, session), as: ConnectionID(number), limit: 2,
                meetings.meet(ConnectionID(number)))
        }
        #expect(join("alice", 1, 1) == nil && join("alice", 2, 2) == nil)
        #expect(join("alice", 3, 3) == .tooMany)
        #expect(join("carol", 4, 4) == nil, "others have their own")
        table.leave(ConnectionID(3))
        #expect(join("alice", 3, 3) == .tooMany)
        table.leave(ConnectionID(1))
        table.leave(ConnectionID(1))
        #expect(join("alice", 3, 3) == nil && join("alice", 5, 5) == .tooMany)
        for number: UInt64 in 1...5 { table.leave(ConnectionID(number)) }
        #expect(table.count == 0)
        // Who has left is not met.
        #expect(
            table.join(call("bob", 2, to: "alice", 1, 3), as: ConnectionID(9), limit: 2, meetings.meet(ConnectionID(9)))
                == nil)
        #expect(meetings[ConnectionID(9)] == nil)
    }

    @Test func aLinkKeepsTheOrder() throws {
        let (table, meetings) = (RelayTable(), Meetings())
        for (number, ends) in [call("alice", 1, to: "bob", 2), call("bob", 2, to: "alice", 1)].enumerated() {
            let id = ConnectionID(UInt64(number))
            #expect(table.join(ends, as: id, limit: 1, meetings.meet(id)) == nil)
        }
        let (link, side) = try #require(meetings[ConnectionID(0)])
        let events = Mutex<[RelayLink.Event]>([])
        let bytes = (0..<3).map { ByteBuffer(bytes: [UInt8($0)]) }
        link.send(.bytes(bytes[0]), from: side)
        link.send(.bytes(bytes[1]), from: side)
        link.listen(side.other) { event in events.withLock { $0.append(event) } }
        link.send(.bytes(bytes[2]), from: side)
        link.send(.inputEnded, from: side)
        link.send(.taken, from: side.other)
        #expect(events.withLock { $0 } == bytes.map { .bytes($0) } + [.inputEnded])
    }

    // MARK: The allowance

    @Test func bytesAreAllowedByTime() {
        var allowance = RelayAllowance(bytesPerSecond: 1000, now: 0)
        let second: Int64 = 1_000_000_000
        #expect(allowance.use(1000, now: 0) == 0, "one second at once")
        #expect(allowance.use(500, now: 0) == second / 2)
        #expect(allowance.use(0, now: second / 2) == 0)
        #expect(allowance.use(1, now: second / 2) == second / 1000)
        // A pause earns one second, not more; a clock that goes back earns nothing.
        #expect(allowance.use(1000, now: 100 * second) == 0)
        #expect(allowance.use(1, now: 0) == second / 1000)
        // A debt of many seconds is paid by waiting as long.
        var slow = RelayAllowance(bytesPerSecond: 1000, now: 0)
        #expect(slow.use(6000, now: 0) == 5 * second)
        #expect(slow.use(0, now: 5 * second) == 0 && slow.use(1, now: 5 * second) == second / 1000)
        #expect(slow.use(0, now: .max / 2) == 0)
        var total = 0
        var time = 200 * second
        for _ in 0..<1000 {
            time += allowance.use(300, now: time)
            total += 300
        }
        #expect(total <= 1000 * Int((time - 200 * second) / second + 1) + 1300)
    }
}
