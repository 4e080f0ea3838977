// The person's own device in a sidecar: opening messages and introductions of other people's devices.

import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    /// Opens an envelope for the own device.
    mutating func openOnDevice(
        _ job: OpenJob, _ now: Timestamp, _ unit: inout Unit
    ) -> Result<Opened, OpenError> {
        guard let own = devices?.device.id else { return .failure(.init(reason: .malformed)) }
        let envelope: Envelope
        do throws(EnvelopeError) {
            envelope = try Envelope(job.envelope)
        } catch {
            return .failure(.init(reason: OpenFailure(error)))
        }
        guard envelope.sender != own else { return .failure(.init(reason: .copy)) }
        let before = devices
        openedRoomKey = nil
        do {
            switch envelope.kind {
            case .introduction: return .success(try introduced(job, envelope, now, &unit))
            case .direct, .several: return .success(try opened(job, envelope, now, &unit))
            case .room: return .success(try openedInRoom(job, envelope, now, &unit))
            }
        } catch {
            // An authentic message has advanced its session, which stays; all other changes are rolled back.
            unit.cancel(in: &self, now: now)
            devices = before
            if let room = openedRoomKey {
                // The chain in memory has advanced, so its row is written too. Else a copy would open again after a
                // crash.
                do {
                    let row = try devices?.roomKeys.row(
                        from: envelope.sender, in: room, random: &vault.sessionCache.random)
                    if let row { unit.changes.append(row) }
                } catch {
                    return .failure(.init(reason: .store))
                }
            }
            return failed(error, job, envelope, now, &unit)
        }
    }

    private mutating func failed(
        _ error: any Error, _ job: OpenJob, _ envelope: Envelope, _ now: Timestamp, _ unit: inout Unit
    ) -> Result<Opened, OpenError> {
        switch error {
        case let crossing as Crossing:
            return .success(
                Opened(
                    body: .noText, sender: .own, gap: 0, protection: .device, event: .crossed(isText: crossing.isText)))
        case let error as OpenError:
            guard error.reason == .copy else { return .failure(error) }
            // A copy has the same bytes, source and room. Its seal is not checked again, so these must match.
            let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: .own)
            guard let copy = copies[key], copy.ratchetMessage == envelope.ratchetMessage,
                copy.origin == Self.origin(of: job)
            else { return .failure(.init(reason: .forgotten)) }
            return self.copy(job, envelope, .own, .own, now, &unit)
        case let error as EnvelopeError: return .failure(.init(reason: OpenFailure(error)))
        case is StoreError: return .failure(.init(reason: .store))
        default: return .failure(.init(reason: .notAuthentic))
        }
    }

    /// An authentic message arrived in a session that is not kept.
    private struct Crossing: Error { var isText: Bool }

    // MARK: Meeting

    private mutating func introduced(
        _ job: OpenJob, _ envelope: Envelope, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        let introduction = try Introduction(envelope.ratchetMessage, from: envelope.sender)
        guard let own = devices?.device, let deviceList = devices?.deviceList else {
            throw OpenError(reason: .malformed)
        }
        var (peer, event) = try assessList(introduction.deviceList, envelope.sender, job, now)
        // One of the person's own devices is known under a name as well.
        let isOwn = peer == nil
        if isOwn { peer = devices?.owner(of: envelope.sender).flatMap { devices?.peers[$0] } }
        if let last = peer?.introduced[envelope.sender], last >= introduction.time { throw OpenError(reason: .copy) }
        peer?.note(envelope.sender, introducedAt: introduction.time)
        var opened = Opened(
            body: .noText, sender: isOwn ? .own : peer?.name ?? .own, gap: 0, protection: .plaintext)
        if event == nil, !isOwn { event = peer.map { .renewed($0.name) } }
        opened.event = event
        if let peer {
            put(peer, &unit)
            if !isOwn, !job.senders.contains(peer.name) { remember(alias: job.sourceName, of: peer.name, &unit) }
        }
        if case .changed = event { return opened }
        guard let id = session(with: envelope.sender) else { throw OpenError(reason: .malformed) }
        let session = try Session.initiate(
            identity: own.identity, with: introduction.bundle,
            expecting: introduction.deviceList.identity(of: envelope.sender), random: &vault.sessionCache.random)
        unit.shared.append(id)
        try vault.sessionCache.adopt(session, as: id)
        opened.answer = .init(body: ControlMessage.ready(deviceList).body, device: envelope.sender)
        return opened
    }

    /// Checks a device list that a device shows.
    ///
    /// - Returns: the peer to store, nil if the device is the person's own; and the event, nil if nothing has changed.
    private func assessList(
        _ shown: DeviceList, _ device: DeviceID, _ job: OpenJob, _ now: Timestamp
    ) throws(OpenError) -> (Peer?, PeerEvent?) {
        guard let devices else { throw OpenError(reason: .malformed) }
        switch devices.assess(shown, with: device, as: job.senders, now: now) {
        case .new(let peer): return (peer, .keysExchanged(peer.name))
        case .known(let peer, let isRenewed): return (peer, isRenewed ? .renewed(peer.name) : nil)
        case .changed(let peer): return (peer, .changed(peer.name))
        case .own(let deviceList): return try assessOwnList(deviceList)
        case .refused(let reason): throw OpenError(reason: reason)
        }
    }

    /// Checks the list of another of the person's own devices, which may be a later version.
    private func assessOwnList(_ shown: DeviceList) throws(OpenError) -> (Peer?, PeerEvent?) {
        guard let devices, shown.continues(devices.deviceList), shown != devices.deviceList else { return (nil, nil) }
        return (nil, shown.identity(of: devices.device.id) == nil ? .revoked : .adopted(.own))
    }

    private mutating func put(_ peer: Peer, _ unit: inout Unit) {
        showPeer(peer.name, &unit)
        devices?.put(peer, &unit.changes)
    }

    // MARK: Opening

    private mutating func opened(
        _ job: OpenJob, _ envelope: Envelope, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        guard let own = devices?.device.id, let id = session(with: envelope.sender) else {
            throw OpenError(reason: .malformed)
        }
        // A direct message is not shown as a message to a room.
        guard job.recipients.first?.roomName == nil else { throw OpenError(reason: .notAuthentic) }
        try checkSource(job, envelope.sender)
        let bound = associatedData(from: envelope.sender, to: own, room: nil, envelope.messageID)
        let plaintext: [UInt8]
        let skipped: Int
        if envelope.kind == .several {
            let several = try several(envelope)
            var key: [UInt8]
            (key, skipped) = try decrypt(
                several.message(for: own.value) ?? [], several.authenticated(bound), envelope.sender, id, now, &unit)
            defer { key.wipe() }
            plaintext = try body(of: several, key, envelope)
        } else {
            (plaintext, skipped) = try decrypt(
                envelope.ratchetMessage, bound, envelope.sender, id, now, &unit)
        }
        var body = try Body(plaintext)
        var opened: Opened
        if body.kind == .control {
            opened = try receiveControl(try ControlMessage(body.text), envelope, job, now, &unit)
            // A skipped message may have been a text.
            opened.gap += skipped
        } else {
            let sender = try owner(envelope, job)
            opened = try shown(job, envelope, sender, &body, skipped, now, &unit)
        }
        opened.protection = .device
        raise(opened.sender, job, now, &unit)
        return opened
    }

    private func several(_ envelope: Envelope) throws(OpenError) -> MultiRecipientMessage {
        do {
            return try MultiRecipientMessage(serialized: envelope.ratchetMessage.span)
        } catch {
            throw OpenError(reason: .malformed)
        }
    }

    private func body(
        of several: MultiRecipientMessage, _ key: [UInt8], _ envelope: Envelope
    ) throws(OpenError) -> [UInt8] {
        var plaintext: [UInt8] = []
        do {
            try several.openBody(
                contentKey: key.span,
                associatedData: associatedData(from: envelope.sender, to: DeviceID(0), room: nil, envelope.messageID),
                into: &plaintext)
            return plaintext
        } catch {
            throw OpenError(reason: error == .malformed ? .malformed : .notAuthentic)
        }
    }

    /// Accepts a text, marks it, and notes the name of its sender.
    mutating func shown(
        _ job: OpenJob, _ envelope: Envelope, _ sender: AccountID, _ body: inout Body, _ skipped: Int, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> Opened {
        let isVerified = devices?.peers[sender]?.isVerified ?? false
        if let mark = job.mark { body.mark(isVerified ? mark.verified : mark.plain) }
        var opened = try accept(
            job, envelope, sender, .own, body, skipped, now, &unit, protection: .device,
            isVerified: isVerified
        ).get()
        opened.event = otherName(sender, job)
        if opened.event != nil { remember(alias: job.sourceName, of: sender, &unit) }
        return opened
    }

    /// The source and the room of a line.
    static func origin(of job: OpenJob) -> [UInt8] {
        Array("\(job.sourceName) \(job.recipients.first?.roomName ?? "")".utf8)
    }

    /// The peer whose keys were last seen under the line's nick.
    private func alias(_ job: OpenJob) -> Peer? {
        vault.latches.peer(named: job.sourceName, for: .own).flatMap { devices?.peers[$0] }
    }

    /// Checks that a known device writes under a name of its owner, or under a name that no known peer has.
    func checkSource(_ job: OpenJob, _ device: DeviceID) throws(OpenError) {
        guard let devices, devices.identity(of: device) != nil else { return }
        // Only the person's own devices write under the person's own nick.
        guard job.senders != [.own] || devices.deviceList.identity(of: device) != nil else {
            throw OpenError(reason: .wrongSource)
        }
        let named = job.senders.compactMap { devices.peers[$0] }
        let known = named.isEmpty ? [alias(job)].compactMap { $0 } : named
        // The name belongs to a peer whose list does not have the device, so the message has no owner.
        guard known.isEmpty || known.contains(where: { $0.deviceList.identity(of: device) != nil }) else {
            throw OpenError(reason: .wrongSource)
        }
    }

    /// The peer whose device has sealed an envelope. If several peers list the device, the one with the line's name.
    func owner(_ envelope: Envelope, _ job: OpenJob) throws(OpenError) -> AccountID {
        let named = job.senders.compactMap { devices?.peers[$0] } + [alias(job)].compactMap { $0 }
        if let peer = named.first(where: { $0.hasConfirmed(envelope.sender) }) { return peer.name }
        guard let owner = devices?.owner(of: envelope.sender) else { throw OpenError(reason: .unknownSender) }
        // The line has the name of a peer that only lists the device.
        guard named.isEmpty else { throw OpenError(reason: .wrongSource) }
        return owner
    }

    /// The event if a peer writes under a nick that it did not use before, whatever account the backend names; else
    /// nil.
    func otherName(_ sender: AccountID, _ job: OpenJob) -> PeerEvent? {
        let seen = vault.latches.peer(named: job.sourceName, for: .own) ?? devices?.peers[.nick(job.sourceName)]?.name
        return (seen ?? (job.senders.contains(sender) ? sender : nil)) == sender ? nil : .otherName(sender)
    }

    private mutating func decrypt(
        _ message: [UInt8], _ associated: [UInt8], _ sender: DeviceID, _ id: SessionID, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> ([UInt8], Int) {
        var plaintext: [UInt8] = []
        let box = try peerSession(id)
        if let box {
            do throws(RatchetError) {
                let received = try box.sessions.decrypt(
                    message.span, associatedData: associated.span, into: &plaintext)
                unit.shared.append(id)
                vault.sessionCache.markDirty(id)
                return (plaintext, received.skipped)
            } catch {
                switch error {
                case .differentSession: break
                case .duplicate: throw OpenError(reason: .copy)
                case .tooFarAhead: throw OpenError(reason: .tooFarAhead)
                default: throw OpenError(reason: OpenFailure(versionOf: message) ?? .notAuthentic)
                }
            }
        }
        guard PreKeyMessage.isPreKeyMessage(message.span), let own = devices else {
            throw OpenError(reason: OpenFailure(versionOf: message) ?? .unknownSender)
        }
        let beginning = try own.preKeys.store.begin(
            identity: own.device.identity, message: message.span, associatedData: associated.span,
            expecting: own.identity(of: sender), plaintext: &plaintext)
        // Both ends began a session at the same time. Both keep the session of the end with the lower key.
        if box?.sessions.keepsCurrent(against: beginning.peerIdentity) == true {
            throw Crossing(isText: (try? Body(plaintext))?.kind != .control)
        }
        guard
            let session = try devices?.preKeys.commit(
                beginning, now: now, random: &vault.sessionCache.random, &unit.changes)
        else {
            throw OpenError(reason: .unknownSender)
        }
        unit.shared.append(id)
        unit.onRollback { state, cause, _, _ in if cause == .cancelled { state.vault.sessionCache.restore(box, as: id) }
        }
        try vault.sessionCache.adopt(session, as: id)
        return (plaintext, 0)
    }

    private mutating func receiveControl(
        _ message: ControlMessage, _ envelope: Envelope, _ job: OpenJob, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> Opened {
        var opened = Opened(body: .noText, sender: .own, gap: 0)
        switch message {
        case .ready(let deviceList), .acknowledge(let deviceList):
            // A list proves nothing about a session whose key it does not hold.
            guard let id = session(with: envelope.sender), let box = try peerSession(id),
                deviceList.identity(of: envelope.sender) == box.sessions.peerIdentity
            else { throw OpenError(reason: .notAuthentic) }
            var (peer, event) = try assessList(deviceList, envelope.sender, job, now)
            if peer?.deviceList.continues(deviceList) == true { peer?.note(envelope.sender) }
            opened.event = event
            if case .ready = message, event == nil { opened.event = peer.map { .renewed($0.name) } }
            if let peer {
                put(peer, &unit)
                opened.sender = peer.name
            } else if event != nil {
                take(deviceList, &unit)
            }
            if case .ready = message, let own = devices?.deviceList, event != peer.map({ .changed($0.name) }) {
                opened.answer = .init(body: ControlMessage.acknowledge(own).body, device: envelope.sender)
            }
        case .senderKey(let room, let distribution, let ended):
            opened.sender = try owner(envelope, job)
            opened.gap = devices?.roomKeys.missing(ended, from: envelope.sender, in: room) ?? 0
            take(distribution, of: envelope.sender, in: room, &unit)
        case .senderKeyWanted(let room):
            opened.sender = try owner(envelope, job)
            devices?.roomKeys.forget(reader: envelope.sender, in: room)
        case .roomRequest(let request):
            opened.sender = try owner(envelope, job)
            guard let identity = devices?.identity(of: envelope.sender),
                request.isSigned(by: identity, envelope.sender)
            else { throw OpenError(reason: .notAuthentic) }
            if var peer = devices?.peers[opened.sender] {
                guard peer.takes(request: request.number, of: envelope.sender) else { throw OpenError(reason: .copy) }
                put(peer, &unit)
            }
            opened.event = .asked(request)
        case .adopted(let deviceList):
            opened.sender = try owner(envelope, job)
            guard let own = devices?.device, opened.sender == devices?.joining,
                var peer = devices?.peers[opened.sender],
                deviceList.continues(peer.deviceList), deviceList.identity(of: own.id) == own.identity.publicKey
            else { throw OpenError(reason: .unknownSender) }
            devices?.joining = nil
            put(ownList: deviceList, &unit)
            peer.deviceList = deviceList
            peer.isVerified = true
            put(peer, &unit)
            opened.event = .adopted(peer.name)
        }
        return opened
    }

    /// Raises the latch of a conversation in which a message was received end to end.
    private mutating func raise(
        _ peer: AccountID, _ job: OpenJob, _ now: Timestamp, _ unit: inout Unit
    ) {
        guard peer != .own, var known = devices?.peers[peer], known.offered == nil else { return }
        if !known.isEstablished {
            known.isEstablished = true
            put(known, &unit)
        }
        guard vault.conversations.insert(ConversationID(.own, peer)).inserted
        else { return }
        latch(
            .init(
                conversation: ConversationID(.own, peer), account: .own, peer: peer, peerName: job.sourceName,
                accountName: "", protection: .device), now, &unit)
    }
}
