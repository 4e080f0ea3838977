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
        _ job: OpenJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) -> Result<Opened, OpenError> {
        let envelope: Envelope
        do throws(EnvelopeError) {
            envelope = try Envelope(job.envelope)
        } catch {
            return .failure(.init(reason: OpenFailure(error)))
        }
        guard envelope.sender != own.id else { return .failure(.init(reason: .copy)) }
        let before = own.checkpoint()
        do {
            switch envelope.kind {
            case .introduction: return .success(try introduced(job, envelope, own, now, &unit))
            case .direct, .several: return .success(try opened(job, envelope, own, now, &unit))
            case .room: return .success(try openedInRoom(job, envelope, own, now, &unit))
            }
        } catch {
            // An authentic message has advanced its session, which stays; all other changes are rolled back.
            unit.cancel(in: &self, now: now)
            own.goBack(to: before)
            do {
                let row = try own.advancedChain(random: &vault.random)
                if let row { unit.changes.append(row) }
            } catch {
                return .failure(.init(reason: .store))
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
        _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        let introduction = try Introduction(envelope.ratchetMessage, from: envelope.sender)
        var (peer, event) = try assess(introduction.deviceList, envelope.sender, job, own, now)
        // One of the person's own devices is known under a name as well.
        let isOwn = peer == nil
        if isOwn { peer = own.owner(of: envelope.sender).flatMap { own.peer($0) } }
        if let last = peer?.introduced[envelope.sender], last >= introduction.time { throw OpenError(reason: .copy) }
        peer?.note(envelope.sender, introducedAt: introduction.time)
        var opened = Opened(
            body: .noText, sender: isOwn ? .own : peer?.name ?? .own, gap: 0, protection: .plaintext)
        if event == nil, !isOwn { event = peer.map { .renewed($0.name) } }
        opened.event = event
        if let peer {
            own.put(peer, &unit)
            if !isOwn, !job.senders.contains(peer.name) { remember(alias: job.sourceName, of: peer.name, &unit) }
        }
        if case .changed = event { return opened }
        let session = try Session.initiate(
            identity: own.device.identity, with: introduction.bundle,
            expecting: introduction.deviceList.identity(of: envelope.sender), random: &vault.random)
        let id = own.session(with: envelope.sender)
        unit.shared.append(id)
        try vault.adopt(session, as: id)
        opened.answer = .init(body: ControlMessage.ready(own.deviceList).body, device: envelope.sender)
        return opened
    }

    /// Checks a device list that a device shows.
    ///
    /// - Returns: the peer to store, nil if the device is the person's own; and the event, nil if nothing has changed.
    private func assess(
        _ shown: DeviceList, _ device: DeviceID, _ job: OpenJob, _ own: OwnDevice, _ now: Timestamp
    ) throws(OpenError) -> (Peer?, PeerEvent?) {
        switch own.assess(shown, with: device, as: job.senders, now) {
        case .new(let peer): return (peer, .keysExchanged(peer.name))
        case .known(let peer, let isRenewed): return (peer, isRenewed ? .renewed(peer.name) : nil)
        case .changed(let peer): return (peer, .changed(peer.name))
        case .own(let list):
            // The list of another of the person's own devices may be a later version.
            guard list.continues(own.deviceList), list != own.deviceList else { return (nil, nil) }
            return (nil, list.identity(of: own.id) == nil ? .revoked : .adopted(.own))
        case .refused(let reason): throw OpenError(reason: reason)
        }
    }

    // MARK: Opening

    private mutating func opened(
        _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        // A direct message is not shown as a message to a room.
        guard job.recipients.first?.roomName == nil else { throw OpenError(reason: .notAuthentic) }
        try own.checkSource(job, envelope.sender)
        let bound = associatedData(from: envelope.sender, to: own.id, room: nil, envelope.messageID)
        let plaintext: [UInt8]
        let skipped: Int
        if envelope.kind == .several {
            let several = try several(envelope)
            var key: [UInt8]
            (key, skipped) = try decrypt(
                several.message(for: own.id.value) ?? [], several.authenticated(bound), from: envelope.sender, own, now,
                &unit)
            defer { key.wipe() }
            plaintext = try body(of: several, key, envelope)
        } else {
            (plaintext, skipped) = try decrypt(
                envelope.ratchetMessage, bound, from: envelope.sender, own, now, &unit)
        }
        var body = try Body(plaintext)
        var opened: Opened
        if body.kind == .control {
            opened = try receiveControl(try ControlMessage(body.text), envelope, job, own, now, &unit)
            // A skipped message may have been a text.
            opened.gap += skipped
        } else {
            let sender = try own.owner(envelope, job)
            opened = try shown(job, envelope, sender, &body, skipped, own, now, &unit)
        }
        opened.protection = .device
        raise(opened.sender, job, own, now, &unit)
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
        _ job: OpenJob, _ envelope: Envelope, _ sender: AccountID, _ body: inout Body, _ skipped: Int,
        _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        let isVerified = own.peer(sender)?.isVerified ?? false
        if let mark = job.mark { body.mark(isVerified ? mark.verified : mark.plain) }
        var opened = try accept(
            job, envelope, sender, .own, body, skipped, now, &unit, protection: .device,
            isVerified: isVerified
        ).get()
        opened.event = own.otherName(sender, job)
        if opened.event != nil { remember(alias: job.sourceName, of: sender, &unit) }
        return opened
    }

    /// The source and the room of a line.
    static func origin(of job: OpenJob) -> [UInt8] {
        Array("\(job.sourceName) \(job.recipients.first?.roomName ?? "")".utf8)
    }

    private mutating func decrypt(
        _ message: [UInt8], _ associated: [UInt8], from sender: DeviceID, _ own: OwnDevice, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> ([UInt8], Int) {
        let id = own.session(with: sender)
        var plaintext: [UInt8] = []
        let box = try peerSession(id)
        if let box {
            do throws(RatchetError) {
                let received = try box.sessions.decrypt(
                    message.span, associatedData: associated.span, into: &plaintext)
                unit.shared.append(id)
                vault.markDirty(id)
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
        guard PreKeyMessage.isPreKeyMessage(message.span) else {
            throw OpenError(reason: OpenFailure(versionOf: message) ?? .unknownSender)
        }
        let beginning = try own.begin(message, associated, from: sender, &plaintext)
        // Both ends began a session at the same time. Both keep the session of the end with the lower key.
        if box?.sessions.keepsCurrent(against: beginning.peerIdentity) == true {
            throw Crossing(isText: (try? Body(plaintext))?.kind != .control)
        }
        let session = try own.commit(beginning, now, random: &vault.random, &unit.changes)
        unit.shared.append(id)
        unit.onRollback { state, cause, _, _ in if cause == .cancelled { state.vault.restore(box, as: id) }
        }
        try vault.adopt(session, as: id)
        return (plaintext, 0)
    }

    private mutating func receiveControl(
        _ message: ControlMessage, _ envelope: Envelope, _ job: OpenJob, _ own: OwnDevice, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> Opened {
        var opened = Opened(body: .noText, sender: .own, gap: 0)
        switch message {
        case .ready(let deviceList), .acknowledge(let deviceList):
            // A list proves nothing about a session whose key it does not hold.
            guard let box = try peerSession(own.session(with: envelope.sender)),
                deviceList.identity(of: envelope.sender) == box.sessions.peerIdentity
            else { throw OpenError(reason: .notAuthentic) }
            var (peer, event) = try assess(deviceList, envelope.sender, job, own, now)
            if peer?.deviceList.continues(deviceList) == true { peer?.note(envelope.sender) }
            opened.event = event
            if case .ready = message, event == nil { opened.event = peer.map { .renewed($0.name) } }
            if let peer {
                own.put(peer, &unit)
                opened.sender = peer.name
            } else if event != nil {
                own.take(deviceList, &unit)
            }
            if case .ready = message, event != peer.map({ .changed($0.name) }) {
                opened.answer = .init(
                    body: ControlMessage.acknowledge(own.deviceList).body, device: envelope.sender)
            }
        case .senderKey(let room, let distribution, let ended):
            opened.sender = try own.owner(envelope, job)
            opened.gap = own.take(
                distribution, ended: ended, from: envelope.sender, in: room, random: &vault.random,
                &unit.changes)
        case .senderKeyWanted(let room):
            opened.sender = try own.owner(envelope, job)
            own.forget(reader: envelope.sender, in: room)
        case .roomRequest(let request):
            opened.sender = try own.owner(envelope, job)
            try own.take(request, of: envelope.sender, from: opened.sender, &unit)
            opened.event = .asked(request)
        case .adopted(let deviceList):
            opened.sender = try own.owner(envelope, job)
            try own.join(deviceList, of: opened.sender, &unit)
            opened.event = .adopted(opened.sender)
        }
        return opened
    }

    /// Raises the latch of a conversation in which a message was received end to end.
    private mutating func raise(
        _ peer: AccountID, _ job: OpenJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) {
        guard peer != .own, own.noteOpened(from: peer, &unit),
            vault.noteLatched(ConversationID(.own, peer))
        else { return }
        latch(
            .init(
                conversation: ConversationID(.own, peer), account: .own, peer: peer, peerName: job.sourceName,
                accountName: "", protection: .device), now, &unit)
    }
}
