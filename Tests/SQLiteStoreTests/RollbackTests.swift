import Envelope
import Glibc
import Protection
import RequestQueue
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

@Suite struct RollbackTests {
    private let scratch = Scratch()
    private typealias Rows = StoreConformance

    /// A store whose state of the first opening was copied back after the third.
    init() throws {
        try scratch.with { store in
            try Rows.commit(
                store, [.insert(Rows.request(1)), .insert(Rows.request(2))],
                [.done(2, at: 1)], [.queue(.lease(id: 1, lease: 9)), .queue(.hold(id: 1, true, at: 1))],
                [.putSession(Rows.session(1, 2, fence: 1)), .putDevice(Rows.device(1, "alice"))],
                [.putConversation(Rows.conversation("alice", "bob")), .insertDelivery(Rows.delivery(1))],
                KeyRows.all())
            // Rows of each table and of each kind of record that must not be used again.
            for table in StoreTable.allCases where table.afterRollback == .removed {
                #expect(try store.count(of: table.rawValue) > 0, "\(table)")
            }
            for kind in RecordKind.allCases where kind.afterRollback == .removed {
                #expect(try !store.records(kind).isEmpty, "\(kind)")
            }
        }
        run("cp", scratch.store, scratch.path + "/old.sqlite")
        try scratch.with { _ in }
        try scratch.with { _ in }
        run("rm", "-f", scratch.store + "-wal", scratch.store + "-shm")
        run("cp", scratch.path + "/old.sqlite", scratch.store)
    }

    @Test func refused() {
        #expect(scratch.refusal() == .olderState(scratch.files, found: 1, expected: 3))
    }

    @Test func accepted() throws {
        try Rollback.accept(directory: scratch.data, key: scratch.key, actor: "root", now: 77)
        try scratch.with { store throws in
            #expect(store.generation == 5)
            #expect(try store.session(Rows.session(1, 2, fence: 1).id) == nil)
            #expect(try store.request(1)?.state == .dead)
            #expect(try store.request(1)?.reason == Rollback.cause)
            let row = try #require(try store.queuedRequest(1))
            #expect(row.state == .dead && row.lease == nil && !row.isHeld && row.doubts == 1)
            let queue = try store.queueContents()
            #expect(queue.requests.isEmpty && queue.finished.map(\.at) == [1, 77] && queue.highest > 1 << 32)
            #expect(try store.request(2)?.state == .done)
            let line = try #require(try store.auditLog(limit: 9).last)
            #expect(line.at == 77 && line.actor == "root" && line.action == "store.rollback_accepted")
            let contents = try store.load()
            #expect(contents.devices.count == 1 && contents.conversations.count == 1)
            #expect(contents.highestMessage > 1 << 32 && contents.highestDelivery > 1 << 32)
            #expect(try store.deliveries(of: AccountID(text: "bob")).count == 1)
            try KeyRows.expectNoneIsUsedAgain(store)
            for table in StoreTable.allCases where table.afterRollback == .removed {
                #expect(try store.count(of: table.rawValue) == 0, "\(table)")
            }
            for kind in RecordKind.allCases where kind.afterRollback == .removed {
                #expect(try store.records(kind).isEmpty, "\(kind)")
            }
        }
    }

    @Test func nothingToAccept() throws {
        try Rollback.accept(directory: scratch.data, key: scratch.key, actor: "root", now: 77)
        let error = #expect(throws: StoreError.self) {
            try Rollback.accept(directory: scratch.data, key: scratch.key, actor: "root", now: 78)
        }
        #expect(error == .nothingToAccept(scratch.files))
        try scratch.with { store throws in #expect(try store.auditLog(limit: 9).count == 1) }
    }

    @Test func aBadGenerationFileIsRepaired() throws {
        write(Array("x".utf8), scratch.data + "/generation")
        try Rollback.accept(directory: scratch.data, key: scratch.key, actor: "root", now: 77)
        #expect(scratch.refusal() == nil)
    }

    /// A crash between the two counters.
    @Test func aStoreAheadOfTheFileIsNoRollback() throws {
        write(Array("0\n".utf8), scratch.data + "/generation")
        try scratch.with { #expect($0.generation == 2) }
    }
}
