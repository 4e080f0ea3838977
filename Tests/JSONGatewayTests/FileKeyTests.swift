import Devices
import Envelope
import JSONGateway
import NIOCore
import Protection
import StoreConformance
import StorePort
import Testing
import Vault

/// The life of the keys of files.
@Suite struct FileKeyTests {
    private typealias FoundKey = Result<SealedFile.Key, OpenError>

    private func make(_ world: HistoryWorld) throws -> SealedFile.Key {
        try world.fileKey(.sealFile(SealFileJob(connection: world.connection, account: AccountID(text: "alice")))).get()
    }

    private func find(_ world: HistoryWorld, _ header: SealedFile.Header) throws -> FoundKey {
        try world.fileKey(.openFile(OpenFileJob(connection: world.connection, header: header)))
    }

    private func failure(_ world: HistoryWorld, _ header: SealedFile.Header) throws -> OpenFailure? {
        if case .failure(let error) = try find(world, header) { error.reason } else { nil }
    }

    @Test func keysLiveAsLongAsThoseOfMessages() throws {
        let store = InMemoryStore()
        let world = try HistoryWorld { store }
        let (first, second) = (try make(world), try make(world))
        #expect(first.header != second.header)
        let file = ByteBuffer(string: "a file")
        let sealed = try SealedFile.Sealer(first, SealedFile.Description()).whole(file)
        func opens() throws -> Bool { try SealedFile.Opener(find(world, first.header).get()).whole(sealed) == file }
        #expect(try opens())
        try world.restart()
        #expect(try opens())
        #expect(throws: (any Error).self) { try SealedFile.Opener(find(world, second.header).get()).whole(sealed) }
        world.pass(30 * HistoryWorld.day - 1)
        #expect(try opens())
        world.pass(1)
        #expect(try failure(world, first.header) == .forgotten)
        try world.restart()
        #expect(try failure(world, first.header) == .forgotten)
        try world.run([.tick])
        #expect(try store.contentKeys(of: [first.header.key, second.header.key]).isEmpty)
        #expect(try failure(world, first.header) == .forgotten)
        // A shorter retention applies to files that were sealed before.
        let third = try make(world)
        world.pass(2 * HistoryWorld.day)
        #expect(try failure(world, third.header) == nil)
        world.retention = HistoryWorld.day
        try world.restart()
        #expect(try failure(world, third.header) == .forgotten)
    }

    @Test func withoutRetentionKeysAreInMemoryOnly() throws {
        let store = InMemoryStore()
        let world = try HistoryWorld(retention: 0) { store }
        let key = try make(world)
        #expect(try failure(world, key.header) == nil)
        #expect(try store.contentKeys(of: [key.header.key]).isEmpty)
        try world.restart()
        #expect(try failure(world, key.header) == .forgotten)
    }

    /// An id alone opens nothing: neither that of a message, nor one in an altered header, nor one that was never assigned.
    @Test func keysAreFoundByTheWholeHeader() throws {
        let store = InMemoryStore()
        let world = try HistoryWorld { store }
        let (message, key) = (try world.write("a message"), try make(world))
        var altered = key.header.bytes
        altered[altered.count - 2] ^= 1
        for header in [
            try SealedFile.Header(altered), SealedFile.Header(key: message.id, prefix: [0, 0, 0, 0, 0, 0, 0]),
            SealedFile.Header(key: MessageID(.max), prefix: [0, 0, 0, 0, 0, 0, 0]),
        ] {
            #expect(try failure(world, header) == .notAuthentic)
            try world.restart()
            #expect(try failure(world, header) == .notAuthentic)
        }
        // Nor is a key bound to a message that of a file, whatever the table says.
        let row = try #require(try store.contentKeys(of: [message.id]).first)
        let header = SealedFile.Header(key: message.id, prefix: [0, 0, 0, 0, 0, 0, 0])
        let moved = ContentKeyRow(
            message: message.id, digest: header.digest, expiresAt: row.expiresAt, sealedKey: row.sealedKey)
        _ = try store.commit([[.putContentKey(moved)]])
        #expect(try failure(world, header) == .notAuthentic)
        #expect(try world.read([message]) == [message.outcome])
    }

    @Test func aKeyThatIsNotCommittedIsNotGivenOut() throws {
        let store = InMemoryStore()
        let world = try HistoryWorld { store }
        let job = SealFileJob(connection: world.connection, account: AccountID(text: "alice"))
        let batch = world.perform([.sealFile(job)])
        let replies = world.settle(batch, nil)
        guard case .fileKey(.failure(let error))? = replies.first else {
            Issue.record("\(replies.count)")
            return
        }
        #expect(error.reason == .store)
        #expect(try world.store.oldestContentKeys() == nil)
        #expect(try failure(world, make(world).header) == nil)
    }
}
