import CommitLoop
import DeviceDirectory
import Devices
import Dispatch
import DoubleRatchet
import Envelope
import Foundation
import IRCGateway
import NIOCore
import NIOPosix
import NIOSupport
import PeerKit
import Protection
import RequestQueue
import SQLiteStore
import StoreBase
import StoreConformance
import StorePort
import Synchronization
import TestKit
import Testing
import Vault

/// The commit thread while a commit is under way on its other thread.
@Suite struct CommitPipeliningTests {
    // MARK: With small participants

    /// What the thread did, from any thread.
    private final class Log: Sendable {
        private let entries = Mutex<[String]>([])

        func add(_ entry: String) { entries.withLock { $0.append(entry) } }

        var all: [String] { entries.withLock { $0 } }
    }

    private enum SlateJob: Sendable {
        /// Writes a record with the number.
        case write(Int)
        /// Reads the record from the store while the job is prepared.
        case read(Int)
    }

    /// Participants that only write and read records.
    private struct Slate: Participants {
        typealias Job = SlateJob
        typealias Reply = String
        typealias SharedRow = Int
        typealias Closing = Void

        let store: OrderedStore
        let log: Log

        func placement(of job: SlateJob) -> Placement { .several }
        func lookahead(of job: SlateJob) -> Lookahead { .repeated }
        mutating func refuse(_ job: SlateJob, now: Timestamp) -> Replies { [] }

        mutating func prepare(_ job: SlateJob, _ unit: inout UnitOfWork<Self>, now: Timestamp) {
            switch job {
            case .write(let number):
                log.add("prepare \(number)")
                unit.changes.append(.putRecord(RecordRow(kind: .blob, name: "\(number)", value: [])))
                unit.reply = (ConnectionID(1), "done \(number)")
                unit.failure = (ConnectionID(1), "failed \(number)")
            case .read(let number):
                let row = try? store.record(.blob, name: "\(number)")
                log.add("read \(number): \(row == nil ? "nothing" : "found")")
                unit.reply = (ConnectionID(1), "read")
            }
        }

        mutating func close(_: inout [UnitOfWork<Self>], now: Timestamp) -> (closing: Void, group: ChangeGroup) {
            ((), ChangeGroup([], in: .several))
        }
        mutating func sharedChanges() -> [(row: Int, group: ChangeGroup)] { [] }
        mutating func closed(_: Void, isCommitted: Bool, now: Timestamp) {}
        mutating func settled(_: Void, isCommitted: Bool, now: Timestamp) -> Replies { [] }
        mutating func drop(_ rows: some Sequence<Int>) {}
        mutating func restore(_ kind: RecordKind, name: String) {}
    }

    private final class Listener<Reply: Sendable>: CommitClient {
        let eventLoop: any EventLoop
        private let replies = Mutex<[Reply]>([])

        init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

        func answered(_ new: [Reply]) { replies.withLock { $0 += new } }

        var all: [Reply] { replies.withLock { $0 } }
    }

    /// A thread over a store whose commits begin when the test allows them.
    private struct Rig {
        let store = WatchedStore(InMemoryStore())
        let log = Log()
        let gate = DispatchSemaphore(value: 0)
        let thread: CommitThread<Slate>
        let listener: Listener<String>
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

        init(_ pipelining: Pipelining = .always, fails: Int? = nil, unknown: Int? = nil) {
            let log = log
            let gate = gate
            let epochs = Sharding.shared.shards.map { ShardEpoch($0, 1) }
            thread = CommitThread(
                participants: Slate(store: OrderedStore(store, by: epochs), log: log), pipelining: pipelining,
                clock: { Timestamp(monotonic: Int64(NIODeadline.now().uptimeNanoseconds), wall: 1) },
                onFailure: { _, jobs in log.add("\(jobs.count) not committed") },
                onUnknown: { _ in log.add("unknown") })
            listener = Listener(group.next())
            thread.register(listener, as: ConnectionID(1))
            let counter = Counter()
            store.beforeCommits { () throws(StoreError) in
                let number = counter.next()
                log.add("commit \(number)")
                gate.wait()
                if number == fails { throw .unavailable("pretended") }
                if number == unknown { throw .unknown("pretended") }
            }
        }

        func stop() async throws {
            await thread.stop()
            try await group.shutdownGracefully()
        }
    }

    private final class Counter: Sendable {
        private let value = Atomic(0)

        func next() -> Int { value.wrappingAdd(1, ordering: .relaxed).newValue }
    }

