// `pawl devices`: people's own devices, as the directory of a gateway has them.

import ArgumentParser
import CommitLoop
import DeviceDirectory
import Devices
import Envelope
import Foundation
import NIOCore
import NIOPosix
import NIOSupport
import Protection
import StorePort
import Vault

/// `pawl devices`
struct DevicesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "devices", abstract: "List people's own devices, remove a lost one, or block those of an account.",
        subcommands: [List.self, Revoke.self, Block.self, Unblock.self])

    /// `pawl devices list`
    struct List: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the devices whose public keys the directory has. The private keys stay with their owners.")
        @Option(help: "Only this account's.") var account: String?
        @OptionGroup var common: CommonOptions

        struct Row: Codable {
            var account: String
            var device: String
            /// `published`, `listed` by the account without keys here, `blocked`, or `forked`: another device has tried to
            /// publish a second version of the account's list.
            var state: String
            var connected: Bool
            /// In front of a JSON backend: the gateway has received an envelope of it since its start.
            var sealing: Bool
            var oneTimePrekeys: Int
            var provenAt: String
        }

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let present = gateway.front.presence().devices
            let sealing = gateway.front.sealingDevices
            let wanted = account.map(gateway.account(named:))
            let rows = try gateway.directory().all.filter { wanted == nil || $0.account == wanted }
                .flatMap { known, entry in
                    entry.devices.map { listed in
                        Row(
                            account: gateway.displayName(known), device: SidecarStatus.name(listed),
                            state: entry.isBlocked
                                ? "blocked"
                                : entry.isForked
                                    ? "forked" : entry.published.contains(listed.id) ? "published" : "listed",
                            connected: present.contains(listed.id),
                            sealing: sealing.contains(listed.id),
                            oneTimePrekeys: entry.oneTime[listed.id] ?? 0,
                            provenAt: Table.time(entry.provenAt))
                    }
                }
            if common.json { return try .json(rows) }
            return .text(
                Table.text(
                    ["ACCOUNT", "DEVICE", "STATE", "HERE", "PREKEYS", "PROVEN"],
                    rows.map {
                        [
                            $0.account, $0.device, $0.state, $0.connected ? "yes" : "no", "\($0.oneTimePrekeys)",
                            $0.provenAt,
                        ]
                    }))
        }
    }

    /// `pawl devices revoke`
    struct Revoke: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove a device, or all of an account, from the directory. Its keys are no longer found here.",
            discussion: """
                The account's own list still names it, and people who know it continue to use it. Only its owner can \
                remove a lost device for good, with another device (pawl sidecar revoke). To keep an account from \
                publishing again: pawl devices block.
                """)
        @Argument(help: "The account.") var account: String
        @Argument(help: "The device, as pawl devices list shows it; without it, all of the account.") var device:
            String?
        @Option(help: "The token that the gateway gave for this.") var confirm: String?
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let known = gateway.account(named: account)
            guard let entry = try gateway.directory()[known] else {
                throw AdminFailure(.noDevices, "The directory has no devices of \(account). See: pawl devices list.")
            }
            let id = device.flatMap { UInt64($0, radix: 16) }.map { DeviceID($0) }
            guard device == nil || id.map(entry.published.contains) == true else {
                throw AdminFailure(
                    .noSuchDevice, "\(account) has not published a device \(device ?? ""). See: pawl devices list.")
            }
            let what = device.map { "the device \($0) of \(account)" } ?? "all devices of \(account)"
            let words = "devices revoke \(known.text) \(device ?? "")"
            guard gateway.confirmations.accept(confirm, for: words) else {
                return gateway.question("The directory will no longer have \(what).", words)
            }
            try await gateway.direct(.remove(known, id), "revoke \(what)", of: known)
            return try .done(
                "Removed: \(what). They can publish again; to prevent that: pawl devices block \(account).",
                json: common.json)
        }
    }

    /// `pawl devices block`
    struct Block: AdminCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep an account from using devices of its own here, until it is unblocked.")
        @Argument(help: "The account.") var account: String
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let known = gateway.account(named: account)
            guard try gateway.directory()[known] != nil else {
                throw AdminFailure(.noDevices, "The directory has no devices of \(account). See: pawl devices list.")
            }
            try await gateway.direct(.block(known, true), "block \(account)", of: known)
            return try .done(
                "The devices of \(account) are blocked. To undo it: pawl devices unblock \(account).", json: common.json
            )
        }
    }

    /// `pawl devices unblock`
    struct Unblock: AdminCommand {
        static let configuration = CommandConfiguration(abstract: "Let an account use its devices again.")
        @Argument(help: "The account.") var account: String
        @OptionGroup var common: CommonOptions

        func answer(_ gateway: Gateway) async throws -> AdminAnswer {
            let known = gateway.account(named: account)
            try await gateway.direct(.block(known, false), "unblock \(account)", of: known)
            return try .done(
                "\(account) may use devices of its own again; they publish their keys at their next login.",
                json: common.json)
        }
    }
}

extension Gateway {
    /// Changes the directory, audits the change, and revokes the proofs of the account's connections.
    func direct(_ request: DirectoryJob.Request, _ detail: String, of account: AccountID) async throws {
        _ = try directory()
        let job = DirectoryJob(connection: ConnectionID(0), id: 0, account: account, request: request)
        try front.change(job, [audit("devices", detail)])
        try await front.drain()
        front.revokeProofs(of: account, "an operator has changed your devices: \(detail)")
    }
}
