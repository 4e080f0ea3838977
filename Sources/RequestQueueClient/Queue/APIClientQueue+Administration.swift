// What an operator does to a queue, and what a queue says of itself.

public import RequestQueue
import Synchronization

/// Something that has happened to a request.
public enum QueueEvent: Sendable {
    /// An attempt begins.
    case sent(RequestToken)
    /// An attempt has ended, well or not.
    case answered(RequestToken, AttemptReply)
    /// It has ended, and that is stored. Told only by a queue that keeps outcomes.
    case ended(RequestToken, RequestOutcome)
    /// The backend does not accept the session key of a tenant any more. These wait for the next login.
    case refused(tenant: String, AttemptReply, [QueuedRequest])
    /// Commits fail from now on, with this error, or work again. Nothing is accepted while they fail.
    case store(QueueStoreError?)
}

extension APIClientQueue {
    /// Nobody wants it any more.
    ///
    /// - Parameter cause: in words; nothing for its sender's own wish.
    /// - Throws: ``QueueActError``, ``QueueError/unavailable(_:)``.
    public func cancel(_ token: RequestToken, cause: String? = nil) async throws {
        try await perform { (machine, now) throws in try machine.cancel(token, cause: cause, now: now) }
    }

    /// Keeps a request back, or lets it go on.
    ///
    /// - Throws: ``QueueActError``, ``QueueError/unavailable(_:)``.
    public func hold(_ token: RequestToken, _ isHeld: Bool = true) async throws {
        try await perform { (machine, now) throws in try machine.hold(token, isHeld, now: now) }
    }

    /// Sends a dead request again, or ends the pause of one that waits.
    ///
    /// - Throws: ``QueueActError``, ``QueueStoreError``, ``QueueError/unavailable(_:)``.
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
    /// - Returns: how many.
    /// - Throws: ``QueueError/unavailable(_:)``, ``QueueError/closed``.
    @discardableResult
    public func hurryAll() async throws -> Int {
        try await perform { (machine, now) throws in machine.hurryAll(now: now) }
    }

    /// Removes a dead request, with all that is kept of it.
    ///
    /// - Throws: ``QueueActError``, ``QueueError/unavailable(_:)``.
    public func purge(_ token: RequestToken) async throws {
        guard let dead = try store.request(token) else { throw QueueActError.unknown }
        try await perform { (machine, _) throws in try machine.purge(dead.id) }
    }

    /// Sends all dead requests again, in the order in which they were accepted.
    ///
    /// - Returns: how many wait again. Those that cannot, for example because the queue is full, stay dead.
    /// - Throws: ``QueueStoreError``, ``QueueError/unavailable(_:)``, ``QueueError/closed``.
    @discardableResult
    public func retryDead() async throws -> Int {
        try await eachDead { (machine, now, request) throws in try machine.revive(request, now: now) }
    }

    /// Removes all dead requests.
    ///
    /// - Returns: how many.
    /// - Throws: ``QueueStoreError``, ``QueueError/unavailable(_:)``, ``QueueError/closed``.
    @discardableResult
    public func purgeDead() async throws -> Int {
        try await eachDead { (machine, _, request) throws in try machine.purge(request.id) }
    }

    /// - Returns: how many dead requests the act did not refuse.
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

    /// Keeps back all that a tenant sends, now and later, or lets it go on. It ends with the process.
    ///
    /// - Throws: ``QueueError/unavailable(_:)``, ``QueueError/closed``.
    public func hold(tenant: String, _ isHeld: Bool = true) async throws {
        try await perform { (machine, now) throws in machine.hold(tenant: tenant, isHeld, now: now) }
    }

    /// The requests that wait for the next login of their tenant, of one or of all, in the order in which they were accepted.
    public func waitingForSession(of tenant: String? = nil) async -> [QueuedRequest] {
        await read { (machine, _) in machine.waitingForSession(of: tenant) } ?? []
    }

    /// The request, where it waits for the next login of its tenant.
    public func waitingForSession(_ token: RequestToken) async -> QueuedRequest? {
        await read { (machine, _) in machine.waitingForSession(token) } ?? nil
    }

    /// What the backend calls an entity; nil if that is not known, or no longer.
    public func remoteIdentifier(of reference: EntityReference, tenant: String = "") async -> String? {
        await read { (machine, _) in machine.remoteIdentifier(of: reference, tenant: tenant) } ?? nil
    }

    /// What the backend calls the entities that requests have created, by the requests' numbers, as far as it is known.
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

    /// The request with this number, whatever has become of it; nothing where it is forgotten.
    ///
    /// - Throws: ``QueueStoreError``.
    public func request(number: UInt64) throws(QueueStoreError) -> QueuedRequest? {
        guard number > 0, number <= UInt64(Int64.max) else { return nil }
        let found = try store.requests(states: RequestState.allCases, after: number - 1, limit: 1)
        return found.first { $0.id == number }
    }

    /// Requests by state, in the order in which they were accepted, after the one with this number.
    ///
    /// - Throws: ``QueueStoreError``.
    public func requests(
        states: [RequestState] = RequestState.allCases, after: UInt64 = 0, limit: Int = 100
    ) throws(QueueStoreError) -> [QueuedRequest] {
        try store.requests(states: states, after: after, limit: limit)
    }

    /// What a request waits for besides its turn, in words.
    public func obstacles(_ token: RequestToken) async -> [String] {
        await read { (machine, now) in machine.obstacles(token, now: now) } ?? []
    }

    /// What has happened since the start, and how much there is. It does not depend on a commit; of a queue that is closed it is
    /// what was there last.
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
        /// What has happened since the start.
        public var counts: QueueMachine.Counts
        /// Requests that wait or are under way.
        public var depth: Int
        /// Requests that are under way.
        public var inFlight: Int
        /// Bytes of those that wait or are under way.
        public var bytes: Int
        /// What there is to say of those that wait or are under way.
        public var census: QueueMachine.Census
    }
}
