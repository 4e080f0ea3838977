// What the database has acknowledged, in a file beside it. A database that knows less was rolled back: a copy from before was
// put in its place, or a standby that was behind has become the primary. Its ratchets would go back and use keys twice.
//
// The file is mapped into memory: noting is a store, so it is exact when the process is killed. It is synced each second, so
// after a failure of the machine it may be a second behind, and then a rollback of less than that is not noticed. Each
// number only rises, so a mixture of older and newer ones is a lower bound too.
//
//     identification (8 B) | gateway (8 B) | its commits that touch no shard (8 B)
//     | for each of 256 shards: epoch (8 B), number of the last commit (8 B); all little-endian

import Foundation
import SQLiteKit
import StoreBase
import StorePort
import Synchronization

/// The file of what the database has acknowledged.
final class Witness: Sendable {
    private static let identification: UInt64 = 0x0131_7373_656E_7477
    private static let head = 3
    private static let slots = head + Schema.shards * 2
    static let size = slots * MemoryLayout<UInt64>.size
    /// Ours: time between two syncs, in milliseconds.
    private static let syncInterval = 1000

    static func path(_ directory: String) -> String { FileSystem.withoutSlash(directory) + "/database.witness" }

    /// The numbers of the file or of a database.
    struct Knowledge: Equatable {
        var gateway: Int64 = 0
        var unsharded: Int64 = 0
        var shards = [(epoch: Int64, commits: Int64)](repeating: (0, 0), count: Schema.shards)

        static func == (one: Knowledge, other: Knowledge) -> Bool {
            one.gateway == other.gateway && one.unsharded == other.unsharded
                && zip(one.shards, other.shards).allSatisfy { $0 == $1 }
        }
    }

    private let path: String
    // The memory lives as long as this object.
    private nonisolated(unsafe) let values: UnsafeMutablePointer<Atomic<UInt64>>
    private let file: Int32
    private let isDirty = Atomic<Bool>(false)
    private let stop = Stop()

    /// Removes a file that is no witness, for the command that settles that.
    static func removeUnreadable(_ directory: String) throws(StoreError) {
        do throws(StoreError) { _ = try Witness(directory: directory) } catch {
            guard case .corrupt = error else { throw error }
            try FileSystem.remove(path(directory))
        }
    }

    /// Opens the file of a directory, or makes one that knows nothing.
    ///
    /// - Throws: ``StoreError/corrupt(_:)`` if it is no witness; `unavailable` if the file system fails.
    init(directory: String) throws(StoreError) {
        path = Self.path(directory)
        if !FileSystem.exists(path) {
            var bytes = [UInt8](repeating: 0, count: Self.size)
            withUnsafeBytes(of: Self.identification.littleEndian) { bytes.replaceSubrange(0..<8, with: $0) }
            try FileSystem.create(path, bytes)
        }
        let opened = open(path, O_RDWR | O_CLOEXEC)
        guard opened >= 0 else { throw FileSystem.failure("open", path) }
        var status = stat()
        guard fstat(opened, &status) == 0, Int(status.st_size) == Self.size else {
            _ = close(opened)
            throw .badWitness(path)
        }
        let address = mmap(nil, Self.size, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0)
        guard let address, address != MAP_FAILED else {
            _ = close(opened)
            throw FileSystem.failure("map", path)
        }
        values = address.bindMemory(to: Atomic<UInt64>.self, capacity: Self.slots)
        file = opened
        // From here on an error runs `deinit`, which closes the file.
        guard values[0].load(ordering: .relaxed) == Self.identification.littleEndian else { throw .badWitness(path) }
    }

    deinit {
        munmap(UnsafeMutableRawPointer(values), Self.size)
        _ = close(file)
    }

    /// Begins to sync the file each second.
    func start() {
        Thread.detachNewThread { [self] in
            while !stop.wait(milliseconds: Self.syncInterval) { sync() }
            sync()
            stop.confirm()
        }
    }

    /// Ends the syncs, after a last one.
    func end() { stop.request() }

    private func sync() {
        guard isDirty.exchange(false, ordering: .sequentiallyConsistent) else { return }
        guard msync(UnsafeMutableRawPointer(values), Self.size, MS_SYNC) == 0 else {
            // The next one tries again.
            return isDirty.store(true, ordering: .sequentiallyConsistent)
        }
    }

    // MARK: Numbers

    private func number(_ slot: Int) -> Int64 {
        Int64(bitPattern: UInt64(littleEndian: values[slot].load(ordering: .sequentiallyConsistent)))
    }

    private func set(_ slot: Int, _ number: Int64) {
        values[slot].store(UInt64(bitPattern: number).littleEndian, ordering: .sequentiallyConsistent)
    }

