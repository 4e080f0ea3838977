import TestKit
import Testing
import TransportCodec

/// The machine, with numbers for waiters and texts for replies.
@Suite struct ExchangesTests {
    private typealias Machine = Exchanges<Int, String>

    /// `#expect` cannot call what changes a machine: the result is made before.
    private func check(_ isTrue: Bool, _ location: SourceLocation = #_sourceLocation) {
        #expect(isTrue, sourceLocation: location)
    }

    private func checkThrows(
        _ refusal: Machine.Refusal, _ location: SourceLocation = #_sourceLocation,
        _ body: () throws(Machine.Refusal) -> UInt64
    ) {
        do throws(Machine.Refusal) {
            _ = try body()
            Issue.record("no refusal", sourceLocation: location)
        } catch {
            #expect(error == refusal, sourceLocation: location)
        }
    }

    @Test func aReplyGoesToTheWaiterOfItsRequest() throws {
        var machine = Machine(limit: 3)
        let (first, second) = (try machine.open(for: 1), try machine.open(for: 2))
        check(machine.arrived(second, "b").waiter == 2)
        check(machine.arrived(first, "a").waiter == 1)
        #expect(machine.count == 0)
    }

    @Test func receiversGetTheOldestRequest() throws {
        var machine = Machine(limit: 3)
        let (first, second) = (try machine.openUnclaimed(), try machine.openUnclaimed())
        check(machine.arrived(second, "b").isKept)
        check(machine.receive(1).id == first)
        check(machine.receive(2).reply == "b")
        check(machine.receive(3).isNothing)
        check(machine.arrived(first, "a").waiter == 1)
    }

    /// B2, 11: the reply of a cancelled request goes to no other receiver.
    @Test func aCancelledRequestTakesItsReplyWithIt() throws {
        var machine = Machine(limit: 3)
        let first = try machine.openUnclaimed()
        check(machine.cancel(first))
        let second = try machine.openUnclaimed()
        check(machine.receive(1).id == second)
        check(machine.arrived(first, "a").isDropped)
        check(machine.arrived(second, "b").waiter == 1)
        check(!machine.cancel(second))
    }

    @Test func aSecondReplyIsDroppedAndAnUnknownOneIsSeen() throws {
        var machine = Machine(limit: 3)
        let id = try machine.open(for: 1)
        check(machine.arrived(id, "a").waiter == 1)
        check(machine.arrived(id, "again").isDropped)
        check(machine.arrived(id + 1, "unknown").isUnknown)
        check(machine.arrived(0, "unknown").isUnknown)
    }

    @Test func requestsAreBounded() throws {
        var machine = Machine(limit: 2)
        let first = try machine.open(for: 1)
        _ = try machine.openUnclaimed()
        checkThrows(.tooMany) { () throws(Machine.Refusal) in try machine.open(for: 3) }
        check(machine.arrived(first, "a").waiter == 1)
        _ = try machine.open(for: 3)
        machine.drain()
        checkThrows(.ended) { () throws(Machine.Refusal) in try machine.open(for: 4) }
    }

    @Test func theEndReachesAllThatWait() throws {
        var machine = Machine(limit: 9)
        _ = try machine.openUnclaimed()
        let (second, third) = (try machine.open(for: 2), try machine.open(for: 3))
        let kept = try machine.openUnclaimed()
        check(machine.arrived(kept, "kept").isKept)
        check(machine.end("end") == [2, 3])
        check(machine.receive(1).reply == "end")
        check(machine.receive(4).reply == "kept")
        check(machine.arrived(second, "late").isDropped && machine.arrived(third, "late").isDropped)
        checkThrows(.ended) { () throws(Machine.Refusal) in try machine.open(for: 5) }
    }

    /// Against a model: every waiter gets the reply of its own request or is cancelled, each once.
    @Test(arguments: 0..<20)
    func randomStepsGiveEveryReplyToItsOwnWaiter(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var machine = Machine(limit: 16)
        var sent: [UInt64] = []
        var owner: [Int: UInt64] = [:]
        var open: [UInt64] = []
        var next = 0
        for _ in 0..<2000 {
            switch generator.below(5) {
            case 0:
                next += 1
                if let id = try? machine.open(for: next) {
                    owner[next] = id
                    open.append(id)
                }
            case 1:
                if let id = try? machine.openUnclaimed() {
                    sent.append(id)
                    open.append(id)
                }
            case 2:
                next += 1
                switch machine.receive(next) {
                case .waits(let id):
                    #expect(sent.first == id)
                    owner[next] = sent.removeFirst()
                case .reply(let text): #expect(text == "\(sent.removeFirst())")
                case .nothingSent: #expect(sent.isEmpty)
                }
            case 3:
                guard let id = open.randomElement(using: &generator) else { continue }
                open.removeAll { $0 == id }
                if let waiter = machine.arrived(id, "\(id)").waiter { #expect(owner[waiter] == id) }
            default:
                guard let id = open.randomElement(using: &generator), generator.below(3) == 0 else { continue }
                open.removeAll { $0 == id }
                check(machine.cancel(id))
                sent.removeAll { $0 == id }
            }
        }
    }
}

extension Exchanges<Int, String>.Arrival {
    fileprivate var waiter: Int? { if case .deliver(let waiter) = self { waiter } else { nil } }
    fileprivate var isKept: Bool { if case .kept = self { true } else { false } }
    fileprivate var isDropped: Bool { if case .dropped = self { true } else { false } }
    fileprivate var isUnknown: Bool { if case .unknown = self { true } else { false } }
}

extension Exchanges<Int, String>.Receiving {
    fileprivate var id: UInt64? { if case .waits(let id) = self { id } else { nil } }
    fileprivate var reply: String? { if case .reply(let reply) = self { reply } else { nil } }
    fileprivate var isNothing: Bool { if case .nothingSent = self { true } else { false } }
}
