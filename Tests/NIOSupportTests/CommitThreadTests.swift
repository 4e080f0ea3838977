import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import NIOCore
import NIOPosix
import NIOSupport
import Protection
import RequestQueue
import StorePort
import Synchronization
import TestKit
import Testing
import Vault

/// The thread between the participants, their store, and the connections that wait for answers.
@Suite struct CommitThreadTests {
    /// A connection that keeps what it is answered.
    private final class Listener: CommitClient {
        let eventLoop: any EventLoop
        private let replies = Mutex<[IRCReply]>([])

        init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

        func answered(_ new: [IRCReply]) { replies.withLock { $0 += new } }

        var all: [IRCReply] { replies.withLock { $0 } }
    }

    private func job(_ ticket: UInt64) -> IRCJob {
        .seal(
            SealJob(
                connection: ConnectionID(1), ticket: ticket, sender: .services("alice"), recipient: .services("bob"),
                target: "bob", senderName: "alice", recipientName: "bob", verb: "PRIVMSG",
                body: Body(text: Array("message \(ticket)".utf8)), capacity: 380))
    }

    /// A commit that fails is no success: the client is told, so is the operator, and the next batch works.
    @Test func aRefusedCommitIsAnsweredAsAFailure() async throws {
        let store = InMemoryStore()
        var changes: [StoreChange] = []
        let vault = try IRCParticipants(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: LatchTable(), rooms: RoomTable(), openedMessages: OpenedMessages(), requestAge: 300_000,
            pendingLimit: 256, now: Timestamp(monotonic: 1, wall: 1), random: SystemRandomSource(),
            role: .front(DirectoryCache()),
            wasDelivered: { _ in false }, changes: &changes)
        let failures = Mutex<[StoreError]>([])
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let runner = CommitThread(
            participants: vault, clock: { Timestamp(monotonic: 2, wall: 2) },
            onFailure: { failure, _ in failures.withLock { $0.append(failure) } },
            onUnknown: { _ in Issue.record("the outcome of every commit is known") })
        let listener = Listener(group.next())
        runner.register(listener, as: ConnectionID(1))
        func answers(_ count: Int) async throws {
            try await eventuallyAsync("\(count) answers") { listener.all.count >= count }
            try #require(listener.all.count == count)
        }

        store.failNextCommit()
        runner.submit([job(1)])
        try await answers(1)
        guard case .sealFailed(ticket: 1, _) = listener.all[0] else {
            Issue.record("a message that was not stored was answered with \(listener.all[0])")
            return
        }
        #expect(failures.withLock { $0 } == [.unavailable("The disk is full (pretended).")])
        #expect(try store.requestCounts().isEmpty && store.load().devices.isEmpty)

        runner.submit([job(2)])
        try await answers(2)
        guard case .sealed(ticket: 2, let request, true, _) = listener.all[1] else {
            Issue.record("the next message was answered with \(listener.all[1])")
            return
        }
        #expect(try store.request(request.id)?.bodies == request.bodies)
        #expect(try store.requestCounts() == [.pending: 1])
        #expect(failures.withLock { $0.count } == 1)
        await runner.stop()
        try await group.shutdownGracefully()
    }

    /// If nobody knows whether a commit was done, nobody is answered: not for that batch and for no later one.
    @Test func anUnknownOutcomeIsAnsweredByNothing() async throws {
        let store = InMemoryStore()
        var changes: [StoreChange] = []
        let participants = try IRCParticipants(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: LatchTable(), rooms: RoomTable(), openedMessages: OpenedMessages(), requestAge: 300_000,
            pendingLimit: 256, now: Timestamp(monotonic: 1, wall: 1), random: SystemRandomSource(),
            role: .front(DirectoryCache()),
            wasDelivered: { _ in false }, changes: &changes)
        let unknown = Mutex<[StoreError]>([])
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let thread = CommitThread(
            participants: participants, clock: { Timestamp(monotonic: 2, wall: 2) },
            onFailure: { failure, _ in Issue.record("\(failure) is no failure that was told") },
            onUnknown: { failure in unknown.withLock { $0.append(failure) } })
        let listener = Listener(group.next())
        thread.register(listener, as: ConnectionID(1))
        store.loseNextOutcome()
        thread.submit([job(1)])
        try await eventuallyAsync("the outcome is reported") { unknown.withLock { $0.count == 1 } }
        thread.submit([job(2)])
        try await thread.drained(on: group.next()).get()
        // What the event loop was given before runs before this.
        try await group.next().submit {}.get()
        #expect(listener.all.isEmpty)
        // The store has the first message, and nothing of the second.
        #expect(try store.requestCounts() == [.pending: 1])
        #expect(unknown.withLock { $0 } == [.unknown("The connection was lost (pretended).")])
        await thread.stop()
        try await group.shutdownGracefully()
    }
}
