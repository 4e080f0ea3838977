// How long keys are kept, and what becomes of a message that was not written.

import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import JSONGateway
import Protection
import StorePort
import Testing
import Vault

extension HistoryConformance {
    // MARK: Expiry

    @Sendable static func expiry(_ open: @escaping Open) throws {
        let world = try HistoryWorld(retention: 60_000, open)
        let early = try world.write("early")
        world.pass(30_000)
        let late = try world.write("late")
        world.pass(29_999)
        #expect(try world.read([early, late]) == [early.outcome, late.outcome])
        world.pass(1)
        // Memory gives it as little as the store does.
        #expect(try world.read([early, late]) == [.failed(.forgotten), late.outcome])
        try world.restart()
        #expect(try world.read([early, late]) == [.failed(.forgotten), late.outcome])
        #expect(try world.store.contentKeys(of: [early.id]).count == 1)
        try world.run([.tick])
        #expect(try world.store.contentKeys(of: [early.id, late.id]).map(\.message) == [late.id])
        // A longer time does not bring it back, nor does it change what was promised.
        world.retention = HistoryWorld.day
        world.pass(60_000)
        #expect(try world.read([early, late]) == [.failed(.forgotten), .failed(.forgotten)])
        try world.run([.tick])
        try world.run([.tick])
        #expect(try world.store.oldestContentKeys() == nil)
    }

    @Sendable static func shorterRetention(_ open: @escaping Open) throws {
        let world = try HistoryWorld(retention: 90 * HistoryWorld.day, open)
        let early = try world.write("early")
        world.pass(10 * HistoryWorld.day)
        let late = try world.write("late")
        world.retention = 7 * HistoryWorld.day
        try world.restart()
        #expect(try world.read([early, late]) == [.failed(.forgotten), late.outcome])
        try world.run([.tick])
        #expect(try world.store.contentKeys(of: [early.id, late.id]).map(\.message) == [late.id])
        world.retention = 0
        try world.restart()
        #expect(try world.read([late]) == [.failed(.forgotten)])
        try world.run([.tick])
        #expect(try world.store.oldestContentKeys() == nil)
    }

    @Sendable static func pruning(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let rows = (1...20_000).map { number in
            ContentKeyRow(
                message: MessageID(UInt64(world.now.wall) << 10 + UInt64(number)),
                digest: EnvelopeDigest(of: [UInt8(number & 0xFF), UInt8(number >> 8)]),
                expiresAt: world.now.wall + Int64(number), sealedKey: [1])
        }
        try StoreConformance.commit(world.store, rows.map { .putContentKey($0) })
        func left() throws -> Int { try world.store.contentKeys(of: rows.map(\.message)).count }
        try world.run([.tick])
        #expect(try left() == 20_000)
        // Nothing is asked again for a minute.
        world.pass(30_000)
        try world.run([.tick])
        #expect(try left() == 20_000)
        world.pass(31_000)
        var counts: [Int] = []
        for _ in 1...4 {
            try world.run([.tick])
            counts.append(try left())
        }
        #expect(counts == [20_000 - 8192, 20_000 - 2 * 8192, 0, 0])
    }

    @Sendable static func noRetention(_ open: @escaping Open) throws {
        let world = try HistoryWorld(retention: 0, open)
        let written = [try world.write("one"), try world.write("two")]
        #expect(try world.store.contentKeys(of: written.map(\.id)).isEmpty)
        world.pass(400 * HistoryWorld.day)
        #expect(try world.read(written) == written.map(\.outcome))
        let last = try world.write("last")
        try world.restart()
        #expect(try world.read(written + [last]) == written.map { _ in .failed(.forgotten) } + [.failed(.forgotten)])
        // No id is used again, although no row holds one and the clock has gone back.
        world.pass(-HistoryWorld.day)
        try world.restart()
        #expect(try world.write("after").id > last.id)
    }

    @Sendable static func guests(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let guest = try world.write("hello", by: "~1f")
        let alice = try world.write("hello")
        #expect(try world.store.contentKeys(of: [guest.id, alice.id]).map(\.message) == [alice.id])
        #expect(try world.read([guest, alice]) == [guest.outcome, alice.outcome])
        try world.forget(AccountID(text: "~1f"))
        #expect(try world.read([guest, alice]) == [.failed(.unknownSender), alice.outcome])
    }

    // MARK: What is not written

    @Sendable static func failedCommit(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let alice = AccountID(text: "alice")
        world.store.failsCommits = true
        let jobs = (0..<3).map { world.job([UInt8($0)], by: alice, in: .room("r")) }
        #expect(try world.write(jobs) == [.failure(.store), .failure(.store), .failure(.store)])
        world.store.failsCommits = false
        #expect(try world.store.load().devices.isEmpty)
        let first = try world.write("first", in: "r")
        #expect(first.isFirst)

        // With a session that goes on: nothing of it counts either, and the ratchets are where they were.
        let second = world.job(Array("lost".utf8), by: alice, in: .room("r"))
        let batch = world.perform([.seal(second)])
        let states = try sessions(world)
        let replies = world.settle(batch, nil)
        guard case .sealFailed(second.ticket, .store)? = replies.first else {
            Issue.record("\(replies)")
            return
        }
        #expect(try sessions(world) == states)
        let third = try world.write("third", in: "r")
        #expect(try world.read([first, third]) == [first.outcome, third.outcome])
        #expect(try world.store.contentKeys(of: [first.id, third.id]).count == 2)
        #expect(try sessions(world).map(\.fence) == states.map { $0.fence + 1 })
        try world.restart()
        let fourth = try world.write("fourth", in: "r")
        #expect(try world.read([first, third, fourth]) == [first.outcome, third.outcome, fourth.outcome])
    }

