import Crypto
import Envelope
import Glibc
import Protection
import RequestQueue
import SQLiteKit
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

@Suite struct BackupTests {
    private let scratch = Scratch()
    private let other = Scratch()
    private typealias Rows = StoreConformance
    private var file: String { scratch.path + "/pawl.backup" }

    /// A store with a row of each kind that matters, and a backup of it.
    init() throws {
        try scratch.with { store in
            let sealed = try store.key.withBytes {
                try AES.GCM.seal([1, 2, 3], using: SymmetricKey(data: $0)).combined!
            }
            var device = Rows.device(1, "alice")
            device.sealedIdentity = Array(sealed)
            try Rows.commit(
                store, [.putDevice(device), .putSession(Rows.session(1, 2, fence: 1))],
                [.insert(Rows.request(1)), .insert(Rows.request(2))],
                [.done(2, at: 1)],
                [.putConversation(Rows.conversation("alice", "bob")), .setPolicy(nil, .hosted)], KeyRows.all())
            try Backup.write(store, to: file)
            try Rows.commit(store, [.insert(Rows.request(3))])
        }
    }

    /// Makes the backup one of an earlier version, which has the queue of writes behind the store.
    static func add(queue: [UInt8], to file: String) throws {
        var whole = Array(bytes(file).dropLast(32))
        #expect(whole[8..<12].elementsEqual([0, 0, 0, 1]))
        whole[11] = 2
        whole += queue
        write(whole + Array(SHA256.hash(data: whole)), file)
    }

    private func restore(
        _ path: String? = nil, to target: Scratch, key: StorageKey.Source? = nil, force: Bool = false
    ) throws(StoreError) -> Restore.Result {
        try Restore.run(
            file: path ?? file, directory: target.data, key: key ?? target.key, force: force, actor: "root", now: 500)
    }

    private func refusal(_ path: String? = nil, to target: Scratch, key: StorageKey.Source? = nil) -> StoreError? {
        do {
            _ = try restore(path, to: target, key: key)
            return nil
        } catch {
            return error
        }
    }

    @Test func roundTrip() throws {
        #expect(mode(file) == 0o600)
        #expect(try restore(to: other).aside.isEmpty)
        #expect(bytes(other.keyPath) == bytes(scratch.keyPath))
        #expect(mode(other.keyPath) == 0o600 && mode(other.store) == 0o600)
        try other.with { store throws in
            let contents = try store.load()
            let sealed = try #require(contents.devices.first?.sealedIdentity)
            let opened = try store.key.withBytes {
                try AES.GCM.open(AES.GCM.SealedBox(combined: sealed), using: SymmetricKey(data: $0))
            }
            #expect(Array(opened) == [1, 2, 3])
            #expect(try store.session(Rows.session(1, 2, fence: 1).id) == nil)
            #expect(try store.request(1)?.state == .dead)
            #expect(try store.request(1)?.reason == Restore.cause)
            #expect(try store.request(2)?.state == .done)
            #expect(try store.request(3) == nil)
            #expect(contents.conversations.count == 1)
            #expect(contents.policies.first?.policy == .hosted)
            try KeyRows.expectNoneIsUsedAgain(store)
            #expect(contents.highestMessage > 1 << 32)
            let line = try #require(try store.auditLog(limit: 9).last)
            #expect(line.action == "store.restored" && line.at == 500 && line.detail.contains(file))
        }
        #expect(!exists(other.data + "/restore.partial") && !exists(file + ".partial") && !exists(file + ".store"))
    }

    /// The copy is of one moment, whatever is written meanwhile.
    @Test func backupWhileWriting() throws {
        let path = scratch.path + "/busy.backup"
        var steps = 0
        try scratch.with { store throws in
            for id in 10..<3000 as Range<UInt64> {
                var request = Rows.request(id)
                request.bodies = [[UInt8](repeating: 1, count: 4000)]
                _ = try store.commit([[.insert(request)]])
                if id == 1500 { break }
            }
            try Backup.write(store, to: path) { progress in
                steps += 1
                #expect(progress.done <= progress.total && progress.total > 0)
                guard progress.phase == .copying else { return }
                _ = try? store.commit([[.insert(Rows.request(100_000 + UInt64(steps)))]])
            }
            #expect(try store.request(100_001) != nil)
        }
        #expect(steps > 3 && steps < 50)
        _ = try restore(path, to: other)
        try other.with { store throws in
            #expect(try store.request(1500) != nil)
            #expect(try store.request(100_001) == nil)
        }
    }

    @Test func aBackupIsNotWrittenOver() throws {
        let before = bytes(file)
        try scratch.with { store in
            let error = #expect(throws: StoreError.self) { try Backup.write(store, to: file) }
            #expect(error == .backupExists(file))
        }
        #expect(bytes(file) == before)
    }

