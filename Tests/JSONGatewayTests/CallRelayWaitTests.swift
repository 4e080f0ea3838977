import CallSignalling
import JSONCodec
import JSONGateway
import Protection
import StorePort
import Testing

/// Calls of devices without keys that wait for messages about calls.
@Suite struct CallRelayWaitTests {
    private let world: JSONWorld

    init() throws { world = try JSONWorld(.opportunistic) }

    private func perform(_ request: CallRelayJob.Request, _ id: UInt32, as name: String) -> [JSONReply] {
        world.perform(
            .callRelay(
                CallRelayJob(
                    connection: ConnectionID(70), id: id,
                    device: RelayedDevice(account: .services(name), name: "phone"), request: request)))
    }

    private func offer(from name: String, to other: String, _ id: UInt32) throws -> [JSONReply] {
        let route = try #require(CallRoute("room"))
        let message = RelayedMessage(
            id: "room", route: route, call: "c", to: .services(other), kind: .sdpOffer, number: 0,
            payload: JSONFragment.null, size: 4)
        return perform(.post(message), id, as: name)
    }

    /// The numbers of the calls that were woken.
    private func woken(_ replies: [JSONReply]) -> [UInt32] {
        replies.compactMap { reply in
            guard case .callRelay(let id, .entries(let entries, more: true)) = reply, entries.isEmpty else {
                return nil
            }
            return id
        }
    }

    /// The highest sequence in the answer of a fetch.
    private func last(_ replies: [JSONReply]) -> UInt64 {
        for case .callRelay(_, .entries(let entries, _)) in replies { return entries.last?.sequence ?? 0 }
        return 0
    }

    /// The ringing ends with the next thing that anybody does, here a fetch of Carol, and both people are notified.
    @Test func anEndThatSomebodyElseBringsAboutWakesTheCalls() throws {
        #expect(woken(perform(.fetch(after: 0, waits: true), 1, as: "bob")).isEmpty)
        #expect(woken(try offer(from: "alice", to: "bob", 2)) == [1])
        let after = last(perform(.fetch(after: 0, waits: true), 3, as: "bob"))
        #expect(woken(perform(.fetch(after: after, waits: true), 4, as: "bob")).isEmpty)
        #expect(woken(perform(.fetch(after: 0, waits: true), 5, as: "alice")).isEmpty)
        let answering = CallTimes().answering
        world.now.monotonic += answering * 1_000_000
        world.now.wall += answering
        let replies = perform(.fetch(after: 0, waits: true), 6, as: "carol")
        #expect(Set(woken(replies)) == [4, 5])
        // Carol's own call waits.
        #expect(replies.count == 3 && woken(perform(.fetch(after: 0, waits: false), 7, as: "carol")).isEmpty)
        guard
            case .callRelay(8, .entries(let entries, more: false))? =
                perform(.fetch(after: after, waits: false), 8, as: "bob").first
        else {
            Issue.record("no entries")
            return
        }
        #expect(entries.map(\.message.kind) == [.end])
    }

    /// What the relay has is there without the commit, so nobody waits for it in vain.
    @Test func aFailedCommitWakesTheCallsToo() throws {
        #expect(woken(perform(.fetch(after: 0, waits: true), 1, as: "bob")).isEmpty)
        world.store.failNextCommit()
        #expect(woken(try offer(from: "alice", to: "bob", 2)) == [1])
        #expect(last(perform(.fetch(after: 0, waits: false), 3, as: "bob")) > 0)
    }
}
