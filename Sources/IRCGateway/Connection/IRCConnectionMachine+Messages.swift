// Messages of the client: resolves the recipient, applies the policy, and seals, forwards or refuses the message.

package import Envelope
package import IRCCodec
package import NIOCore
package import Protection
import Reports
import RequestQueue
import Vault

/// One message for one target, extracted from a line.
package struct OutboundMessage: Sendable, Equatable {
    package var verb: String
    /// As written.
    package var target: String
    package var body: Body
    package var clientLabel: String?
    /// All tags of the line except the label, for a message sent as plaintext.
    package var tags: [IRCTag]

    /// The message as lines of its own, with CR LF: one, unless it has several lines. Blank ones of them are omitted.
    package var lines: [ByteBuffer] {
        let texts = body.kind == .lines ? body.lines.map(\.text).filter { !$0.isEmpty } : [body.text]
        return texts.enumerated().map { index, text in
            var buffer = ByteBuffer()
            if index == 0 { buffer.writeTags((clientLabel.map { [IRCTag(key: "label", value: $0)] } ?? []) + tags) }
            buffer.writeString("\(verb) \(target)")
            if body.isText {
                buffer.writeString(" :")
                buffer.writeBytes(text)
            }
            buffer.writeString("\r\n")
            return buffer
        }
    }
}

extension IRCConnectionMachine {
    /// Handles PRIVMSG, NOTICE or TAGMSG of the client.
    package func message(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        noteSoftware(line, now, out)
        guard isRegistered || !isProtecting else {
            // The backend would accept it, as plaintext, as soon as it has registered the client.
            return reply(451, [], "You have not registered", out)
        }
        guard let targets = line.parameter(0), !targets.isEmpty else { return forward(raw, now, out) }
        if case .front(let device) = role, passesEnvelope(line, raw, device, now, out) { return }
        guard isGuarded else { return unguarded(line, raw, targets, now, out) }
        if takesControl(line, out) { return }
        let isTagMessage = line.key == .tagmsg
        let verb = line.string(line.verbSpan).uppercased()
        if !isTagMessage, line.parameter(1) == nil { return forward(raw, now, out) }
        let tags = line.tagList
        let body = Body(
            kind: isTagMessage ? .tagsOnly : .text, tags: clientTags(line),
            text: isTagMessage ? [] : line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? [])
        var label = tags.first { $0.key == "label" }?.value
        let all = withoutControl(line.names(0)).map { name in
            defer { label = nil }
            return OutboundMessage(
                verb: verb, target: name, body: body, clientLabel: label, tags: tags.filter { $0.key != "label" })
        }
        guard !role.isSidecar else {
            for message in all { send(message, now, out) }
            return
        }
        let judged = all.map { message in
            let resolution = recipient(message.target, now)
            guard case .known(let recipient) = resolution else { return (message, resolution, Verdict?.none) }
            return (message, resolution, verdict(recipient, message))
        }
        // A line that is plaintext for all its targets is forwarded unchanged.
        if judged.allSatisfy({ $0.2 == .plaintext }) {
            for case (let message, .known(let recipient), _) in judged { countPlain(message, recipient, now, out) }
            return forward(raw, now, out)
        }
        for (message, resolution, verdict) in judged { send(message, resolution, verdict, now, out) }
    }

    private func countPlain(
        _ message: OutboundMessage, _ recipient: Recipient, _ now: Timestamp, _ out: MachineOutput
    ) {
        note(recipient, message.target, message.body.text, now)
        environment.tally.add(recipient == .exempt ? .sentExempt : .sentPlaintext)
        notifyOfPlainRoom(message, recipient, out)
    }

