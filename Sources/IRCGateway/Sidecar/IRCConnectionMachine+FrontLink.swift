// A sidecar's connection behind a front gateway: publishes its keys there, and requests the keys of others.
//
// The sidecar requests `pawl/e2ee`, is challenged, and publishes list, bundle and one-time prekeys, signed over
// challenge and account. The gateway is not trusted for keys: pins and safety numbers are the sidecar's own. To people
// without devices the sidecar sends plaintext, which the gateway seals end-to-gateway between hosted devices of both
// accounts, and marks what the gateway opened.

import DeviceDirectory
import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCConnectionMachine {
    /// Delays sending until the gateway in front knows the device: it forwards no envelopes of unknown devices.
    func awaitFront(_ now: Timestamp, _ out: MachineOutput) {
        guard case .sidecar(let sidecar) = role, capabilities.has(PawlCapability.name) else { return }
        sidecar.front.expectAcceptance(now: now.monotonic)
        scheduleWake(now, out)
    }

    /// Notifies the person that a gateway which was in front is not there, after a registration or an outage.
    func notifyOfMissingFront(_ out: MachineOutput) {
        guard case .sidecar(let sidecar) = role, sidecar.peers.hasHadFront, !capabilities.has(PawlCapability.name)
        else { return }
        notify(Notices.frontMissing, out)
    }

    // MARK: Deferred messages

    /// Whether a message that would be plaintext waits until the gateway in front is there, or is known not to be.
    ///
    /// Behind the gateway its keys would be looked up, and the gateway would protect it on its way. Also messages to
    /// services wait, which may hold passwords, until a gateway has answered: it may demand the login that they are.
    func waitsForFront(
        _ message: OutboundMessage, to recipient: Recipient, _ sidecar: SidecarConnection, _ out: MachineOutput
    ) -> Bool {
        guard sidecar.front.isUncertain, recipient != .exempt || !sidecar.front.isRefused else { return false }
        guard message.body.isText || carriesContent(message) else {
            // Typing and similar is of no use later.
            environment.tally.add(.strippedText)
            acknowledge(label: message.clientLabel, out)
            return true
        }
        if !sidecar.front.keep(message, at: outbound.reserve(), limit: settings.heldLines) {
            environment.tally.add(.failed)
            notSent(message.target, Notices.tooManyPending, label: message.clientLabel, out)
        }
        return true
    }

    /// Sends the messages that have waited for the gateway, once it has accepted the device or is not awaited any more.
    private func sendDeferred(_ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard !phase.isSuspended, !sidecar.front.isUncertain else { return }
        for deferred in sidecar.front.takeDeferred() {
            let message = deferred.message
            let nick = support.caseMapping.fold(message.target)
            if case .known(.outsider) = recipient(message.target, now), nick != foldedNick,
                sidecar.front.asks(about: nick, now: now.monotonic, limit: settings.heldLines)
            {
                ask(about: nick, for: .message(message, at: deferred.slot), sidecar, now, out)
            } else {
                sendPlain(message, at: deferred.slot, now, out)
            }
        }
        scheduleWake(now, out)
    }

    /// The backend is back. Messages that have waited for the gateway in front are not sent if it offers none: they would
    /// be plaintext for the server too.
    func resumedFront(_ now: Timestamp, _ out: MachineOutput) {
        guard case .sidecar(let sidecar) = role else { return }
        awaitFront(now, out)
        guard sidecar.front.isMissing() else { return sendDeferred(sidecar, now, out) }
        for deferred in sidecar.front.takeDeferred() {
            outbound.resolve(deferred.slot, with: [])
            let message = deferred.message
            environment.tally.add(.failed)
            notSent(message.target, Notices.frontGone(message.target), label: message.clientLabel, out)
        }
    }

    /// Whether lines to the backend wait for the gateway in front.
    func isFrontAwaited(_ now: Timestamp) -> Bool {
        switch role {
        case .front: false
        case .sidecar(let sidecar): sidecar.front.isAwaited(now: now.monotonic)
        }
    }

    /// Handles a line of the control plane from the gateway in front.
    func frontLine(_ line: IRCLine, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        // A person cannot answer for the gateway.
        guard !line.sourceIsPerson else { return environment.tally.add(.badLines) }
        switch sidecar.front.take(line, now: now.monotonic) {
        case .waiting: break
        case .malformed: environment.tally.add(.badLines)
        case .whole(let number, let bytes):
            guard let message = try? DirectoryMessage(bytes) else { return environment.tally.add(.badLines) }
            answered(message, number, sidecar, now, out)
        }
    }

    private func answered(
        _ message: DirectoryMessage, _ number: UInt32, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        switch message {
        case .challenge(let nonce, let account):
            let challenge = FrontLink.Challenge(nonce: nonce, account: account)
            if sidecar.front.challenged(challenge, now: now.monotonic) { publish(sidecar, out) }
        case .low: if sidecar.front.mayMakeKeys(now: now.monotonic) { out.jobs.append(.sidecar(.replenish(id))) }
        case .done:
            if sidecar.front.accepted() { notify(Notices.frontFound, out) }
            sendDeferred(sidecar, now, out)
            if !sidecar.peers.hasHadFront {
                sidecar.peers.hasHadFront = true
                out.jobs.append(
                    .record([.putRecord(RecordRow(kind: .ownDevices, name: OwnDeviceState.frontRecord, value: []))]))
            }
            askForMembers(of: sidecar.people.rooms, sidecar, now, out)
        case .found(let entry):
            // A late answer: the message was sent without it.
            guard let question = sidecar.front.answered(number) else { return }
            found(entry, question, sidecar, now, out)
        case .refused(let reason):
            sidecar.front.refused()
            if let question = sidecar.front.answered(number) { return found(.legacy, question, sidecar, now, out) }
            notify(Notices.frontRefused(reason), out)
            sendDeferred(sidecar, now, out)
        // Only clients send these.
        case .publish, .find, .replenish, .list: environment.tally.add(.badLines)
        }
    }

    /// Proves the sidecar's device and publishes its device list.
    func publish(_ sidecar: SidecarConnection, _ out: MachineOutput) {
        // Without a gateway in front there is nothing to publish to.
        guard let challenge = sidecar.front.challenge else { return }
        out.jobs.append(
            .sidecar(.publish(connection: id, nonce: challenge.nonce, account: challenge.account)))
    }

    /// Sends a message to the directory. A proof for an earlier challenge is dropped: it holds no more.
    func ask(_ message: DirectoryMessage, _ sidecar: SidecarConnection, _ out: MachineOutput) {
        guard sidecar.front.isCurrent(message) else { return }
        for line in sidecar.front.lines(of: message) { out.upstream.writeString(line + "\r\n") }
    }

    // MARK: Asking

    /// Whether a message waits for the directory's answer about an unknown recipient. Sends the query.
    func asksFirst(
        _ message: OutboundMessage, _ recipient: Recipient, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) -> Bool {
        guard recipient == .outsider, !phase.isSuspended else { return false }
        let nick = support.caseMapping.fold(message.target)
        guard nick != self.nick.map(support.caseMapping.fold),
            sidecar.front.asks(about: nick, now: now.monotonic, limit: settings.heldLines)
        else { return false }
        ask(about: nick, for: .message(message, at: outbound.reserve()), sidecar, now, out)
        scheduleWake(now, out)
        return true
    }

    private func ask(
        about nick: String, for purpose: FrontLink.Question.Purpose, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        for line in sidecar.front.ask(about: nick, for: purpose, now: now.monotonic) {
            out.upstream.writeString(line + "\r\n")
        }
    }

    /// Queries the keys of unknown members of those rooms that are small, so that a first message can be protected.
    func askForMembers(of rooms: [String], _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        let nicks = sidecar.front.membersToAsk(sidecar.people.strangers(in: rooms), now: now.monotonic)
        for nick in nicks { ask(about: nick, for: .room, sidecar, now, out) }
        if !nicks.isEmpty { scheduleWake(now, out) }
    }

    private func found(
        _ entry: DirectoryEntry, _ question: FrontLink.Question, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        guard case .capable(let account, let deviceList, let devices) = entry else {
            sidecar.front.noteWithout(question.nick, now: now.monotonic)
            return sendPlain(question, now, out)
        }
        let known = FrontLink.account(account, support.caseMapping)
        if let known { sidecar.people.note(question.nick, account: known) }
        let job = FoundJob(
            connection: id, ticket: sidecar.front.startSessions(for: question),
            names: (known.map { [$0] } ?? []) + [.nick(question.nick)], nick: question.nick,
            deviceList: deviceList, devices: devices)
        out.jobs.append(.sidecar(.found(job)))
    }

    /// The vault has begun sessions with the devices that the directory returned.
    func sessionsStarted(
        _ ticket: UInt64, _ event: PeerEvent?, _ answers: [Opened.Answer], _ sidecar: SidecarConnection,
        _ now: Timestamp, _ out: MachineOutput
    ) {
        // The gateway in front was lost meanwhile, and the sender has the answer.
        guard let question = sidecar.front.sessionsStarted(ticket) else { return }
        for answer in answers {
            control(answer.body, to: question.nick, device: answer.device, sidecar, now, out)
        }
        if !answers.isEmpty,
            case .capable(let name) = sidecar.people.person(support.caseMapping.fold(question.nick))
        {
            sidecar.exchange.sessionBegun(with: name, now: now.monotonic)
        }
        if case .changed = event, sidecar.ownLines.isNoticeDue(changedKeysOf: question.nick) {
            notify(Notices.changedKeys(question.nick), about: question.nick, out)
        }
        if case .forked(let name, isNew: true) = event {
            notify(Notices.forkedList(of: name.displayName, shownBy: question.nick), about: question.nick, out)
        }
        guard case .message(let message, let slot) = question.purpose else { return }
        if case .keysExchanged = event {
            sidecar.ownLines.note(.sealed, question.nick)
            notify(Notices.keysExchanged(question.nick), about: question.nick, out)
        }
        outbound.resolve(slot, with: [])
        if case .known(let recipient) = recipient(message.target, now), recipient != .outsider {
            return send(message, now, out)
        }
        environment.tally.add(.failed)
        notSent(message.target, Notices.noKeys(message.target), label: message.clientLabel, out)
    }

    /// Sends a message to a recipient without keys as plaintext. The gateway in front applies its own policy.
    private func sendPlain(_ question: FrontLink.Question, _ now: Timestamp, _ out: MachineOutput) {
        guard case .message(let message, let slot) = question.purpose else { return }
        sendPlain(message, at: slot, now, out)
    }

    /// Sends a message that has waited in a place of the lane: there if it is plaintext, else as a new one.
    private func sendPlain(
        _ message: OutboundMessage, at slot: OutboundLane.Ticket, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard case .known(let recipient) = recipient(message.target, now) else { return }
        let verdict = verdict(recipient, message)
        if verdict == .plaintext, isNameable(message.target) {
            return sendPlaintext(message, to: recipient, at: slot, now, out)
        }
        outbound.resolve(slot, with: [])
        switch verdict {
        case .plaintext: refuse(.name, message, out)
        case .refuse(let refusal): refuse(refusal, message, out)
        // No policy seals for people without keys.
        case .seal where recipient == .outsider: refuse(.outsider, message, out)
        // Keys have arrived by another way in the meantime.
        case .seal: send(message, now, out)
        }
    }

    /// The gateway in front was lost. Fails the messages that wait for its answers: they must not be sent without them.
    func loseFront(_ sidecar: SidecarConnection, _ out: MachineOutput) {
        for question in sidecar.front.lose() {
            guard case .message(let message, let slot) = question.purpose else { continue }
            outbound.resolve(slot, with: [])
            environment.tally.add(.failed)
            notSent(message.target, Notices.noKeys(message.target), label: message.clientLabel, out)
        }
    }

    /// Gives up expired queries: their messages are sent as if the recipients had no keys.
    func giveUpQuestions(_ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        for question in sidecar.front.expire(now: now.monotonic) { sendPlain(question, now, out) }
        sendDeferred(sidecar, now, out)
    }
}
