// The operator's actions on a queue, and its reports.

public import RequestQueue
import Synchronization

extension APIClientQueue {
    /// See ``APIClientQueuing/cancel(_:cause:)``.
    public func cancel(_ token: RequestToken, cause: String?) async throws {
        try await perform { (machine, now) throws in try machine.cancel(token, cause: cause, now: now) }
    }

    /// Holds a request or releases it.
    ///
    /// - Throws: `QueueActError`, `QueueError.unavailable(_:)`.
    public func hold(_ token: RequestToken, _ isHeld: Bool = true) async throws {
        try await perform { (machine, now) throws in try machine.hold(token, isHeld, now: now) }
    }

    /// Sends a dead request again, or ends the pause of one that waits.
    ///
    /// - Throws: `QueueActError`, `QueueStoreError`, `QueueError.unavailable(_:)`.
    public func retry(_ token: RequestToken) async throws {
        let dead = try store.request(token)
        try await perform { (machine, now) throws in
            if machine.request(token) != nil {
                try machine.hurry(token, now: now)
            } else if let dead {
                try machine.revive(dead, now: now)
            } else {
                throw QueueActError.unknown
            }
        }
    }

    /// Ends the pauses of all requests that wait for their next attempt.
    ///
    /// - Returns: the number of these requests.
    /// - Throws: `QueueError.unavailable(_:)`, `QueueError.closed`.
    @discardableResult
    public func hurryAll() async throws -> Int {
        try await perform { (machine, now) throws in machine.hurryAll(now: now) }
    }

    /// Removes a dead request, with all that is stored of it.
    ///
    /// - Throws: `QueueActError`, `QueueError.unavailable(_:)`.
    public func purge(_ token: RequestToken) async throws {
        guard let dead = try store.request(token) else { throw QueueActError.unknown }
        try await perform { (machine, _) throws in try machine.purge(dead.id) }
    }

    /// Sends all dead requests again, in the order in which they were accepted.
    ///
    /// - Returns: the number of requests that wait again. Others, for example because the queue is full, stay dead.
    /// - Throws: `QueueStoreError`, `QueueError.unavailable(_:)`, `QueueError.closed`.
    @discardableResult
    public func retryDead() async throws -> Int {
        try await eachDead { (machine, now, request) throws in try machine.revive(request, now: now) }
    }

    /// Removes all dead requests.
    ///
    /// - Returns: the number of these requests.
    /// - Throws: `QueueStoreError`, `QueueError.unavailable(_:)`, `QueueError.closed`.
    @discardableResult
    public func purgeDead() async throws -> Int {
        try await eachDead { (machine, _, request) throws in try machine.purge(request.id) }
    }

    /// - Returns: the number of dead requests for which the action succeeded.
    private func eachDead(
        _ act: @escaping @Sendable (inout QueueMachine, QueueTime, QueuedRequest) throws -> Void
    ) async throws -> Int {
        var (count, last) = (0, UInt64(0))
        while true {
            // Few at a time: each page is one transaction.
            let page = try store.requests(states: [.dead], after: last, limit: 256)
            guard let end = page.last?.id else { return count }
            count += try await perform { (machine, now) throws in
                page.count { request in (try? act(&machine, now, request)) != nil }
            }
            last = end
        }
    }

    /// Holds all requests of a tenant, present and future, or releases them. A hold ends with the process.
    ///
    /// - Throws: `QueueError.unavailable(_:)`, `QueueError.closed`.
    public func hold(tenant: String, _ isHeld: Bool = true) async throws {
        try await perform { (machine, now) throws in machine.hold(tenant: tenant, isHeld, now: now) }
    }

    /// The requests that wait for a login, of one tenant or of all, in the order of acceptance.
    public func waitingForSession(of tenant: String? = nil) async -> [QueuedRequest] {
        await read { (machine, _) in machine.waitingForSession(of: tenant) } ?? []
    }

    /// The request; nil if it does not wait for the next login of its tenant.
    public func waitingForSession(_ token: RequestToken) async -> QueuedRequest? {
        await read { (machine, _) in machine.waitingForSession(token) } ?? nil
    }

    /// See ``APIClientQueuing/remoteIdentifier(of:tenant:)``.
    public func remoteIdentifier(of reference: EntityReference, tenant: String) async -> String? {
        await read { (machine, _) in machine.remoteIdentifier(of: reference, tenant: tenant) } ?? nil
    }

    /// The known remote identifiers among those of some entities.
    public func remoteIdentifiers(
        of references: [EntityReference], tenant: String = ""
    ) async -> [EntityReference: String] {
        guard !references.isEmpty else { return [:] }
        let names = await read { (machine, _) in
            references.compactMap { reference in
                machine.remoteIdentifier(of: reference, tenant: tenant).map { (reference, $0) }
            }
        }
        return Dictionary(names ?? []) { first, _ in first }
    }

    /// The known remote identifiers of the entities that requests have created, by the id of the request.
    public func remoteIdentifiers(createdBy requests: [QueuedRequest]) async -> [UInt64: [String]] {
        let names = await read { (machine, _) in
            requests.map { request in
                (
                    request.id,
                    request.creates.compactMap { machine.remoteIdentifier(of: $0, tenant: request.tenant) }
                )
            }
        }
        return Dictionary(names ?? []) { first, _ in first }
    }

    /// The request with this id, in any state; nil if it is unknown or forgotten.
    ///
    /// - Throws: `QueueStoreError`.
    public func request(number: UInt64) throws(QueueStoreError) -> QueuedRequest? {
        guard number > 0, number <= UInt64(Int64.max) else { return nil }
        let found = try store.requests(states: RequestState.allCases, after: number - 1, limit: 1)
        return found.first { $0.id == number }
    }

    /// Requests by state, in the order in which they were accepted, with ids above `after`.
    ///
    /// - Throws: `QueueStoreError`.
    public func requests(
        states: [RequestState] = RequestState.allCases, after: UInt64 = 0, limit: Int = 100
    ) throws(QueueStoreError) -> [QueuedRequest] {
        try store.requests(states: states, after: after, limit: limit)
    }

    /// Describes what a request waits for besides its turn.
    public func obstacles(_ token: RequestToken) async -> [String] {
        await read { (machine, now) in machine.obstacles(token, now: now) } ?? []
    }

    /// Counts since the start, and the current contents. Waits for no commit. A closed queue returns its last report.
    public func report() async -> Report {
        let report = await read { (machine, _) in
            Report(
                counts: machine.counts, depth: machine.depth, inFlight: machine.underWay, bytes: machine.bytes,
                census: machine.census())
        }
        return lastReport.withLock { last in
            if let report { last = report }
            return last ?? Report(counts: .init(), depth: 0, inFlight: 0, bytes: 0, census: .init())
        }
    }

    /// Numbers for metrics: `restored + appended + revived = done + dead + cancelled + depth`.
    public struct Report: Sendable, Equatable {
        /// Event counts since the start.
        public var counts: QueueMachine.Counts
        /// Number of requests that wait or are in flight.
        public var depth: Int
        /// Number of requests in flight.
        public var inFlight: Int
        /// Size of the requests that wait or are in flight, in bytes.
        public var bytes: Int
        /// A summary of the requests that wait or are in flight.
        public var census: QueueMachine.Census
    }
}
