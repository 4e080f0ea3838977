// The person's own device in a sidecar: opening messages and introductions of other people's devices.

import CommitLoop
import DeviceSessions
import Devices
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
            return failed(error, job, envelope, own, now, &unit)
        }
    }

    private mutating func failed(
        _ error: any Error, _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ now: Timestamp,
        _ unit: inout Unit
    ) -> Result<Opened, OpenError> {
        switch error {
        case let crossing as CrossedSessions:
            let gap = took(crossing, job, envelope, own, &unit)
            return .success(
                Opened(
                    body: .noText, sender: .own, gap: gap, protection: .device,
                    event: .crossed(isText: crossing.isText)))
        case let error as OpenError:
            guard error.reason == .copy else { return .failure(error) }
            // A copy has the same bytes, source and room. Its seal is not checked again, so these must match.
            let key = OpenedCopies.Key(sender: envelope.sender, message: envelope.messageID, recipient: .own)
            guard let copy = copies[key], copy.ratchetMessage == envelope.ratchetMessage,
                copy.origin == Self.origin(of: job)
            else { return .failure(.init(reason: .forgotten)) }
            return self.copy(job, envelope, .own, .own, now, &unit)
        case let error as EnvelopeError: return .failure(.init(reason: OpenFailure(error)))
        case let error as StoreError: return .failure(.init(reason: OpenFailure(error)))
        default: return .failure(.init(reason: .notAuthentic))
        }
    }

    /// Takes what concerns the keys of rooms from a message in a session that is not kept.
    ///
    /// The messages under the key follow at once and are sent once, so they could not be opened if it came again later.
    /// A copy changes nothing more.
    ///
    /// - Returns: how many messages under the sender's earlier keys never came.
    private mutating func took(
        _ crossing: CrossedSessions, _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ unit: inout Unit
    ) -> Int {
        guard let body = try? Body(crossing.body), body.kind == .control,
            let message = try? ControlMessage(body.text),
            (try? own.owner(of: envelope, from: job.source)) != nil
        else { return 0 }
        switch message {
        case .senderKey(let room, let distribution, let ended):
            return own.take(
                distribution, ended: ended, from: envelope.sender, in: room, random: &vault.random, &unit.changes)
        case .senderKeyWanted(let room): own.asked(by: envelope.sender, in: room)
        // The beginning of a session is repeated by the owner of the session that is kept; a person asks again.
        case .ready, .acknowledge, .adopted, .roomRequest: break
        }
        return 0
    }

    // MARK: Meeting

    private mutating func introduced(
        _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        let introduction = try Introduction(envelope.ratchetMessage, from: envelope.sender)
        let (judged, event) = try own.judge(introduction.deviceList, by: envelope.sender, from: job.source, now)
        // One of the person's own devices is known under a name as well.
        let isOwn = judged == nil
        var peer = judged ?? own.owner(of: envelope.sender).flatMap { own.peer($0) }
        if peer?.takes(introduction) == false { throw OpenError(reason: .copy) }
        var opened = Opened(
            body: .noText, sender: isOwn ? .own : peer?.name ?? .own, gap: 0, protection: .plaintext)
        opened.event = event
        if let peer {
            own.put(peer, &unit)
            if !isOwn, !job.senders.contains(peer.name) { remember(alias: job.sourceName, of: peer.name, &unit) }
        }
        if event?.awaitsDecision == true { return opened }
        if isOwn, event == .revoked { own.take(introduction.deviceList, &unit) }
        // A device that is no longer the person's begins nothing with the others.
        if isOwn, event == .revoked || own.deviceList.identity(of: own.id) == nil { return opened }
        guard try own.meet(introduction, now, in: vault, &unit) else { return opened }
        if event == nil, !isOwn { opened.event = peer.map { .renewed($0.name) } }
        opened.answer = .init(body: ControlMessage.ready(own.deviceList).body, device: envelope.sender)
        return opened
    }

    // MARK: Opening

    private mutating func opened(
        _ job: OpenJob, _ envelope: Envelope, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> Opened {
        // A direct message is not shown as a message to a room.
        guard job.recipients.first?.roomName == nil else { throw OpenError(reason: .notAuthentic) }
        try own.check(job.source, of: envelope.sender)
        let (plaintext, skipped) = try own.open(envelope, now, in: vault, &unit)
        var body = try Body(plaintext)
        var opened: Opened
        if body.kind == .control {
            opened = try receiveControl(try ControlMessage(body.text), envelope, job, own, now, &unit)
            // A skipped message may have been a text.
            opened.gap += skipped
        } else {
            let sender = try own.owner(of: envelope, from: job.source)
            opened = try shown(job, envelope, sender, &body, skipped, own, now, &unit)
        }
        opened.protection = .device
        raise(opened.sender, job, own, now, &unit)
        return opened
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
        opened.event = own.otherName(sender, job.source)
        if opened.event != nil { remember(alias: job.sourceName, of: sender, &unit) }
        return opened
    }

    /// The source and the room of a line.
    static func origin(of job: OpenJob) -> [UInt8] {
        Array("\(job.sourceName) \(job.recipients.first?.roomName ?? "")".utf8)
    }

    private mutating func receiveControl(
        _ message: ControlMessage, _ envelope: Envelope, _ job: OpenJob, _ own: OwnDevice, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> Opened {
        var opened = Opened(body: .noText, sender: .own, gap: 0)
        switch message {
        case .ready(let deviceList), .acknowledge(let deviceList):
            let (peer, event) = try own.take(
                shown: deviceList, by: envelope.sender, from: job.source, now, in: vault, &unit)
            opened.event = event
            if case .ready = message, event == nil { opened.event = peer.map { .renewed($0) } }
            if let peer { opened.sender = peer }
            if case .ready = message, event?.awaitsDecision != true {
                opened.answer = .init(
                    body: ControlMessage.acknowledge(own.deviceList).body, device: envelope.sender)
            }
        case .senderKey(let room, let distribution, let ended):
            opened.sender = try own.owner(of: envelope, from: job.source)
            opened.gap = own.take(
                distribution, ended: ended, from: envelope.sender, in: room, random: &vault.random,
                &unit.changes)
        case .senderKeyWanted(let room):
            opened.sender = try own.owner(of: envelope, from: job.source)
            own.asked(by: envelope.sender, in: room)
        case .roomRequest(let request):
            opened.sender = try own.owner(of: envelope, from: job.source)
            try own.take(request, of: envelope.sender, from: opened.sender, &unit)
            opened.event = .asked(request)
        case .adopted(let deviceList):
            opened.sender = try own.owner(of: envelope, from: job.source)
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
