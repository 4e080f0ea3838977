// The own device as a client of a directory: it publishes its keys and begins sessions with devices that it finds.

import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    mutating func publish(
        _ connection: ConnectionID, _ nonce: [UInt8], _ account: String, _ now: Timestamp,
        _ unit: inout Unit
    ) {
        guard let own = devices?.device, let deviceList = devices?.deviceList else { return }
        guard
            let keys = try? devices?.preKeys.replenish(
                left: 0, now: now, random: &vault.sessionCache.random, &unit.changes),
            let bundle = try? devices?.preKeys.bundle(
                forOne: false, identity: own.identity, now: now, random: &vault.sessionCache.random, &unit.changes)
        else { return unit.changes.removeAll() }
        let device = PublishedDevice(id: own.id, bundle: bundle, oneTime: keys)
        unit.reply = (
            connection,
            .sidecar(.ask(.proof(nonce: nonce, account: account, deviceList, device, signedBy: own.identity)))
        )
    }

    mutating func replenish(
        _ connection: ConnectionID, _ now: Timestamp, _ unit: inout Unit
    ) {
        guard
            let keys = try? devices?.preKeys.replenish(
                left: 0, now: now, random: &vault.sessionCache.random, &unit.changes)
        else {
            return
        }
        unit.reply = (connection, .sidecar(.ask(.replenish(keys))))
    }

    /// Begins sessions with the devices that a directory has returned. The directory is not trusted: the list has to be
    /// the pinned one or a later version of it.
    mutating func found(
        _ job: FoundJob, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, nil, [])))
        unit.reply = unit.failure
        guard let ownState = devices, let first = job.deviceList.current.first else { return }
        switch ownState.assess(job.deviceList, with: first.id, as: job.names, now: now) {
        case .new(let peer): begin(job, peer, .keysExchanged(peer.name), &unit)
        case .known(let peer, _): begin(job, peer, .renewed(peer.name), &unit)
        case .changed(let peer):
            showPeer(peer.name, &unit)
            devices?.put(peer, &unit.changes)
            unit.reply = (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, .changed(peer.name), [])))
        case .own, .refused: break
        }
    }

    private mutating func begin(
        _ job: FoundJob, _ peer: Peer, _ event: PeerEvent, _ unit: inout Unit
    ) {
        guard let own = devices?.device, let deviceList = devices?.deviceList else { return }
        var answers: [Opened.Answer] = []
        for device in job.devices {
            guard let identity = peer.deviceList.identity(of: device.id), device.id != own.id,
                let id = session(with: device.id)
            else { continue }
            if let box = try? vault.sessionCache.session(id), box.sessions.isEstablished { continue }
            // Without a one-time prekey, because all are used up, the last-resort prekey begins the session alone.
            let bundle = PreKeyBundle(
                identity: device.bundle.identity, signedPreKey: device.bundle.signedPreKey,
                kemPreKey: device.bundle.kemPreKey, oneTimePreKey: device.oneTime.first)
            guard
                let session = try? Session.initiate(
                    identity: own.identity, with: bundle, expecting: identity, random: &vault.sessionCache.random),
                (try? vault.sessionCache.adopt(session, as: id)) != nil
            else { continue }
            unit.shared.append(id)
            answers.append(.init(body: ControlMessage.ready(deviceList).body, device: device.id))
        }
        showPeer(peer.name, &unit)
        devices?.put(peer, &unit.changes)
        if !job.names.contains(peer.name) { remember(alias: job.nick, of: peer.name, &unit) }
        unit.reply = (job.connection, .sidecar(.sessionsStarted(ticket: job.ticket, event, answers)))
    }
}