    @Test func theNextBatchIsPreparedDuringACommit() async throws {
        let rig = Rig()
        rig.thread.submit([.write(0)])
        try await eventuallyAsync("a commit has begun") { rig.log.all.contains("commit 1") }
        rig.thread.submit((1...20).map { .write($0) })
        try await eventuallyAsync("the next jobs are prepared") { rig.log.all.contains("prepare 20") }
        #expect(!rig.log.all.contains("commit 2") && rig.listener.all.isEmpty)
        rig.gate.signal()
        try await eventuallyAsync("the next commit has begun") { rig.log.all.contains("commit 2") }
        try await eventuallyAsync("the first job is answered") { rig.listener.all == ["done 0"] }
        rig.gate.signal()
        try await eventuallyAsync("all are answered") { rig.listener.all == (0...20).map { "done \($0)" } }
        #expect(rig.log.all.count { $0.hasPrefix("prepare") } == 21)
        try await rig.stop()
    }

    @Test func aReadWaitsForTheCommitUnderWay() async throws {
        let rig = Rig()
        rig.thread.submit([.write(0)])
        try await eventuallyAsync("a commit has begun") { rig.log.all.contains("commit 1") }
        rig.thread.submit((1...20).map { .write($0) } + [.read(0)])
        try await eventuallyAsync("the jobs before the read are prepared") { rig.log.all.contains("prepare 20") }
        try await Task.sleep(for: .milliseconds(20))
        #expect(!rig.log.all.contains { $0.hasPrefix("read") })
        rig.gate.signal()
        try await eventuallyAsync("the job has read") { rig.log.all.contains("read 0: found") }
        rig.gate.signal()
        try await eventuallyAsync("all are answered") { rig.listener.all.last == "read" }
        try await rig.stop()
    }

    @Test func afterAFailureTheNextBatchIsPreparedAgain() async throws {
        let rig = Rig(fails: 1)
        rig.thread.submit([.write(0)])
        try await eventuallyAsync("a commit has begun") { rig.log.all.contains("commit 1") }
        rig.thread.submit((1...20).map { .write($0) })
        try await eventuallyAsync("the next jobs are prepared") { rig.log.all.contains("prepare 20") }
        for _ in 0..<2 { rig.gate.signal() }
        let replies = ["failed 0"] + (1...20).map { "done \($0)" }
        try await eventuallyAsync("all are answered") { rig.listener.all == replies }
        #expect(rig.log.all.count { $0.hasPrefix("prepare") } == 41)
        #expect(rig.log.all.contains("1 not committed"))
        #expect(try rig.store.records(.blob).count == 20)
        try await rig.stop()
    }

    @Test func afterAnUnknownOutcomeTheNextBatchIsNotAnswered() async throws {
        let rig = Rig(unknown: 1)
        rig.thread.submit([.write(0)])
        try await eventuallyAsync("a commit has begun") { rig.log.all.contains("commit 1") }
        rig.thread.submit((1...20).map { .write($0) })
        try await eventuallyAsync("the next jobs are prepared") { rig.log.all.contains("prepare 20") }
        rig.gate.signal()
        try await rig.thread.drained(on: rig.listener.eventLoop).get()
        try await rig.listener.eventLoop.submit {}.get()
        #expect(rig.listener.all.isEmpty && rig.log.all.last == "unknown")
        try await rig.stop()
    }

    @Test func drainedWaitsForTheBatchAhead() async throws {
        let rig = Rig()
        rig.thread.submit([.write(0)])
        try await eventuallyAsync("a commit has begun") { rig.log.all.contains("commit 1") }
        rig.thread.submit((1...20).map { .write($0) })
        let drained = rig.thread.drained(on: rig.listener.eventLoop)
        for _ in 0..<2 { rig.gate.signal() }
        try await drained.get()
        try await rig.listener.eventLoop.submit {}.get()
        #expect(rig.listener.all.count == 21)
        try await rig.stop()
    }

    /// After a short commit the next one runs on the thread itself, and nothing is prepared meanwhile.
    @Test func shortCommitsAreNotHandedOver() async throws {
        let rig = Rig(.afterCommits(longerThan: 60_000_000_000))
        rig.thread.submit([.write(0)])
        try await eventuallyAsync("a commit has begun") { rig.log.all.contains("commit 1") }
        rig.thread.submit((1...20).map { .write($0) })
        try await Task.sleep(for: .milliseconds(20))
        #expect(rig.log.all == ["prepare 0", "commit 1"])
        for _ in 0..<2 { rig.gate.signal() }
        try await eventuallyAsync("all are answered") { rig.listener.all.count == 21 }
        try await rig.stop()
    }

    // MARK: With a vault

    private typealias Vaulted = IRCParticipants

    private static func participants(_ store: any Store) throws -> Vaulted {
        var changes: [StoreChange] = []
        let participants = try Vaulted(
            network: "lab", carrier: .irc, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: store,
            latches: LatchTable(), rooms: RoomTable(), openedMessages: OpenedMessages(), requestAge: 300_000,
            pendingLimit: 256, now: Timestamp(monotonic: 1, wall: 1), random: SystemRandomSource(),
            role: .front(DirectoryCache()),
            wasDelivered: { _ in false }, changes: &changes)
        if !changes.isEmpty { _ = try store.commit([changes]) }
        return participants
    }

