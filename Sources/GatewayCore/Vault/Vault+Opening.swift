// A vault that holds a person's own device: opening what the devices of others have sealed, and meeting them.

import DoubleRatchet
import Envelope

extension Vault {
    /// Opens an envelope for the own device.
    mutating func openOnDevice(
        _ job: OpenJob, _ now: Moment, _ changes: inout [StoreChange], _ step: inout VaultBatch.Step
    ) -> Result<Opened, OpenError> {
        guard let envelope = try? Envelope(job.envelope), let own = devices?.device.id else {
            return .failure(.init(reason: .malformed))
        }
        guard envelope.sender != own else { return .failure(.init(reason: .copy)) }
        let before = devices
        replacedSessions = []
        do {
            switch envelope.kind {
            case .introduction: return .success(try introduced(job, envelope, now, &changes, &step))
            case .direct, .several: return .success(try opened(job, envelope, now, &changes, &step))
            case .room: return .success(try openedInRoom(job, envelope, now, &changes, &step))
            }
        } catch {
            // What was authentic has moved its session on; everything else is as it was.
            changes.removeAll()
            devices = before
            step.peers = []
            step.touchesDevices = false
            for (id, box) in replacedSessions { keeper.restore(box, as: id) }
            return failed(error, job, envelope, now, &changes, &step)
        }
    }

    private mutating func failed(
        _ error: any Error, _ job: OpenJob, _ envelope: Envelope, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) -> Result<Opened, OpenError> {
        switch error {
        case let error as OpenError:
            if error.reason == .copy { return copy(job, envelope, .own, .own, now, &changes, &step) }
            return .failure(error)
        case is EnvelopeError: return .failure(.init(reason: .malformed))
        case is StoreError: return .failure(.init(reason: .store))
        default: return .failure(.init(reason: .notAuthentic))
        }
    }

    // MARK: Meeting

    private mutating func introduced(
        _ job: OpenJob, _ envelope: Envelope, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) throws -> Opened {
        let introduction = try Introduction(envelope.ratchetMessage, from: envelope.sender)
        guard let own = devices?.device, let chain = devices?.chain else { throw OpenError(reason: .malformed) }
        var (peer, event) = try meet(introduction.chain, envelope.sender, job, now)
        if let last = peer?.introduced[envelope.sender], last >= introduction.time { throw OpenError(reason: .copy) }
        peer?.note(envelope.sender, introducedAt: introduction.time)
        var opened = Opened(
            body: .noText, sender: peer?.name ?? .own, gap: 0, protection: .plaintext)
        if event == nil { event = peer.map { .renewed($0.name) } }
        opened.event = event
        if let peer {
            put(peer, &changes, &step)
            if !job.senders.contains(peer.name) { step.alias = (job.sourceName, peer.name) }
        }
        if case .changed = event { return opened }
        guard let id = session(with: envelope.sender) else { throw OpenError(reason: .malformed) }
        let session = try Session.initiate(
            identity: own.identity, with: introduction.bundle,
            expecting: introduction.chain.identity(of: envelope.sender), random: &keeper.random)
        step.sessions.append(id)
        try keeper.adopt(session, as: id)
        opened.answer = .init(body: ControlMessage.ready(chain).body, device: envelope.sender)
        return opened
    }

    /// Judges a list that somebody shows.
    ///
    /// - Returns: what is to be stored of the peer, nothing where it is a device of the person's own; and what is new.
    private func meet(
        _ shown: DeviceChain, _ device: DeviceID, _ job: OpenJob, _ now: Moment
    ) throws(OpenError) -> (Peer?, PeerEvent?) {
        guard let devices else { throw OpenError(reason: .malformed) }
        switch devices.meeting(shown, with: device, as: job.senders, now: now) {
        case .new(let peer): return (peer, .met(peer.name))
        case .known(let peer, let isRenewed): return (peer, isRenewed ? .renewed(peer.name) : nil)
        case .changed(let peer): return (peer, .changed(peer.name))
        case .own(let chain): return try meetOwn(chain)
        case .refused(let reason): throw OpenError(reason: reason)
        }
    }

    /// Another of the person's own devices shows its list, which may be a later one.
    private func meetOwn(_ shown: DeviceChain) throws(OpenError) -> (Peer?, PeerEvent?) {
        guard let devices, shown.continues(devices.chain), shown != devices.chain else { return (nil, nil) }
        return (nil, shown.identity(of: devices.device.id) == nil ? .revoked : .adopted(.own))
    }

