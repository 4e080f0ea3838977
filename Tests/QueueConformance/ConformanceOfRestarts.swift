// What the next process finds, and what it does not.

import RequestQueue
import Testing

extension QueueConformance {
    @Sendable static func order(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([5, 3, 9, 1].map { insert($0) })
        try store.commit([insert(7), .lease(id: 9, lease: 1), .lease(id: 3, lease: 2)])
        try store.commit([finish(7, at: 300), finish(1, at: 100), finish(5, at: 300)])
        let contents = try subject.open().load()
        #expect(contents.requests.map(\.id) == [3, 9])
        #expect(contents.requests.map(\.state) == [.inFlight, .inFlight])
        #expect(contents.finished.map(\.at) == [100, 300, 300])
        #expect(contents.finished.map(\.request.id) == [1, 5, 7])
        #expect(contents.undelivered.map(\.request.id) == [1, 5, 7])
        #expect(contents.highest == 9)
    }

    @Sendable static func mappings(_ subject: Subject) throws {
        let store = try subject.open()
        func mapping(_ local: String, _ remote: String, tenant: String = "t", type: String = "m") -> IdentifierMapping {
            IdentifierMapping(tenant: tenant, reference: EntityReference(type: type, local: local), remote: remote)
        }
        // Two tenants whose names look alike have two entities.
        let others = [
            mapping("a", "2", tenant: "u"), mapping("a", "3", type: "n"), mapping("b", "4"),
            mapping("a", "5", tenant: "zo\u{EB}"), mapping("a", "6", tenant: "zoe\u{308}"),
        ]
        try store.commit([.map(mapping("a", "1"), at: 10)] + others.map { .map($0, at: 10) })
        #expect(try subject.open().load().mappings == [mapping("a", "1")] + others)
        #expect(try subject.open().load().learnt.map(\.at) == [10, 10, 10, 10, 10, 10])
        try store.commit([.map(mapping("a", "9"), at: 20)])
        #expect(try subject.open().load().mappings == others + [mapping("a", "9")])
        try store.commit([.prune(before: 20)])
        #expect(try store.load().mappings == [mapping("a", "9")])
        try store.commit([.prune(before: 30, names: 20)])
        #expect(try store.load().mappings == [mapping("a", "9")])
        try store.commit([.prune(before: 21)])
        #expect(try store.load().mappings.isEmpty)
    }

    @Sendable static func sessions(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([
            .session(tenant: "a", sealed: [1, 0]), .session(tenant: "", sealed: []), .session(tenant: "b", sealed: [2]),
        ])
        try store.commit([
            .session(tenant: "a", sealed: [3]), .session(tenant: "b", sealed: nil), .session(tenant: "c", sealed: nil),
        ])
        #expect(try subject.open().load().sessions == ["a": [3], "": []])
    }

    @Sendable static func quarantine(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit((1...5).map { insert($0) } + [.lease(id: 3, lease: 4), finish(5)])
        for id in [1, 3, 5] as [UInt64] { try subject.damage(store, token(id)) }
        var contents = try subject.open().load()
        #expect(contents.requests == [request(2), request(4)])
        #expect(contents.unreadable.map(\.id) == [1, 3])
        #expect(contents.unreadable.allSatisfy { !$0.reason.isEmpty })
        #expect(contents.finished.isEmpty && contents.undelivered.isEmpty)
        try store.commit(contents.unreadable.map { .quarantine(id: $0.id, cause: "It cannot be read.", at: 77) })
        contents = try subject.open().load()
        #expect(contents.unreadable.isEmpty)
        #expect(contents.requests == [request(2), request(4)])
        // The row is kept, and shown.
        let dead = try store.requests(states: [.dead], after: 0, limit: 9)
        #expect(dead.map(\.id) == [1, 3])
        #expect(dead.map(\.token) == [token(1), token(3)])
        #expect(dead.allSatisfy { $0.cause == "It cannot be read." && $0.lease == nil })
        #expect(try store.outcome(token(1)) == nil)
        #expect(try store.outcome(token(5)) == success)
        // What is dead is removed by its number only.
        try store.commit([.prune(before: 78)])
        #expect(try all(store).map(\.id) == [1, 2, 3, 4, 5])
        try store.commit([.remove(id: 1), .remove(id: 3)])
        #expect(try all(store).map(\.id) == [2, 4, 5])
    }

