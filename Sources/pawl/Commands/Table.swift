// Plain tables for terminals.

import Foundation
import Protection
import Reports

/// Formats rows as columns of text.
enum Table {
    static func text(_ head: [String], _ rows: [[String]]) -> String {
        guard !rows.isEmpty else { return "None." }
        let lines = [head] + rows.map { $0.enumerated().map { cell($1, isLast: $0 == head.count - 1) } }
        let widths = head.indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
        return lines.map { row in
            zip(row, widths).map { $0 + String(repeating: " ", count: max($1 - $0.count, 0)) }
                .joined(separator: "  ").trimmedEnd
        }.joined(separator: "\n")
    }

    /// Formats a cell as one line. Long text is cut, except in the last column, which holds sentences.
    private static func cell(_ text: String, isLast: Bool) -> String {
        let line = Printable.line(text)
        guard !isLast, line.count > Printable.nameLimit else { return line }
        return line.prefix(Printable.nameLimit - 1) + "…"
    }

    /// Formats a time for people and scripts (ISO 8601, UTC).
    static func time(_ milliseconds: Int64) -> String { date(milliseconds).formatted(.iso8601) }

    /// Converts a stored time to a date from 1970 to 9999: calendars do not accept all numbers.
    static func date(_ milliseconds: Int64) -> Date {
        Date(timeIntervalSince1970: Double(min(max(milliseconds, 0), 253_402_300_799_000)) / 1000)
    }
}

extension String {
    fileprivate var trimmedEnd: String {
        var text = self
        while text.last == " " { text.removeLast() }
        return text
    }
}

/// Formats reports as text.
enum StatusText {
    static func text(_ report: StatusReport) -> String {
        var lines = situation(report)
        lines += [requests(report), "", messages(report), "", blockers(report)]
        for warning in report.warnings { lines.append("\nNote: " + Printable.line(warning)) }
        return lines.joined(separator: "\n")
    }

    /// The policy, the backend, people and conversations, a line each.
    static func situation(_ report: StatusReport) -> [String] {
        let own = counted(report.accountPolicies, "account or room has its own", "accounts and rooms have their own")
        return [
            "policy         \(report.policy) (\(report.policySource))" + (report.accountPolicies > 0 ? ", \(own)" : ""),
            "backend        \(report.upstream)",
            report.accounts.behind.map {
                "connections    \(report.connections) now; \($0) accounts are behind this gateway"
            }
                ?? "connections    \(report.connections) now, \(report.accounts.connectedNow) registered",
            "people         \(report.accounts.legacy) legacy, \(report.accounts.askedForCapability) asked for encryption",
            "custody        \(report.accounts.custodyGateway) devices held by this gateway, "
                + "\(report.accounts.custodyDevice) by people themselves",
            "conversations  \(report.conversations.gateway) end-to-gateway, \(report.conversations.device) end-to-end",
        ]
    }

    private static func requests(_ report: StatusReport) -> String {
        "requests       \(report.requests.accepted) accepted since the start = \(report.requests.done) done + "
            + "\(report.requests.dead) dead + \(report.requests.waiting) waiting"
            + (report.requests.held > 0 ? ", of which \(report.requests.held) held" : "")
            + (report.requests.oldestSeconds.map { "; the oldest waits for \($0) s" } ?? "")
            + (report.requests.withoutLogin.map { $0 > 0 ? "; \($0) for a login" : "" } ?? "")
            + (report.requests.heldAccounts.isEmpty
                ? ""
                : "; held is all of \(report.requests.heldAccounts.map(Printable.line).joined(separator: ", "))")
    }

    /// The table of messages by protection.
    ///
    /// - Parameter first: a row above those of the report.
    static func messages(_ report: StatusReport, first: [String]? = nil) -> String {
        Table.text(
            ["MESSAGES", "PLAINTEXT", "END-TO-GATEWAY", "END-TO-END", "SERVICES", "REFUSED"],
            (first.map { [$0] } ?? [])
                + report.shares.map {
                    [$0.period, "\($0.plaintext)", "\($0.gateway)", "\($0.device)", "\($0.exempt)", "\($0.refused)"]
                })
    }

    /// What stands in the way of `hosted`.
    static func blockers(_ report: StatusReport) -> String {
        guard !report.blockers.isEmpty else {
            return "`hosted` would refuse nothing that was observed, and no room has outsiders."
        }
        let rows = report.blockers.map { [$0.what, $0.name, "\($0.messages)"] }
        return "What `hosted` would refuse, and outsiders who could not read a protected room:\n"
            + Table.text(["WHAT", "NAME", "MESSAGES"], rows)
    }

    private static func counted(_ count: Int, _ one: String, _ many: String) -> String {
        "\(count) \(count == 1 ? one : many)"
    }

    /// Joins at most twenty names.
    private static func shortened(_ names: [String]) -> String {
        names.prefix(20).joined(separator: ", ") + (names.count > 20 ? " and \(names.count - 20) more" : "")
    }

    static func text(_ report: SimulationReport) -> String {
        let people = counted(report.people.count, "person", "people")
        let outsiders = counted(report.outsiders.count, "outsider", "outsiders")
        var lines = [
            "\(report.policy): would have refused \(report.refusedMessages) of \(report.messages) messages and requests "
                + "observed, of \(people), to \(outsiders)."
        ]
        if !report.refused.isEmpty {
            lines.append(
                Table.text(
                    ["FROM", "TO", "WHY", "MESSAGES"],
                    report.refused.prefix(100).map { [$0.sender, $0.target, $0.reason, "\($0.messages)"] }))
        }
        for (what, texts) in [
            ("Commands that would be sent without their text", report.strippedTexts),
            ("Commands whose text the server would still read", report.passedTexts),
        ] where !texts.isEmpty {
            let counts = texts.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }
            lines.append("\(what): \(counts.joined(separator: ", "))")
        }
        if !report.latches.isEmpty {
            lines.append(
                "Protected for good from the next message on (\(report.latches.count)): "
                    + shortened(report.latches.map(\.conversation)))
        }
        if !report.blinded.isEmpty {
            lines.append("These are not behind the gateway and could no longer read there:")
            lines.append(
                Table.text(
                    ["NAME", "CONVERSATIONS"],
                    report.blinded.prefix(100).map { [$0.name, shortened($0.conversations)] }))
        }
        if !report.neverObserved.isEmpty {
            let known = counted(report.neverObserved.count, "known person", "known people")
            lines.append("Nothing was observed of \(known): " + shortened(report.neverObserved))
        }
        return lines.joined(separator: "\n")
    }
}