    /// Forwards and counts a message if nothing requires protection.
    private func unguarded(
        _ line: IRCLine, _ raw: ByteBuffer, _ targets: ByteSpan, _ now: Timestamp, _ out: MachineOutput
    ) {
        forward(raw, now, out)
        guard line.key != .tagmsg else { return }
        let written = line.slice(targets)
        let text = line.parameter(1).map { line.slice($0).readableBytesView } ?? ByteBuffer().readableBytesView
        let isCTCP = text.first == 0x01
        if !isCTCP, let repeated = observations.repeats(written, now: now.monotonic) {
            environment.tally.add(repeated == .exempt ? .sentExempt : .sentPlaintext)
            return
        }
        defer { if !isCTCP { observations.remember(written, now: now.monotonic) } }
        for name in line.names(0) {
            // Nothing depends on it yet, so the server is not asked who has the nick.
            let recipient: Recipient =
                switch recipient(name, now) {
                case .known(let recipient): recipient
                case .unknownService: .exempt
                }
            note(recipient, name, text, now)
            environment.tally.add(recipient == .exempt ? .sentExempt : .sentPlaintext)
        }
        if observations.isFull { flushObservations(now, out, force: true) }
        scheduleWake(now, out)
    }

    // MARK: Recipient

    /// The result of resolving a target.
    package enum Resolution {
        case known(Recipient)
        /// It may be a service; WHOIS at the backend has to confirm it.
        case unknownService
    }

    /// Resolves a target.
    package func recipient(_ target: String, _ now: Timestamp) -> Resolution {
        guard !target.isEmpty else { return .known(.outsider) }
        if let room = room(target) { return .known(.room(.room(room.name, status: room.status))) }
        let folded = support.caseMapping.fold(target)
        if case .sidecar(let sidecar) = role { return .known(sidecar.people.person(folded)) }
        if let entry = environment.roster.owner(ofFoldedNick: folded) {
            guard entry.participates else { return .known(.outsider) }
            let bothCan = entry.device != nil && role.clientDevice != nil
            return .known(bothCan ? .capable(entry.account) : .legacy(entry.account))
        }
        let nick = String(target.prefix { $0 != "@" })
        let candidates = settings.exemptions.filter { Mask.matches($0.nick, nick) }
        guard !candidates.isEmpty else { return .known(.outsider) }
        if nick.count < target.count {
            // `NickServ@services.example.org`: the server routes by that name, so it needs no WHOIS.
            let server = String(target.dropFirst(nick.count + 1))
            let proven = candidates.contains { $0.isProven(host: "", server: server) }
            return .known(proven ? .exempt : .outsider)
        }
        if let identity = services.identity(folded, now: now.monotonic) {
            let proven = candidates.contains { $0.isProven(host: identity.host, server: identity.server) }
            return .known(proven ? .exempt : .outsider)
        }
        return .unknownService
    }

    /// Whether a target is valid UTF-8.
    ///
    /// A `String` replaces all invalid bytes by one character, so two targets could have the same name. No message is
    /// sealed for such a target.
    func isNameable(_ target: String) -> Bool { !target.unicodeScalars.contains("\u{FFFD}") }

    /// The verdict of the policies and the latch for a message.
    package func verdict(_ recipient: Recipient, _ message: OutboundMessage) -> Verdict {
        let content: Judgement.Content = CTCP(message.body.text) == .dcc ? .directConnection : .text
        return judgement.outbound(
            content, from: Sender(account, role.capability), to: audience(recipient, message.target))
    }

    package var judgement: Judgement { Judgement(policies, environment.latches) }

    package func audience(_ recipient: Recipient, _ target: String) -> Audience {
        guard isNameable(target) else { return .unnameable }
        switch recipient {
        case .room(let readers):
            guard let room = readers.roomName else { return .one(.outsider) }
            switch role {
            case .front: return .room(readers, isMember: isMember(of: room))
            case .sidecar(let sidecar): return .sidecarRoom(readers, sidecarRoom(room, sidecar))
            }
        case .outsider:
            let isProtectedName =
                !environment.latches.isEmpty
                && environment.latches.isProtectedName(support.caseMapping.fold(target), for: account)
            return .one(.outsider, isProtectedName: isProtectedName)
        case .legacy, .capable, .changed, .exempt: return .one(recipient)
        }
    }

