import GRDBSQLite
import Glibc
import SQLiteStore
import StoreConformance
import StorePort
import Testing

/// Each refusal says what to do, and leaves everything as it was.
@Suite struct RefusalTests {
    private let scratch = Scratch()

    /// A store that was used once.
    init() throws {
        try scratch.with { try StoreConformance.commit($0, [.insert(StoreConformance.request(1))]) }
    }

    @Test func locked() throws {
        let store = try scratch.open()
        guard case .locked(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("kill \(getpid())"))
        #expect(message.contains(scratch.data))
        withExtendedLifetime(store) {}
    }

    /// A refusal closes its descriptor once; closing it twice would close somebody else's.
    @Test func beingRefusedLeavesTheLockInPlace() throws {
        let store = try scratch.open()
        for _ in 0..<20 {
            guard case .locked = scratch.refusal() else {
                Issue.record("opened")
                return
            }
        }
        try StoreConformance.commit(store, [.insert(StoreConformance.request(2))])
    }

    @Test func unlockedWhenTheStoreIsGone() throws {
        var store: SQLiteStore? = try scratch.open()
        #expect(store != nil)
        store = nil
        #expect(scratch.refusal() == nil)
    }

    @Test func keyWithoutStore() {
        run("mv", scratch.store, scratch.store + ".away")
        guard case .missing(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("pawl restore FILE --data \(scratch.data) --force"))
        #expect(message.contains("mv \(scratch.keyPath) \(scratch.keyPath).old"))
        #expect(!exists(scratch.store))
    }

    @Test func storeWithoutKey() {
        run("mv", scratch.keyPath, scratch.keyPath + ".away")
        guard case .missing(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("storage key is not"))
        #expect(!exists(scratch.keyPath))
    }

    @Test func keyElsewhereAndDirectoryGone() {
        run("mv", scratch.keyPath, scratch.path + "/elsewhere.key")
        run("mv", scratch.data, scratch.data + ".away")
        guard case .missing(let message) = scratch.refusal(.file(scratch.path + "/elsewhere.key")) else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("Is the disk mounted?"))
        #expect(!exists(scratch.data))
    }

    @Test func storeAndKeyGoneButTheirTraceIsThere() {
        run("rm", scratch.store, scratch.keyPath)
        guard case .missing(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("shows that there was one"))
    }

    @Test(arguments: ["", "garbage", "SQLite format 3\0 and no more"]) func noDatabase(_ text: String) {
        write(Array(text.utf8), scratch.store)
        guard case .corrupt(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("not a database"))
        #expect(message.contains("pawl restore FILE --data \(scratch.data) --force"))
        #expect(bytes(scratch.store) == Array(text.utf8))
    }

    @Test func cutShort() {
        let half = Array(bytes(scratch.store).prefix(8192))
        write(half, scratch.store)
        guard case .corrupt(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("cut short"))
        #expect(bytes(scratch.store) == half)
    }

    @Test func damagedPage() {
        var content = bytes(scratch.store)
        for index in 4096..<content.count { content[index] ^= 0x5A }
        write(content, scratch.store)
        guard case .corrupt(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("is damaged"))
        #expect(bytes(scratch.store) == content)
    }

    @Test func anotherProgramsDatabase() {
        run("rm", scratch.store)
        scratch.edit("CREATE TABLE t (x); PRAGMA user_version = 1")
        guard case .corrupt(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("another program"))
    }

    @Test func keyCheckGone() {
        scratch.edit("DELETE FROM meta")
        guard case .corrupt(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("key-check"))
    }

    @Test func tooNew() {
        scratch.edit("PRAGMA user_version = 8")
        let before = bytes(scratch.store)
        let error = scratch.refusal()
        #expect(error == .tooNew(found: 8, known: 7))
        #expect(error?.message.contains("pawl restore FILE") == true)
        #expect(bytes(scratch.store) == before)
    }

    /// The newer schema is in the write-ahead log only: the newer program was killed.
    @Test func tooNewInTheLog() throws {
        let copy = Scratch()
        var handle: OpaquePointer?
        #expect(sqlite3_open(scratch.store, &handle) == SQLITE_OK)
        #expect(sqlite3_exec(handle, "PRAGMA user_version = 9", nil, nil, nil) == SQLITE_OK)
        run("cp", "-a", scratch.data, copy.data)
        sqlite3_close(handle)
        let before = (bytes(copy.store), bytes(copy.store + "-wal"))
        #expect(!before.1.isEmpty)
        #expect(copy.refusal() == .tooNew(found: 9, known: 7))
        #expect((bytes(copy.store), bytes(copy.store + "-wal")) == before)
    }

    @Test func wrongKey() {
        write([UInt8](repeating: 3, count: 32), scratch.keyPath)
        let before = bytes(scratch.store)
        guard case .wrongKey(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("does not belong to \(scratch.store)"))
        #expect(message.contains("pawl restore FILE"))
        #expect(bytes(scratch.store) == before)
    }

    @Test func generationThatIsNoNumber() {
        write(Array("many\n".utf8), scratch.data + "/generation")
        guard case .corrupt(let message) = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(message.contains("pawl restore --accept-rollback --data \(scratch.data)"))
    }

    @Test func generationThatIsMissingIsWrittenAnew() throws {
        run("rm", scratch.data + "/generation")
        try scratch.with { #expect($0.generation == 2) }
        #expect(bytes(scratch.data + "/generation") == Array("2\n".utf8))
    }
}
