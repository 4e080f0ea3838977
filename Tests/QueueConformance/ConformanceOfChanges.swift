// Each change, and what it does not do.

import RequestQueue
import Testing

extension QueueConformance {
    @Sendable static func readsBack(_ subject: Subject) throws {
        var store = try subject.open()
        #expect(try store.load().requests.isEmpty)
        #expect(try store.load().highest == 0)
        try store.commit([])
        try store.commit((1...5).map { insert($0) })
        for _ in 0..<2 {
            let contents = try store.load()
            #expect(contents.requests == (1...5).map { request($0) })
            #expect(contents.highest == 5)
            #expect(contents.unreadable.isEmpty && contents.finished.isEmpty && contents.undelivered.isEmpty)
            #expect(try all(store) == contents.requests)
            #expect(try store.outcome(token(1)) == nil)
            store = try subject.open()
        }
    }

    @Sendable static func oddValues(_ subject: Subject) throws {
        var store = try subject.open()
        let texts = [
            "", "\0", "a\0b", "ü\u{1F600}", "'; DROP TABLE queue_request; --", String(repeating: "x", count: 9000),
        ]
        var requests: [QueuedRequest] = []
        for (index, text) in texts.enumerated() {
            var odd = QueuedRequest(
                id: UInt64(index) + 1, token: RequestToken(high: UInt64(index) << 63, low: .max - UInt64(index)),
                tenant: text, lane: text,
                payload: .http(APIRequestConfig(path: "/", body: .rawData(Array(text.utf8)), tag: text)),
                creates: [EntityReference(type: text, local: text)], dependsOn: [.max, 0],
                identifiers: Array(text.utf8),
                idempotencyKey: text, coalescingKey: text, timestamp: index % 2 == 0 ? .min : .max)
            odd.setProgress(
                state: .inFlight, attempts: .max, crashes: 1, doubts: 2, lease: .max - UInt64(index), notBefore: .min,
                isHeld: true, cause: text, size: .max)
            requests.append(odd)
        }
        let mapping = IdentifierMapping(
            tenant: "\0", reference: EntityReference(type: "ü", local: "a\0b"), remote: "'\u{1F600}")
        try store.commit(requests.map { insert($0) } + [.map(mapping, at: .min)])
        store = try subject.open()
        let contents = try store.load()
        #expect(contents.requests == requests)
        #expect(contents.mappings == [mapping])
        for request in requests {
            let outcome = RequestOutcome(
                .failure(status: nil), cause: request.tenant, headers: [.init(request.tenant, "")],
                body: Array(request.tenant.utf8))
            try store.commit([finish(request.id, request.lease, outcome)])
            #expect(try store.outcome(request.token) == outcome)
        }
        #expect(try store.outcome(RequestToken(high: 7, low: .max)) == nil)
    }

    @Sendable static func life(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([insert(1)])
        try store.commit([.lease(id: 1, lease: .max)])
        var expected = request(1)
        func progress(
            _ state: RequestState, _ attempts: Int, _ crashes: Int = 0, _ doubts: Int = 0, lease: UInt64? = nil,
            notBefore: Int64 = 0, cause: String? = nil
        ) {
            expected.setProgress(
                state: state, attempts: attempts, crashes: crashes, doubts: doubts, lease: lease, notBefore: notBefore,
                isHeld: false, cause: cause, size: 200)
        }
        progress(.inFlight, 1, lease: .max)
        #expect(try store.load().requests == [expected])
        try store.commit([
            .requeue(id: 1, lease: .max, wait(777, attempts: 1, crashes: 2, doubts: 3, cause: "Attempt 1: refused"))
        ])
        progress(.pending, 1, 2, 3, notBefore: 777, cause: "Attempt 1: refused")
        #expect(try store.load().requests == [expected])
        try store.commit([.lease(id: 1, lease: 5)])
        progress(.inFlight, 2, 2, 3, lease: 5, notBefore: 777, cause: "Attempt 1: refused")
        #expect(try one(store, 1) == expected)
        try store.commit([finish(1, 5)])
        progress(.done, 2, 2, 3, notBefore: 777)
        #expect(try one(store, 1) == expected)
        let contents = try store.load()
        #expect(contents.requests.isEmpty)
        #expect(contents.finished == [.init(request: expected, at: 5000, responseSize: success.responseSize)])
        #expect(contents.undelivered == [.init(request: expected, outcome: success, times: 0)])
        // All of it in one transaction comes to the same.
        try store.commit([
            insert(2), .lease(id: 2, lease: 6), .requeue(id: 2, lease: 6, wait(1)), .lease(id: 2, lease: 7),
            finish(2, 7),
            .handled(id: 2), .lease(id: 99, lease: 1), .remove(id: 99), .hold(id: 99, true, at: 1), .handled(id: 99),
        ])
        #expect(try one(store, 2)?.state == .done)
        #expect(try one(store, 2)?.attempts == 2)
        try store.commit([insert(3), .remove(id: 3)])
        #expect(try all(store).map(\.id) == [1, 2])
    }