    /// Notifies a protected person, once for each room, that the room is not protected.
    private func notifyOfPlainRoom(_ message: OutboundMessage, _ recipient: Recipient, _ out: MachineOutput) {
        guard policy.demandsProtection, !role.isSidecar, message.body.isText,
            case .room(let room) = recipient, let name = room.roomName, isMember(of: name),
            effective.isNoticeDue(plainRoom: name)
        else { return }
        notify(Notices.roomNotProtected(message.target), out)
    }

    // MARK: Sending

    package func send(_ message: OutboundMessage, _ now: Timestamp, _ out: MachineOutput) {
        send(message, recipient(message.target, now), nil, now, out)
    }

    /// - Parameter judged: the verdict, if the message was judged already.
    private func send(
        _ message: OutboundMessage, _ resolution: Resolution, _ judged: Verdict?, _ now: Timestamp, _ out: MachineOutput
    ) {
        switch resolution {
        case .known(let recipient): send(message, to: recipient, judged, now, out)
        case .unknownService: probe(message, now, out)
        }
    }

    private func send(
        _ message: OutboundMessage, to recipient: Recipient, _ judged: Verdict?, _ now: Timestamp, _ out: MachineOutput
    ) {
        note(recipient, message.target, message.body.text, now)
        if case .sidecar(let sidecar) = role,
            asksFirst(message, recipient, sidecar, now, out) || waitsForKeys(message, recipient, sidecar, now, out)
        {
            return
        }
        switch judged ?? verdict(recipient, message) {
        // The message would have to be written as a new line, which would change this name.
        case .plaintext where !isNameable(message.target): refuse(.name, message, out)
        case .plaintext: sendPlaintext(message, to: recipient, now, out)
        case .refuse(let refusal):
            refuse(refusal, message, out)
        case .seal(let peer):
            seal(message, for: peer, now, out)
        }
        scheduleWake(now, out)
    }

    /// - Parameter slot: the message's place in the outbound lane; nil for the next one.
    func sendPlaintext(
        _ message: OutboundMessage, to recipient: Recipient, at slot: OutboundLane.Ticket? = nil, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        var message = message
        if case .sidecar(let sidecar) = role {
            if slot == nil, waitsForFront(message, to: recipient, sidecar, out) { return }
            if isTooEarly(message, sidecar, now, out) {
                if let slot { outbound.resolve(slot, with: []) }
                environment.tally.add(TallyKind(Refusal.room))
                let text = Notices.roomJustPlain(message.target)
                return reply(404, [message.target], text, label: message.clientLabel, out)
            }
            if recipient != .exempt { noteOwn(.plain, message, sidecar, out) }
            message = withAnnouncement(message, to: recipient, sidecar, now)
        }
        environment.tally.add(recipient == .exempt ? .sentExempt : .sentPlaintext)
        notifyOfPlainRoom(message, recipient, out)
        if let slot { return outbound.resolve(slot, with: message.lines.map { .line($0) }) }
        for line in message.lines { forward(line, now, out) }
    }

    package func seal(_ message: OutboundMessage, for peer: AccountID, _ now: Timestamp, _ out: MachineOutput) {
        if message.body.kind == .tagsOnly, !carriesContent(message) {
            // Typing and similar: not worth an envelope, and the backend must not see it either.
            environment.tally.add(.strippedText)
            return acknowledge(label: message.clientLabel, out)
        }
        if case .sidecar(let sidecar) = role {
            if waitsForAnswer(message, peer, sidecar, now, out) { return }
            notifyOfOtherName(of: peer, message.target, sidecar, out)
            noteOwn(.sealed, message, keysOf: peer, sidecar, out)
        }
        // The recipient may just have returned; held requests are sent first.
        releaseHeld(now, out)
        if case .sidecar(let sidecar) = role, let room = peer.roomName {
            beforeSealing(in: room, message.target, sidecar, now, out)
        }
        let ticket = outbound.beginSeal(
            PendingSeal(
                target: message.target, clientLabel: message.clientLabel, body: message.body, peer: peer,
                verb: message.verb))
        let verb = message.verb == "PRIVMSG" ? "PRIVMSG" : "NOTICE"
        var job = SealJob(
            connection: id, ticket: ticket, sender: account, recipient: peer, target: message.target,
            senderName: support.caseMapping.fold(nick ?? ""),
            recipientName: support.caseMapping.fold(message.target), verb: verb, body: message.body,
            capacity: lineCapacity(verb: verb, target: message.target))
        if case .sidecar(let sidecar) = role, let room = peer.roomName {
            job.members = readers(in: room, sidecar)
            job.latchesRoom = !sidecar.isOnBareServer
        }
        out.jobs.append(.seal(job))
    }

