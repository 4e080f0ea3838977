// Reports on writes to a backend that speaks HTTP, and acts on them.

import IRCGateway
import JSONGateway
import Outbox
import Protection
import RequestQueue
import RequestQueueClient
import StorePort

extension Gateway {
    /// Whether an operator holds all writes of an account.
    func holdsAll(of tenant: String) -> Bool {
        environment.requests.gate.holds.contains(.account(AccountID(text: tenant)))
    }

    /// Returns the totals of requests in the queue of this gateway.
    ///
    /// - Parameter report: of the queue of writes over HTTP; nil in front of an IRC backend.
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

    private func addQueueWarnings(to report: inout StatusReport, _ queue: APIClientQueue.Report) {
        let dead = queue.census.deadLetters
        if dead > 0 {
            report.warnings.append(
                "\(dead) \(dead == 1 ? "write was" : "writes were") given up and \(dead == 1 ? "is" : "are") kept: pawl queue list "
                    + "--state dead. To send again: pawl queue retry --dead. To remove: pawl queue purge.")
        }
        let held = queue.census.heldAfterCrashes
        if !held.isEmpty {
            report.warnings.append(
                "This gateway ended several times in a row while only one write was in progress, so it is held: request "
                    + held.map { "\($0)" }.joined(separator: ", ")
                    + ". Look at it with pawl queue show, then release or drop it.")
        }
        let unexpected = queue.counts.unexpected
        if unexpected > 0 {
            report.warnings.append(
                "\(unexpected) unexpected \(unexpected == 1 ? "answer" : "answers") since the start: 502, 503, 504, or a refusal that "
                    + "does not have the backend's form, as from a proxy. Such writes wait and are sent again.")
        }
    }

    /// Adds the part of a status that is about HTTP.
    func addWrites(to report: inout StatusReport) async throws {
        guard let json else { return }
        let counts = await json.writes.queue.report()
        report.requests = try requests(counts)
        report.queue = [
            RequestState.pending.name: report.requests.waiting, RequestState.done.name: report.requests.done,
            RequestState.dead.name: report.requests.dead,
        ]
        addQueueWarnings(to: &report, counts)
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
                "\(doubtful) \(doubtful == 1 ? "message" : "messages") may be stored twice at the backend: an answer was lost, and "
                    + "the message was sent again. People behind this gateway see each once.")
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
