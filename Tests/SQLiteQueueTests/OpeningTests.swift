import Glibc
import PeerKit
import QueueConformance
import RequestQueue
import SQLiteKit
import Synchronization
import Testing

@testable import SQLiteQueue

/// What is not opened, and what the refusal says.
@Suite struct OpeningTests {
    private let place: QueuePlace

    init() throws {
        place = try QueuePlace()
        try place.open().commit((1...200).map { QueueConformance.insert($0) })
    }

    private func overwrite(_ range: Range<Int>, with byte: UInt8 = 0x5A) {
        let number = Glibc.open(place.path, O_WRONLY)
        _ = pwrite(number, [UInt8](repeating: byte, count: range.count), range.count, off_t(range.lowerBound))
        close(number)
    }

    private var size: Int {
        var status = stat()
        return stat(place.path, &status) == 0 ? Int(status.st_size) : 0
    }

    @Test func commitsAreSyncedAndOneProcessHasIt() throws {
        let store = try place.open()
        #expect(try store.number("PRAGMA synchronous") == 2)
        #expect(try store.number("SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'") == 1)
        #expect(place.refusal() == .inUse(place.path, by: getpid()))
        var status = stat()
        for suffix in ["", "-wal", "-shm", ".lock"] {
            #expect(stat(place.path + suffix, &status) == 0)
            #expect(status.st_mode & 0o777 == 0o600)
        }
    }

    @Test func aCopyThatComesBackSendsNothing() throws {
        let store = try place.open()
        let copy = place.directory + "/copy"
        try store.commit([.hold(id: 3, true, at: 1)])
        try store.copy(to: copy)
        #expect(throws: QueueStoreError.copyExists(copy)) { try store.copy(to: copy) }
        for end in ["-wal", "-shm", "-journal"] { #expect(access(copy + end, F_OK) != 0) }
        #expect(try SQLiteQueueStore.settle(copy: copy, cause: "It came back.", now: 7) == 200)
        let again = try SQLiteQueueStore(path: copy)
        let rows = try again.requests(states: [.dead], after: 0, limit: 1000)
        #expect(rows.count == 200 && rows.allSatisfy { $0.cause == "It came back." && !$0.isHeld && $0.doubts == 1 })
        #expect(try again.load().requests.isEmpty && again.finishedAt(1) == 7)
        #expect(try store.load().requests.count == 200 && store.finishedAt(1) == nil)
        #expect(throws: QueueStoreError.self) {
            try SQLiteQueueStore.settle(copy: place.path + ".lock", cause: "", now: 7)
        }
    }

    /// After a flood has been worked off, the next start gives its space back.
    @Test func aFileThatIsMostlyFreeBecomesSmaller() throws {
        let place = try QueuePlace()
        try place.open().commit([QueueConformance.insert(1)])
        place.edit(
            """
            WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
            INSERT INTO queue_response SELECT i, x'', zeroblob(100000) FROM n;
            DELETE FROM queue_response;
            """)
        #expect(Disk<QueueStoreError>.size(of: place.path) > 20 << 20)
        let store = try place.open()
        #expect(Disk<QueueStoreError>.size(of: place.path) < 1 << 20)
        #expect(try store.load().requests.map(\.id) == [1])
    }

    // MARK: Small files

    /// What stands at the path is whole at any moment, also after a loss of power: the bytes are on the disk before the name is.
    @Test func aFileIsReplacedInTheOrderThatSurvivesPowerLoss() throws {
        let scratch = try ScratchDirectory()
        let path = scratch.file("generation")
        let directory = Disk<QueueStoreError>.parent(of: path)
        for isNew in [true, false] {
            let calls = Mutex<[DiskCall]>([])
            try DiskCall.$watcher.withValue({ call in
                calls.withLock { $0.append(call) }
                return nil
            }) {
                if isNew {
                    try Disk<QueueStoreError>.create(path, [1])
                } else {
                    try Disk<QueueStoreError>.replace(path, [2])
                }
            }
            let temporary = path + ".new"
            let naming: [DiskCall] = isNew ? [] : [.move(temporary, to: path)]
            #expect(calls.withLock { $0 } == [.write(temporary), .sync(temporary)] + naming + [.sync(directory)])
        }
    }

