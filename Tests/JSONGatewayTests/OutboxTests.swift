import CommitLoop
import Envelope
import HTTPCodec
import JSONCodec
import JSONGateway
import NIOCore
import Protection
import QueueConformance
import RequestQueue
import StorePort
import Synchronization
import Testing
import Vault

/// Writes in the queue: sealing, content key and request are one unit of work, and an outcome is recorded with its request.
@Suite struct OutboxTests {
    private struct Unexpected: Error { let what: String }

    private let room = AccountID.room("all")

    private func text(_ id: String, _ text: String = "hello") -> String { #"{"id":"\#(id)","text":"\#(text)"}"# }

    /// A world whose people are known and whose queue is closed.
    private func world(_ store: InMemoryStore = InMemoryStore(), mapping: Mapping = .lab) throws -> JSONWorld {
        let world = try JSONWorld(.hosted, mapping: mapping, store: store)
        for token in ["t-alice", "t-bob"] { world.send("GET", "/me", as: token) }
        world.queueIsOpen = false
        return world
    }

    private func envelope(in request: QueuedRequest) throws -> Envelope {
        guard case .rawData(let body)? = request.config.body else { throw Unexpected(what: "\(request.config)") }
        let text = try #require(JSONWorld.Answer(status: 0, text: String(decoding: body, as: UTF8.self))["text"])
        return try Envelope(try #require(Base64.decode(Array(text.utf8))), in: .json)
    }

    // MARK: One unit of work

    @Test func aSealedWriteIsOneCommit() throws {
        let store = InMemoryStore()
        let world = try world(store)
        let commits = world.commits
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1")) == nil, "it waits")
        // Logins and evidence are no writes of the queue.
        #expect(world.commits == commits + 1)
        let stored = try #require(try store.queueContents().requests.first)
        #expect(stored.state == .inFlight, "the attempt may begin with the same commit")
        let message = try envelope(in: stored).messageID
        #expect(try store.contentKeys(of: [message]).count == 1)
        #expect(world.environment.latches.latch(of: ConversationID(room, room)) == .gateway)
    }

    @Test func nothingOfAFailedCommitIsLeft() throws {
        let store = InMemoryStore()
        let world = try world(store)
        store.failNextCommit()
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 503)
        #expect(world.waiting.isEmpty)
        #expect(try store.queueContents().requests.isEmpty)
        #expect(!world.environment.writes.waiting.holds(.services("alice"), in: "all"))
        #expect(world.environment.latches.latch(of: ConversationID(room, room)) == .plaintext)
        // The same write is new, is sealed under the ratchet's next number, and is read by all.
        world.queueIsOpen = true
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 201)
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "hello")
    }

    /// Another gateway has gone on with a session: the request that was sealed in it is not stored.
    @Test func aFencedWriteIsNotQueued() throws {
        let store = InMemoryStore()
        let world = try world(store)
        world.queueIsOpen = true
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 201)
        world.queueIsOpen = false
        try fence(store)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("2"))?.status == 503)
        #expect(world.waiting.isEmpty)
        #expect(world.attemptCount == 0, "it does not reach the backend either")
        #expect(try store.queueContents().requests.isEmpty)
        #expect(!world.environment.writes.waiting.holds(.services("alice"), in: "all"))
        let counts = RequestCountsView(world.participants.queue)
        #expect(counts.accepted == counts.ended + counts.waiting)
    }

    /// A write of alice's that an exchange has judged, and the lookup of an equal one.
    private func judged(_ world: JSONWorld, _ id: String = "1") throws -> (find: JSONJob, write: QueuedWrite) {
        var steps = ExchangeSteps(world)
        var actions = steps.begin("POST", "/c/all")
        actions = steps.take(.requestBody(ByteBuffer(string: text(id))))
        if case .look(let lookup)? = actions.last {
            let (head, body) = try #require(world.backend.answer(lookup.head, ByteBuffer()))
            actions = steps.take(.found(lookup.id, head, body))
        }
        let writes = actions.compactMap { if case .enqueue(let write) = $0 { write } else { nil } }
        let write = try #require(writes.first)
        let mark = world.environment.writes.keys.mark(of: write.credential)
        let find = FindWriteJob(
            connection: ConnectionID(5), account: write.account, key: try #require(write.key), mark: mark)
        return (.find(find), write)
    }

    /// A write, the lookup of an equal one, and the equal one, as one batch.
    private func equalWrites(_ world: JSONWorld) throws -> [JSONReply] {
        let (find, write) = try judged(world)
        let tokens = (1...2).map { RequestToken(high: 9, low: $0) }
        return world.perform([world.job(write, tokens[0]), find, world.job(write, tokens[1])])
    }

    /// Another gateway goes on with alice's session in the room.
    private func fence(_ store: InMemoryStore) throws {
        let devices = try store.load().devices
        let ids = try [AccountID.services("alice"), room].map { name in
            try #require(devices.first { $0.account == name }?.id)
        }
        for (owner, peer) in [(ids[0], ids[1]), (ids[1], ids[0])] {
            let session = SessionID(
                owner: owner, peer: peer, in: store.sharding.shard(from: .services("alice"), to: room))
            guard let row = try store.session(session) else { continue }
            let theirs = SessionRow(id: session, fence: row.fence + 9, sealedState: row.sealedState)
            #expect(try store.commit([[.putSession(theirs)]]) == [nil])
        }
    }

    @Test func ofEqualWritesInOneBatchTheFirstIsQueued() throws {
        let world = try world()
        let replies = try equalWrites(world)
        let first = RequestToken(high: 9, low: 1)
        #expect(world.waiting.map(\.token) == [first])
        let tokens = replies.compactMap { reply -> RequestToken? in
            switch reply {
            case .queued(_, .success(let known)), .foundWrite(let known?): known.token
            default: nil
            }
        }
        // The client of the first waits for the outcome, so the lookup and the second one are answered.
        #expect(tokens == [first, first])
        #expect(replies.count == 2)
    }

    /// An answer about a write of the same batch is as uncommitted as the write.
    @Test(arguments: [false, true]) func nothingIsSaidOfAWriteThatWasNotStored(isFenced: Bool) throws {
        let store = InMemoryStore()
        let world = try world(store)
        if isFenced {
            world.queueIsOpen = true
            #expect(world.send("POST", "/c/all", as: "t-alice", text("0"))?.status == 201)
            world.queueIsOpen = false
            try fence(store)
        } else {
            _ = try judged(world)
            store.failNextCommit()
        }
        world.pipelines = false
        for reply in try equalWrites(world) {
            switch reply {
            case .queued(_, .failure(.notQueued(.unavailable))), .foundWrite(nil): break
            default: Issue.record("\(reply)")
            }
        }
        #expect(world.waiting.isEmpty)
        #expect(world.attemptCount == 0)
        #expect(try store.queueContents().requests.isEmpty)
    }

    /// The equal write is prepared while the first one is being committed. That fails, so the equal one is queued itself.
    @Test func anEqualWriteAheadIsQueuedIfTheFirstOneIsNot() throws {
        let store = InMemoryStore()
        let world = try world(store)
        _ = try judged(world)
        store.failNextCommit()
        let replies = try equalWrites(world)
        // The client of the equal write waits for the outcome.
        try #require(replies.count == 2)
        guard case .queued(_, .failure(.notQueued(.unavailable))) = replies[0], case .foundWrite(nil) = replies[1]
        else {
            Issue.record("\(replies)")
            return
        }
        let second = RequestToken(high: 9, low: 2)
        #expect(world.waiting.map(\.token) == [second])
        #expect(try store.queueContents().requests.map(\.token) == [second])
    }

    /// A body with an id of the gateway's own that cannot be written anew, because of another string in it.
    @Test func aBodyWhoseReferenceCannotBeReplacedIsNotQueued() throws {
        let world = try world()
        var (_, write) = try judged(world)
        let local = "the gateway's own id"
        write.references = [QueuedReference(.body(try JSONPath("$.edits")), local: local)]
        write.text = nil
        for (note, isGood) in [(#"\ud83d"#, false), (#"\ud83d\ude00"#, true)] {
            write.body = ByteBuffer(string: #"{"edits":"\#(local)","note":"\#(note)"}"#)
            let replies = world.perform(world.job(write, RequestToken(high: 9, low: isGood ? 2 : 1)))
            if isGood { continue }
            guard case .queued(_, .failure(.unreadable(.loneSurrogate)))? = replies.first else {
                Issue.record("\(replies)")
                return
            }
        }
        let sent = world.waiting.map(\.config.body)
        #expect(!sent.contains { if case .rawData? = $0 { true } else { false } }, "\(sent)")
    }

    // MARK: Ends in the batch that queues a write

    /// A batch that queues a write and ends it: the message that it names is rejected by the backend.
    private struct EndedWrite {
        let world: JSONWorld
        let store: InMemoryStore
        let write: QueuedWrite
        let find: JSONJob
        let token = RequestToken(high: 9, low: 1)
        private let rejected: QueuedRequest

        init(_ world: JSONWorld, _ store: InMemoryStore, _ judged: (find: JSONJob, write: QueuedWrite)) throws {
            (self.world, self.store, find) = (world, store, judged.find)
            rejected = try #require(world.waiting.last)
            var write = judged.write
            write.references = [QueuedReference(.segment(1), local: try #require(rejected.creates.first).local)]
            self.write = write
            world.pipelines = false
        }

        /// The batch, with further jobs at its end.
        func perform(_ more: [JSONJob] = []) -> [JSONReply] {
            let (id, lease) = (rejected.id, rejected.lease ?? 0)
            let answer = AttemptReply.failure(.status(404), retryAfter: nil, headers: [], body: [])
            let end = JSONJob.queue { queue, now in
                queue.reply(id, lease: lease, answer, now: now, random: 1)
                return nil
            }
            return world.perform([world.job(write, token), end] + more)
        }

        /// The same write again, which names no message and has no text to seal.
        func again() -> (job: JSONJob, token: RequestToken) {
            var write = write
            write.references = []
            // After a fenced session nothing is sealed again in this process.
            write.text = nil
            let token = RequestToken(high: 9, low: 2)
            return (world.job(write, token), token)
        }
    }

    private func ended(fenced: Bool = false) throws -> EndedWrite {
        let store = InMemoryStore()
        let world = try world(store)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("0")) == nil, "it waits")
        let judged = try judged(world)
        if fenced { try fence(store) }
        return try EndedWrite(world, store, judged)
    }

    private func isUnavailable(_ reply: JSONReply) -> Bool {
        if case .queued(_, .failure(.notQueued(.unavailable))) = reply { true } else { false }
    }

    /// A repeated write finds the first one, whether they are in one batch or not.
    @Test(arguments: [false, true]) func aWriteThatEndsInItsBatchIsFound(isTogether: Bool) throws {
        let ended = try ended()
        let (job, second) = ended.again()
        var replies: [JSONReply]
        if isTogether {
            replies = ended.perform([ended.find, job])
        } else {
            replies = ended.perform()
            #expect(replies.isEmpty, "its client waits for the outcome")
            #expect(try ended.store.queueTables.request(ended.token)?.state == .dead)
            replies = ended.world.perform([ended.find, job])
        }
        let found = replies.compactMap { reply -> RequestToken? in
            switch reply {
            // What names a rejected message is not sent again.
            case .queued(second, .success(let known)), .foundWrite(let known?): known.token
            default: nil
            }
        }
        #expect(found == [ended.token, ended.token], "\(replies)")
        #expect(try ended.store.queueTables.request(second) == nil)
    }

    /// Neither is stored later, without the content key of its text, nor does its key stay taken.
    @Test(arguments: [false, true]) func aWriteThatEndsInABatchThatFailsHasNeverBeen(isFenced: Bool) throws {
        let ended = try ended(fenced: isFenced)
        let (world, store) = (ended.world, ended.store)
        if !isFenced { store.failNextCommit() }
        let outcomes = Mutex<[WriteOutcome]>([])
        world.environment.writes.waiters.expect(
            ended.token, WriteWaiter { outcome in outcomes.withLock { $0.append(outcome) } })
        let replies = ended.perform()
        #expect(replies.count == 1 && replies.allSatisfy(isUnavailable), "\(replies)")
        #expect(outcomes.withLock { $0.isEmpty }, "its client has one answer")
        _ = world.perform(.wake)
        #expect(try store.queueTables.request(ended.token) == nil)
        #expect(!world.environment.writes.waiting.holds(.services("alice"), in: "all"))
        let counts = RequestCountsView(world.participants.queue)
        #expect(counts.accepted == counts.ended + counts.waiting)
        let (job, second) = ended.again()
        #expect(world.perform(job).isEmpty)
        #expect(world.waiting.map(\.token) == [second])
        #expect(world.environment.writes.waiting.holds(.services("alice"), in: "all"))
    }

    /// It may end a write that the batch under commit has queued or leased, which the queue could not undo.
    @Test func anEventOfTheQueueIsNotPreparedAhead() throws {
        let participants = try world().participants
        #expect(participants.lookahead(of: .wake) == .none)
        #expect(participants.lookahead(of: .queue { _, _ in nil }) == .none)
    }

    @Test func aTextThatDoesNotFitIsNotQueued() throws {
        let world = try world()
        let long = String(repeating: "x", count: 200_000)
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1", long))?.status == 413)
        #expect(world.waiting.isEmpty)
        #expect(!world.environment.writes.waiting.holds(.services("alice"), in: "all"))
    }

    @Test func anAccountMayQueueOnlySoMany() throws {
        let world = try JSONWorld(.hosted, requestsPerAccount: 2)
        for token in ["t-alice", "t-bob"] { world.send("GET", "/me", as: token) }
        world.queueIsOpen = false
        for number in 1...2 { #expect(world.send("POST", "/c/all", as: "t-alice", text("\(number)")) == nil) }
        #expect(world.send("POST", "/c/all", as: "t-alice", text("3"))?.status == 429)
        #expect(world.send("POST", "/c/all", as: "t-bob", text("1")) == nil, "others are not concerned")
        #expect(world.waiting.count == 3)
        world.flushQueue()
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "hello")
    }

    // MARK: Outcomes

    /// No handler of a later process waits for it, so nothing is stored again after the outcome.
    @Test func theOutcomeIsTheLastCommitOfAWrite() throws {
        let store = InMemoryStore()
        let world = try world(store)
        world.queueIsOpen = true
        let commits = world.commits
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 201)
        #expect(world.commits == commits + 2, "the write and its outcome")
        #expect(try store.queueContents().undelivered.isEmpty)
        let finished = try store.queueContents().finished
        #expect(finished.map(\.request.state) == [.done])
        #expect(try store.queueTables.outcome(try #require(finished.first).request.token)?.body.isEmpty == false)
        _ = world.perform(.wake)
        #expect(world.commits == commits + 2)
    }

    /// An earlier version has stored outcomes for delivery.
    @Test func anOutcomeThatIsStillDueIsHandled() throws {
        let store = InMemoryStore()
        let request = QueueConformance.request(1)
        let changes: [QueueChange] = [
            QueueConformance.insert(request),
            .finish(id: 1, lease: nil, outcome: QueueConformance.success, keeping: .delivery, at: 5),
        ]
        #expect(try store.commit([changes.map { .queue($0) }]) == [nil])
        let world = try JSONWorld(.hosted, store: store)
        #expect(try store.queueContents().undelivered.count == 1)
        _ = world.perform(.wake)
        _ = world.perform(.wake)
        #expect(try store.queueContents().undelivered.isEmpty)
    }

    @Test func aDeadWriteThatIsRepeatedIsSentAgain() throws {
        let world = try world()
        world.backend.closed = ["all"]
        world.queueIsOpen = true
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 404)
        world.backend.closed = []
        #expect(world.send("POST", "/c/all", as: "t-alice", text("1"))?.status == 201)
        #expect(world.backend.messages["all"]?.count == 1)
    }

    @Test func aMergeIsToldToTheAccountsSockets() throws {
        let mapping = Mapping.lab(answer: .atOnce(status: 202, body: #"{"message_id":"{local_id}"}"#))
        let world = try world(mapping: mapping)
        let news = Mutex<[MessageNews]>([])
        world.environment.writes.sockets.add(ConnectionID(77), of: .services("alice")) { one in
            news.withLock { $0.append(one) }
        }
        let local = try #require(world.send("POST", "/c/all", as: "t-alice", text("1"))?["message_id"])
        #expect(news.withLock { $0.isEmpty })
        world.flushQueue()
        #expect(news.withLock { $0 } == [.merged(MessageMerge(localID: local, remoteID: "m1"))])
        world.backend.closed = ["all"]
        let lost = try #require(world.send("POST", "/c/all", as: "t-alice", text("2"))?["message_id"])
        world.flushQueue()
        let reason = "The host answered with status 404."
        #expect(news.withLock { $0.last } == .lost(localID: lost, reason: reason))
    }

    // MARK: Restarts

    @Test func aRestartSendsWhatWaits() throws {
        let store = InMemoryStore()
        let first = try world(store)
        #expect(first.send("POST", "/c/all", as: "t-alice", text("1")) == nil)
        #expect(first.send("POST", "/c/all", as: "t-alice", text("2", "world")) == nil)
        let second = try JSONWorld(.hosted, backend: first.backend, store: store)
        #expect(second.waiting.count == 2)
        #expect(second.environment.writes.waiting.holds(.services("alice"), in: "all"))
        second.adopt(first.writes)
        second.flushQueue()
        #expect(second.waiting.count == 2, "the queue waits for a login of the account")
        second.logIn(.services("alice"))
        second.flushQueue()
        #expect(second.waiting.isEmpty)
        #expect(second.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "hello")
        #expect(second.send("GET", "/c/all", as: "t-bob")?["messages[1].data.text"] == "world")
        // The client repeats the first, and gets the answer of the first.
        #expect(second.send("POST", "/c/all", as: "t-alice", text("1"))?["message_id"] == "m1")
        #expect(second.backend.messages["all"]?.count == 2)
    }

    @Test func aHeldAccountSendsNothingAtAStart() throws {
        let store = InMemoryStore()
        let first = try world(store)
        #expect(first.send("POST", "/c/all", as: "t-alice", text("1")) == nil)
        let second = try JSONWorld(.hosted, backend: first.backend, store: store, held: [.services("alice")])
        second.adopt(first.writes)
        second.logIn(.services("alice"))
        second.flushQueue()
        #expect(second.waiting.count == 1)
        #expect(second.backend.messages["all"] == nil)
    }
}

/// The counts of a queue, which have to add up.
private struct RequestCountsView {
    let accepted: Int
    let ended: Int
    let waiting: Int

    init(_ queue: QueueMachine) {
        accepted = queue.counts.restored + queue.counts.appended + queue.counts.revived
        ended = queue.counts.done + queue.counts.dead + queue.counts.cancelled
        waiting = queue.depth
    }
}