    @Sendable static func fences(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([insert(1), insert(2), .lease(id: 1, lease: 10)])
        let before = try all(store)
        try store.commit([
            .requeue(id: 1, lease: 11, wait(5, cause: "late")), finish(1, 11), finish(1, nil), finish(2, 10),
            .requeue(id: 2, lease: 0, wait(5)), .requeue(id: 2, lease: 10, wait(5)),
        ])
        #expect(try all(store) == before)
        #expect(try store.outcome(token(1)) == nil)
        // The lease of the attempt before is worth nothing any more, and neither is one that has been given back.
        try store.commit([.requeue(id: 1, lease: 10, wait(5)), .lease(id: 1, lease: 12), finish(1, 10)])
        #expect(try one(store, 1)?.state == .inFlight)
        #expect(try one(store, 1)?.lease == 12)
        try store.commit([.requeue(id: 1, lease: 12, wait(6)), finish(1, 12)])
        #expect(try one(store, 1)?.state == .pending)
        try store.commit([finish(2, nil, RequestOutcome(.aborted, cause: "It was cancelled."))])
        #expect(try one(store, 2)?.state == .cancelled)
        #expect(try one(store, 2)?.cause == "It was cancelled.")
    }

    @Sendable static func finality(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([insert(1), .lease(id: 1, lease: 1), finish(1, 1)])
        let before = try all(store)
        let failure = RequestOutcome(.failure(status: 500), cause: "no", body: [1])
        try store.commit([
            finish(1, 1, failure, at: 9), finish(1, nil, failure, at: 9), .lease(id: 1, lease: 2),
            .quarantine(id: 1, cause: "no", at: 9), .revive(id: 1, at: 9), .requeue(id: 1, lease: 1, wait(9)),
        ])
        #expect(try all(store) == before)
        #expect(try store.outcome(token(1)) == success)
        #expect(try store.load().finished.map(\.at) == [5000])
    }

    @Sendable static func outcomes(_ subject: Subject) throws {
        let store = try subject.open()
        let failure = RequestOutcome(.failure(status: 404), cause: "It is not there.", body: [0, 1])
        let aborted = RequestOutcome(.aborted, cause: "It was cancelled.")
        try store.commit((1...5).map { insert($0) })
        try store.commit([finish(1), finish(2, nil, failure), finish(3, nil, aborted), finish(4, keeping: .result)])
        try store.commit([finish(5, keeping: .response), .redeliver(id: 5, times: 1)])
        var undelivered = try store.load().undelivered
        #expect(undelivered.map(\.request.id) == [1, 2, 3])
        #expect(undelivered.map(\.outcome) == [success, failure, aborted])
        #expect(undelivered.map(\.times) == [0, 0, 0])
        #expect(try store.outcome(token(2)) == failure)
        #expect(try store.outcome(token(3)) == aborted)
        // What nobody wants is not kept; how it ended is.
        #expect(try store.outcome(token(4)) == RequestOutcome(.success(status: 201)))
        #expect(try store.outcome(token(5)) == success)
        try store.commit([.redeliver(id: 1, times: 1), .redeliver(id: 4, times: 1), .handled(id: 3)])
        undelivered = try subject.open().load().undelivered
        #expect(undelivered.map(\.request.id) == [1, 2])
        #expect(undelivered.map(\.times) == [1, 0])
        try store.commit([.handled(id: 1), .handled(id: 2), .redeliver(id: 1, times: 2)])
        #expect(try store.load().undelivered.isEmpty)
        // For repetitions of its key.
        #expect(try store.outcome(token(1)) == success)
    }