    private mutating func put(_ peer: Peer, _ changes: inout [StoreChange], _ step: inout VaultBatch.Step) {
        step.peers.insert(peer.name)
        step.touchesDevices = true
        devices?.put(peer, &changes)
    }

    // MARK: Opening

    private mutating func opened(
        _ job: OpenJob, _ envelope: Envelope, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) throws -> Opened {
        guard let own = devices?.device.id, let id = session(with: envelope.sender) else {
            throw OpenError(reason: .malformed)
        }
        try checkSource(job, envelope.sender)
        let several = envelope.kind == .several ? try SeveralRecipients(envelope.ratchetMessage) : nil
        let message =
            several == nil
            ? envelope.ratchetMessage : several?.wrapped.first(where: { $0.device == own })?.message ?? []
        let associated = associatedData(from: envelope.sender, to: own, room: nil, envelope.messageID)
        var (plaintext, skipped) = try decrypt(message, associated, envelope.sender, id, &step, &changes)
        if let several {
            plaintext = try SeveralRecipients.open(
                several.sealedBody, key: plaintext,
                associatedData: associatedData(from: envelope.sender, to: DeviceID(0), room: nil, envelope.messageID))
        }
        var body = try Body(plaintext)
        var opened: Opened
        if body.kind == .control {
            opened = try heard(try ControlMessage(body.text), envelope, job, now, &changes, &step)
        } else {
            guard let sender = devices?.owner(of: envelope.sender) else { throw OpenError(reason: .unknownSender) }
            let isVerified = devices?.peers[sender]?.isVerified ?? false
            if let mark = job.mark { body.mark(isVerified ? mark.verified : mark.plain) }
            opened = try accept(job, envelope, sender, .own, body, skipped, now, &changes, &step).get()
            opened.isVerified = isVerified
            opened.event = otherName(sender, job)
            if opened.event != nil { step.alias = (job.sourceName, sender) }
        }
        opened.protection = .device
        raise(opened.sender, job, now, &changes, &step)
        return opened
    }

    /// A known device may write under the names of its owner, and under a name that nobody known has.
    func checkSource(_ job: OpenJob, _ device: DeviceID) throws(OpenError) {
        guard let devices, let owner = devices.owner(of: device), owner != .own else { return }
        guard job.senders.contains(owner) || job.senders.allSatisfy({ devices.peers[$0] == nil }) else {
            throw OpenError(reason: .wrongSource)
        }
    }

    func owner(_ envelope: Envelope) throws(OpenError) -> AccountID {
        guard let owner = devices?.owner(of: envelope.sender) else { throw OpenError(reason: .unknownSender) }
        return owner
    }

    func otherName(_ sender: AccountID, _ job: OpenJob) -> PeerEvent? {
        sender == .own || job.senders.contains(sender) ? nil : .otherName(sender)
    }

    private mutating func decrypt(
        _ message: [UInt8], _ associated: [UInt8], _ sender: DeviceID, _ id: SessionID,
        _ step: inout VaultBatch.Step, _ changes: inout [StoreChange]
    ) throws -> ([UInt8], Int) {
        var plaintext: [UInt8] = []
        let box = try keeper.session(id)
        if let box {
            do throws(RatchetError) {
                let received = try box.session.decrypt(
                    message.span, associatedData: associated.span, into: &plaintext)
                step.sessions.append(id)
                keeper.markDirty(id)
                return (plaintext, received.skipped)
            } catch {
                switch error {
                case .duplicate: throw OpenError(reason: .copy)
                case .tooFarAhead: throw OpenError(reason: .tooFarAhead)
                default: break
                }
            }
        }
        for old in keeper.earlierSessions(id) {
            do throws(RatchetError) {
                let received = try old.session.decrypt(
                    message.span, associatedData: associated.span, into: &plaintext)
                return (plaintext, received.skipped)
            } catch {
                if error == .duplicate { throw OpenError(reason: .copy) }
            }
        }
        guard PreKeyMessage.isPreKeyMessage(message.span) else {
            throw OpenError(reason: box == nil ? .unknownSender : .notAuthentic)
        }
        let header = try PreKeyMessage.header(of: message.span)
        if let box, !box.session.isEstablished, let own = devices?.device.identity.publicKey,
            own.bytes.lexicographicallyPrecedes(header.identity.bytes)
        {
            // Both began at the same time. The lower key's session is the one that stays, on both sides.
            throw OpenError(reason: .copy)
        }
        let session = try respond(header, message, associated, sender, &plaintext, &changes)
        step.touchesDevices = true
        step.sessions.append(id)
        replacedSessions.append((id, box))
        try keeper.adopt(session, as: id)
        return (plaintext, 0)
    }