    /// What cannot be made durable changes nothing.
    @Test func aFileThatCannotBeSyncedReplacesNothing() throws {
        let scratch = try ScratchDirectory()
        let path = scratch.file("generation")
        try Disk<QueueStoreError>.create(path, [1])
        let temporary = path + ".new"
        let calls: [(DiskCall, verb: String, path: String)] = [
            (.write(temporary), "write", temporary), (.sync(temporary), "sync", temporary),
            (.move(temporary, to: path), "move", temporary),
        ]
        for (failing, verb, failed) in calls {
            let refusal = #expect(throws: QueueStoreError.self) {
                try DiskCall.$watcher.withValue({ $0 == failing ? EIO : nil }) {
                    try Disk<QueueStoreError>.replace(path, [2])
                }
            }
            #expect(refusal == Disk<QueueStoreError>.failure(verb, failed, EIO))
            var file = try DiskFile<QueueStoreError>(path, O_RDONLY)
            #expect(try file.read(upTo: 9) == [1], "\(failing)")
        }
    }

    @Test func aNewerSchemaIsRefused() throws {
        place.edit("PRAGMA user_version = 99")
        #expect(place.refusal() == .tooNew(found: 99, known: 3))
        place.edit("PRAGMA user_version = 3")
        #expect(place.refusal() == nil)
    }

    @Test func aForeignFileIsRefusedAndKept() throws {
        place.edit("PRAGMA application_id = 7")
        #expect(place.refusal() == place.damaged(.ofAnotherProgram))
        place.edit("PRAGMA application_id = \(SQLiteQueueStore.application)")
        #expect(place.refusal() == nil)
        truncate(place.path, 0)
        #expect(place.refusal() == place.damaged(.notADatabase))
        #expect(size == 0)
    }

    @Test func aFileThatIsCutShortIsRefused() throws {
        truncate(place.path, off_t(size / 2))
        #expect(place.refusal() == place.damaged(.cutShort))
    }

    @Test func aLogWithoutItsFileIsNotOverwritten() throws {
        unlink(place.path)
        close(Glibc.open(place.path + "-wal", O_WRONLY | O_CREAT, 0o600))
        #expect(place.refusal() == .logWithoutQueue(place.path))
    }

    /// A making that was cut short, before anything was kept in it.
    @Test func anUnfinishedFileIsMadeAnew() throws {
        let other = try QueuePlace()
        mkdir(other.directory, 0o700)
        close(Glibc.open(other.path + ".new", O_WRONLY | O_CREAT, 0o600))
        #expect(try other.open().load().highest == 0)
        #expect(access(other.path + ".new", F_OK) != 0)
    }

    /// Damage anywhere behind the first page: refused with words, and the repair saves what is not on the damaged pages.
    @Test(arguments: [1, 5, 9, 12, 14]) func damageIsRefusedAndRepaired(_ page: Int) throws {
        try place.open().commit([
            .lease(id: 7, lease: 3),
            .finish(id: 7, lease: 3, outcome: QueueConformance.success, keeping: .delivery, at: 9),
        ])
        try #require(size > (page + 1) * 4096)
        overwrite(page * 4096..<(page + 1) * 4096)
        let refusal = try #require(place.refusal())
        #expect(refusal.isDamage, "\(refusal)")
        #expect(try !SQLiteQueueStore.isWhole(path: place.path))
        let repair = try SQLiteQueueStore.repair(path: place.path, now: 5)
        // Page 2 is the root of what was accepted: nothing leads to the rows any more. Else most of them are there.
        #expect(repair.requests >= (page == 1 ? 0 : 100), "page \(page): \(repair)")
        let rows = try place.open().requests(states: RequestState.allCases, after: 0, limit: .max)
        #expect(rows.count == repair.requests)
        #expect(rows.filter { $0.cause == SQLiteQueueStore.lostState }.count == repair.doubtful)
        for row in rows { #expect(row.config == QueueConformance.request(row.id).config) }
        #expect(access(repair.kept, F_OK) == 0)
        #expect(throws: QueueStoreError.earlierRepair(kept: repair.kept)) {
            try SQLiteQueueStore.repair(path: place.path, now: 6)
        }
    }

    @Test func theRepairOfAWholeQueueChangesNothing() throws {
        let mapping = IdentifierMapping(tenant: "t", reference: EntityReference(type: "m", local: "l"), remote: "r")
        try place.open().commit([.lease(id: 3, lease: 4), .map(mapping, at: 5), .remove(id: 200)])
        let before = try place.open().load()
        #expect(try SQLiteQueueStore.isWhole(path: place.path))
        let repair = try SQLiteQueueStore.repair(path: place.path, now: 5)
        #expect(repair == .init(requests: 199, doubtful: 0, mappings: 1, kept: place.path + ".damaged"))
        let after = try place.open().load()
        #expect(after.requests == before.requests)
        #expect(after.mappings == before.mappings)
        #expect(after.highest == 200)
    }

    /// A store that was open a moment ago is found whole, its log included.
    @Test func theRepairReadsTheLog() throws {
        let store = try place.open()
        try store.commit([QueueConformance.insert(201)])
        let copy = try QueuePlace()
        run("cp", "-a", place.directory, copy.directory)
        #expect(try SQLiteQueueStore.repair(path: copy.path, now: 5).requests == 201)
    }
}