    @Sendable static func prune(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit((1...6).map { insert($0) })
        try store.commit([
            finish(1, keeping: .result, at: 100), finish(2, at: 100), finish(3, at: 199),
            finish(4, keeping: .result, at: 200),
            .handled(id: 3), .lease(id: 6, lease: 1),
        ])
        try store.commit([.prune(before: 200, below: 1)])
        #expect(try all(store).map(\.id) == [1, 2, 3, 4, 5, 6])
        try store.commit([.prune(before: 200, below: 2)])
        #expect(try all(store).map(\.id) == [2, 3, 4, 5, 6])
        try store.commit([.prune(before: 200, below: 4)])
        #expect(try all(store).map(\.id) == [2, 4, 5, 6])
        #expect(try store.outcome(token(3)) == nil)
        #expect(try store.outcome(token(2)) == success)
        try store.commit([.handled(id: 2), .prune(before: 200)])
        #expect(try all(store).map(\.id) == [4, 5, 6])
        try store.commit([.prune(before: .max)])
        #expect(try subject.open().load().requests.map(\.id) == [5, 6])
    }

    @Sendable static func highest(_ subject: Subject) throws {
        var store = try subject.open()
        try store.commit([insert(41), insert(40), finish(41, keeping: .result, at: 1), .prune(before: 2)])
        #expect(try store.load().highest == 41)
        store = try subject.open()
        #expect(try store.load().highest == 41)
        try store.commit([insert(50), .remove(id: 50), .remove(id: 40)])
        store = try subject.open()
        #expect(try store.load().highest == 50)
        #expect(try all(store).isEmpty)
        try store.commit([insert(45)])
        #expect(try store.load().highest == 50)
    }

    @Sendable static func reports(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit((1...12).map { insert($0) })
        try store.commit([.lease(id: 4, lease: 4), .lease(id: 8, lease: 8), finish(1), finish(5), finish(9)])
        try store.commit([2, 6].map { finish($0, nil, RequestOutcome(.failure(status: nil), cause: "no")) })
        try store.commit([finish(10, nil, RequestOutcome(.aborted))])
        func ids(_ states: RequestState..., after: UInt64 = 0, limit: Int = .max) throws -> [UInt64] {
            try store.requests(states: states, after: after, limit: limit).map(\.id)
        }
        #expect(try ids(.pending) == [3, 7, 11, 12])
        #expect(try ids(.inFlight) == [4, 8])
        #expect(try ids(.pending, .inFlight) == [3, 4, 7, 8, 11, 12])
        #expect(try ids(.done) == [1, 5, 9])
        #expect(try ids(.dead, .cancelled) == [2, 6, 10])
        #expect(try ids(.dead, .dead) == [2, 6])
        #expect(try ids(.done, .pending, .dead, after: 5, limit: 4) == [6, 7, 9, 11])
        #expect(try ids(.inFlight, after: 4) == [8])
        #expect(try ids(.pending, .inFlight, after: 4, limit: 2) == [7, 8])
        #expect(try ids(.done, limit: 0).isEmpty)
        #expect(try ids().isEmpty)
        #expect(try ids(.done, after: .max).isEmpty)
        let ends: [UInt64: RequestState] = [1: .done, 5: .done, 9: .done, 2: .dead, 6: .dead, 10: .cancelled]
        for id in UInt64(1)...12 {
            let outcome = try store.outcome(token(id))
            let request = try store.request(token(id))
            #expect(request?.id == id)
            #expect(outcome?.state == ends[id])
        }
    }

    @Sendable static func wholeBatches(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit((1...500).map { insert($0) })
        var changes: [QueueChange] = []
        for id in UInt64(1)...500 {
            changes += [.lease(id: id, lease: id + 7), finish(id, id + 7, keeping: id % 2 == 0 ? .delivery : .result)]
        }
        try store.commit(changes)
        let contents = try subject.open().load()
        #expect(contents.requests.isEmpty)
        #expect(contents.finished.count == 500)
        #expect(contents.undelivered.count == 250)
        #expect(try store.outcome(token(499)) == RequestOutcome(.success(status: 201)))
        #expect(try store.outcome(token(500)) == success)
    }
}
