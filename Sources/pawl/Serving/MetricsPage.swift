// Counters in the text format that Prometheus reads. No label ever names a person or a room.
//
// No swift-metrics: ``Tally`` is the one place that counts, because the store and `pawl status` read it too. An
// exporter would add a second registry of the same numbers and of those that the store has.

import NIOSupport
import PostgresStore
import Protection
import Reports
import RequestQueue
import RequestQueueClient
import SQLiteKit
import StorePort

/// Writes the page of `/metrics`.
struct MetricsPage {
    private(set) var text = ""

    /// Returns the page of a running gateway.
    static func text(_ gateway: Gateway) async -> String {
        var page = MetricsPage()
        page.addGateway(gateway)
        await gateway.front.addMetrics(to: &page)
        if let standby = gateway.standby { page.addGateways(standby) }
        let policy = gateway.tables.policies.snapshot.everyone
        page.family(
            "pawl_policy", "The policy for everyone.", "gauge",
            Policy.allCases.map { ("{policy=\"\($0.name)\"}", $0 == policy ? 1 : 0) })
        return page.text
    }

    /// Adds a metric with its samples.
    mutating func family(_ name: String, _ help: String, _ type: String, _ samples: [(labels: String, value: Int)]) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
        for sample in samples { text += "\(name)\(sample.labels) \(sample.value)\n" }
    }

    private mutating func addGateway(_ gateway: Gateway) {
        family(
            "pawl_events_total", "What became of messages, lines and connections.", "counter",
            gateway.tables.tally.all.map { ("{event=\"\($0.kind.name)\"}", $0.count) })
        family("pawl_downstreams_active", "Clients connected now.", "gauge", [("", gateway.server.connectionCount)])
        family(
            "pawl_conversations_latched", "Protected conversations.", "gauge",
            [("", gateway.tables.latches.count)])
        family(
            "pawl_store_failing", "Whether a store cannot commit, as with a full disk or a deleted directory.",
            "gauge",
            [("", gateway.storeProblem == nil ? 0 : 1)])
        family(
            "pawl_store_failed_commits_total", "Commits that failed.", "counter",
            [("", gateway.health.failedCommits)])
        family("pawl_vault_jobs_waiting", "Jobs that wait for the vault.", "gauge", [("", gateway.front.waitingJobs)])
        guard let memory = Allocator.memory else { return }
        family("pawl_memory_allocated_bytes", "Memory that the program uses.", "gauge", [("", memory.allocated)])
        family(
            "pawl_memory_resident_bytes", "The same with what its allocator keeps for later.", "gauge",
            [("", memory.resident)])
    }

    /// Adds what is known of the gateways of a database.
    mutating func addGateways(_ standby: Standby) {
        let gateways = standby.membership.gateways()
        let own = gateways.first(where: \.isSelf)
        family(
            "pawl_gateway_serving", "Whether this gateway serves clients, and does not stand by.", "gauge",
            [("", standby.gateway == nil ? 0 : 1)])
        family(
            "pawl_gateways", "Gateways of the database by state.", "gauge",
            GatewayEntry.State.allCases.map { state in
                ("{state=\"\(state.rawValue)\"}", gateways.count { $0.state == state })
            })
        family("pawl_shards_owned", "Shards of the database that this gateway owns.", "gauge", [("", own?.shards ?? 0)])
        family(
            "pawl_beat_age_seconds", "Seconds since the database has answered a beat of this gateway.", "gauge",
            [("", Int((standby.membership.beatAge ?? 0) / 1000))])
        let takeover = standby.takeoverSeconds
        family(
            "pawl_takeovers_total", "Takeovers by this process from a gateway that had stopped.", "counter",
            [("", takeover == nil ? 0 : 1)])
        guard let takeover else { return }
        family(
            "pawl_takeover_seconds", "How long the takeover lasted, from the last beat of the other gateway.", "gauge",
            [("", takeover)])
    }

    /// Adds the totals of requests.
    mutating func add(_ requests: StatusReport.Requests) {
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
}
