// What a gateway in front of a backend that speaks HTTP says of its writes, and does to them.

import GatewayCore
import GatewayNIO
import RequestQueue
import RequestQueueClient

extension Gateway {
    /// Whether an operator holds all that an account sends.
    func holdsAll(of tenant: String) -> Bool {
        environment.requests.gate.holds.contains(.account(AccountID(text: tenant)))
    }

    /// Carries out an act on a write, and audits it. A hold of an account stands in the store; its writes obey at once.
    ///
    /// - Returns: why it was not done; nothing where it was.
    func carryOut(_ kind: RequestAct.Kind, on writes: WriteQueue) async throws -> String? {
        switch kind {
        case .hold(.account), .release(.account):
            if let refusal = try await store(kind) { return refusal }
            return try await writes.carryOut(kind)
        case .drop(let id), .retry(let id), .hold(.request(let id)), .release(.request(let id)):
            let request = try writes.request(id)
            if let refusal = try await writes.carryOut(kind) { return refusal }
            try commit([audit("queue.\(kind.name)", "\(id) of \(request.tenant)")])
            return nil
        }
    }

    /// The requests at a glance, of whichever queue this gateway has.
    ///
    /// - Parameter report: of the queue of writes to HTTP, where there is one.
    func requests(_ report: APIClientQueue.Report?) throws -> StatusReport.Requests {
        var requests = try reporter.requests(SystemClock.now())
        guard let report else { return requests }
        let counts = RequestCounts(report.counts, waiting: report.depth)
        (requests.accepted, requests.waiting) = (counts.accepted, counts.waiting)
        (requests.done, requests.dead) = (counts.done, counts.dead)
        requests.held = report.census.held
        requests.oldestSeconds = report.census.oldest.map { max(SystemClock.now().wall - $0, 0) / 1000 }
        requests.doubtful = report.counts.doubtful + report.census.doubtful
        requests.withoutLogin = report.census.withoutSession
        return requests
    }

    /// Adds to a status what is of HTTP.
    func addWrites(to report: inout StatusReport) async throws {
        guard let json else { return }
        report.requests = try requests(await json.writes.queue.report())
        report.queue = [
            RequestState.pending.name: report.requests.waiting, RequestState.done.name: report.requests.done,
            RequestState.dead.name: report.requests.dead,
        ]
        let environment = json.environment
        report.accounts.behind = environment.accounts.count
        report.blockers += environment.conversations.outsiders(
            now: SystemClock.now().monotonic, limit: 20, isBehind: environment.accounts.contains
        ).map {
            StatusReport.Blocker(
                what: "outsider in a conversation", name: "\($0.account.name) in \($0.conversation)", messages: 0)
        }
        if let doubtful = report.requests.doubtful, doubtful > 0 {
            report.warnings.append(
                "\(doubtful) \(doubtful == 1 ? "message" : "messages") may stand twice at the backend: an answer never came, and "
                    + "it was sent again. People behind this gateway see each once.")
        }
        let waiting = await json.writes.queue.waitingForSession()
        if !waiting.isEmpty {
            let names = Set(waiting.map(\.tenant)).sorted()
            report.warnings.append(
                "\(waiting.count) \(waiting.count == 1 ? "write waits" : "writes wait") for the next login of "
                    + names.prefix(10).joined(separator: ", ") + (names.count > 10 ? " and others." : "."))
        }
    }
}
