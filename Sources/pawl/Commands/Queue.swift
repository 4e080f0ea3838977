// Commands that show the requests for the backend.

import ArgumentParser
import Foundation
import IRCGateway
import Outbox
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

        struct Row: Codable {
            var id: String
            var state: String
            var held: Bool
            var account: String
            var target: String
            var lines: Int
            var accepted: String
            var remoteID: String?
            var reason: String?
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let states = [RequestState.pending, .done, .dead].filter { state == nil || $0.name == state }
            guard !states.isEmpty else {
                throw AdminFailure("There is no state \(state ?? ""). Use pending, done or dead.")
            }
            let gate = gateway.environment.requests.gate
            if let writes = gateway.json?.writes {
                return try answer(try await writes.rows(states: states, limit: limit.rows, isHeld: gateway.holdsAll))
            }
            let rows = try gateway.store.requests(states: states, limit: limit.rows).map {
                Row(
                    id: "\($0.id)", state: $0.state.name, held: $0.state == .pending && gate.isHeld($0),
                    account: gateway.displayName(AccountID(text: $0.account)), target: $0.target,
                    lines: $0.bodies.count, accepted: Table.time($0.acceptedAt), remoteID: $0.remoteID,
                    reason: $0.reason)
            }
            return try answer(rows)
        }

        private func answer(_ rows: [Row]) throws -> AdminAnswer {
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

        struct Report: Codable {
            var id: String
            var state: String
            var held: Bool
            var account: String
            var recipient: String
            var target: String
            var verb: String
            var lines: Int
            var bytes: Int
            var accepted: String
            var finished: String?
            var attempts: Int
            var remoteID: String?
            var reason: String?
            var waitsFor: String?
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            if let writes = gateway.json?.writes {
                let report = try await WriteReport(try writes.request(id), on: gateway, writes)
                return common.json ? try .json(report) : .text(report.text)
            }
            let request = try gateway.request(id)
            let account = AccountID(text: request.account)
            let isPending = request.state == .pending
            let report = Report(
                id: "\(id)", state: request.state.name,
                held: isPending && gateway.environment.requests.gate.isHeld(request),
                account: gateway.displayName(account), recipient: gateway.displayName(AccountID(text: request.peer)),
                target: request.target, verb: request.verb, lines: request.bodies.count,
                bytes: request.bodies.reduce(0) { $0 + $1.count }, accepted: Table.time(request.acceptedAt),
                finished: request.finishedAt.map(Table.time),
                attempts: gateway.environment.requests.traces[id]?.attempts ?? 0, remoteID: request.remoteID,
                reason: request.reason,
                waitsFor: isPending
                    ? gateway.waitsFor(request, among: try gateway.store.waitingRequests(of: account)) : nil)
            return common.json ? try .json(report) : .text(Self.text(report))
        }

        private static func text(_ report: Report) -> String {
            var lines = [
                "request     \(report.id), \(report.state)" + (report.held ? ", held by an operator" : ""),
                "from        \(report.account)",
                "to          \(report.recipient), written to as \(report.target) by \(report.verb)",
                "size        \(report.bytes) bytes of ciphertext in \(report.lines) line\(report.lines == 1 ? "" : "s")",
                "accepted    \(report.accepted)",
            ]
            if let waitsFor = report.waitsFor { lines.append("waits for   \(waitsFor)") }
            if let finished = report.finished { lines.append("ended       \(finished)") }
            if let reason = report.reason { lines.append("because     \(reason)") }
            if let remoteID = report.remoteID { lines.append("remote id   \(remoteID)") }
            lines.append("attempts    \(report.attempts) since this gateway started; times: pawl trace \(report.id)")
            return lines.map(Printable.line).joined(separator: "\n")
        }
    }
}
