// One suite that every driver of the port passes. Each check gets a subject: a place for one store, and ways into it.

package import RequestQueue
import Testing

/// What every ``QueueStore`` does.
package enum QueueConformance {
    /// A place where a store is made, and found again.
    package struct Subject {
        /// Opens the store: empty at first, later with what was committed. The one that was opened before is gone.
        package var open: () throws -> any QueueStore
        /// Damages the stored form of a request, behind the store's back.
        package var damage: (any QueueStore, RequestToken) throws -> Void

        package init(
            open: @escaping () throws -> any QueueStore, damage: @escaping (any QueueStore, RequestToken) throws -> Void
        ) { (self.open, self.damage) = (open, damage) }

        /// The twin keeps what it has as long as the subject is there.
        package static func memory() -> Subject {
            let store = InMemoryQueueStore()
            return Subject(open: { store }, damage: { _, token in store.damage(token) })
        }
    }

    package struct Check: Sendable, CustomTestStringConvertible {
        let name: String
        package let run: @Sendable (Subject) throws -> Void
        package var testDescription: String { name }
    }

    /// Every fifth one is a message.
    private static func payload(_ id: UInt64) -> RequestPayload {
        guard id % 5 != 0 else {
            return .message(
                CarriedMessage(kind: "SAY", target: "room \(id)", parts: [[1, 2, UInt8(id % 250)], [], [0]]))
        }
        return .http(
            APIRequestConfig(
                method: .post, path: "/rooms/\(id)/send", query: ["a": "b"],
                body: .json(["text": "said \(id)", "to": .reference(EntityReference(type: "room", local: "R"))])))
    }

    /// All of it, for a parameterized test.
    package static let checks: [Check] = [
        Check(name: "what is inserted is read back", run: readsBack),
        Check(name: "texts, bytes and numbers of every kind", run: oddValues),
        Check(name: "the life of a request", run: life),
        Check(name: "under another lease nothing changes", run: fences),
        Check(name: "what is finished stays so", run: finality),
        Check(name: "outcomes are owed until they are handled", run: outcomes),
        Check(name: "a restart finds the order", run: order),
        Check(name: "identifiers are learnt, and learnt anew", run: mappings),
        Check(name: "sessions are put, replaced and removed", run: sessions),
        Check(name: "what cannot be read stops nothing", run: quarantine),
        Check(name: "held and released", run: hold),
        Check(name: "metadata is replaced", run: rewriting),
        Check(name: "a dead request waits again", run: revival),
        Check(name: "what is old goes, what is owed stays", run: prune),
        Check(name: "ids are not used again", run: highest),
        Check(name: "reports go by state, place and number", run: reports),
        Check(name: "a batch stands or falls as a whole", run: wholeBatches),
    ]

    // MARK: Rows

    package static func token(_ id: UInt64) -> RequestToken {
        RequestToken(high: ~id, low: id &* 0x9E37_79B9_7F4A_7C15)
    }

    package static func request(_ id: UInt64, _ change: (inout QueuedRequest) -> Void = { _ in }) -> QueuedRequest {
        let message = EntityReference(type: "message", local: "L\(id)")
        var request = QueuedRequest(
            id: id, token: token(id), tenant: "t\(id % 3)", lane: id % 2 == 0 ? "room \(id % 5)" : nil,
            payload: payload(id),
            creates: [message], dependsOn: id > 1 ? [id - 1] : [], identifiers: id % 4 == 0 ? nil : [1, 2, 0, 255],
            idempotencyKey: "key \(id)", coalescingKey: id % 7 == 0 ? "c" : nil, timestamp: 1000 + Int64(id))
        request.setProgress(
            state: .pending, attempts: 0, crashes: 0, doubts: 0, lease: nil, notBefore: 0, isHeld: false, cause: nil,
            size: 200)
        change(&request)
        return request
    }

    package static func insert(_ id: UInt64) -> QueueChange { insert(request(id)) }

    package static func insert(_ request: QueuedRequest) -> QueueChange {
        .insert(request, form: RequestForm.encode(request))
    }

    package static let success = RequestOutcome(
        .success(status: 201), headers: [.init("Content-Type", "application/json"), .init("X", "")],
        body: Array(#"{"id":"r1"}"#.utf8))

    static func finish(
        _ id: UInt64, _ lease: UInt64? = nil, _ outcome: RequestOutcome = success,
        keeping: QueueChange.Keeping = .delivery, at: Int64 = 5000
    ) -> QueueChange { .finish(id: id, lease: lease, outcome: outcome, keeping: keeping, at: at) }

    static func all(_ store: any QueueStore) throws -> [QueuedRequest] {
        try store.requests(states: RequestState.allCases, after: 0, limit: .max)
    }

    static func one(_ store: any QueueStore, _ id: UInt64) throws -> QueuedRequest? {
        try all(store).first { $0.id == id }
    }

    static func wait(
        _ notBefore: Int64, attempts: Int = 1, crashes: Int = 0, doubts: Int = 0, cause: String? = nil
    ) -> QueueChange.Wait {
        .init(notBefore: notBefore, attempts: attempts, crashes: crashes, doubts: doubts, cause: cause)
    }
}
