// Several devices of one person: adds another device to the own list, and removes a lost one.

import ArgumentParser
import Devices
import Envelope
import Foundation
import IRCGateway
import Protection
import Vault

/// `pawl sidecar devices`
struct SidecarDevices: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "devices", abstract: "List your devices, or those of someone whose keys are known.")
    @Argument(help: "A nick or an account; your own devices without it.") var nick: String?
    @OptionGroup var common: CommonOptions

    struct Report: Codable {
        /// The person; nil if the devices are your own.
        var name: String?
        var devices: [SidecarStatus.Device]
    }

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let peer = try nick.map(sidecar.peer(named:))
        let own = sidecar.peers.own
        let devices = (peer?.deviceList ?? own?.deviceList)?.current ?? []
        let report = Report(
            name: peer?.name.displayName,
            devices: devices.map {
                SidecarStatus.Device(device: SidecarStatus.name($0), isThisOne: peer == nil && $0.id == own?.device)
            })
        if common.json { return try .json(report) }
        let lines = report.devices.map { $0.device + ($0.isThisOne ? " (this one)" : "") }
        let others = peer?.offered.map { $0.current.map(SidecarStatus.name) } ?? []
        let change =
            others.isEmpty
            ? []
            : [
                "New keys that you have not accepted: \(others.joined(separator: ", ")). See: pawl sidecar verify \(nick ?? "")"
            ]
        return .text((lines.isEmpty ? ["None."] : lines + change).joined(separator: "\n"))
    }
}

/// `pawl sidecar adopt`
struct SidecarAdopt: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "adopt", abstract: "Add another sidecar of yours to your list of devices.",
        discussion: """
            Both sidecars must be connected. Send a message from one to the other, and wait some seconds until both report \
            that keys were exchanged. On the new one: pawl sidecar join NICK, with the nick of this one. Then here: \
            pawl sidecar adopt NICK, with the nick of the new one. Do this before you write to others from the new one: \
            people who already have its keys as those of another person are told that your keys have changed, and must \
            accept them.
            """)
    @Argument(help: "The nick of the other device.") var nick: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let peer = try sidecar.peer(named: nick)
        let words = "adopt \(peer.name.text) \(peer.deviceList.root)"
        let number = try sidecar.safetyNumber(with: peer.deviceList)
        let isOwn = sidecar.peers.own.map { peer.deviceList.continues($0.deviceList) } ?? false
        guard isOwn || sidecar.gateway.confirmations.accept(confirm, for: words) else {
            return sidecar.gateway.question(
                "From now on people accept messages from \(nick) as yours. Unless someone intercepts the connection, pawl sidecar "
                    + "verify on the other device shows the same digits: \(number).", words)
        }
        try await sidecar.decide(.adopt, about: peer.name)
        guard let own = sidecar.peers.own, own.deviceList.current.count > 1 else {
            throw AdminFailure(
                .listFull,
                "\(nick) could not be added: your list is full, or \(nick) already has a list with several devices.")
        }
        try sidecar.write([(peer.name, .adopted(own.deviceList))])
        return try .done(
            "\(nick) is one of your \(own.deviceList.current.count) devices as soon as it runs: pawl sidecar join.",
            json: common.json)
    }
}

/// `pawl sidecar join`
struct SidecarJoin: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "join", abstract: "Let another sidecar of yours add this device to its list.")
    @Argument(help: "The nick of the other device.") var nick: String
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let peer = try sidecar.peer(named: nick)
        try await sidecar.decide(.join, about: peer.name)
        return try .done(
            "This device waits for \(nick). On that one: pawl sidecar adopt, with the nick of this device.",
            json: common.json)
    }
}

/// `pawl sidecar revoke`
struct SidecarRevoke: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "revoke", abstract: "Remove a lost device of yours. People and the device are notified.")
    @Argument(help: "The device, as pawl sidecar status shows it.") var device: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let own = sidecar.peers.own
        guard let id = UInt64(device, radix: 16).map({ DeviceID($0) }), own?.deviceList.identity(of: id) != nil else {
            throw AdminFailure(.noSuchDevice, "You have no device \(device). See: pawl sidecar status.")
        }
        guard id != own?.device else {
            throw AdminFailure(
                .ownDevice, "This is the device of this sidecar. Remove it with another device of yours.")
        }
        let words = "revoke \(device)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            return sidecar.gateway.question(
                "The device \(device) can then read no new messages, and cannot come back.", words)
        }
        try await sidecar.revoke(id)
        return try .done(
            "The device \(device) is removed. It is notified now or at its next login, as connected people are now; others "
                + "with your next message.",
            json: common.json)
    }
}
