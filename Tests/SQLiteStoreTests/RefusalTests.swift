import GRDBSQLite
import Glibc
import RequestQueue
import SQLiteKit
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

/// Each refusal says what to do, and leaves everything as it was.
@Suite struct RefusalTests {
    private let scratch = Scratch()

    /// A store that was used once.
    init() throws {
        try scratch.with { try StoreConformance.commit($0, [.insert(StoreConformance.request(1))]) }
    }

    @Test func locked() throws {
        let store = try scratch.open()
        #expect(scratch.refusal() == .inUse(scratch.files, by: getpid()))
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

    /// Each text names the command that repairs the store, with its directory.
    @Test func eachRefusalNamesItsRemedy() {
        let files = scratch.files
        let restored: [StoreError] = [
            .storeWithoutKey(files, scratch.key), .keyWithoutStore(files, key: scratch.keyPath),
            .unfinishedRestore(files),
            .storeMissing(files, trace: files.generation), .otherKey(store: files.store), scratch.damaged(.cutShort),
            .notEmpty(files, file: "a"),
        ]
        for error in restored {
            #expect(error.message.contains("pawl restore FILE --data \(scratch.data) --force"), "\(error)")
        }
        for error in [StoreError.badGeneration(files), .olderState(files, found: 1, expected: 2)] {
            #expect(error.message.contains("pawl restore --accept-rollback --data \(scratch.data)"), "\(error)")
        }
        let repaired: [StoreError] = [
            .queueMissing(EarlierQueue(directory: scratch.data)),
            .queue(EarlierQueue(directory: scratch.data), QueueStoreError("It is damaged.", isDamage: true)),
        ]
        for error in repaired {
            #expect(error.message.hasSuffix("pawl queue repair --data \(scratch.data)"), "\(error)")
        }
    }

    @Test func keyWithoutStore() {
        run("mv", scratch.store, scratch.store + ".away")
        #expect(scratch.refusal() == .keyWithoutStore(scratch.files, key: scratch.keyPath))
        #expect(!exists(scratch.store))
    }

    @Test func storeWithoutKey() {
        run("mv", scratch.keyPath, scratch.keyPath + ".away")
        #expect(scratch.refusal() == .storeWithoutKey(scratch.files, scratch.key))
        #expect(!exists(scratch.keyPath))
    }

    @Test func keyElsewhereAndDirectoryGone() {
        run("mv", scratch.keyPath, scratch.path + "/elsewhere.key")
        run("mv", scratch.data, scratch.data + ".away")
        let key = scratch.path + "/elsewhere.key"
        #expect(scratch.refusal(.file(key)) == .keyWithoutStore(scratch.files, key: key))
        #expect(!exists(scratch.data))
    }

    @Test func storeAndKeyGoneButTheirTraceIsThere() {
        run("rm", scratch.store, scratch.keyPath)
        #expect(scratch.refusal() == .storeMissing(scratch.files, trace: scratch.files.generation))
    }

    @Test(arguments: ["", "garbage", "SQLite format 3\0 and no more"]) func noDatabase(_ text: String) {
        write(Array(text.utf8), scratch.store)
        #expect(scratch.refusal() == scratch.damaged(.notADatabase))
        #expect(bytes(scratch.store) == Array(text.utf8))
    }

    @Test func cutShort() {
        let half = Array(bytes(scratch.store).prefix(8192))
        write(half, scratch.store)
        #expect(scratch.refusal() == scratch.damaged(.cutShort))
        #expect(bytes(scratch.store) == half)
    }

    @Test func damagedPage() {
        var content = bytes(scratch.store)
        for index in 4096..<content.count { content[index] ^= 0x5A }
        write(content, scratch.store)
        // SQLite names what it found.
        guard case .corrupt = scratch.refusal() else {
            Issue.record("opened")
            return
        }
        #expect(bytes(scratch.store) == content)
    }

    @Test func anotherProgramsDatabase() {
        run("rm", scratch.store)
        scratch.edit("CREATE TABLE t (x); PRAGMA user_version = 1")
        #expect(scratch.refusal() == scratch.damaged(.ofAnotherProgram))
    }

    @Test func keyCheckGone() {
        scratch.edit("DELETE FROM meta")
        #expect(scratch.refusal() == scratch.damaged(.keyCheckMissing))
    }

    @Test func tooNew() {
        scratch.edit("PRAGMA user_version = 10")
        let before = bytes(scratch.store)
        #expect(scratch.refusal() == .tooNew(found: 10, known: 9))
        #expect(bytes(scratch.store) == before)
    }

    /// The newer schema is in the write-ahead log only: the newer program was killed.
    @Test func tooNewInTheLog() throws {
        let copy = Scratch()
        var handle: OpaquePointer?
        #expect(sqlite3_open(scratch.store, &handle) == SQLITE_OK)
        #expect(sqlite3_exec(handle, "PRAGMA user_version = 10", nil, nil, nil) == SQLITE_OK)
        run("cp", "-a", scratch.data, copy.data)
        sqlite3_close(handle)
        let before = (bytes(copy.store), bytes(copy.store + "-wal"))
        #expect(!before.1.isEmpty)
        #expect(copy.refusal() == .tooNew(found: 10, known: 9))
        #expect((bytes(copy.store), bytes(copy.store + "-wal")) == before)
    }

    @Test func wrongKey() {
        write([UInt8](repeating: 3, count: 32), scratch.keyPath)
        let before = bytes(scratch.store)
        #expect(scratch.refusal() == .otherKey(store: scratch.store))
        #expect(bytes(scratch.store) == before)
    }

    @Test func generationThatIsNoNumber() {
        write(Array("many\n".utf8), scratch.data + "/generation")
        #expect(scratch.refusal() == .badGeneration(scratch.files))
    }

    @Test func generationThatIsMissingIsWrittenAnew() throws {
        run("rm", scratch.data + "/generation")
        try scratch.with { #expect($0.generation == 2) }
        #expect(bytes(scratch.data + "/generation") == Array("2\n".utf8))
    }
}
