import CommitLoop
import Devices
import Envelope
import JSONGateway
import Protection
import SQLiteStore
import StoreConformance
import StorePort
import Testing
import Vault

/// What was said to a backend that keeps it, over both stores.
@Suite struct HistoryTests {
    @Test(arguments: HistoryConformance.checks)
    func memory(_ check: HistoryConformance.Check) throws {
        let store = InMemoryStore()
        try check.run { store }
    }

    @Test(arguments: HistoryConformance.checks)
    func sqlite(_ check: HistoryConformance.Check) throws {
        let scratch = Scratch()
        try check.run { try scratch.open() }
    }

    /// What has expired is gone from the file, and not only from its tables.
    @Test func expiredKeysAreOverwritten() throws {
        let scratch = Scratch()
        let world = try HistoryWorld(retention: 60_000) { try scratch.open() }
        let jobs = (0..<1000).map { world.job([UInt8($0 & 0xFF)], by: AccountID(text: "a"), in: .room("r")) }
        let written = try world.write(jobs).map { try $0.get() }
        let sealed = Set(try world.store.contentKeys(of: written.map(\.id)).map { words($0.sealedKey)[0] })
        #expect(sealed.count == 1000)
        func found() throws -> Int {
            // The log moves into the file when the store is closed.
            try world.restart()
            let copy = Scratch()
            run("cp", "-a", scratch.data, copy.data)
            return sealed.intersection(words(bytes(copy.store))).count
        }
        #expect(try found() == 1000)
        world.pass(60_000)
        try world.run([.tick])
        #expect(try world.store.oldestContentKeys() == nil)
        #expect(try found() == 0)
    }

    /// All runs of eight bytes.
    private func words(_ bytes: [UInt8]) -> [UInt64] {
        bytes.withUnsafeBytes { bytes in
            (0...bytes.count - 8).map { bytes.loadUnaligned(fromByteOffset: $0, as: UInt64.self) }
        }
    }

    /// A backup reads what was said until it was made. What was said since is known to have been, and no more.
    @Test func aBackupReadsEarlierMessages() throws {
        let scratch = Scratch()
        let restored = Scratch()
        var store: SQLiteStore?
        let world = try HistoryWorld {
            let opened = try scratch.open()
            store = opened
            return opened
        }
        let before = [try world.write("one"), try world.write("two", by: "bob")]
        try Backup.write(try #require(store), to: scratch.path + "/backup")
        let since = try world.write("three")
        _ = try Restore.run(
            file: scratch.path + "/backup", directory: restored.data, key: restored.key, force: false, actor: "root",
            now: 1)
        let after = try HistoryWorld { try restored.open() }
        #expect(try after.read(before + [since]) == before.map(\.outcome) + [.failed(.forgotten)])
        // Its sessions are new, and its ids were never used.
        let next = try after.write("four")
        #expect(next.id > since.id)
        #expect(try after.read(before + [next]) == before.map(\.outcome) + [next.outcome])
    }

    /// What a killed process leaves between the commit and the answer: the files as they are while the store is open.
    @Test func whatWasCommittedIsReadAfterAKill() throws {
        let (scratch, copy) = (Scratch(), Scratch())
        let world = try HistoryWorld { try scratch.open() }
        var written = [try world.write("one")]
        let job = world.job(Array("two".utf8), by: written[0].sender, in: written[0].conversation)
        let batch = world.perform([.seal(job)])
        run("cp", "-a", scratch.data, copy.data)
        let before = Scratch()
        run("cp", "-a", scratch.data, before.data)
        _ = try world.store.commit(batch.groups)
        run("rm", "-rf", copy.data)
        run("cp", "-a", scratch.data, copy.data)
        // The answer that nobody has had any more.
        let replies = world.settle(batch, batch.allCommitted)
        written.append(try #require(WrittenMessage(job, replies.first)))
        let after = try HistoryWorld { try copy.open() }
        #expect(try after.read(written) == written.map(\.outcome))
        let next = try after.write("three")
        #expect(try after.read(written + [next]) == written.map(\.outcome) + [next.outcome])
        // Killed before the commit, nothing of it was said.
        let without = try HistoryWorld { try before.open() }
        #expect(try without.read(written)[0] == written[0].outcome)
        #expect(try without.read([written[1]]) != [written[1].outcome])
    }
}
