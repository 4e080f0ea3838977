// Counters in the text format that Prometheus reads. No label ever names a person or a room.
//
// No swift-metrics: ``Tally`` is the one place that counts, because the store and `pawl status` read it too. An
// exporter would add a second registry of the same numbers and of those that the store has.

import HTTPServer
import IRCGateway
import JSONGateway
import NIOSupport
import Protection
import Reports
import RequestQueue
import RequestQueueClient
import SQLiteKit
import StorePort

/// Writes the page of `/metrics`.
enum MetricsPage {
    static func text(_ gateway: Gateway) async -> String {
        var page = ""
        func family(_ name: String, _ help: String, _ type: String, _ samples: [(labels: String, value: Int)]) {
            page += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
            for sample in samples { page += "\(name)\(sample.labels) \(sample.value)\n" }
        }
        let environment = gateway.environment
        family(
            "pawl_events_total", "What became of messages, lines and connections.", "counter",
            environment.tally.all.map { ("{event=\"\($0.kind.name)\"}", $0.count) })
        family("pawl_downstreams_active", "Clients connected now.", "gauge", [("", gateway.server.connectionCount)])
        family(
            "pawl_people_present", "Registered people behind the gateway now.", "gauge",
            [("", environment.roster.count)])
        family(
            "pawl_conversations_latched", "Protected conversations.", "gauge",
            [("", environment.latches.count)])
        family(
            "pawl_store_failing", "Whether a store cannot commit, as with a full disk or a deleted directory.",
            "gauge",
            [("", gateway.storeProblem == nil ? 0 : 1)])
        family(
            "pawl_store_failed_commits_total", "Commits that failed.", "counter",
            [("", gateway.health.reduce(0) { $0 + $1.failedCommits })])
        family("pawl_vault_jobs_waiting", "Jobs that wait for the vault.", "gauge", [("", gateway.front.waitingJobs)])
        if gateway.json == nil, let counts = try? gateway.store.requestCounts() {
            family(
                "pawl_requests", "Writes to the backend by state.", "gauge",
                counts.map { ("{state=\"\($0.key.name)\"}", $0.value) }.sorted { $0.0 < $1.0 })
        }
        let report = await gateway.json?.writes.queue.report()
        if let requests = try? gateway.requests(report) {
            family(
                "pawl_requests_accepted_total",
                "Requests committed since the start, including those found waiting and retried: done + dead + waiting.",
                "counter", [("", requests.accepted)])
            family(
                "pawl_requests_finished_total", "Requests that have ended since the start.", "counter",
                [("{outcome=\"dead\"}", requests.dead), ("{outcome=\"done\"}", requests.done)])
            family(
                "pawl_requests_waiting", "Requests that wait, including held ones.", "gauge", [("", requests.waiting)])
            family("pawl_requests_held", "Requests that an operator holds.", "gauge", [("", requests.held)])
            family(
                "pawl_requests_oldest_seconds", "How long the oldest request has waited.", "gauge",
                [("", Int(requests.oldestSeconds ?? 0))])
        }
        if let json = gateway.json, let report {
            family(
                "pawl_requests_in_flight", "Requests that were sent to the backend and are not answered.", "gauge",
                [("", report.inFlight)])
            family("pawl_requests_bytes", "Bytes of the requests that wait.", "gauge", [("", report.bytes)])
            family(
                "pawl_requests_retried_total", "Attempts that were followed by another.", "counter",
                [("", report.counts.retried)])
            family(
                "pawl_requests_unexpected_answers_total",
                "Answers that a proxy may have given: 502, 503, 504, or a refusal of another form than the backend's.",
                "counter", [("", report.counts.unexpected)])
            family(
                "pawl_requests_dead_letters", "Dead requests that are kept.", "gauge", [("", report.census.deadLetters)]
            )
            family(
                "pawl_requests_doubtful", "Requests that the backend may have done twice.", "gauge",
                [("", report.counts.doubtful + report.census.doubtful)])
            family(
                "pawl_requests_without_login", "Requests that wait for their sender's next login.", "gauge",
                [("", report.census.withoutSession)])
            family(
                "pawl_accounts_behind", "Accounts that have shown a credential.", "gauge",
                [("", json.environment.accounts.count)])
            family("pawl_http_requests_total", "Requests of clients.", "counter", [("", json.meters.requests)])
            family(
                "pawl_http_answers_total", "Answers to clients by the class of their status.", "counter",
                json.meters.answers.map { ("{class=\"\($0.name)\"}", $0.count) })
            family(
                "pawl_upstream_connections", "Connections to the backend.", "gauge",
                [("", json.meters.upstreamConnections)])
        }
        let policy = environment.policies.snapshot.everyone
        family(
            "pawl_policy", "The policy for everyone.", "gauge",
            Policy.allCases.map { ("{policy=\"\($0.name)\"}", $0 == policy ? 1 : 0) })
        return page
    }
}
