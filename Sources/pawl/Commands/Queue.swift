// Commands that show the requests for the backend.

import ArgumentParser
import Foundation
import Outbox
import PawlConfiguration
import Protection
import RequestQueue
import StorePort

/// `pawl queue`
struct QueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue", abstract: "Show writes to the backend, and hold, drop or retry them.",
        discussion: """
            A request holds ciphertext only. In front of a backend that speaks HTTP, done requests stay visible for a day, and \
            dead ones until they are removed. On IRC, finished requests stay for an hour, at most the last 50,000.
            """,
        subcommands: [List.self, Show.self, Hold.self, Release.self, Drop.self, Retry.self, Purge.self, Repair.self],
        defaultSubcommand: List.self)

    /// `pawl queue list`
    struct List: AdminCommand {
        static let configuration = CommandConfiguration(abstract: "List requests. They hold ciphertext only.")

        @OptionGroup var common: CommonOptions
        @Option(help: "pending, done or dead.") var state: String?
        @Option(help: "At most this many.") var limit = RowLimit(100)

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let states = [RequestState.pending, .done, .dead].filter { state == nil || $0.name == state }
            guard !states.isEmpty else {
                let meant = NearestName.of(state ?? "", among: ["pending", "done", "dead"])
                throw AdminFailure(
                    .noSuchState,
                    "There is no state \(state ?? ""). \(meant.map { "Did you mean \($0)? " } ?? "")"
                        + "Use pending, done or dead.")
            }
            return try answer(try await gateway.front.requestRows(states: states, limit: limit.rows))
        }

        private func answer(_ rows: [RequestRow]) throws -> AdminAnswer {
            if common.json { return try .json(rows) }
            return .text(
                Table.text(
                    ["ID", "STATE", "ACCOUNT", "TARGET", "LINES", "ACCEPTED", "REMOTE ID", "REASON"],
                    rows.map {
                        [
                            $0.id, $0.held ? "\($0.state), held" : $0.state, $0.account, $0.target, "\($0.lines)",
                            $0.accepted, $0.remoteID ?? "", $0.reason ?? "",
                        ]
                    }))
        }
    }

    /// `pawl queue show`
    struct Show: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show one request in full, and what it waits for.")

        @Argument(help: "The id, from pawl queue list.") var id: UInt64
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let report = try await gateway.front.requestReport(id)
            return common.json ? try .json(report) : .text(report.text)
        }
    }
}