    @Test func aDirectoryThatIsNotEmptyNeedsForce() throws {
        try scratch.with { try Rows.commit($0, [.insert(Rows.request(4))]) }
        let old = (bytes(scratch.store), bytes(scratch.keyPath))
        let first = try #require(try FileSystem.entries(of: scratch.data).first { $0 != "pawl.lock" })
        #expect(refusal(to: scratch) == .notEmpty(scratch.files, file: first))
        #expect((bytes(scratch.store), bytes(scratch.keyPath)) == old)
        let result = try restore(to: scratch, force: true)
        #expect(result.aside == [scratch.data + "/replaced-500"])
        #expect(bytes(scratch.data + "/replaced-500/pawl.sqlite") == old.0)
        try scratch.with { store throws in
            #expect(store.generation == 4)
            #expect(try store.request(4) == nil)
        }
    }

    @Test func anotherKeyIsMovedAsideOnlyByForce() throws {
        run("mkdir", other.data)
        let place = StorageKey.Source.file(other.path + "/elsewhere.key")
        write([UInt8](repeating: 9, count: 32), other.path + "/elsewhere.key")
        #expect(refusal(to: other, key: place) == .otherKeyInTheWay(other.path + "/elsewhere.key"))
        let result = try restore(to: other, key: place, force: true)
        #expect(result.aside == [other.path + "/elsewhere.key.replaced-500"])
        #expect(bytes(other.path + "/elsewhere.key") == bytes(scratch.keyPath))
        #expect(other.refusal(place) == nil)
    }

    /// In a process of its own: others read the environment at any time.
    @Test func aKeyInTheEnvironmentHasToBeTheBackups() async {
        await #expect(processExitsWith: .success) {
            let tests = try BackupTests()
            let (scratch, other) = (tests.scratch, tests.other)
            setenv("PAWL_TEST_RESTORE", String(repeating: "ab", count: 32), 1)
            guard case .wrongKey = tests.refusal(to: other, key: .environment("PAWL_TEST_RESTORE")) else {
                Issue.record("restored")
                return
            }
            #expect(!exists(other.data))
            let hexadecimal = bytes(scratch.keyPath).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            setenv("PAWL_TEST_RESTORE_GOOD", hexadecimal, 1)
            _ = try tests.restore(to: other, key: .environment("PAWL_TEST_RESTORE_GOOD"))
            #expect(!exists(other.keyPath))
            #expect(other.refusal(.environment("PAWL_TEST_RESTORE_GOOD")) == nil)
        }
    }

    @Test func aStoreInUseIsNotRestoredOver() throws {
        let store = try scratch.open()
        guard case .locked = #expect(throws: StoreError.self, performing: { try restore(to: scratch, force: true) })
        else {
            Issue.record("restored")
            return
        }
        withExtendedLifetime(store) {}
    }

    @Test func truncatedAtManyPlaces() {
        let whole = bytes(file)
        for count in [0, 1, 7, 8, 20, 55, 56, 87, 88, 5000, whole.count - 33, whole.count - 1] {
            write(Array(whole.prefix(count)), scratch.path + "/bad")
            let path = scratch.path + "/bad"
            let expected: StoreError = count < 8 ? .notABackup(path) : .damagedBackup(path, .cutShort)
            #expect(refusal(path, to: other) == expected, "\(count)")
        }
        #expect(!exists(other.data))
    }

    @Test func flippedBits() {
        let whole = bytes(file)
        for place in [0, 13, 24, 60, 5000, whole.count / 2, whole.count - 1] {
            var bad = whole
            bad[place] ^= 4
            write(bad, scratch.path + "/bad")
            guard case .corrupt = refusal(scratch.path + "/bad", to: other) else {
                Issue.record("restored \(place)")
                continue
            }
        }
        write(whole + [0], scratch.path + "/bad")
        #expect(refusal(scratch.path + "/bad", to: other) == .damagedBackup(scratch.path + "/bad", .tooLong))
        #expect(!exists(other.data))
    }

    @Test func foreignMissingAndNewer() {
        write(Array("SQLite format 3\0".utf8) + [UInt8](repeating: 0, count: 4096), scratch.path + "/bad")
        #expect(refusal(scratch.path + "/bad", to: other) == .notABackup(scratch.path + "/bad"))
        #expect(refusal(scratch.path + "/nothing", to: other) == .noBackup(at: scratch.path + "/nothing"))

        var format = bytes(file)
        format[11] = 3
        write(format, scratch.path + "/bad")
        #expect(refusal(scratch.path + "/bad", to: other) == .unknownBackupFormat(scratch.path + "/bad", 3))

        var schema = Array(bytes(file).dropLast(32))
        schema[15] = 10
        schema += Array(SHA256.hash(data: schema))
        write(schema, scratch.path + "/bad")
        #expect(refusal(scratch.path + "/bad", to: other) == .tooNew(found: 10, known: 9))
        #expect(!exists(other.data))
    }

    @Test func aRestoreThatWasCutShortIsRefusedAndDoneAgain() throws {
        run("mkdir", other.data)
        write([1, 2, 3], other.data + "/restore.partial")
        #expect(other.refusal() == .unfinishedRestore(other.files))
        _ = try restore(to: other, force: true)
        #expect(other.refusal() == nil)
    }
}
