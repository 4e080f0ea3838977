// Counters in the text format that Prometheus reads. No label ever names a person or a room.

import GatewayCore
import GatewayNIO
import RequestQueue

/// Writes the page of `/metrics`.
enum MetricsPage {
    static func text(_ gateway: Gateway) -> String {
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
            "pawl_conversations_latched", "Conversations that never slip back by themselves.", "gauge",
            [("", environment.latches.count)])
        family("pawl_vault_jobs_waiting", "Jobs that wait for the vault.", "gauge", [("", gateway.vault.depth)])
        if let counts = try? gateway.store.requestCounts() {
            family(
                "pawl_requests", "Writes to the backend by state.", "gauge",
                counts.map { ("{state=\"\($0.key.name)\"}", $0.value) }.sorted { $0.0 < $1.0 })
        }
        if let requests = try? gateway.reporter.requests(SystemClock.now()) {
            family(
                "pawl_requests_accepted_total",
                "Requests committed since the start, with those found waiting and those retried: done + dead + waiting.",
                "counter", [("", requests.accepted)])
            family(
                "pawl_requests_finished_total", "Requests that have ended since the start.", "counter",
                [("{outcome=\"dead\"}", requests.dead), ("{outcome=\"done\"}", requests.done)])
            family(
                "pawl_requests_waiting", "Requests that wait, held ones among them.", "gauge", [("", requests.waiting)])
            family("pawl_requests_held", "Requests that an operator holds.", "gauge", [("", requests.held)])
            family(
                "pawl_requests_oldest_seconds", "How long the oldest request has waited.", "gauge",
                [("", Int(requests.oldestSeconds ?? 0))])
        }
        let policy = environment.policies.snapshot.everyone
        family(
            "pawl_policy", "The policy for everyone.", "gauge",
            Policy.allCases.map { ("{policy=\"\($0.name)\"}", $0 == policy ? 1 : 0) })
        return page
    }
}
