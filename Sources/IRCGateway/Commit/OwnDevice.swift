// The person's own device in a sidecar: sealing for other people's devices, whose private keys are not in this vault.

import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    /// Loads the own device from the store, or makes it.
    mutating func holdOwnDevice(
        _ sealer: StorageSealer, _ now: Timestamp, _ changes: inout [StoreChange]
    ) throws(StoreError) {
        do {
            let device = try vault.sessionCache.device(for: .own, now: now, avoiding: { _ in false }, &changes)
            devices = try OwnDeviceState(device: device, sealer: vault.sealer, store: vault.store, &changes)
        } catch let error as StoreError {
            throw error
        } catch {
            throw .corrupt("The device of this sidecar could not be made: \(error).")
        }
        peerCache.hasHadFront = try vault.store.record(.ownDevices, name: OwnDeviceState.frontRecord) != nil
        for row in try vault.store.records(.ownDevices) where row.name.hasPrefix(OwnDeviceState.sealedRecord) {
            _ = peerCache.setSealed(true, room: String(row.name.dropFirst(OwnDeviceState.sealedRecord.count)))
        }
        peerCache.replace(devices?.peers ?? [:])
        peerCache.own = devices.map { OwnDevices(deviceList: $0.deviceList, device: $0.device.id) }
    }

    func session(with peer: DeviceID) -> SessionID? {
        devices.map { SessionID(owner: $0.device.id, peer: peer, in: .only) }
    }

    /// The associated data of a message between devices. It has no names of people: the session binds both identities,
    /// and each end may know the other by a different name.
    func associatedData(
        from sender: DeviceID, to recipient: DeviceID, room: AccountID?, _ message: MessageID
    ) -> [UInt8] {
        AssociatedData(
            protocolName: vault.carrier.protocolName, network: "", sender: "", senderDevice: sender,
            recipient: room?.text ?? "",
            recipientDevice: recipient, messageID: message, protection: .device
        ).bytes
    }

    /// The sessions with a remote device; nil if there are none, or if their record cannot be read. In the second case
    /// the device counts as one without keys until it begins a new session, and other members of a room can still be
    /// reached.
    ///
    /// - Throws: ``StoreError`` if the store itself cannot be read, so that no device is mistaken for one without keys.
    mutating func peerSession(_ id: SessionID) throws -> SessionBox? {
        do {
            return try vault.sessionCache.session(id)
        } catch {
            guard case .corrupt = error else { throw error }
            if unreadable.insert(id).inserted { onUnreadable(id) }
            return nil
        }
    }

    // MARK: Sealing

    /// Seals a message for all devices of its recipient, and for the person's other devices.
    ///
    /// - Throws: ``SealRefusal``, or what the ratchet throws.
    mutating func deviceEnvelope(
        _ job: SealJob, _ id: MessageID, _ unit: inout Unit
    ) throws -> Envelope {
        guard let devices else { throw SealRefusal.keysMissing }
        let boxes = try recipients(job, devices)
        guard let first = boxes.first else { throw SealRefusal.keysMissing }
        let sessions = boxes.compactMap { session(with: $0.device) }
        unit.shared += sessions
        for id in sessions { vault.sessionCache.markDirty(id) }
        let own = devices.device.id
        if boxes.count == 1 {
            let body = try padded(job.body, besides: vault.overhead(first.box), capacity: job.capacity)
            let message = try encrypt(body, first, own, id)
            return Envelope(sender: own, messageID: id, ratchetMessage: message)
        }
        let fixed = boxes.reduce(MultiRecipientMessage.overhead) {
            $0 + MultiRecipientMessage.recipientOverhead + MultiRecipientMessage.contentKeySize + vault.overhead($1.box)
        }
        let body = try padded(job.body, besides: fixed, capacity: job.capacity)
        var sealer = MultiRecipientSealer(
            body.span, associatedData: associatedData(from: own, to: DeviceID(0), room: nil, id),
            random: &vault.sessionCache.random)
        for recipient in boxes {
            try sealer.add(
                recipient.device.value, &recipient.box.sessions,
                associatedData: associatedData(from: own, to: recipient.device, room: nil, id),
                random: &vault.sessionCache.random)
        }
        var bytes: [UInt8] = []
        sealer.finish().serialize(into: &bytes)
        return Envelope(kind: .several, sender: own, messageID: id, ratchetMessage: bytes)
    }

    private typealias Recipient = (device: DeviceID, box: SessionBox)

    private mutating func recipients(_ job: SealJob, _ devices: OwnDeviceState) throws -> [Recipient] {
        var ids: [DeviceID] = []
        if let device = job.device {
            ids = [device]
        } else {
            guard let peer = devices.peers[job.recipient], peer.offered == nil else { return [] }
            ids = peer.deviceList.current.map(\.id).filter { $0 != devices.device.id }
        }
        let pinned = job.device == nil ? devices.peers[job.recipient]?.deviceList : nil
        var found: [Recipient] = []
        for id in ids {
            guard let session = session(with: id), let box = try peerSession(session) else { continue }
            // A session is used only if its identity key is the pinned one; a device id alone proves nothing.
            if let known = pinned?.identity(of: id) ?? devices.identity(of: id), known != box.sessions.peerIdentity {
                continue
            }
            found.append((id, box))
        }
        // The person's other devices get a copy; they are no recipients if there is no other.
        guard job.device == nil, !found.isEmpty else { return found }
        for listed in devices.deviceList.current where listed.id != devices.device.id && !ids.contains(listed.id) {
            if let session = session(with: listed.id), let box = try peerSession(session),
                box.sessions.peerIdentity == listed.identity
            {
                found.append((listed.id, box))
            }
        }
        return found
    }

    private mutating func encrypt(
        _ plaintext: [UInt8], _ recipient: Recipient, _ own: DeviceID, _ id: MessageID
    ) throws -> [UInt8] {
        let associated = associatedData(from: own, to: recipient.device, room: nil, id)
        var message: [UInt8] = []
        try recipient.box.sessions.encrypt(
            plaintext.span, associatedData: associated.span, random: &vault.sessionCache.random, into: &message)
        return message
    }

    // MARK: Introducing

    /// Makes the lines of an introduction, which send our keys to a peer.
    mutating func introduce(
        _ connection: ConnectionID, _ ticket: UInt64, _ capacity: Int, _ now: Timestamp, _ unit: inout Unit
    ) {
        unit.failure = (connection, .sidecar(.introduction(ticket: ticket, bodies: [])))
        unit.reply = unit.failure
        guard let own = devices?.device, let deviceList = devices?.deviceList else { return }
        guard
            let bundle = try? devices?.preKeys.bundle(
                forOne: true, identity: own.identity, now: now, random: &vault.sessionCache.random, &unit.changes)
        else { return }
        let id = MessageID(requestIDs.next(in: .only, at: now))
        let introduction = Introduction(time: now.wall, deviceList: deviceList, bundle: bundle, device: own.id)
        let envelope = Envelope(
            kind: .introduction, sender: own.id, messageID: id,
            ratchetMessage: introduction.bytes(signedBy: own.identity))
        let bodies = Armour.split(envelope.bytes, id: UInt32(truncatingIfNeeded: id.value), capacity: capacity)
        unit.reply = (connection, .sidecar(.introduction(ticket: ticket, bodies: bodies ?? [])))
    }

    // MARK: What a person decides

    mutating func decide(
        _ name: AccountID, _ decision: PeerDecision, _ unit: inout Unit
    ) {
        guard var peer = devices?.peers[name] else { return }
        showPeer(name, &unit)
        switch decision {
        case .verify:
            peer.isVerified = true
            devices?.put(peer, &unit.changes)
        case .accept:
            guard let offered = peer.offered, devices?.contradicts(offered) == false else { return }
            endSessions(peer.deviceList, &unit.changes)
            peer.deviceList = offered
            peer.offered = nil
            peer.isVerified = false
            peer.introduced = [:]
            devices?.put(peer, &unit.changes)
        case .forget:
            endSessions(peer.deviceList, &unit.changes)
            devices?.forget(name, &unit.changes)
        case .adopt: adopt(&peer, &unit)
        case .join: devices?.joining = name
        }
    }

    /// Publishes the state of a peer to connections after the commit.
    func showPeer(_ name: AccountID, _ unit: inout Unit) {
        unit.onCommit { state, _, _ in state.peerCache[name] = state.devices?.peers[name] }
    }

    /// Stores the device list of the person's own account and publishes it to connections after the commit.
    mutating func put(ownList deviceList: DeviceList, _ unit: inout Unit) {
        devices?.put(deviceList: deviceList, &unit.changes)
        unit.onCommit { state, _, _ in
            state.peerCache.own = state.devices.map { OwnDevices(deviceList: $0.deviceList, device: $0.device.id) }
        }
    }

    /// Stores, after the commit, the folded nick under which a peer was seen.
    func remember(alias nick: String, of peer: AccountID, _ unit: inout Unit) {
        unit.onCommit { state, _, _ in state.vault.latches.remember(name: nick, of: peer, for: .own) }
    }

    // MARK: Several devices of one person

    private mutating func adopt(_ peer: inout Peer, _ unit: inout Unit) {
        guard let own = devices?.device, let deviceList = devices?.deviceList,
            let theirs = peer.deviceList.current.first,
            peer.offered == nil
        else { return }
        // The list has the device already if this repeats a decision whose control message was lost.
        if deviceList.identity(of: theirs.id) == nil {
            guard peer.deviceList.current.count == 1, let longer = deviceList.adding(theirs, by: own.id, own.identity)
            else {
                return
            }
            put(ownList: longer, &unit)
        }
        peer.deviceList = devices?.deviceList ?? deviceList
        peer.note(theirs.id)
        peer.isVerified = true
        devices?.put(peer, &unit.changes)
    }

    mutating func revoke(_ device: DeviceID, _ unit: inout Unit) {
        guard let own = devices?.device, let deviceList = devices?.deviceList,
            let shorter = deviceList.removing(device, by: own.id, own.identity)
        else { return }
        take(shorter, &unit)
        vault.sessionCache.drop([session(with: device)].compactMap { $0 })
        unit.changes.append(.removeSessions(device: device))
    }

    /// Stores another version of the own list, also for the peers that are the person's other devices.
    mutating func take(_ deviceList: DeviceList, _ unit: inout Unit) {
        let names = (devices?.peers ?? [:]).values.filter { deviceList.continues($0.deviceList) }.map(\.name)
        put(ownList: deviceList, &unit)
        for name in names {
            guard var peer = devices?.peers[name] else { continue }
            peer.deviceList = deviceList
            devices?.put(peer, &unit.changes)
            showPeer(name, &unit)
        }
    }

    /// The requests that send our list to a peer with an older version of it; to be sent before the next message.
    mutating func news(
        _ job: SealJob, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [Request] {
        guard job.body.kind != .control, let deviceList = devices?.deviceList, var peer = devices?.peers[job.recipient],
            peer.sentVersions != deviceList.versions.count, !peer.deviceList.continues(deviceList)
        else { return [] }
        let isFirst = peer.sentVersions == 0 && deviceList.versions.count == 1
        peer.sentVersions = deviceList.versions.count
        devices?.put(peer, &unit.changes)
        guard !isFirst else { return [] }
        var controlJob = job
        controlJob.verb = "NOTICE"
        controlJob.body = ControlMessage.acknowledge(deviceList).body
        let envelope = try deviceEnvelope(controlJob, MessageID(requestIDs.next(in: .only, at: now)), &unit)
        return [try insert(envelope, controlJob, now, &unit)]
    }

    private mutating func endSessions(_ deviceList: DeviceList, _ changes: inout [StoreChange]) {
        for listed in deviceList.current {
            vault.sessionCache.drop([session(with: listed.id)].compactMap { $0 })
            changes.append(.removeSessions(device: listed.id))
        }
    }
}
