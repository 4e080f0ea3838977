// Commands for a running sidecar: the known keys, and a person's decisions about them.

import ArgumentParser
import Devices
import DoubleRatchet
import Envelope
import Foundation
import IRCGateway
import NIOSupport
import Protection
import Reports
import Vault

/// `pawl sidecar status`
struct SidecarStatus: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the network, your devices, your rooms, and whose keys are known.")
    @OptionGroup var common: CommonOptions

    struct Report: Codable {
        var network: String
        var connections: Int
        var require: Bool
        var devices: [Device]
        var rooms: [RoomReport]
        var people: [Person]
    }

    struct Device: Codable {
        var device: String
        var isThisOne: Bool
    }

    struct Person: Codable {
        var name: String
        /// `known`, `verified`, `changed`, or `forked`: two versions of the device list are shown.
        var keys: String
        var devices: Int
        var since: String
    }

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let (gateway, peers) = (sidecar.gateway, sidecar.peers)
        let own = peers.own
        let report = Report(
            network: sidecar.front.environment.settings.network, connections: gateway.server.connectionCount,
            require: gateway.tables.policies.snapshot.everyone.demandsDevices,
            devices: (own?.deviceList.current ?? []).map {
                Device(device: Self.name($0), isThisOne: $0.id == own?.device)
            },
            rooms: try await sidecar.rooms().map(\.report),
            people: peers.all.map {
                Person(
                    name: $0.name.displayName,
                    keys: Self.keys(of: $0),
                    devices: $0.deviceList.current.count, since: Table.time($0.since))
            })
        if common.json { return try .json(report) }
        let people = Table.text(
            ["PERSON", "KEYS", "DEVICES", "SINCE"],
            report.people.map { [$0.name, $0.keys, String($0.devices), $0.since] })
        let rooms = Table.text(
            ["ROOM", "PROTECTION", "KEPT", "OTHERS", "CANNOT READ"],
            report.rooms.map {
                [
                    $0.name, $0.protection, $0.isProtected ? "yes" : "no", String($0.others),
                    $0.outsiders.joined(separator: ", "),
                ]
            })
        return .text(
            """
            network      \(report.network)
            clients      \(report.connections) connected
            plain text   \(report.require ? "refused" : "goes to people without keys")
            your devices \(report.devices.map { $0.device + ($0.isThisOne ? " (this one)" : "") }.joined(separator: ", "))

            \(people)\(report.rooms.isEmpty ? "" : "\n\n" + rooms)
            """)
    }

    private static func keys(of peer: Peer) -> String {
        guard peer.offered == nil else { return peer.isForked ? "forked" : "changed" }
        return peer.isVerified ? "verified" : "known"
    }

    /// The id of a device as people see it, in 16 hexadecimal digits.
    static func name(_ device: ListedDevice) -> String {
        let digits = String(device.id.value, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}

/// `pawl sidecar verify`
struct SidecarVerify: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Show the safety number you share with someone, and your contact card as a QR code.",
        discussion: """
            Compare it by other means than this network, in a call or face to face. If both sides see the same digits, \
            nobody intercepts your messages; confirm it with --matches. The QR code is your contact card: the other person scans it \
            from your screen with an app on PawlMessenger, or gives its text to pawl sidecar scan, and compares no digits. \
            If the keys have changed, the digits are those of the new ones: compare, then accept, then --matches.
            """)
    @Argument(help: "A nick or an account.") var nick: String
    @Flag(help: "Confirm that you have compared the digits and they are the same.") var matches = false
    @Option(help: "Compare the keys with a contact card that you have from the person: pawl:contact?...") var card:
        String?
    @Flag(help: "No QR code.") var plain = false
    @Flag(help: "Plain QR code without colours (default if the output is not a terminal).") var uncoloured = false
    /// For a terminal on which the digits would scroll away.
    @Flag(help: .hidden) var short = false
    @OptionGroup var common: CommonOptions

    /// Lines of the answer without its QR code, with one that wraps.
    private static let linesBesideCode = 14

    struct Report: Codable {
        var name: String
        /// The safety number of the known keys.
        var safetyNumber: String
        /// Whether the current keys have been compared; false after a change, even if the old keys were compared.
        var verified: Bool
        var changed: Bool
        /// Whether the new keys are another version of the known device list, with the same safety number.
        var forked: Bool
        /// The devices of the known list, and of the other one if one was offered.
        var devices: [String]
        var offeredDevices: [String]
        /// The safety number of the new keys, if new ones were offered.
        var offeredSafetyNumber: String?
        /// Your own contact card; nil while no client is connected.
        var card: String?
    }

    func run() async throws {
        let isSmall = TerminalSize.output.map { $0.rows < CardCode.rows + Self.linesBesideCode } ?? false
        try await Self.perform(common, adding: isSmall && !short ? ["--short"] : [])
    }

    /// Sends the words of the command line, with the option that the output asks for.
    static func perform(_ common: CommonOptions, adding options: [String] = []) async throws {
        let words = Array(CommandLine.arguments.dropFirst()) + options
        try await AdminClient(common).perform(isatty(1) == 1 ? words : words + ["--uncoloured"])
    }

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let peer = try sidecar.peer(named: nick)
        if let card {
            return try await sidecar.compare(SidecarScan.read(card), with: peer, calledBy: nick, json: common.json)
        }
        if matches {
            guard !peer.isForked else { throw Self.fork(nick) }
            guard peer.offered == nil else {
                throw AdminFailure(
                    .keysChanged,
                    "The keys of \(nick) have changed. Compare the number of the new ones (pawl sidecar verify \(nick)), then "
                        + "accept them (pawl sidecar accept \(nick)), then use --matches.")
            }
            try await sidecar.decide(.verify, about: peer.name)
            return try .done(
                "The keys of \(nick) are verified. Messages from them are marked [e2e verified].", json: common.json)
        }
        let number = try sidecar.safetyNumber(with: peer.deviceList)
        let offered = try peer.offered.map { try sidecar.safetyNumber(with: $0) }
        let report = Report(
            name: peer.name.displayName, safetyNumber: number.description,
            verified: peer.isVerified && offered == nil,
            changed: peer.offered != nil, forked: peer.isForked,
            devices: peer.deviceList.current.map(SidecarStatus.name),
            offeredDevices: (peer.offered?.current ?? []).map(SidecarStatus.name),
            offeredSafetyNumber: offered?.description, card: sidecar.card()?.uri)
        if common.json { return try .json(report) }
        guard !peer.isForked else { return .text(words(of: report)) }
        let shown = offered ?? number
        let title =
            offered == nil
            ? "The safety number you share with \(nick):"
            : "\(nick) shows new keys. The safety number you share with \(nick) with the NEW keys:"
        var lines = [title, ""]
        lines += Self.rows(of: shown.description).map { "    " + $0 }
        if !plain, let uri = report.card {
            lines += ["", "Your contact card, to be scanned or typed by \(nick):"]
            if short {
                lines += ["", uri, "", "As a QR code: pawl sidecar card"]
            } else {
                if let code = CardCode.terminal(uri, coloured: !uncoloured) { lines += ["", code] }
                lines += ["", uri]
            }
        }
        guard offered == nil else {
            let compared =
                peer.isVerified
                ? "You compared the number of the OLD keys. This is another one, and you have not compared it."
                : "You have not compared this number."
            lines += [
                "", compared, "Nothing is sent to \(nick) until you accept the new keys. In this order:",
                "1. Compare the digits with \(nick) by other means than this network. If they differ, do not go on: "
                    + "pawl sidecar accept \(nick) --known keeps the keys that you know.",
                "2. pawl sidecar accept \(nick)", "3. pawl sidecar verify \(nick) --matches",
            ]
            return .picture(lines.joined(separator: "\n"))
        }
        lines += ["", "If \(nick) sees the same digits: pawl sidecar verify \(nick) --matches"]
        if peer.isVerified { lines += ["You have compared it before."] }
        return .picture(lines.joined(separator: "\n"))
    }

    /// What a person reads of a fork.
    private func words(of report: Report) -> String {
        """
        \(nick) shows two versions of the list of their devices, and neither continues the other. One of their devices may \
        be stolen. The safety number is the same for both, so comparing it does not help.

            devices in the version you know: \(report.devices.joined(separator: ", "))
            devices in the other version:    \(report.offeredDevices.joined(separator: ", "))

        Nothing is sent to \(nick) until you decide. Ask \(nick) by other means than this network which devices are theirs \
        (pawl sidecar status shows them on their side).
        The other version is right:    pawl sidecar accept \(nick)
        The one that you know is right: pawl sidecar accept \(nick) --known
        """
    }

    static func fork(_ nick: String) -> AdminFailure {
        AdminFailure(
            .keysChanged,
            "\(nick) shows two versions of the list of their devices, which have the same safety number and the same card. "
                + "Decide first which one is right: pawl sidecar verify \(nick) shows both.")
    }

    /// Four groups of five digits per row.
    private static func rows(of number: String) -> [String] {
        let groups = number.split(separator: " ")
        return stride(from: 0, to: groups.count, by: 4).map { start in
            groups[start..<min(start + 4, groups.count)].joined(separator: " ")
        }
    }
}

