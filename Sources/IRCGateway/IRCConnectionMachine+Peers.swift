// A sidecar's connection: identifies people by their keys, and exchanges keys in band.
//
// On a bare server a first plaintext line carries an announcement (``Announcement``). A sidecar that receives it sends an
// introduction: device list, bundle and one one-time prekey, signed, with a time. The reader starts a session and sends
// `ready`, and the other end sends `acknowledge`. Other users see no key exchange. A message to a peer that has just
// received keys waits for the peer's, for ``KeyExchange/patience`` at most. If both ends start at the same time, the
// session of the lower key stays: see `SessionRecord` in DoubleRatchet.

import Devices
import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
package import RequestQueue
import Vault

/// The state of the key exchanges on this connection.
package struct KeyExchange {
    /// Ours: the period of the limits below, in nanoseconds. An introduction has about eight lines.
    static let introductionPeriod: Int64 = 60_000_000_000
    static let introductionsPerNick = 4
    static let introductionLimit = 30
    package static let answerLimit = 120
    /// Ours: how long a message waits for keys, in nanoseconds.
    package static let patience: Int64 = 20_000_000_000

    /// Folded nicks and rooms to which this connection sent an announcement: how often, and the time of the last one.
    package var announced: [ExactText: (times: Int, at: Int64)] = [:]
    /// Ours: the pause before the first repeated announcement, in nanoseconds; then four times as long each time. A
    /// line of a key exchange may be lost without notice.
    static let announcementPause: Int64 = 60_000_000_000
    /// The nicks to which keys were sent, with the time.
    package var introduced: [(nick: String, at: Int64)] = []
    /// The times at which the beginnings of sessions were answered.
    package var answered: [Int64] = []
    /// Targets of introductions that the vault is preparing.
    package var introductions: [UInt64: String] = [:]
    var lastTicket: UInt64 = 0
    /// A message that waits for keys.
    package struct Waiting {
        package var message: OutboundMessage
        /// nil if the recipient has received the sidecar's keys and has not sent its own yet.
        package var peer: AccountID?
        /// Whether the session has begun, and only the answer is missing.
        package var isBegun = false
    }

    package var waiting: [Waiting] = []
    package var deadline: Int64?
    /// Peers to which the beginning of a session was sent, with the time until which messages wait for the answer.
    ///
    /// Until the answer each message would repeat the beginning, which is eight lines.
    private var unanswered: [AccountID: Int64] = [:]
    /// Ours: how long messages wait for that answer, in nanoseconds. At one line a second an answer takes some seconds.
    private static let answerPatience: Int64 = 15_000_000_000
    /// Nicks with the other name of their keys, for which the person has had the notice.
    package var named: Set<ExactText> = []
    /// Nicks with an older version of Pawl to which this connection has sent a newer introduction.
    package var outdated: Set<ExactText> = []
    /// Members of sealed rooms who cannot read them, as last shown to the person.
    package var outsiders: [ExactText: Set<ExactText>] = [:]
    /// The times of requests for keys of rooms, by nick and room.
    package var asked: [ExactText: Int64] = [:]
    /// The last known protection of rooms, by folded name.
    package var rooms: [ExactText: RoomState] = [:]
    /// People without keys in sealed rooms who have received the announcement of a sidecar.
    var notified: [ExactText: Set<ExactText>] = [:]
    /// Readers in protected rooms to whom this connection has sent the request to protect the room too.
    package var requested: [ExactText: Set<ExactText>] = [:]
    /// The times at which requests about rooms were last shown, by nick, act and room.
    var shownRequests: [ExactText: Int64] = [:]
    /// Nicks with other keys than the pinned ones that have received the announcement about it.
    var warned: Set<ExactText> = []
    /// Ours: entries of each table of nicks here; a server that invents people must not fill memory.
    package static let nickLimit = 10_000

    /// Whether the beginning of a session may be answered now; if so, counts it.
    ///
    /// Bounded because each answer has up to eight lines, and anybody can cause one.
    package mutating func mayAnswer(now: Int64) -> Bool {
        answered.removeAll { $0 + Self.introductionPeriod <= now }
        guard answered.count < Self.answerLimit else { return false }
        answered.append(now)
        return true
    }

    /// Whether an announcement is due; if so, counts it.
    mutating func isAnnouncementDue(_ name: String, now: Int64) -> Bool {
        let last = announced[name]
        if let last, last.at + Self.announcementPause << (2 * Int64(min(last.times - 1, 8))) > now { return false }
        // Ours: a bot that writes to many people must not fill memory.
        if announced.count >= 10_000 { announced.removeAll() }
        announced[name] = ((last?.times ?? 0) + 1, now)
        return true
    }

    /// A member has joined a room: the announcement there is due again.
    mutating func memberJoined(_ room: String) { announced[room] = nil }

    /// Notes that the beginning of a session is sent to a peer.
    mutating func awaitAnswer(of peer: AccountID, now: Int64) {
        unanswered = unanswered.filter { $0.value > now }
        unanswered[peer] = now + Self.answerPatience
    }

    func awaitsAnswer(of peer: AccountID, now: Int64) -> Bool { unanswered[peer].map { $0 > now } ?? false }

    /// Ends the wait for a peer's answer.
    ///
    /// - Returns: whether messages may have waited for it.
    mutating func endAwaiting(_ peer: AccountID) -> Bool { unanswered.removeValue(forKey: peer) != nil }

    /// Whether keys may be sent to a nick now; if so, counts it.
    mutating func mayIntroduce(to nick: String, now: Int64) -> Bool {
        introduced.removeAll { $0.at + Self.introductionPeriod <= now }
        guard introduced.count < Self.introductionLimit,
            introduced.count(where: { $0.nick == nick }) < Self.introductionsPerNick
        else { return false }
        introduced.append((nick, now))
        return true
    }
}

