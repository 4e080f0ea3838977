// Keys in band, for carriers with sidecars: a device sends its list and its prekeys as an introduction, the reader begins a
// session and answers `ready`, and the first device answers `acknowledge`. The same as a sidecar does, see Sources/WIRE.md.
//
// Whom an introduction is sent to, and how often, is the transport's matter.

import CommitLoop
import DeviceSessions
import Devices
import Envelope
import Protection
import StorePort
import Vault

extension MessengerParticipants {
    /// Whether keys travel in introductions, and no server publishes them.
    var introducesItself: Bool { vault.carrier == .irc }

    /// Ours: characters of text that fit one line on all networks whose nicks have at most 40 bytes.
    static let lineCapacity = 330
    /// Ours: bytes of one text. It fits sixteen lines together with the beginning of a session.
    static let lineTextLimit = 1500
    /// Ours: the same in a group, whose version each message names.
    static let lineGroupTextLimit = 1200

    /// The body to seal, padded as the carrier pads.
    ///
    /// - Parameter overhead: bytes of the envelope besides header and body.
    /// - Throws: ``MessengerRefusal/tooLong`` if the message needs too many lines.
    func padded(_ body: Body, besides overhead: Int) throws(MessengerRefusal) -> [UInt8] {
        guard introducesItself else { return body.bytes(paddedTo: Content.paddedLength(of: body.length)) }
        let fixed = Envelope.headerLength + overhead
        guard let lines = Armour.lines(for: fixed + body.length, capacity: Self.lineCapacity) else { throw .tooLong }
        return body.bytes(paddedTo: Armour.capacity(lines: lines, of: Self.lineCapacity) - fixed)
    }

    /// Makes an introduction of this device, with a one-time prekey that is stored with it.
    mutating func introduce(_ now: Timestamp, _ unit: inout Unit) throws -> MessengerReply {
        guard introducesItself else { throw MessengerRefusal.notAllowed }
        let id = MessageID(ids.next(in: .only, at: now))
        return .introduction(try own.introduction(id, now, random: &vault.random, &unit.changes).bytes)
    }

    // MARK: Receiving

    /// Takes an envelope of a carrier with introductions.
    mutating func receiveInBand(
        _ envelope: Envelope, from user: String, _ now: Timestamp, _ unit: inout Unit
    ) throws -> ReceiveOutcome {
        let source = source(user)
        // Nobody else writes under the person's own name.
        guard source.accounts != [.own] else { throw OpenError(reason: .wrongSource) }
        switch envelope.kind {
        case .introduction: return try receiveIntroduction(envelope, source, now, &unit)
        case .direct, .several: break
        // This device is in no rooms.
        case .room: throw OpenError(reason: .malformed)
        }
        try own.check(source, of: envelope.sender)
        let opened = try own.open(envelope, crossing: .added(), now, in: vault, &unit)
        if opened.skipped > 0 { report(.gap(user, opened.skipped), &unit) }
        let body = try Body(opened.body)
        let owner: AccountID?
        if body.kind == .control {
            owner = try receive(try ControlMessage(body.text), envelope, source, now, &unit)
        } else {
            let sender = try own.owner(of: envelope, from: source)
            guard [sender] == source.accounts || sender == .own else { throw OpenError(reason: .wrongSource) }
            if let content = try Self.content(of: body, now) {
                try receive(content, envelope, from: sender, now, &unit)
            }
            owner = sender
        }
        // Both ends have begun a session, and ours is kept: the other end has to use it.
        if opened.isCrossed {
            try answer(.ready(own.deviceList), to: envelope.sender, of: .services(user), now, &unit)
        }
        if let owner, owner != .own, own.noteOpened(from: owner, &unit) { try raiseLatch(owner, now, &unit) }
        return .taken
    }

    /// What a message of a sidecar or a messenger says; nil if it is only for clients of the carrier.
    private static func content(of body: Body, _ now: Timestamp) throws(EnvelopeError) -> ChatContent? {
        var body = body
        // A client such as irssi may send any bytes, and tags of its own without a text.
        body.text = Array(String(decoding: body.text, as: UTF8.self).utf8)
        if body.kind == .tagsOnly, !String(decoding: body.tags, as: UTF8.self).contains("+pawl/") { return nil }
        let action = Array("\u{1}ACTION ".utf8)
        if body.text.starts(with: action) {
            body.text = Array("/me ".utf8) + body.text.dropFirst(action.count).filter { $0 != 1 }
        } else if body.text.first == 1 {
            // A query of a client to a client.
            return nil
        }
        return try ChatContent(body, now: now.wall)
    }

