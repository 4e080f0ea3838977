// Several devices of one person: one takes the other into its list, and a lost one is removed.

import ArgumentParser
import Devices
import Envelope
import Foundation
import Protection
import Vault

/// `pawl sidecar adopt`
struct SidecarAdopt: AdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "adopt", abstract: "Take another sidecar of yours into your list of devices.",
        discussion: """
            Both sidecars are connected. Write a message from one to the other, and wait until both have read that keys were \
            exchanged; that takes some seconds. On the new one: pawl sidecar join NICK, with the nick of this one. Then here: \
            pawl sidecar adopt NICK, with the nick of the new one. Do so before you write to others from the new one: whoever \
            has met it as a person of its own reads that keys have changed, and has to accept them.
            """)
    @Argument(help: "The nick of the other device.") var nick: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let peer = try gateway.peer(named: nick)
        let words = "adopt \(peer.name.text) \(peer.chain.root)"
        let number = try gateway.safetyNumber(with: peer.chain)
        let isOwn = try gateway.peers().own.map { peer.chain.continues($0.chain) } ?? false
        guard isOwn || gateway.confirmations.accept(confirm, for: words) else {
            return gateway.question(
                "From now on people accept what \(nick) writes as yours. On the other device, pawl sidecar verify shows the "
                    + "same digits if nobody stands between: \(number).", words)
        }
        try await gateway.decide(.adopt, about: peer.name)
        guard let own = try gateway.peers().own, own.chain.current.count > 1 else {
            throw AdminFailure(
                "\(nick) could not be taken in: there is no room in the list, or it has devices already.")
        }
        try gateway.write([(peer.name, .adopted(own.chain))])
        return .text("\(nick) is one of your \(own.chain.current.count) devices, once it has said: pawl sidecar join.")
    }
}

/// `pawl sidecar join`
struct SidecarJoin: AdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "join", abstract: "Let another sidecar of yours take this device into its list.")
    @Argument(help: "The nick of the other device.") var nick: String
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let peer = try gateway.peer(named: nick)
        try await gateway.decide(.join, about: peer.name)
        return .text("This device waits for \(nick). There: pawl sidecar adopt, with the nick of this device.")
    }
}

/// `pawl sidecar revoke`
struct SidecarRevoke: AdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "revoke", abstract: "Remove a device of yours that is lost. People are told; the device is not.")
    @Argument(help: "The device, as pawl sidecar status shows it.") var device: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        let own = try gateway.peers().own
        guard let id = UInt64(device, radix: 16).map({ DeviceID($0) }), own?.chain.identity(of: id) != nil else {
            throw AdminFailure("You have no device \(device). See: pawl sidecar status.")
        }
        guard id != own?.device else {
            throw AdminFailure("This is the device itself. Remove it from another one of yours.")
        }
        let words = "revoke \(device)"
        guard gateway.confirmations.accept(confirm, for: words) else {
            return gateway.question("The device \(device) can then read no new messages, and cannot come back.", words)
        }
        try await gateway.revoke(id)
        return .text("The device \(device) is removed. Those who are there are told; others with your next message.")
    }
}