    private static func sessions(_ world: HistoryWorld) throws -> [SessionRow] {
        let devices = try world.store.load().devices.sorted { $0.id < $1.id }
        return try devices.flatMap { one in
            try devices.compactMap { try world.store.session(SessionID(of: one, with: $0, in: world.store.sharding)) }
        }
    }

    @Sendable static func failedJob(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let alice = AccountID(text: "alice")
        let nobody = SealMessageJob.Reader(account: AccountID(text: "bob"), device: DeviceID(99))
        func jobs(_ room: String) -> [SealMessageJob] {
            [
                world.job([1], by: alice, in: .room(room)),
                world.job([2], by: alice, in: .room(room), readers: [nobody]),
                world.job([3], by: alice, in: .room(room)),
                world.job([4], by: AccountID(text: "new"), in: .room("new"), readers: [nobody]),
            ]
        }
        for _ in 1...2 {
            let results = try world.write(jobs("r"))
            #expect(results[1] == .failure(.keysMissing) && results[3] == .failure(.keysMissing))
            let written = [try results[0].get(), try results[2].get()]
            #expect(try world.read(written) == written.map(\.outcome))
            let next = try world.write("next", in: "r")
            #expect(try world.read([next]) == [next.outcome])
            // Each was sealed under a key of its own, in order: none was taken back and used twice.
            #expect(Set((written + [next]).map(\.envelope)).count == 3)
            #expect(try world.store.load().devices.map(\.account.text).sorted() == ["alice", "room r"])
            try world.restart()
        }
    }

    @Sendable static func readingWritesNothing(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let written = try world.write("one")
        try world.restart()
        let job = OpenMessagesJob(
            connection: world.connection, ticket: 1, reader: AccountID(text: "bob"), items: [written.item])
        world.store.failsReads = true
        #expect(try world.read([written]) == [.failed(.store)])
        world.store.failsReads = false
        let batch = world.perform([.open(job)])
        #expect(batch.isEmpty)
        // Nor does it hang on the transaction of others.
        let replies = world.settle(batch, nil)
        guard case .opened(1, [written.outcome])? = replies.first else {
            Issue.record("\(replies)")
            return
        }
        world.store.failsReads = true
        #expect(try world.read([written]) == [written.outcome])
    }

    @Sendable static func acts(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let written = [try world.write("one"), try world.write("two", by: "bob")]
        let conversation = ConversationID(.room("!room"), .room("!room"))
        try world.run([.reset(conversation)])
        #expect(try world.store.conversations(limit: 9).isEmpty)
        #expect(try world.read(written) == written.map(\.outcome))
        let next = try world.write("three")
        #expect(next.isFirst)
        #expect(try world.read(written + [next]) == written.map(\.outcome) + [next.outcome])
        try world.forget(AccountID(text: "bob"))
        #expect(try world.read(written) == [written[0].outcome, .failed(.unknownSender)])
        // Whoever takes the name is another device: what the first one said is not theirs.
        let other = try world.write("four", by: "bob")
        #expect(try world.read([written[1], other]) == [.failed(.unknownSender), other.outcome])
    }

    // MARK: Devices elsewhere

    @Sendable static func readers(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        // A session of alice's device with another one: in a room of its own, so that both ends are at hand.
        // Sessions belong to one shard, so both rooms are in the same.
        let sharding = world.store.sharding
        let pair = try #require(
            (0...).lazy.map { "!pair\($0)" }
                .first { sharding.shard(of: .ofRoom($0)) == sharding.shard(of: .ofRoom("!room")) })
        _ = try world.write("begin", in: pair)
        let device = try #require(
            try world.store.load().devices.first { $0.account == .room(pair) }?.id)
        let reader = SealMessageJob.Reader(account: AccountID(text: "bob"), device: device)
        let written = try world.write("for both", readers: [reader])
        let parsed = try Envelope(written.envelope, in: .json)
        let several = try MultiRecipientMessage(serialized: parsed.ratchetMessage.span)
        #expect(several.keys.count == 2 && several.keys[1].recipient == device.value)
        #expect(try world.read([written]) == [written.outcome])
        let many = (0..<255).map { SealMessageJob.Reader(account: AccountID(text: "x"), device: DeviceID($0)) }
        let job = world.job([1], by: written.sender, in: written.conversation, readers: many)
        #expect(try world.write([job]) == [.failure(.tooLong)])
    }
}