    private static func text(_ person: Int, _ number: Int) -> String { "message \(number) of \(person)" }

    /// Messages of several people in several conversations, while commits take their time and some of them fail. Each job is
    /// answered once and in order, the store has what was answered and no more, and what was sealed is opened, each
    /// message once: so no key was used for two of them.
    @Test(arguments: [false, true], [1, 2] as [UInt64])
    func messagesOutliveFailedCommits(onDisk: Bool, seed: UInt64) async throws {
        let scratch = try ScratchDirectory()
        defer { withExtendedLifetime(scratch) {} }
        let data = scratch.path + "/data"
        let base: any Store =
            try onDisk ? SQLiteStore.open(directory: data, key: .standard(directory: data)) : InMemoryStore()
        let store = WatchedStore(base)
        let participants = try Self.participants(store)
        let random = Mutex(SeededGenerator(seed: seed))
        let failures = Counter()
        store.beforeCommits { () throws(StoreError) in
            let (pause, fails) = random.withLock {
                (Int.random(in: 0...3, using: &$0), Int.random(in: 0...5, using: &$0) == 0)
            }
            Thread.sleep(forTimeInterval: Double(pause) / 1000)
            guard fails else { return }
            throw .unavailable("pretended")
        }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let thread = CommitThread(
            participants: participants, pipelining: .always, clock: { Timestamp(monotonic: 2, wall: 2) },
            onFailure: { _, _ in _ = failures.next() }, onUnknown: { _ in Issue.record("every outcome is known") })
        let people = 6
        let messages = 60
        let listeners = (0..<people).map { _ in Listener<IRCReply>(group.next()) }
        for (person, listener) in listeners.enumerated() {
            thread.register(listener, as: ConnectionID(UInt64(person + 1)))
        }
        // Each writes to the next one, in bursts.
        for number in 0..<messages {
            for person in 0..<people {
                let (name, peer) = ("p\(person)", "p\((person + 1) % people)")
                thread.submit([
                    .seal(
                        SealJob(
                            connection: ConnectionID(UInt64(person + 1)), ticket: UInt64(number),
                            sender: .services(name),
                            recipient: .services(peer), target: peer, senderName: name, recipientName: peer,
                            verb: "PRIVMSG", body: Body(text: Array(Self.text(person, number).utf8)), capacity: 380))
                ])
            }
            if number % 7 == 0 { try await Task.sleep(for: .milliseconds(2)) }
        }
        try await thread.drained(on: group.next()).get()
        for loop in group.makeIterator() { try await loop.submit {}.get() }
        await thread.stop()
        store.beforeCommits { () throws(StoreError) in }

        var sealed: [[(number: Int, request: Request)]] = []
        for listener in listeners {
            var requests: [(Int, Request)] = []
            var tickets: [UInt64] = []
            for reply in listener.all {
                switch reply {
                case .sealed(let ticket, let request, _, _):
                    tickets.append(ticket)
                    requests.append((Int(ticket), request))
                case .sealFailed(let ticket, _): tickets.append(ticket)
                default: Issue.record("\(reply) is no answer to a message")
                }
            }
            #expect(tickets == (0..<UInt64(messages)).map { $0 }, "each job is answered once and in order")
            sealed.append(requests)
        }
        let stored = try store.requests(states: [.pending], limit: .max)
        #expect(Set(stored.map(\.id)) == Set(sealed.flatMap { $0.map(\.request.id) }))
        #expect(!stored.isEmpty)

        // A process that starts from the store opens all of it.
        var again = try Self.participants(store)
        for (person, requests) in sealed.enumerated() {
            for (number, request) in requests {
                let envelope = try #require(Armour.joined(request.bodies))
                let reader = AccountID.services("p\((person + 1) % people)")
                let job = OpenJob(
                    connection: ConnectionID(99), ticket: 0, account: reader, recipients: [reader],
                    senders: [.services("p\(person)")], envelope: envelope, lineHead: [])
                let batch = again.prepare([.open(job)], now: Timestamp(monotonic: 3, wall: 3))
                let replies = again.complete(
                    batch, committed: try store.commit(batch.groups), now: Timestamp(monotonic: 3, wall: 3))
                guard case .opened(_, let opened)? = replies.first?.reply else {
                    Issue.record("\(Self.text(person, number)): \(replies)")
                    continue
                }
                #expect(String(decoding: opened.body.text, as: UTF8.self) == Self.text(person, number))
            }
        }
        try await group.shutdownGracefully()
    }
}
