// Commands that show reports.

import ArgumentParser
import DeviceDirectory
import Foundation
import Protection
import StorePort

/// `pawl status`
struct Status: AdminCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show how far the migration is and what blocks it.",
        discussion: "Protection `gateway` is end-to-gateway: the operator of the gateway can read the messages.")

    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let report = try await gateway.status()
        return common.json ? try .json(report) : .text(StatusText.text(report))
    }
}

/// `pawl users`
struct Users: AdminCommand {
    static let configuration = CommandConfiguration(abstract: "List the people seen, and what their clients can do.")

    @OptionGroup var common: CommonOptions
    @Option(help: "At most this many.") var limit = RowLimit(1000)

    struct Row: Codable {
        var name: String
        var verified: Bool
        var capability: String
        var custody: String
        var policy: String
        var connected: Bool
        var firstSeen: String
        var lastSeen: String
        var software: [String]
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let evidence = try gateway.store.evidence(limit: 100_000)
        // Rows of people without a login have their nick.
        let devices = Set(
            try gateway.store.load().devices.map { device in
                device.account.isVerified ? device.account.name : gateway.displayName(device.account).lowercased()
            })
        let capable = gateway.capableAccounts
        let sealing = gateway.front.sealingDevices
        let verified = Set(
            gateway.deviceOwners.filter { !sealing.isDisjoint(with: $0.entry.published) }.map(\.account.name))
        let present = gateway.front.presence()
        let snapshot = gateway.tables.policies.snapshot
        let rows = Dictionary(grouping: evidence, by: \.name).map { name, rows in
            let isAccount = rows.contains(where: \.verified)
            let account = AccountID.services(name)
            return Row(
                name: name, verified: isAccount,
                capability: verified.contains(name)
                    ? "verified"
                    : capable.contains(name) ? "capable" : rows.contains(where: \.asked) ? "asked" : "legacy",
                custody: capable.contains(name) ? "device" : devices.contains(name) ? "gateway" : "none",
                policy: snapshot.policy(of: isAccount ? account : nil).name,
                connected: present.accounts.contains(account) || (!isAccount && present.nicks.contains(name)),
                firstSeen: Table.time(rows.map(\.firstSeen).min() ?? 0),
                lastSeen: Table.time(rows.map(\.lastSeen).max() ?? 0),
                software: Set(rows.map(\.software)).subtracting([""]).sorted())
        }.sorted { $0.name < $1.name }.prefix(limit.rows)
        if common.json { return try .json(Array(rows)) }
        return .text(
            Table.text(
                ["NAME", "ACCOUNT", "CLIENT", "CUSTODY", "POLICY", "HERE", "LAST SEEN", "SOFTWARE"],
                rows.map {
                    [
                        $0.name, $0.verified ? "verified" : "nick only", $0.capability, $0.custody, $0.policy,
                        $0.connected ? "yes" : "no", $0.lastSeen, $0.software.joined(separator: ", "),
                    ]
                }))
    }
}

/// `pawl clients`
struct Clients: AdminCommand {
    static let configuration = CommandConfiguration(abstract: "List client software, and how many people use it.")

    @OptionGroup var common: CommonOptions

    struct Row: Codable {
        var software: String
        var people: Int
        var askedForCapability: Int
        /// The people among them with a published device.
        var capable: Int
        var lastSeen: String
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let capable = gateway.capableAccounts
        let evidence = try gateway.store.evidence(limit: 100_000)
        // Most clients name their software some time after they have come.
        let known = Set(evidence.filter { !$0.software.isEmpty }.map(\.name))
        let rows = Dictionary(
            grouping: evidence.filter { !$0.software.isEmpty || !known.contains($0.name) }, by: \.software
        )
        .map { software, rows in
            Row(
                software: software.isEmpty ? "(not known)" : software, people: Set(rows.map(\.name)).count,
                askedForCapability: Set(rows.filter(\.asked).map(\.name)).count,
                capable: Set(rows.filter(\.asked).map(\.name)).intersection(capable).count,
                lastSeen: Table.time(rows.map(\.lastSeen).max() ?? 0))
        }.sorted { ($1.people, $0.software) < ($0.people, $1.software) }
        if common.json { return try .json(rows) }
        return .text(
            Table.text(
                ["SOFTWARE", "PEOPLE", "ASKED FOR ENCRYPTION", "CAPABLE", "LAST SEEN"],
                rows.map {
                    [$0.software, "\($0.people)", "\($0.askedForCapability)", "\($0.capable)", $0.lastSeen]
                }))
    }
}

/// `pawl audit`
struct Audit: AdminCommand {
    static let configuration = CommandConfiguration(abstract: "Show the acts of operators. Entries are never removed.")

    @OptionGroup var common: CommonOptions
    @Option(help: "At most this many, the newest.") var limit = RowLimit(100)

    struct Row: Codable {
        var at: String
        var actor: String
        var action: String
        var detail: String
    }

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let rows = try gateway.store.auditLog(limit: limit.rows).map {
            Row(at: Table.time($0.at), actor: $0.actor, action: $0.action, detail: $0.detail)
        }
        if common.json { return try .json(rows) }
        return .text(
            Table.text(["TIME", "WHO", "WHAT", "DETAIL"], rows.map { [$0.at, $0.actor, $0.action, $0.detail] }))
    }
}

extension Gateway {
    /// Accounts with published devices.
    fileprivate var capableAccounts: Set<String> {
        Set(deviceOwners.filter { !$0.entry.published.isEmpty }.map(\.account.name))
    }
}