    private mutating func respond(
        _ header: PreKeyMessage.Header, _ message: [UInt8], _ associated: [UInt8], _ sender: DeviceID,
        _ plaintext: inout [UInt8], _ changes: inout [StoreChange]
    ) throws -> Session {
        // Without a one-time prekey a copy of the message would begin the session again.
        guard let devices, let onceID = header.oneTimePreKeyID, let once = devices.shelf.oneTime[onceID],
            let signed = devices.shelf.signed[header.signedPreKeyID], let kem = devices.shelf.kem[header.kemPreKeyID]
        else { throw OpenError(reason: .notAuthentic) }
        let session = try Session.respond(
            identity: devices.device.identity, signedPreKey: signed.key, oneTimePreKey: once.key, kemPreKey: kem.key,
            message: message.span, associatedData: associated.span, expecting: devices.identity(of: sender),
            plaintext: &plaintext)
        self.devices?.shelf.remove(oneTime: onceID, &changes)
        return session
    }

    private mutating func heard(
        _ message: ControlMessage, _ envelope: Envelope, _ job: OpenJob, _ now: Moment,
        _ changes: inout [StoreChange], _ step: inout VaultBatch.Step
    ) throws -> Opened {
        var opened = Opened(body: .noText, sender: .own, gap: 0)
        switch message {
        case .ready(let chain), .acknowledge(let chain):
            // A list proves nothing about a session whose key it does not hold.
            guard let id = session(with: envelope.sender), let box = try keeper.session(id),
                chain.identity(of: envelope.sender) == box.session.peerIdentity
            else { throw OpenError(reason: .notAuthentic) }
            let (peer, event) = try meet(chain, envelope.sender, job, now)
            opened.event = event
            if case .ready = message, event == nil { opened.event = peer.map { .renewed($0.name) } }
            if let peer {
                put(peer, &changes, &step)
                opened.sender = peer.name
            } else if event != nil {
                take(chain, &changes, &step)
            }
            if case .ready = message, let own = devices?.chain, event != peer.map({ .changed($0.name) }) {
                opened.answer = .init(body: ControlMessage.acknowledge(own).body, device: envelope.sender)
            }
        case .senderKey(let room, let distribution):
            opened.sender = try owner(envelope)
            take(distribution, of: envelope.sender, in: room, &changes, &step)
        case .senderKeyWanted(let room):
            opened.sender = try owner(envelope)
            devices?.roomKeys.forget(reader: envelope.sender, in: room)
        case .adopted(let chain):
            opened.sender = try owner(envelope)
            guard let own = devices?.device, opened.sender == devices?.joining,
                var peer = devices?.peers[opened.sender],
                chain.continues(peer.chain), chain.identity(of: own.id) == own.identity.publicKey
            else { throw OpenError(reason: .unknownSender) }
            devices?.joining = nil
            devices?.put(chain: chain, &changes)
            peer.chain = chain
            peer.isVerified = true
            put(peer, &changes, &step)
            opened.event = .adopted(peer.name)
        }
        return opened
    }

    /// A conversation in which a message came end to end stays so.
    private mutating func raise(
        _ peer: AccountID, _ job: OpenJob, _ now: Moment, _ changes: inout [StoreChange],
        _ step: inout VaultBatch.Step
    ) {
        guard peer != .own, var known = devices?.peers[peer], known.offered == nil else { return }
        if !known.isEstablished {
            known.isEstablished = true
            put(known, &changes, &step)
        }
        guard conversations.insert(ConversationID(.own, peer)).inserted
        else { return }
        latch(
            .init(
                conversation: ConversationID(.own, peer), account: .own, peer: peer, peerName: job.sourceName,
                accountName: "", protection: .device), now, &changes, &step)
    }
}
