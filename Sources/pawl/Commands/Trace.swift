// `pawl trace`: the life of one message.

import ArgumentParser
import Devices
import Foundation
import Outbox
import Protection
import RequestQueue
import StorePort

/// `pawl trace`
struct Trace: AdminCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show the life of one message with times: accepted, committed, sent, acknowledged, opened, shown.",
        discussion: """
            Acceptance, end and reason are in the store. The times in between are kept in memory, for the last \
            \(RequestTraces.limit) messages since the gateway started. "Shown" is the time when the line was handed to the \
            first client's connection; messages of a sidecar are opened and shown at their recipients.
            """)
    @Argument(help: "The id, from pawl queue list.") var id: UInt64
    @OptionGroup var common: CommonOptions

    struct Event: Codable {
        /// In UTC, with milliseconds.
        var at: String
        var event: String
        var detail: String?
    }

    struct Report: Codable {
        var id: String
        var state: String
        var account: String
        var target: String
        var events: [Event]
        var waitsFor: String?
        /// Times that are not known, and why.
        var notes: [String]
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        try answer(try await gateway.front.trace(id))
    }

    private func answer(_ report: Report) throws -> AdminAnswer {
        if common.json { return try .json(report) }
        var lines = [
            "message \(id) of \(Printable.line(report.account)) to \(Printable.line(report.target)): \(report.state)"
        ]
        let width = report.events.map(\.event.count).max() ?? 0
        lines += report.events.map { event in
            let name = event.event + String(repeating: " ", count: max(width - event.event.count, 0))
            return event.detail.map { "\(event.at)  \(name)  \(Printable.line($0))" } ?? "\(event.at)  \(event.event)"
        }
        if let waitsFor = report.waitsFor { lines.append("It waits for \(waitsFor).") }
        return .text((lines + report.notes.map(Printable.line)).joined(separator: "\n"))
    }

    /// Returns the events in the order of time.
    static func events(_ request: Request, _ trace: RequestTrace?) -> [Event] {
        var events: [(at: Int64, event: String, detail: String?)] = [(request.acceptedAt, "accepted", nil)]
        if let at = trace?.committedAt { events.append((at, "committed", nil)) }
        for (number, at) in (trace?.sentAt ?? []).enumerated() {
            let attempt = (trace?.attempts ?? 0) - (trace?.sentAt.count ?? 0) + number + 1
            events.append((at, "sent", attempt > 1 ? "attempt \(attempt)" : nil))
        }
        if let at = trace?.acknowledgedAt {
            events.append((at, "acknowledged", request.remoteID.map { "the backend calls it \($0)" }))
        }
        if let at = trace?.notOpenedAt, let failure = trace?.notOpened {
            events.append((at, "not opened", "a line with its id could not be opened: \(failure.rawValue)"))
        }
        if let at = trace?.openedAt { events.append((at, "opened", nil)) }
        if let at = trace?.shownAt, let count = trace?.shownTo {
            events.append((at, "shown", count > 1 ? "to \(count) clients, the first at this time" : nil))
        }
        if let at = request.finishedAt, request.state != .pending {
            events.append((at, request.state.name, request.reason))
        }
        return ordered(events)
    }

    /// Sorts events by time; events of the same time keep their order.
    static func ordered(_ events: [(at: Int64, event: String, detail: String?)]) -> [Event] {
        events.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }.map {
            Event(at: time($0.element.at), event: $0.element.event, detail: $0.element.detail)
        }
    }

    static func notes(_ request: Request, _ trace: RequestTrace?, role: Role) -> [String] {
        guard let trace else {
            return [
                "It was accepted before this gateway started, or more than \(RequestTraces.limit) messages ago: the times "
                    + "in between are no longer known."
            ]
        }
        var notes: [String] = []
        if trace.committedAt == nil { notes.append("It was committed before this gateway started.") }
        if trace.attempts == 0 { notes.append("It has not been sent since this gateway started.") }
        switch role {
        case .sidecar: notes.append("The recipient's device opens and shows it, which this sidecar does not see.")
        case .front where request.state != .done: break
        case .front:
            if trace.openedAt == nil {
                notes.append("Not opened at this gateway: no recipient was connected through it.")
            } else if trace.shownAt == nil {
                notes.append("Opened, and not yet handed to a client: it is shown when its recipient is back.")
            }
        }
        return notes
    }

    private static func time(_ milliseconds: Int64) -> String {
        Table.date(milliseconds).formatted(.iso8601.year().month().day().time(includingFractionalSeconds: true))
    }
}
