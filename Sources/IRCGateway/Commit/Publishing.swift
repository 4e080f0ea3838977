// The own device as a client of a directory: it publishes its keys and begins sessions with devices that it finds.

import CommitLoop
import DeviceDirectory
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    mutating func publish(
        _ connection: ConnectionID, _ nonce: [UInt8], _ account: String, _ own: OwnDevice, _ now: Timestamp,
        _ unit: inout Unit
    ) {
        guard let keys = try? own.oneTimeKeys(now, random: &vault.random, &unit.changes),
            let bundle = try? own.bundle(now, random: &vault.random, &unit.changes)
        else { return unit.changes.removeAll() }
        let device = PublishedDevice(id: own.id, bundle: bundle, oneTime: keys)
        unit.reply = (
            connection,
            .sidecar(
                .ask(
                    .proof(nonce: nonce, account: account, own.deviceList, device, signedBy: own.device.identity)))
        )
    }

    mutating func replenish(
        _ connection: ConnectionID, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) {
        guard let keys = try? own.oneTimeKeys(now, random: &vault.random, &unit.changes) else { return }
        unit.reply = (connection, .sidecar(.ask(.replenish(keys))))
    }

    /// Begins sessions with the devices that a directory has returned. The directory is not trusted: the list has to be
    /// the pinned one or a later version of it.
    mutating func found(
        _ job: FoundJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) {
        guard let first = job.deviceList.current.first else { return }
        switch own.assess(job.deviceList, with: first.id, as: job.names, now) {
        case .new(let peer): begin(job, peer, .keysExchanged(peer.name), own, &unit)
        case .known(let peer, _): begin(job, peer, .renewed(peer.name), own, &unit)
        case .changed(let peer):
            own.put(peer, &unit)
            unit.reply = (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, .changed(peer.name), [])))
        case .forked(let peer, let isNew):
            own.put(peer, &unit)
            let event = PeerEvent.forked(peer.name, isNew: isNew)
            unit.reply = (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, event, [])))
        case .own, .refused: break
        }
    }

    private mutating func begin(
        _ job: FoundJob, _ peer: Peer, _ event: PeerEvent, _ own: OwnDevice, _ unit: inout Unit
    ) {
        var answers: [Opened.Answer] = []
        for device in job.devices {
            guard let identity = peer.deviceList.identity(of: device.id), device.id != own.id else { continue }
            let id = own.session(with: device.id)
            if let box = try? vault.session(id), box.sessions.isEstablished { continue }
            // Without a one-time prekey, because all are used up, the last-resort prekey begins the session alone.
            let bundle = PreKeyBundle(
                identity: device.bundle.identity, signedPreKey: device.bundle.signedPreKey,
                kemPreKey: device.bundle.kemPreKey, oneTimePreKey: device.oneTime.first)
            guard
                let session = try? Session.initiate(
                    identity: own.device.identity, with: bundle, expecting: identity,
                    random: &vault.random),
                (try? vault.adopt(session, as: id)) != nil
            else { continue }
            unit.shared.append(id)
            answers.append(.init(body: ControlMessage.ready(own.deviceList).body, device: device.id))
        }
        own.put(peer, &unit)
        if !job.names.contains(peer.name) { remember(alias: job.nick, of: peer.name, &unit) }
        unit.reply = (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, event, answers)))
    }
}
