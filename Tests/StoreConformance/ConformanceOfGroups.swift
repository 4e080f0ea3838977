// Batches, groups and fences.

import Envelope
import Protection
import RequestQueue
import StorePort
import Testing

extension StoreConformance {
    static let groupChecks: [Check] = [
        Check(name: "what is committed is read back", run: readsBack),
        Check(name: "a group fails alone", run: groupFailsAlone),
        Check(name: "a group fails with one that it requires", run: requiredGroup),
        Check(name: "a fence lets a session move forwards only", run: fence),
        Check(name: "one session many times in one batch", run: repeatedSession),
        Check(name: "a failed group's session does not count", run: failedGroupsSession),
        Check(name: "sessions go in the middle of a batch", run: removalInsideBatch),
        Check(name: "a commit by the present epochs is written", run: presentEpoch),
        Check(name: "a commit by another epoch changes nothing", run: otherEpoch),
        Check(name: "a group in a shard that the commit does not name is refused", run: unnamedShard),
    ]

    @Sendable static func readsBack(_ make: Make) throws {
        let store = try make()
        #expect(try store.load().devices.isEmpty)
        let row = session(1, .max, fence: 1, [9, 8, 7])
        try commit(store, [.putDevice(device(.max, "alice")), .putSession(row), .insert(request(1))], [])
        #expect(try store.load().devices == [device(.max, "alice")])
        #expect(try store.session(row.id) == row)
        #expect(try store.session(SessionID(owner: DeviceID(.max), peer: DeviceID(1), in: .only)) == nil)
        #expect(try store.request(1) == request(1))
        #expect(try store.request(2) == nil)
        #expect(try store.commit([[StoreChange]]()).isEmpty)
    }

    @Sendable static func groupFailsAlone(_ make: Make) throws {
        let store = try make()
        let stale = session(3, 4, fence: 1)
        try commit(store, [.insert(request(1)), .putSession(stale)])
        let outcomes = try store.commit([
            [.insert(request(2)), .insertDelivery(delivery(2))],
            [.insertDelivery(delivery(3)), .putSession(session(1, 2, fence: 1)), .putSession(stale)],
            [.putSession(stale), .insert(request(4)), .insertDelivery(delivery(4))],
            [.insertDelivery(delivery(5)), .insert(request(5))],
        ])
        #expect(outcomes.map { $0 == nil } == [true, false, false, true])
        #expect(try store.deliveries(of: AccountID(text: "bob")).map(\.sequence) == [2, 5])
        #expect(try store.waitingRequests(of: AccountID(text: "alice")).map(\.id) == [1, 2, 5])
        #expect(try store.session(session(1, 2, fence: 1).id) == nil)
    }

    /// Groups that require each other: what was sealed under a state that is fenced is not stored.
    @Sendable static func requiredGroup(_ make: Make) throws {
        let store = try make()
        let stale = session(3, 4, fence: 1)
        try commit(store, [.putSession(stale)])
        func group(_ changes: [StoreChange], requires: [Int] = []) -> ChangeGroup {
            ChangeGroup(changes, in: .several, requires: requires)
        }
        let outcomes = try store.commit([
            group([.putSession(session(1, 2, fence: 1))]), group([.putSession(stale)]),
            group([.insertDelivery(delivery(2))], requires: [0]),
            group([.insertDelivery(delivery(3)), .insert(request(3))], requires: [0, 1]),
            group([.insertDelivery(delivery(4))], requires: [3]), group([.insertDelivery(delivery(5))]),
        ])
        #expect(outcomes == [nil, .fenced, nil, .fenced, .fenced, nil])
        #expect(try store.deliveries(of: AccountID(text: "bob")).map(\.sequence) == [2, 5])
        #expect(try store.requests(states: [.pending], limit: 9).isEmpty)
    }