    func carriesContent(_ message: OutboundMessage) -> Bool {
        message.tags.contains { $0.isClientOnly && $0.key != "+typing" && $0.key != "+draft/typing" }
    }

    func lineCapacity(verb: String, target: String) -> Int { identity.lineCapacity(verb: verb, target: target) }

    package func refuse(_ refusal: Refusal, _ message: OutboundMessage, _ out: MachineOutput) {
        environment.tally.add(TallyKind(refusal))
        var text = Notices.refusal(refusal, target: message.target, texts: settings.texts)
        if case .sidecar(let sidecar) = role {
            switch room(message.target)?.name {
            case let room? where sidecar.protection.isProtected(room): text += " " + Notices.wayBack(room)
            case nil where refusal == .latched: text = Notices.plainRefused(message.target)
            case _?, nil: break
            }
        }
        guard refusal != .room, refusal != .notInRoom else {
            return reply(404, [message.target], text, label: message.clientLabel, out)
        }
        notSent(message.target, text, label: message.clientLabel, out)
    }

    // MARK: Helpers

    /// The client-only tags of a line, unchanged.
    func clientTags(_ line: IRCLine) -> [UInt8] {
        guard !line.tags.isEmpty else { return [] }
        let pieces = line.string(line.tags).split(separator: ";").filter {
            $0.hasPrefix("+") && !$0.hasPrefix(PawlCapability.tag)
        }
        return Array(pieces.joined(separator: ";").utf8)
    }

    /// Stores the client's software from a CTCP VERSION reply.
    private func noteSoftware(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        guard line.key == .notice, let span = line.parameter(1),
            identity.learnSoftware(line.slice(span).readableBytesView)
        else { return }
        if isRegistered { recordEvidence(now, out, registrations: 0) }
    }

    /// Stores the client's software if a line names it.
    func guessSoftware(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        guard !role.isSidecar, identity.guessSoftware(line), isRegistered else { return }
        recordEvidence(now, out, registrations: 0)
    }

    private func note(_ recipient: Recipient, _ target: String, _ text: some Collection<UInt8>, _ now: Timestamp) {
        observations.note(target, observed(recipient, target, text), now: now.monotonic)
    }

    /// The category under which a message is counted, in the order in which `hosted` would refuse it.
    private func observed(
        _ recipient: Recipient, _ target: String, _ text: some Collection<UInt8>
    ) -> ObservedRecipient {
        if !role.isSidecar {
            if !isNameable(target) { return .name }
            if CTCP(text) == .dcc { return .directConnection }
        }
        switch recipient {
        case .legacy, .capable, .changed: return .legacy
        case .outsider: return .outsider
        case .exempt: return .exempt
        case .room(let room):
            guard !role.isSidecar, let name = room.roomName, !isMember(of: name) else { return .room }
            return .notInRoom
        }
    }

    func flushObservations(_ now: Timestamp, _ out: MachineOutput, force: Bool) {
        guard let deadline = observations.deadline, force || deadline <= now.monotonic else { return }
        let sender = account.isVerified ? account.name : (nick ?? "*")
        out.jobs.append(.record(observations.take(sender: sender, wall: now.wall)))
    }
}