    private static func slot(_ shard: Shard) -> Int { head + Int(shard.number) * 2 }

    /// What the file says.
    var knowledge: Knowledge {
        var knowledge = Knowledge()
        // The gateway first: its count is set to zero before it changes.
        knowledge.gateway = number(1)
        knowledge.unsharded = number(2)
        for shard in knowledge.shards.indices {
            knowledge.shards[shard] = (number(Self.head + shard * 2), number(Self.head + shard * 2 + 1))
        }
        return knowledge
    }

    /// Notes all numbers of a process that has just taken the shards.
    func note(_ state: PostgresStore.State) {
        set(2, 0)
        set(1, state.gateway)
        set(2, state.unshardedCommits)
        for epoch in state.epochs {
            set(Self.slot(epoch.shard), Int64(bitPattern: epoch.epoch))
            set(Self.slot(epoch.shard) + 1, state.commits[epoch.shard] ?? 0)
        }
        isDirty.store(true, ordering: .sequentiallyConsistent)
    }

    /// Notes what a gateway that stands by has read of the shards.
    func note(_ shards: [ClusterReading.ShardEntry]) {
        for (shard, entry) in shards.enumerated() {
            let slot = Self.head + shard * 2
            if entry.epoch > number(slot) { set(slot, entry.epoch) }
            if entry.commits > number(slot + 1) { set(slot + 1, entry.commits) }
        }
        isDirty.store(true, ordering: .sequentiallyConsistent)
    }

    /// Notes the number of a commit that the database has acknowledged.
    func note(_ commits: Int64, of shard: Shard?) {
        set(shard.map { Self.slot($0) + 1 } ?? 2, commits)
        isDirty.store(true, ordering: .sequentiallyConsistent)
    }

    // MARK: Comparison

    /// - Parameter timeout: in milliseconds.
    /// - Throws: ``StoreError/rolledBack(_:)`` if the database knows less than the file.
    func demand(_ connection: Connection, within timeout: Int = Link.statementTimeout) throws(StoreError) {
        // Before the read: the database may know more by then.
        let known = knowledge
        guard known != Knowledge() else { return }
        if let found = try Self.read(connection, gateway: known.gateway, within: timeout),
            Self.isOlder(found, than: known)
        {
            throw .olderDatabase(path)
        }
    }

    /// Whether a database knows less.
    static func isOlder(_ found: Knowledge, than known: Knowledge) -> Bool {
        if found.gateway == known.gateway, found.unsharded < known.unsharded { return true }
        return zip(found.shards, known.shards).contains { $0.epoch < $1.epoch || $0.commits < $1.commits }
    }

    /// What a database knows; nil if it has no tables of ours. Without a row of the gateway there is none of its numbers.
    ///
    /// - Parameter timeout: in milliseconds.
    static func read(
        _ connection: Connection, gateway: Int64, within timeout: Int = Link.statementTimeout
    ) throws(StoreError) -> Knowledge? {
        let rows: Rows
        do throws(StatementFailure) {
            rows = try connection.run(
                """
                SELECT id, epoch, commits FROM pawl.shard
                UNION ALL SELECT -1::int8, 0::int8, commits FROM pawl.gateway WHERE id = $1::int8
                """, [.number(gateway)], isPrepared: false, timeout: timeout)
        } catch {
            // The checks that follow say what is there instead.
            if case .refused(let state, _) = error, state == .noTable || state == .noSchema { return nil }
            throw StoreError(error)
        }
        var knowledge = Knowledge()
        for row in 0..<rows.count {
            let id = Int(rows.number(row, 0))
            if id == -1 {
                (knowledge.gateway, knowledge.unsharded) = (gateway, rows.number(row, 2))
            } else if knowledge.shards.indices.contains(id) {
                knowledge.shards[id] = (rows.number(row, 1), rows.number(row, 2))
            }
        }
        return knowledge
    }
}

extension StoreError {
    static func olderDatabase(_ path: String) -> StoreError {
        let directory = FileSystem.parent(of: path)
        return .rolledBack(
            """
            The database is older than it should be: it knows less than \(path). An older copy was put in its place, or a \
            standby that was behind has become the primary. Put the newest database back, or accept the older one; \
            sessions are then set up anew and waiting messages given up: \
            pawl restore --accept-rollback --database URL --data \(directory)
            """)
    }

    static func badWitness(_ path: String) -> StoreError {
        .corrupt(
            """
            \(path) holds no numbers, so it is not known whether the database is the newest. If it is: rm \(path). If it \
            may be an older one: pawl restore --accept-rollback --database URL --data \(FileSystem.parent(of: path))
            """)
    }
}