    @Sendable static func hold(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([insert(1), .hold(id: 1, true, at: 4000)])
        #expect(try subject.open().load().requests == [request(1) { $0.held(true) }])
        // The age counts from the release.
        try store.commit([.hold(id: 1, false, at: 4242)])
        let released = try subject.open().load().requests
        #expect(released.map(\.releasedAt) == [4242] && released.map(\.isHeld) == [false])
        #expect(released.map(\.timestamp) == [request(1).timestamp])
        // A request may be inserted with it, as into another store.
        try store.commit([insert(request(2) { $0.hold = -7 })])
        #expect(try subject.open().load().requests.last?.releasedAt == 7)
    }

    @Sendable static func rewriting(_ subject: Subject) throws {
        let store = try subject.open()
        func request(_ metadata: [UInt8]) -> QueuedRequest { Self.request(1) { $0.metadata = metadata } }
        try store.commit([insert(request([1])), insert(2)])
        try store.commit([.rewrite(id: 1, form: RequestForm.encode(request([2, 0, 3]))), .rewrite(id: 9, form: [1])])
        #expect(try subject.open().load().requests == [request([2, 0, 3]), Self.request(2)])
        // Also of one that has ended.
        try store.commit([finish(1, nil, success), .rewrite(id: 1, form: RequestForm.encode(request([4])))])
        #expect(try store.request(token(1))?.metadata == [4])
        #expect(try store.outcome(token(1)) == success)
    }

    @Sendable static func revival(_ subject: Subject) throws {
        let store = try subject.open()
        try store.commit([insert(1), insert(2), .hold(id: 1, true, at: 1), .lease(id: 1, lease: 9)])
        try store.commit([
            .requeue(id: 1, lease: 9, wait(50, attempts: 4, crashes: 1, doubts: 2)), .lease(id: 1, lease: 8),
        ])
        try store.commit([
            finish(1, 8, RequestOutcome(.failure(status: 400), cause: "no", body: [7])), .revive(id: 2, at: 9),
        ])
        #expect(try store.load().requests == [request(2)])
        try store.commit([.revive(id: 1, at: 4242)])
        let revived = try subject.open().load()
        var expected = request(1)
        expected = QueuedRequest(
            id: 1, token: expected.token, tenant: expected.tenant, lane: expected.lane, payload: expected.payload,
            creates: expected.creates, dependsOn: expected.dependsOn, identifiers: expected.identifiers,
            idempotencyKey: expected.idempotencyKey, coalescingKey: expected.coalescingKey, timestamp: 4242)
        expected.setProgress(
            state: .pending, attempts: 0, crashes: 0, doubts: 2, lease: nil, notBefore: 0, isHeld: false, cause: nil,
            size: 200)
        #expect(revived.requests == [expected, request(2)])
        #expect(revived.finished.isEmpty && revived.undelivered.isEmpty)
        #expect(try store.outcome(token(1)) == nil)
        // Its second end counts like a first one.
        try store.commit([.lease(id: 1, lease: 3), finish(1, 3, RequestOutcome(.success(status: 200)))])
        #expect(try store.outcome(token(1)) == RequestOutcome(.success(status: 200)))
    }
}

extension QueuedRequest {
    fileprivate mutating func held(_ isHeld: Bool) {
        setProgress(
            state: state, attempts: attempts, crashes: crashes, doubts: doubts, lease: lease, notBefore: notBefore,
            isHeld: isHeld, cause: cause, size: size)
    }
}