extension IRCConnectionMachine {
    /// Notifies the person, once, that messages to a nick are encrypted for keys known under another name.
    func notifyOfOtherName(of peer: AccountID, _ target: String, _ sidecar: SidecarConnection, _ out: MachineOutput) {
        let nick = support.caseMapping.fold(target)
        guard peer.roomName == nil, peer != .nick(nick), peer != .services(nick) else { return }
        if sidecar.exchange.named.count >= 10_000 { sidecar.exchange.named.removeAll() }
        guard sidecar.exchange.named.insert("\(nick) \(peer.text)") else { return }
        notify(Notices.sealedFor(target, name: peer.displayName), out)
    }

    // MARK: Announcement

    /// Adds the announcement to a plaintext message if one is due.
    func withAnnouncement(
        _ message: OutboundMessage, to recipient: Recipient, _ sidecar: SidecarConnection, _ now: Timestamp
    ) -> OutboundMessage {
        var isUnknown = recipient == .outsider
        if case .room = recipient { isUnknown = true }
        guard sidecar.isOnBareServer, isUnknown, message.verb == "PRIVMSG",
            message.body.kind == .text, CTCP(message.body.text) == nil
        else { return message }
        let nick = support.caseMapping.fold(message.target)
        // A message to a service is a command, perhaps with a password as its last word.
        let isService =
            nick.hasSuffix("serv") || nick.contains("@") || settings.exemptions.contains { Mask.matches($0.nick, nick) }
        let hasTags = capabilities.has("message-tags")
        let length = message.body.text.count + Announcement.marker.count
        guard !isService, nick != self.nick.map(support.caseMapping.fold),
            hasTags || length <= lineCapacity(verb: message.verb, target: message.target),
            sidecar.exchange.isAnnouncementDue(nick, now: now.monotonic)
        else { return message }
        var announcing = message
        if hasTags {
            announcing.tags.append(IRCTag(key: Announcement.tag, value: ""))
        } else {
            announcing.body.text += Announcement.marker
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
        if isHere, line.key == verb, source != nick.map(support.caseMapping.fold),
            room(target) == nil || sidecar.people.person(source) == .outsider
        {
            introduce(to: line.string(line.sourceNick), sidecar, now, out)
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

    // MARK: Exchanging keys

    /// Sends an introduction to a person with a sidecar.
    func introduce(to target: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard sidecar.exchange.mayIntroduce(to: support.caseMapping.fold(target), now: now.monotonic) else { return }
        sidecar.exchange.lastTicket += 1
        sidecar.exchange.introductions[sidecar.exchange.lastTicket] = target
        out.jobs.append(
            .introduce(
                connection: id, ticket: sidecar.exchange.lastTicket,
                capacity: lineCapacity(verb: "NOTICE", target: target)))
    }

    /// Sends the introduction that the vault has prepared.
    func introduce(
        _ ticket: UInt64, _ bodies: [[UInt8]], _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let target = sidecar.exchange.introductions.removeValue(forKey: ticket) else { return }
        for body in bodies {
            var line = ByteBuffer()
            if capabilities.has("message-tags") { line.writeTags([IRCTag(key: PawlCapability.tag, value: "")]) }
            line.writeString("NOTICE \(target) :")
            line.writeBytes(body)
            line.writeString("\r\n")
            outbound.append(.line(line))
        }
        pump(now, out)
    }

    /// Handles the event and the answer of an opened message.
    ///
    /// - Returns: the notices for the person.
    func learnt(
        _ opened: Opened, from nick: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) -> [String] {
        if opened.protection == .device, sidecar.exchange.endAwaiting(opened.sender) {
            release(opened.sender, sidecar, now, out)
        }
        if let answer = opened.answer, sidecar.exchange.mayAnswer(now: now.monotonic) {
            control(answer.body, to: nick, device: answer.device, sidecar, now, out)
            if opened.protection != .device { sidecar.exchange.awaitAnswer(of: opened.sender, now: now.monotonic) }
        }
        guard let event = opened.event else { return [] }
        switch event {
        case .keysExchanged(let name), .renewed(let name):
            release(name, sidecar, now, out)
            if case .keysExchanged = event { return [Notices.keysExchanged(nick)] }
            return []
        case .roomProtected(let room):
            return [Notices.roomProtected(room, readers: sidecar.people.readers(in: room).count)]
        case .adopted:
            publish(sidecar, out)
            return [Notices.adopted]
        case .revoked: return [Notices.revoked]
        case .changed:
            warnOfChange(nick, sidecar, now, out)
            return [Notices.changedKeys(nick)]
        case .crossed(let isText):
            if let own = sidecar.peers.own,
                sidecar.exchange.mayIntroduce(to: support.caseMapping.fold(nick), now: now.monotonic)
            {
                control(ControlMessage.ready(own.deviceList).body, to: nick, device: nil, sidecar, now, out)
            }
            if isText { environment.tally.add(.openUnknownSender) }
            return isText ? [Notices.crossed(nick)] : []
        case .otherName(let name): return [Notices.otherName(nick, of: name.displayName)]
        case .asked(let request):
            asked(request, by: nick, sidecar, now, out)
            return []
        }
    }

    /// Sends a peer with new keys the announcement that they are not accepted yet: its sidecar cannot know that.
    private func warnOfChange(_ nick: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        let folded = support.caseMapping.fold(nick)
        guard sidecar.isOnBareServer, sidecar.exchange.warned.count < KeyExchange.nickLimit,
            sidecar.exchange.warned.insert(folded)
        else { return }
        var line = ByteBuffer(string: "NOTICE \(nick) :")
        line.writeBytes(Armour.marker)
        line.writeString(Notices.newKeysAnnouncement + "\r\n")
        forward(line, now, out)
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

    /// Answers an envelope that could not be opened: its sender may have old keys of this sidecar.
    func notOpened(
        _ failure: OpenFailure, _ open: PendingOpen, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        if failure == .olderVersion {
            // The sender's program shows a notice too when it receives the newer form of introduction.
            if sidecar.exchange.outdated.count >= 10_000 { sidecar.exchange.outdated.removeAll() }
            if sidecar.exchange.outdated.insert(support.caseMapping.fold(open.sourceNick)) {
                introduce(to: open.sourceNick, sidecar, now, out)
            }
        } else if let room = room(open.target) {
            guard sidecar.people.isMember(support.caseMapping.fold(open.sourceNick), of: room.name) else { return }
            if failure == .unknownSender { introduce(to: open.sourceNick, sidecar, now, out) }
            if failure == .keyMissing { askForKey(of: room.name, from: open.sourceNick, sidecar, now, out) }
        } else if failure == .unknownSender || failure == .notAuthentic {
            introduce(to: open.sourceNick, sidecar, now, out)
        }
    }

    // MARK: Waiting for keys

    /// Holds a message until there is a session with its recipient, whose keys are known.
    func keysMissing(_ ticket: UInt64, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard let seal = outbound.cancelSeal(ticket) else { return }
        guard seal.body.kind != .control else { return }
        let message = OutboundMessage(
            verb: seal.verb, target: seal.target, body: seal.body, clientLabel: seal.clientLabel, tags: [])
        guard sidecar.exchange.waiting.count < settings.heldLines else { return refuseForKeys(message, out) }
        wait(.init(message: message, peer: seal.peer), sidecar, now, out)
        introduce(to: seal.target, sidecar, now, out)
    }

    private func wait(
        _ entry: KeyExchange.Waiting, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        sidecar.exchange.waiting.append(entry)
        sidecar.exchange.deadline = sidecar.exchange.deadline ?? now.monotonic + KeyExchange.patience
        scheduleWake(now, out)
    }

    /// Whether a message waits because the recipient has just been sent an introduction.
    func waitsForKeys(
        _ message: OutboundMessage, _ recipient: Recipient, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) -> Bool {
        let nick = support.caseMapping.fold(message.target)
        guard recipient == .outsider, !phase.isSuspended,
            sidecar.exchange.introduced.contains(where: {
                $0.nick == nick && $0.at + KeyExchange.patience > now.monotonic
            }),
            sidecar.exchange.waiting.count < settings.heldLines, message.body.kind == .text
        else { return false }
        wait(.init(message: message), sidecar, now, out)
        return true
    }

    /// Whether a message waits because its recipient has not yet answered the beginning of the session.
    func waitsForAnswer(
        _ message: OutboundMessage, _ peer: AccountID, _ sidecar: SidecarConnection, _ now: Timestamp,
        _ out: MachineOutput
    ) -> Bool {
        guard sidecar.exchange.awaitsAnswer(of: peer, now: now.monotonic), !phase.isSuspended,
            message.body.kind == .text,
            sidecar.exchange.waiting.count < settings.heldLines
        else { return false }
        wait(.init(message: message, peer: peer, isBegun: true), sidecar, now, out)
        return true
    }

    private func release(_ peer: AccountID, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        func isReady(_ entry: KeyExchange.Waiting) -> Bool {
            if let waited = entry.peer { return waited == peer }
            let nick = support.caseMapping.fold(entry.message.target)
            return sidecar.people.person(nick) == .capable(peer)
        }
        let ready = sidecar.exchange.waiting.filter(isReady)
        sidecar.exchange.waiting.removeAll(where: isReady)
        if sidecar.exchange.waiting.isEmpty { sidecar.exchange.deadline = nil }
        for entry in ready { seal(entry.message, for: peer, now, out) }
    }

    func giveUpKeys(_ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput) {
        guard let deadline = sidecar.exchange.deadline, deadline <= now.monotonic else { return }
        sidecar.exchange.deadline = nil
        let overdue = sidecar.exchange.waiting
        sidecar.exchange.waiting = []
        for entry in overdue {
            if let peer = entry.peer {
                if entry.isBegun {
                    // The peer is slow, or the beginning was lost: it is sent again before the waiting messages.
                    if sidecar.exchange.endAwaiting(peer), let own = sidecar.peers.own {
                        control(
                            ControlMessage.ready(own.deviceList).body, to: entry.message.target, device: nil, sidecar,
                            now, out)
                    }
                    seal(entry.message, for: peer, now, out)
                } else {
                    refuseForKeys(entry.message, out)
                }
                continue
            }
            sidecar.exchange.introduced.removeAll { $0.nick == support.caseMapping.fold(entry.message.target) }
            send(entry.message, now, out)
        }
    }

    private func refuseForKeys(_ message: OutboundMessage, _ out: MachineOutput) {
        environment.tally.add(.failed)
        reply(531, [message.target], Notices.noKeys(message.target), label: message.clientLabel, out)
    }
}