    /// Takes the keys of a device, begins a session with it, and shows it the person's own list.
    private mutating func receiveIntroduction(
        _ envelope: Envelope, _ source: MessageSource, _ now: Timestamp, _ unit: inout Unit
    ) throws -> ReceiveOutcome {
        let introduction = try Introduction(envelope.ratchetMessage, from: envelope.sender)
        let (judged, event) = try own.judge(introduction.deviceList, by: envelope.sender, from: source, now)
        // One of the person's own devices is known under a name as well.
        let known = judged ?? own.owner(of: envelope.sender).flatMap { own.peer($0) }
        guard var peer = known, [peer.name] == source.accounts else { throw OpenError(reason: .wrongSource) }
        guard peer.takes(introduction) else { throw OpenError(reason: .copy) }
        own.put(peer, &unit)
        if let event, event.awaitsDecision {
            reportUndecided(event, &unit)
            return .taken
        }
        let isBegun = try own.meet(introduction, now, in: vault, &unit)
        if judged != nil, let news = event ?? (isBegun ? .renewed(peer.name) : nil) { report(.peer(news), &unit) }
        if isBegun { try answer(.ready(own.deviceList), to: envelope.sender, of: peer.name, now, &unit) }
        try sealWaiting(peer.name, now, &unit)
        return .taken
    }

    /// Takes a control message.
    ///
    /// - Returns: whose device has sent it; nil if it is not known.
    private mutating func receive(
        _ control: ControlMessage, _ envelope: Envelope, _ source: MessageSource, _ now: Timestamp,
        _ unit: inout Unit
    ) throws -> AccountID? {
        switch control {
        case .ready(let list), .acknowledge(let list):
            let (peer, event) = try own.take(
                shown: list, by: envelope.sender, from: source, now, in: vault, &unit)
            // The list is a known one, and its owner has another name.
            guard peer == nil || [peer] == source.accounts else { throw OpenError(reason: .wrongSource) }
            if let event, event.awaitsDecision {
                reportUndecided(event, &unit)
                return peer
            }
            if let event { report(peer == nil ? .ownDevices(list) : .peer(event), &unit) }
            if case .ready = control {
                try answer(
                    .acknowledge(own.deviceList), to: envelope.sender, of: source.accounts.first ?? .own, now, &unit)
            }
            if let peer { try sealWaiting(peer, now, &unit) }
            return peer ?? .own
        case .adopted(let list):
            let owner = try own.owner(of: envelope, from: source)
            try own.join(list, of: owner, &unit)
            report(.ownDevices(own.deviceList), &unit)
            return owner
        // Rooms: this device is in none.
        case .senderKey, .senderKeyWanted, .roomRequest: return nil
        }
    }

    /// Seals a control message for one device.
    mutating func answer(
        _ control: ControlMessage, to device: DeviceID, of user: AccountID, _ now: Timestamp, _ unit: inout Unit
    ) throws {
        guard let box = try own.sessions(with: device, in: vault) else { return }
        let id = MessageID(ids.next(in: .only, at: now))
        try seal(control.body, id, for: [(device, box)], user, nil, now, &unit)
    }

    // MARK: Devices

    /// Tells a device that it was added to the person's own list.
    ///
    /// - Throws: ``MessengerRefusal/noSuchDevice`` if it was not: a list is full, or it has several devices already.
    mutating func sendOwnList(to peer: AccountID, _ now: Timestamp, _ unit: inout Unit) throws {
        guard own.peer(peer)?.deviceList == own.deviceList else { throw MessengerRefusal.noSuchDevice }
        for recipient in try own.recipients(of: peer, in: vault) where recipient.device != own.id {
            try answer(.adopted(own.deviceList), to: recipient.device, of: peer, now, &unit)
        }
        report(.ownDevices(own.deviceList), &unit)
    }
}