/// `pawl sidecar accept`
struct SidecarAccept: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "accept",
        abstract: "Accept the new keys of someone whose keys have changed, or one of two device lists.")
    @Argument(help: "A nick or an account.") var nick: String
    @Flag(help: "Keep the keys, or the version of the device list, that you know.") var known = false
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let peer = try sidecar.peer(named: nick)
        guard let offered = peer.offered else {
            throw AdminFailure(.noNewKeys, "\(nick) has shown no new keys. See: pawl sidecar status.")
        }
        if known { return try await keep(peer, sidecar) }
        if peer.isForked { return try await accept(fork: offered, peer, sidecar) }
        let words = "accept \(peer.name.text) \(offered.root)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            let question = """
                From now on the new keys count as those of \(nick). Before you accept them, compare the number that \
                pawl sidecar verify \(nick) shows.
                """
            return sidecar.gateway.question(question, words)
        }
        try await sidecar.decide(.accept, about: peer.name)
        return try .done(
            "The new keys of \(nick) are accepted. If you have compared their number: pawl sidecar verify \(nick) --matches",
            json: common.json)
    }
}

extension SidecarAccept {
    private func keep(_ peer: Peer, _ sidecar: Sidecar) async throws -> AdminAnswer {
        guard peer.isForked else { return try await keepKeys(peer, sidecar) }
        let words = "keep \(peer.name.text) \(peer.deviceList.current)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            let devices = peer.deviceList.current.map(SidecarStatus.name).joined(separator: ", ")
            return sidecar.gateway.question(
                "The devices of \(nick) stay \(devices). The other version is ignored.", words)
        }
        try await sidecar.decide(.keep, about: peer.name)
        return try .done(
            "The known version of the device list of \(nick) is kept. Ask \(nick) to remove a lost device: "
                + "pawl sidecar revoke.", json: common.json)
    }

    private func keepKeys(_ peer: Peer, _ sidecar: Sidecar) async throws -> AdminAnswer {
        let words = "keep \(peer.name.text) \(peer.deviceList.root)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            return sidecar.gateway.question(
                "The keys of \(nick) that you know stay, and what you write to \(nick) is encrypted for them again. The "
                    + "other keys are ignored; if they are shown again, you are asked again.", words)
        }
        try await sidecar.decide(.keep, about: peer.name)
        return try .done("The keys of \(nick) that you know are kept.", json: common.json)
    }

    private func accept(fork offered: DeviceList, _ peer: Peer, _ sidecar: Sidecar) async throws -> AdminAnswer {
        let words = "accept \(peer.name.text) \(offered.current)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            let devices = offered.current.map(SidecarStatus.name).joined(separator: ", ")
            return sidecar.gateway.question(
                "From now on these are the devices of \(nick): \(devices). The safety number does not show whether that is "
                    + "right: ask \(nick) by other means than this network.", words)
        }
        try await sidecar.decide(.accept, about: peer.name)
        guard sidecar.peers[peer.name]?.isForked != true else {
            throw AdminFailure(
                .keysChanged,
                "The other version has another key for a device that is known already. Forget the keys of \(nick), and "
                    + "exchange new ones: pawl sidecar forget \(nick).")
        }
        return try .done(
            "The other version of the device list of \(nick) is accepted. The safety number is that of before; compare it "
                + "and confirm it again: pawl sidecar verify \(nick) --matches", json: common.json)
    }
}

/// `pawl sidecar forget`
struct SidecarForget: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "forget",
        abstract: "Forget someone's keys; messages to them may be sent in plain text until keys are exchanged again.")
    @Argument(help: "A nick or an account.") var nick: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let peer = try sidecar.peer(named: nick)
        let words = "forget \(peer.name.text)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            return sidecar.gateway.question(
                "The keys of \(nick) are forgotten, and messages to them are sent in plain text until keys are exchanged anew.",
                words)
        }
        try await sidecar.decide(.forget, about: peer.name)
        try sidecar.lowerLatch(ofPeer: peer.name)
        return try .done("The keys of \(nick) are forgotten.", json: common.json)
    }
}
