import IRCGateway
import Outbox
import Protection
import RequestQueue
import StorePort
import Testing

/// The life of a message, from its commit until somebody is shown it.
@Suite struct RequestTraceTests {
    @Test(arguments: [nil, [], SimulatedBackend.modern]) func aDeliveredMessageHasAllItsTimes(
        _ offers: [String]?
    ) throws {
        let world = try World(.hosted, offers: offers)
        let alice = world.connect("alice")
        let bob = world.connect("bob")
        world.send(alice, "PRIVMSG bob :hello")
        let request = try #require(try world.store.requests(states: [.done], limit: 1).first)
        let trace = try #require(world.environment.requests.traces[request.id])
        let times = [trace.committedAt, trace.sentAt.first, trace.acknowledgedAt, trace.openedAt, trace.shownAt]
        #expect(!times.contains(nil) && trace.attempts == 1 && trace.shownTo == 1)
        #expect(bob.texts == ["hello"])
        #expect(request.finishedAt != nil)
    }

    @Test func aRoomCountsWhoWasShownIt() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let people = world.people(4)
        world.send(people[0], "PRIVMSG #Room :to all")
        let id = try #require(try world.ids(.done).first)
        #expect(world.environment.requests.traces[id]?.shownTo == 3)
    }

    @Test func eachAttemptAndEachFailureHasItsTime() throws {
        let world = try World(.hosted, offers: SimulatedBackend.modern)
        let alice = world.connect("alice", account: "alice")
        let bob = world.connect("bob", account: "bob")
        world.send(alice, "PRIVMSG bob :zero")
        world.backend.isStalled = true
        world.send(alice, "PRIVMSG bob :one")
        let id = try #require(try world.ids(.pending).first)
        let traces = world.environment.requests.traces
        #expect(traces[id]?.attempts == 1 && traces[id]?.acknowledgedAt == nil && traces[id]?.openedAt == nil)
        world.backend.dropStalled()
        world.close(alice)
        world.backend.isStalled = false
        world.advance(seconds: 3)
        world.connect("alice", account: "alice")
        world.advance(seconds: 1)
        let trace = try #require(traces[id])
        #expect(bob.texts.last == "one" && trace.attempts == 2)
        #expect(trace.sentAt.count == 2 && trace.sentAt[0] + 3000 <= trace.sentAt[1])
        #expect(try #require(trace.openedAt) >= trace.sentAt[1])
        // A line of the backend with an id of its own makes no trace.
        #expect(traces[id + 1] == nil)
    }

    @Test func theRingIsBoundedAndOnlyOursEnters() {
        let traces = RequestTraces(limit: 16)
        for id in 1...20 as ClosedRange<UInt64> {
            traces.note(.shown, of: id, at: 1)
            #expect(traces[id] == nil)
            traces.note(.committed, of: id, at: 2)
            traces.note(.shown, of: id, at: Int64(id))
        }
        for id in 1...20 as ClosedRange<UInt64> { #expect(traces[id]?.shownAt == (id <= 4 ? nil : Int64(id))) }
        for time in 1...20 as ClosedRange<Int64> { traces.note(.sent, of: 20, at: time) }
        #expect(traces[20]?.attempts == 20 && traces[20]?.sentAt == Array(13...20))
    }
}
