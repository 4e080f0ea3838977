// `pawl unmatched`: requests that no route of the mapping fits.

import ArgumentParser
import JSONGateway

/// `pawl unmatched`
struct Unmatched: AdminCommand {
    static let configuration = CommandConfiguration(
        abstract: "List requests that fit no route of the mapping. Under hosted each of them is refused.",
        discussion: """
            Counted in memory since the gateway started, while any policy is above off; at most \
            \(UnmatchedRequests.limit) kinds. Path segments that look like an id are shown as *. Write a route for each \
            request that people need, and load it with: pawl config reload.
            """)

    @OptionGroup var common: CommonOptions

    struct Row: Codable {
        var method: String
        var path: String
        var requests: Int
        var lastSeen: String
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let rows = try gateway.front.unmatchedRequests()
        if common.json { return try .json(rows) }
        guard !rows.isEmpty else { return .text("Every request since the gateway started has fitted a route.") }
        return .text(
            Table.text(
                ["REQUESTS", "METHOD", "PATH", "LAST SEEN"],
                rows.map { ["\($0.requests)", $0.method, $0.path, $0.lastSeen] }))
    }
}