    @Sendable static func fence(_ make: Make) throws {
        let store = try make()
        try commit(store, [.putSession(session(1, 2, fence: 5, [5]))])
        #expect(try store.commit([[.putSession(session(1, 2, fence: 5, [0]))]]) == [.fenced])
        #expect(
            try store.commit([[.putSession(session(1, 2, fence: 4, [0])), .insert(request(1))]]) == [.fenced])
        #expect(try store.session(session(1, 2, fence: 0).id)?.sealedState == [5])
        #expect(try store.request(1) == nil)
        try commit(store, [.putSession(session(1, 2, fence: 6, [6]))])
        #expect(try store.session(session(1, 2, fence: 0).id) == session(1, 2, fence: 6, [6]))
    }

    @Sendable static func repeatedSession(_ make: Make) throws {
        let store = try make()
        try commit(store, [.putSession(session(1, 2, fence: 3, [3]))])
        let outcomes = try store.commit([
            [.putSession(session(1, 2, fence: 3, [0])), .insert(request(1))],
            [.putSession(session(1, 2, fence: 4, [4])), .insert(request(2))],
            [.putSession(session(1, 2, fence: 4, [0])), .insert(request(3))],
            [.putSession(session(1, 2, fence: 5, [5])), .putSession(session(1, 2, fence: 6, [6]))],
            [.putSession(session(2, 1, fence: 1, [1]))],
        ])
        #expect(outcomes == [.fenced, nil, .fenced, nil, nil])
        #expect(try store.session(session(1, 2, fence: 0).id) == session(1, 2, fence: 6, [6]))
        #expect(try store.waitingRequests(of: AccountID(text: "alice")).map(\.id) == [2])
        try commit(
            store, [.putSession(session(3, 4, fence: 1, [1]))], [.putSession(session(3, 4, fence: 2, [2]))],
            [.putSession(session(3, 4, fence: 9, [9]))])
        #expect(try store.session(session(3, 4, fence: 0).id) == session(3, 4, fence: 9, [9]))
    }

    @Sendable static func failedGroupsSession(_ make: Make) throws {
        let store = try make()
        let stale = session(3, 4, fence: 1)
        try commit(store, [.putSession(stale)])
        let outcomes = try store.commit([
            [.putSession(session(1, 2, fence: 1, [1]))],
            [.putSession(session(1, 2, fence: 7, [7])), .insert(request(1)), .putSession(stale)],
            [.putSession(session(1, 2, fence: 2, [2]))],
        ])
        #expect(outcomes.map { $0 == nil } == [true, false, true])
        #expect(try store.session(session(1, 2, fence: 0).id) == session(1, 2, fence: 2, [2]))
        #expect(try store.request(1) == nil)
    }

    @Sendable static func removalInsideBatch(_ make: Make) throws {
        let store = try make()
        try commit(
            store, [.putSession(session(1, 2, fence: 8))], [.putSession(session(2, 1, fence: 8))],
            [.removeSessions(device: DeviceID(1))], [.putSession(session(1, 2, fence: 3, [3]))])
        #expect(try store.session(session(1, 2, fence: 0).id) == session(1, 2, fence: 3, [3]))
        #expect(try store.session(session(2, 1, fence: 0).id) == nil)
    }

    @Sendable static func presentEpoch(_ make: Make) throws {
        let store = try make()
        let epochs = try store.epochs()
        #expect(try store.load().epochs == epochs)
        #expect(epochs.map(\.shard) == Array(store.sharding.shards) && epochs.contains(.only))
        let group = ChangeGroup([.putSession(session(1, 2, fence: 1))], in: .shard(.only))
        #expect(try store.commit([group], by: [.only]) == [nil])
        #expect(try store.session(session(1, 2, fence: 0).id) == session(1, 2, fence: 1))
        #expect(try store.commit([], by: []).isEmpty)
    }

    @Sendable static func otherEpoch(_ make: Make) throws {
        let store = try make()
        try commit(store, [.putSession(session(1, 2, fence: 1)), .insert(request(1))])
        let device = device(5, "alice")
        let groups = [
            ChangeGroup([.putSession(session(1, 2, fence: 2, [2]))], in: .shard(.only)),
            ChangeGroup([.putDevice(device), .queue(.remove(id: 1))], in: .several, requires: [0]),
        ]
        for epoch in [0, 2, UInt64.max] {
            #expect(throws: StoreError.epochLost(.only)) {
                try store.commit(groups, by: [ShardEpoch(.only, epoch)])
            }
        }
        // Of several epochs, one that is wrong is enough.
        #expect(throws: StoreError.epochLost(Shard(3))) {
            try store.commit(groups, by: [.only, ShardEpoch(Shard(3), 9)])
        }
        #expect(throws: StoreError.epochLost(.only)) { try store.commit([], by: [ShardEpoch(.only, 2)]) }
        #expect(try store.session(session(1, 2, fence: 0).id) == session(1, 2, fence: 1))
        #expect(try store.load().devices.isEmpty && store.request(1) == request(1))
        #expect(try store.epochs().contains(.only))
        try commit(store, [.putSession(session(1, 2, fence: 2, [2]))], [.putDevice(device)])
    }

    @Sendable static func unnamedShard(_ make: Make) throws {
        let store = try make()
        let groups = [
            ChangeGroup([.putSession(session(1, 2, fence: 1))], in: .shard(.only)),
            ChangeGroup([.insert(request(256))], in: .several),
        ]
        #expect(try store.commit(groups, by: []) == [.epochLost(.only), .epochLost(.only)])
        #expect(try store.session(session(1, 2, fence: 0).id) == nil && store.request(256) == nil)
    }
}
