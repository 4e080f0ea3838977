// The account of a connection: registration, logins and logouts.

import Devices
import IRCCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCConnectionMachine {
    /// The backend has logged the connection in.
    package func loggedIn(_ name: String, _ now: Timestamp, _ out: MachineOutput) {
        // A sidecar's device is the person's, whatever account they log in to.
        guard case .front(let device) = role else { return }
        accountChanged(identity.loggedIn(name, isRegistered: isRegistered), device, now, out)
    }

    /// The backend has logged the connection out. It gets a new account without a name, which inherits nothing.
    package func loggedOut(_ now: Timestamp, _ out: MachineOutput) {
        guard case .front(let device) = role else { return }
        accountChanged(identity.loggedOut(isRegistered: isRegistered), device, now, out)
    }

    private func accountChanged(
        _ change: ConnectionIdentity.AccountChange?, _ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let change else { return }
        if let gone = change.forgotten { out.jobs.append(.forget(gone, reason: Notices.connectionEnded)) }
        if let left = change.left { leaveBehind(left, out) }
        device.accountChanged()
        applyPolicy(now, out)
        guard isRegistered else { return }
        updateRoster(now)
        recordEvidence(now, out, registrations: 1)
        recover(out)
        challenge(out)
    }

    /// The backend uses this nick for the connection from now on.
    func renamed(to nick: String) {
        identity.renamed(to: nick)
        capabilities.nick = nick
    }

    /// Removes unsent requests of an account from this connection, so that they are not sent under another one.
    private func leaveBehind(_ account: AccountID, _ out: MachineOutput) {
        let isOf: (OutboundRequest) -> Bool = { AccountID(text: $0.request.account) == account }
        outbound.removeUnsent(where: isOf)
        out.jobs.append(.loggedOut(id, account))
    }

    /// The backend has accepted the registration under this nick.
    package func registered(as nick: String, _ now: Timestamp, _ out: MachineOutput) {
        renamed(to: nick)
        guard phase.register() else { return }
        awaitFront(now, out)
        updateRoster(now)
        guard policy.takesPart else { return }
        notifyOfMissingFront(out)
        recordEvidence(now, out, registrations: 1)
        recover(out)
        greetOwnDevices(now, out)
        challenge(out)
        if settings.asksForVersion, let nick = self.nick {
            out.downstream.writeString(":\(capabilities.serverName) PRIVMSG \(nick) :\u{1}VERSION\u{1}\r\n")
        }
    }

    /// The backend compares names in another way than was expected.
    func caseMappingChanged(_ now: Timestamp) {
        environment.caseMapping = support.caseMapping
        if isRegistered { updateRoster(now) }
    }

    func updateRoster(_ now: Timestamp) {
        guard let nick, !phase.isClosed else { return }
        let entry = RosterEntry(
            connection: id, account: account, nick: nick, isPresent: !phase.isSuspended, participates: policy.takesPart,
            askedForCapability: capabilities.clientAsked, device: role.clientDevice)
        environment.roster.put(entry, foldedNick: support.caseMapping.fold(nick), now: now.monotonic)
        updateRooms()
    }

    /// The vault has waiting requests for this account, although its connection never ended.
    package func recoverWaiting(_ out: MachineOutput) {
        // After an outage the connection requests them anyway.
        guard phase.isOpen else { return }
        askForWaiting(at: outbound.reserve(), out)
    }

    /// Requests the waiting messages of this account from the vault. Nothing after the login overtakes them, in either
    /// direction.
    private func recover(_ out: MachineOutput) {
        guard account.isVerified else { return }
        askForWaiting(at: outbound.reserve(), out)
    }

    /// - Parameter ticket: a reserved position in the outbound lane.
    func askForWaiting(at ticket: OutboundLane.Ticket, _ out: MachineOutput) {
        outbound.beginRecovery(at: ticket, lines: inbound.reserve())
        out.jobs.append(.recover(connection: id, ticket: ticket, account: account))
    }

    func recordEvidence(_ now: Timestamp, _ out: MachineOutput, registrations: Int) {
        guard policy.takesPart else { return }
        let name = account.isVerified ? account.name : support.caseMapping.fold(nick ?? "")
        let row = EvidenceRow(
            name: name, verified: account.isVerified, software: identity.software, asked: capabilities.clientAsked,
            firstSeen: now.wall, lastSeen: now.wall, registrations: registrations)
        out.jobs.append(.record([.addEvidence(row)]))
    }
}
