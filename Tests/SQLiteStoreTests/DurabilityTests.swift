import Envelope
import Protection
import RequestQueue
import SQLiteKit
import StoreConformance
import StorePort
import Testing

@testable import SQLiteStore
@testable import StoreBase

@Suite struct DurabilityTests {
    private let scratch = Scratch()
    private typealias Rows = StoreConformance

    @Test func committedIsThereAfterReopening() throws {
        try scratch.with {
            try Rows.commit($0, [.insert(Rows.request(1)), .putSession(Rows.session(1, 2, fence: 1))])
        }
        try scratch.with { store throws in
            #expect(try store.request(1) == Rows.request(1))
            #expect(try store.session(Rows.session(1, 2, fence: 1).id) != nil)
            #expect(store.generation == 2)
        }
    }

    /// What a killed process leaves: the files as they are while the store is open.
    @Test func aCopyOfTheOpenFilesHoldsAllThatWasCommitted() throws {
        let copy = Scratch()
        try scratch.with { store in
            for id in 1...50 { try Rows.commit(store, [.insert(Rows.request(UInt64(id)))]) }
            #expect(exists(scratch.store + "-wal"))
            run("cp", "-a", scratch.data, copy.data)
        }
        try copy.with { store throws in
            #expect(try store.requests(states: [.pending], limit: 99).map(\.id) == Array(1...50))
        }
    }

    /// The tail of the log that a power cut tears: whole transactions or nothing of them.
    @Test(arguments: [1, 100, 5000]) func aTornLogLosesWholeTransactionsOnly(_ cut: Int) throws {
        let copy = Scratch()
        try scratch.with { store in
            for id in 1...20 {
                try Rows.commit(
                    store, [.insert(Rows.request(UInt64(id))), .insertDelivery(Rows.delivery(UInt64(id)))])
            }
            run("cp", "-a", scratch.data, copy.data)
        }
        write(Array(bytes(copy.store + "-wal").dropLast(cut)), copy.store + "-wal")
        unlinkShared(copy)
        try copy.with { store in
            let requests = try store.requests(states: [.pending], limit: 99).map(\.id)
            let deliveries = try store.deliveries(of: AccountID(text: "bob")).map(\.sequence)
            #expect(requests == deliveries)
            #expect(requests == Array(1...20).prefix(requests.count).map { UInt64($0) })
            #expect(requests.count < 20)
        }
    }

    @Test func aFullDiskChangesNothingAndIsOver() throws {
        let store = try scratch.open()
        try Rows.commit(store, [.insert(Rows.request(1))])
        try store.limitPages(to: 40)
        var full: StoreError?
        var lastID: UInt64 = 1
        while full == nil, lastID < 10_000 {
            lastID += 1
            var request = Rows.request(lastID)
            request.bodies = [[UInt8](repeating: 1, count: 4000)]
            do { _ = try store.commit([[.insert(request)], [.insertDelivery(Rows.delivery(lastID))]]) } catch {
                full = error
            }
        }
        #expect(full == .diskFull("the store"))
        #expect(try store.request(lastID) == nil)
        #expect(try store.queueContents().highest == lastID - 1)
        try store.limitPages(to: 100_000)
        try Rows.commit(store, [.insert(Rows.request(lastID))])
    }

    @Test func commitsAreSynced() throws {
        let store = try scratch.open()
        #expect(try store.pragma("synchronous") == 2)
        #expect(try store.pragma("cache_size") == -16384)
    }

    @Test func reportsDoNotWaitForTheWriter() throws {
        let store = try scratch.open()
        try Rows.commit(store, [.insert(Rows.request(1))])
        try store.whileWriting { () throws in
            #expect(try store.requestCounts() == [.pending: 1])
            #expect(try store.auditLog(limit: 1).isEmpty)
        }
    }

    @Test func boundedTablesForgetTheOldestUnverified() throws {
        let store = try scratch.open(StoreLimits(evidence: 32, observations: 16))
        for number in 0..<100 {
            let isVerified = number < 10
            try Rows.commit(
                store,
                [
                    .addEvidence(
                        EvidenceRow(
                            name: "n\(number)", verified: isVerified, software: "", asked: false,
                            firstSeen: Int64(number), lastSeen: Int64(number), registrations: 1)),
                    .addObservation(
                        ObservationRow(
                            sender: "n\(number)", target: "x", recipient: "room", messages: 1, lastSeen: Int64(number))),
                ])
        }
        let evidence = try store.evidence(limit: 999)
        #expect((24...32).contains(evidence.count))
        #expect(evidence.filter(\.verified).count == 10)
        #expect(evidence.first?.name == "n99")
        let observations = try store.observations(limit: 999)
        #expect((12...16).contains(observations.count))
        #expect(observations.contains { $0.sender == "n99" })
        #expect(!observations.contains { $0.sender == "n0" })
    }

    private func unlinkShared(_ scratch: Scratch) { run("rm", "-f", scratch.store + "-shm") }
}
