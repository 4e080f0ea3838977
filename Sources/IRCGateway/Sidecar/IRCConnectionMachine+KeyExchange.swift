// A sidecar's connection and the keys of peers: reports lines and replies of the vault to ``KeyExchange``, and performs
// its actions.

import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// Ours: entries of the outbound lane, with which no more control messages are added that other people cause. A next
    /// message to them has the same effect.
    private static let busyLane = 32

    private func nick(_ written: String) -> Nick {
        Nick(written: written, folded: support.caseMapping.fold(written))
    }

    private func perform(
        _ actions: [KeyExchange.Action], _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        for action in actions {
            switch action {
            case .introduce(let ticket, _) where outbound.isFullBehind:
                // The peer announces itself again.
                _ = sidecar.exchange.introductionMade(ticket)
            case .begin where outbound.count >= Self.busyLane, .answer where outbound.count >= Self.busyLane,
                .askForKey where outbound.count >= Self.busyLane:
                break
            case .introduce(let ticket, let nick):
                let capacity = lineCapacity(verb: "NOTICE", target: nick)
                out.jobs.append(.sidecar(.introduce(connection: id, ticket: ticket, capacity: capacity)))
            case .begin(let nick):
                guard let own = sidecar.peers.own else { break }  // The vault has not loaded the device yet.
                control(ControlMessage.ready(own.deviceList).body, to: nick, device: nil, sidecar, now, out)
            case .answer(let answer, let nick):
                control(answer.body, to: nick, device: answer.device, sidecar, now, out)
            case .askForKey(let room, let nick):
                control(ControlMessage.senderKeyWanted(room: room).body, to: nick, device: nil, sidecar, now, out)
            case .warn(let nick):
                var line = ByteBuffer(string: "NOTICE \(nick) :")
                line.writeBytes(Armour.marker)
                line.writeString(Notices.newKeysAnnouncement + "\r\n")
                forward(line, now, out)
            case .notify(let text, let nick): notify(text, about: nick, out)
            case .seal(let message, let peer): seal(message, for: peer, now, out)
            case .send(let message): send(message, now, out)
            case .refuse(let message):
                environment.tally.add(.failed)
                notSent(message.target, Notices.noKeys(message.target), label: message.clientLabel, out)
            }
        }
        scheduleWake(now, out)
    }

    // MARK: The person's other devices

    /// Sends the list of the person's devices to each of the others, at the login. One that has removed this one meanwhile
    /// answers with the list without it.
    func greetOwnDevices(_ now: Timestamp, _ out: MachineOutput) {
        guard case .sidecar(let sidecar) = role, !capabilities.has(PawlCapability.name), let own = sidecar.peers.own,
            own.deviceList.current.count > 1, own.deviceList.identity(of: own.device) != nil
        else { return }
        for peer in sidecar.peers.all where own.deviceList.continues(peer.deviceList) {
            let body = ControlMessage.acknowledge(own.deviceList).body
            control(body, to: peer.name.displayName, device: nil, sidecar, now, out)
        }
    }

    /// Sends the list of the person's devices to those that it lacks, as soon as they are seen.
    func dismissRemovedDevices(
        _ nicks: [String], _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        for written in nicks where sidecar.people.isRemovedDevice(support.caseMapping.fold(written)) {
            perform(sidecar.exchange.sawRemovedDevice(nick(written), now: now.monotonic), sidecar, now, out)
        }
    }

    // MARK: Announcement

    /// Adds the announcement to a plaintext message if one is due.
    func withAnnouncement(
        _ message: OutboundMessage, to recipient: Recipient, _ sidecar: SidecarConnection, _ now: Timestamp
    ) -> OutboundMessage {
        var isUnknown = recipient == .outsider
        if case .room = recipient { isUnknown = true }
        guard sidecar.isOnBareServer, isUnknown, message.verb == "PRIVMSG",
            message.body.isText, CTCP(message.body.text) == nil
        else { return message }
        let nick = support.caseMapping.fold(message.target)
        let hasTags = capabilities.has("message-tags")
        // Of several lines the last one that is sent.
        var lines = message.body.lines
        let last = lines.lastIndex { !$0.text.isEmpty } ?? 0
        let length = lines[last].text.count + Announcement.marker.count
        guard !isService(nick), nick != self.nick.map(support.caseMapping.fold),
            hasTags || length <= lineCapacity(verb: message.verb, target: message.target),
            sidecar.exchange.isAnnouncementDue(nick, now: now.monotonic)
        else { return message }
        var announcing = message
        if hasTags {
            announcing.tags.append(IRCTag(key: Announcement.tag, value: ""))
        } else {
            lines[last].text += Announcement.marker
            announcing.body =
                message.body.kind == .lines
                ? Body(lines: lines, tags: message.body.tags) : Body(tags: message.body.tags, text: lines[last].text)
        }
        return announcing
    }

    /// Handles the announcement in a plaintext line.
    ///
    /// - Parameter verb: the verb of lines whose announcement is answered.
    /// - Returns: the line without the announcement; nil if it has none.
    func receiveAnnouncement(
        _ line: IRCLine, _ text: [UInt8], verb: VerbKey = .privmsg, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) -> (line: IRCLine, raw: ByteBuffer, text: [UInt8])? {
        let tags = line.tags.isEmpty ? [] : line.tagList
        let isTagged = tags.contains { $0.key == Announcement.tag }
        guard isTagged || Announcement.stripped(text) != nil, line.sourceIsPerson else { return nil }
        let source = line.folded(line.sourceNick, support.caseMapping)
        let target = line.text(0).map(support.caseMapping.fold) ?? ""
        let isHere = target == nick.map(support.caseMapping.fold) || sidecar.people.isMember(source, of: target)
        // A line of the history is of people who may be gone.
        if isHere, line.key == verb, !isReplay(line), source != nick.map(support.caseMapping.fold),
            room(target) == nil || sidecar.people.person(source) == .outsider
        {
            let nick = Nick(written: line.string(line.sourceNick), folded: source)
            perform(sidecar.exchange.announced(by: nick, now: now.monotonic), sidecar, now, out)
        }
        let bare = Announcement.stripped(text) ?? text
        var raw = ByteBuffer()
        raw.writeTags(tags.filter { $0.key != Announcement.tag })
        raw.writeString(":\(line.string(line.source)) \(line.string(line.verbSpan)) \(line.text(0) ?? "") :")
        raw.writeBytes(bare)
        let content = raw.readableBytes
        raw.writeString("\r\n")
        return parse(raw, content).map { ($0, raw, bare) }
    }

    // MARK: Replies of the vault

    /// Sends the introduction that the vault has made.
    func introduce(
        _ ticket: UInt64, _ bodies: [[UInt8]], _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let target = sidecar.exchange.introductionMade(ticket) else { return }
        for line in noticeLines(bodies, to: target) { outbound.appendBehind(line) }
        pump(now, out)
    }

    /// Sends the lines of an envelope that is no request: nothing waits for it, and it is not repeated.
    func notice(_ bodies: [[UInt8]], to target: String) {
        for line in noticeLines(bodies, to: target) { outbound.append(.line(line)) }
    }

    private func noticeLines(_ bodies: [[UInt8]], to target: String) -> [ByteBuffer] {
        bodies.map { body in
            var line = ByteBuffer()
            if capabilities.has("message-tags") { line.writeTags([IRCTag(key: PawlCapability.tag, value: "")]) }
            line.writeString("NOTICE \(target) :")
            line.writeBytes(body)
            line.writeString("\r\n")
            return line
        }
    }

    /// Handles the event and the answer of an opened message.
    ///
    /// - Returns: the notices for the person as lines, which are shown before the message.
    func learnt(
        _ opened: Opened, from written: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) -> [ByteBuffer] {
        let actions = sidecar.exchange.opened(
            opened, from: nick(written), isOnBareServer: sidecar.isOnBareServer, now: now.monotonic
        ) { sidecar.people.person($0) }
        var notices: [ByteBuffer] = []
        var others: [KeyExchange.Action] = []
        let folded = support.caseMapping.fold(written)
        let isChange = if case .changed = opened.event { true } else { false }
        for action in actions {
            guard case .notify(let text, let nick) = action else {
                others.append(action)
                continue
            }
            guard !isChange || sidecar.ownLines.isNoticeDue(changedKeysOf: folded) else { continue }
            notices.append(noticeLine(text, about: nick))
        }
        let exchangesKeys =
            switch opened.event {
            case .keysExchanged, .renewed, .removedDevices: true
            default: false
            }
        if !isChange { sidecar.ownLines.opened(from: folded, exchangedKeys: exchangesKeys) }
        if case .keysExchanged = opened.event { sidecar.ownLines.note(.sealed, folded) }
        perform(others, sidecar, now, out)
        switch opened.event {
        case .roomProtected(let room):
            let text = Notices.roomProtected(room, readers: sidecar.people.readers(in: room).count)
            notices.append(noticeLine(text, to: room))
        case .adopted:
            publish(sidecar, out)
            notices.append(noticeLine(Notices.adopted))
        case .revoked: notices.append(noticeLine(Notices.revoked))
        case .asked(let request): received(request, by: nick(written), sidecar, now, out)
        case .crossed(isText: true): environment.tally.add(.openUnknownSender)
        // The key exchange has handled them.
        case .keysExchanged, .renewed, .removedDevices, .changed, .forked, .crossed, .otherName, nil: break
        }
        return notices
    }

    /// Sends a control message to one device, or to all devices of a person.
    ///
    /// - Parameter device: nil for all devices.
    func control(
        _ body: Body, to nick: String, device: DeviceID?, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        let folded = support.caseMapping.fold(nick)
        var name = AccountID.nick(folded)
        if case .capable(let known) = sidecar.people.person(folded) { name = known }
        let ticket = outbound.beginSeal(
            PendingSeal(target: nick, clientLabel: nil, body: body, peer: name, verb: "NOTICE"))
        out.jobs.append(
            .seal(
                SealJob(
                    connection: id, ticket: ticket, sender: account, recipient: name, target: nick,
                    senderName: support.caseMapping.fold(self.nick ?? ""), recipientName: folded, verb: "NOTICE",
                    body: body, capacity: lineCapacity(verb: "NOTICE", target: nick), device: device)))
    }

    /// Answers an envelope that could not be opened.
    func notOpened(
        _ failure: OpenFailure, _ open: PendingOpen, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        let source = nick(open.sourceNick)
        let place: KeyExchange.Place =
            switch room(open.target) {
            case nil: .direct
            case let room?: sidecar.people.isMember(source.folded, of: room.name) ? .room(room.name) : .foreignRoom
            }
        perform(
            sidecar.exchange.notOpened(failure, from: source, in: place, now: now.monotonic), sidecar, now, out)
    }

    // MARK: Waiting for keys

    /// Handles a message that the vault has no session for.
    func keysMissing(_ ticket: UInt64, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        // A control message is sent again by the exchange that it belongs to.
        guard let seal = outbound.cancelSeal(ticket), seal.body.kind != .control else { return }
        let message = OutboundMessage(
            verb: seal.verb, target: seal.target, body: seal.body, clientLabel: seal.clientLabel, tags: [])
        noteOwn(.waiting, message, sidecar, out)
        let actions = sidecar.exchange.sessionMissing(
            message, to: nick(seal.target), of: seal.peer, limit: settings.heldLines, now: now.monotonic)
        perform(actions, sidecar, now, out)
    }

    /// Whether a message waits because the recipient has just been sent an introduction, or behind one that waits.
    func waitsForKeys(
        _ message: OutboundMessage, _ recipient: Recipient, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) -> Bool {
        let nick = support.caseMapping.fold(message.target)
        guard recipient == .outsider, !phase.isSuspended || sidecar.exchange.isWaiting(for: .nick(nick)),
            sidecar.exchange.keepsForKeys(message, to: nick, limit: settings.heldLines, now: now.monotonic)
        else { return false }
        noteOwn(.waiting, message, sidecar, out)
        scheduleWake(now, out)
        return true
    }

    /// Whether a message waits for its recipient's answer to the beginning of the session, or behind one that waits.
    func waitsForAnswer(
        _ message: OutboundMessage, _ peer: AccountID, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) -> Bool {
        guard !phase.isSuspended || sidecar.exchange.isWaiting(for: peer),
            sidecar.exchange.keepsForAnswer(message, of: peer, limit: settings.heldLines, now: now.monotonic)
        else { return false }
        noteOwn(.waiting, message, sidecar, out)
        scheduleWake(now, out)
        return true
    }

    /// Ends the wait of messages that have waited long enough for keys.
    func giveUpKeys(_ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        perform(sidecar.exchange.expire(now: now.monotonic), sidecar, now, out)
    }

    /// Notifies the person, once, that messages to a nick are encrypted for keys known under another name.
    func notifyOfOtherName(of peer: AccountID, _ target: String, _ sidecar: SidecarConnection, _ out: MachineOutput) {
        let nick = support.caseMapping.fold(target)
        guard peer.roomName == nil, peer != .nick(nick), peer != .services(nick),
            sidecar.exchange.isNameNoticeDue(nick, keysOf: peer)
        else { return }
        notify(Notices.sealedFor(target, name: peer.displayName), about: target, out)
    }
}
