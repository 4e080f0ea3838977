// A sidecar's connection: who is somebody by the keys that are known of them, and how keys are exchanged in band.

package import Devices
package import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
package import RequestQueue
package import Vault

/// Whom this connection is exchanging keys with.
package struct KeyExchange {
    /// Ours: how many introductions go to one nick, and out in all, in a time in nanoseconds. Each is some eight lines.
    static let introductionPeriod: Int64 = 60_000_000_000
    static let introductionsPerNick = 4
    static let introductionLimit = 30
    package static let answerLimit = 120
    /// Ours: how long a message waits for keys. In nanoseconds.
    package static let patience: Int64 = 20_000_000_000

    /// Folded nicks and rooms that have been told on this connection: how often, and when for the last time.
    package var greeted: [ExactText: (times: Int, at: Int64)] = [:]
    /// Ours: how long after a greeting there is another one, in nanoseconds; each time four times as long. A line of a key
    /// exchange may be lost, and nobody knows.
    static let greetingPause: Int64 = 60_000_000_000
    /// To whom keys were sent, and when.
    package var introduced: [(nick: String, at: Int64)] = []
    /// When beginnings were answered.
    package var answered: [Int64] = []
    /// Targets of introductions that the vault is making.
    package var introductions: [UInt64: String] = [:]
    var lastTicket: UInt64 = 0
    /// A message that waits.
    package struct Waiting {
        package var message: OutboundMessage
        /// Nothing where somebody has just been told our keys and has not shown theirs.
        package var peer: AccountID?
        /// Whether there is a session, and only its answer is missing.
        package var isBegun = false
    }

    package var waiting: [Waiting] = []
    package var deadline: Int64?
    /// To whom the beginning of a session has been sent, and until when messages wait for the answer: before it each of
    /// them would carry the beginning once more, which is eight lines.
    private var unanswered: [AccountID: Int64] = [:]
    /// Ours: how long that is, in nanoseconds. At one line a second an answer takes some seconds.
    private static let answerPatience: Int64 = 15_000_000_000
    /// Nicks, and under which other names their keys are known, as far as the person has been told.
    package var named: Set<ExactText> = []
    /// Nicks whose programs are too old, as far as they have been shown what is newer.
    package var outdated: Set<ExactText> = []
    /// In protected rooms, who cannot read, as far as the person has been told.
    package var outsiders: [ExactText: Set<ExactText>] = [:]
    /// When keys of rooms were asked for, by nick and room.
    package var asked: [ExactText: Int64] = [:]
    /// How rooms were protected when they were last looked at, by folded name.
    package var rooms: [ExactText: RoomState] = [:]
    /// In sealed rooms, people without keys who have been notified in words, as far as is known here.
    var notified: [ExactText: Set<ExactText>] = [:]
    /// In protected rooms, readers to whom this connection has sent the request to protect the room as well.
    package var requested: [ExactText: Set<ExactText>] = [:]
    /// When requests for rooms were last shown, by nick, act and room.
    var shownRequests: [ExactText: Int64] = [:]
    /// Nicks with other keys than those that are known, who have been told so on this connection.
    var warned: Set<ExactText> = []
    /// Ours: entries of each table of nicks here; a server that invents people must not fill memory.
    package static let nickLimit = 10_000

    /// Whether a beginning may be answered now: each answer is up to eight lines, and anybody can ask for one.
    package mutating func mayAnswer(now: Int64) -> Bool {
        answered.removeAll { $0 + Self.introductionPeriod <= now }
        guard answered.count < Self.answerLimit else { return false }
        answered.append(now)
        return true
    }

    /// Whether a greeting is due; if so, it is noted.
    mutating func greets(_ name: String, now: Int64) -> Bool {
        let last = greeted[name]
        if let last, last.at + Self.greetingPause << (2 * Int64(min(last.times - 1, 8))) > now { return false }
        // Ours: a bot that writes to everybody must not fill memory.
        if greeted.count >= 10_000 { greeted.removeAll() }
        greeted[name] = ((last?.times ?? 0) + 1, now)
        return true
    }

    /// The beginning of a session goes to somebody.
    mutating func awaitAnswer(of peer: AccountID, now: Int64) {
        unanswered = unanswered.filter { $0.value > now }
        unanswered[peer] = now + Self.answerPatience
    }

    func awaitsAnswer(of peer: AccountID, now: Int64) -> Bool { unanswered[peer].map { $0 > now } ?? false }

    /// Somebody has answered, or is not waited for any more.
    ///
    /// - Returns: whether something may have waited for it.
    mutating func endAwaiting(_ peer: AccountID) -> Bool { unanswered.removeValue(forKey: peer) != nil }

    /// Whether keys may go to a nick now; if so, it is noted.
    mutating func mayIntroduce(to nick: String, now: Int64) -> Bool {
        introduced.removeAll { $0.at + Self.introductionPeriod <= now }
        guard introduced.count < Self.introductionLimit,
            introduced.count(where: { $0.nick == nick }) < Self.introductionsPerNick
        else { return false }
        introduced.append((nick, now))
        return true
    }
}

extension IRCSession {
    // MARK: Who somebody is

    /// What a folded nick may be known as, the best guess first.
    func accountNames(_ nick: String) -> [AccountID] {
        (nameBook.account(of: nick).map { [.services($0)] } ?? []) + [.nick(nick)]
    }

    /// Who a folded nick is, by the keys that are known: first who has written under it, then what the backend says.
    package func person(_ nick: String, _ peers: PeerTable) -> Recipient {
        let seen = [newNicks[nick], environment.latches.peer(named: nick, for: .own)]
        let names = seen.compactMap { $0 } + accountNames(nick)
        guard let peer = names.lazy.compactMap({ peers[$0] }).first else { return .outsider }
        return peer.offered == nil ? .capable(peer.name) : .changed(peer.name)
    }

    /// Tells the person, once, that what they write to a nick is for keys that they know under another name.
    func tellName(of peer: AccountID, _ target: String, _ out: SessionOutput) {
        let nick = support.caseMapping.fold(target)
        guard environment.peers != nil, peer.roomName == nil, peer != .nick(nick), peer != .services(nick) else {
            return
        }
        if exchange.named.count >= 10_000 { exchange.named.removeAll() }
        guard exchange.named.insert("\(nick) \(peer.text)") else { return }
        notify(Remarks.sealedFor(target, name: peer.displayName), out)
    }

    /// Whether plaintext under a folded nick would speak for somebody whose keys are known and in use.
    package func isKnownPeer(_ nick: String) -> Bool {
        guard let peers = environment.peers else { return false }
        switch person(nick, peers) {
        case .capable(let name), .changed(let name): return peers[name]?.isEstablished == true
        default: return false
        }
    }

    // MARK: Saying hello

    /// A first line of plain text, with the announcement.
    func withHello(_ message: OutboundMessage, to recipient: Recipient, _ now: Moment) -> OutboundMessage {
        var isUnknown = recipient == .outsider
        if case .room = recipient { isUnknown = true }
        guard environment.peers != nil, !hasFront, isUnknown, message.verb == "PRIVMSG",
            message.body.kind == .text, CTCP(message.body.text) == nil
        else { return message }
        let nick = support.caseMapping.fold(message.target)
        // What is said to services is a command, perhaps with a password as its last word.
        let isService =
            nick.hasSuffix("serv") || nick.contains("@") || settings.exemptions.contains { Mask.matches($0.nick, nick) }
        let hasTags = capabilities.has("message-tags")
        let length = message.body.text.count + Hello.marker.count
        guard !isService, nick != self.nick.map(support.caseMapping.fold),
            hasTags || length <= lineCapacity(verb: message.verb, target: message.target),
            exchange.greets(nick, now: now.monotonic)
        else { return message }
        var greeting = message
        if hasTags {
            greeting.tags.append(IRCTag(key: Hello.tag, value: ""))
        } else {
            greeting.body.text += Hello.marker
        }
        return greeting
    }

    /// Looks for the announcement in a plaintext line.
    ///
    /// - Parameter verb: the verb of lines whose announcement is answered.
    /// - Returns: the line without it; nothing where there is none.
    func heardHello(
        _ line: IRCLine, _ text: [UInt8], verb: VerbKey = .privmsg, _ now: Moment, _ out: SessionOutput
    ) -> (line: IRCLine, raw: ByteBuffer, text: [UInt8])? {
        let tags = line.tags.isEmpty ? [] : line.tagList
        let isTagged = tags.contains { $0.key == Hello.tag }
        guard isTagged || Hello.stripped(text) != nil, line.sourceIsPerson else { return nil }
        let source = line.folded(line.sourceNick, support.caseMapping)
        let target = line.text(0).map(support.caseMapping.fold) ?? ""
        let isHere = target == nick.map(support.caseMapping.fold) || roomMembers.contains(source, in: target)
        if isHere, line.key == verb, source != nick.map(support.caseMapping.fold),
            room(target) == nil || environment.peers.map({ person(source, $0) }) == .outsider
        {
            introduce(to: line.string(line.sourceNick), now, out)
        }
        let bare = Hello.stripped(text) ?? text
        var raw = ByteBuffer()
        raw.writeTags(tags.filter { $0.key != Hello.tag })
        raw.writeString(":\(line.string(line.source)) \(line.string(line.verbSpan)) \(line.text(0) ?? "") :")
        raw.writeBytes(bare)
        let content = raw.readableBytes
        raw.writeString("\r\n")
        return parse(raw, content).map { ($0, raw, bare) }
    }

    // MARK: Exchanging keys

    /// Sends our keys to somebody who has shown that they can use them.
    package func introduce(to target: String, _ now: Moment, _ out: SessionOutput) {
        guard exchange.mayIntroduce(to: support.caseMapping.fold(target), now: now.monotonic) else { return }
        exchange.lastTicket += 1
        exchange.introductions[exchange.lastTicket] = target
        out.jobs.append(
            .introduce(
                connection: id, ticket: exchange.lastTicket,
                capacity: lineCapacity(verb: "NOTICE", target: target)))
    }

    /// The vault has made our introduction.
    package func introduce(_ ticket: UInt64, _ bodies: [[UInt8]], _ now: Moment, _ out: SessionOutput) {
        guard let target = exchange.introductions.removeValue(forKey: ticket) else { return }
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

    /// Does what an opened message says about its sender's devices.
    ///
    /// - Returns: what the person is told.
    package func learnt(_ opened: Opened, from nick: String, _ now: Moment, _ out: SessionOutput) -> [String] {
        if opened.protection == .device, exchange.endAwaiting(opened.sender) { release(opened.sender, now, out) }
        if let answer = opened.answer, exchange.mayAnswer(now: now.monotonic) {
            control(answer.body, to: nick, device: answer.device, now, out)
            if opened.protection != .device { exchange.awaitAnswer(of: opened.sender, now: now.monotonic) }
        }
        guard let event = opened.event else { return [] }
        switch event {
        case .met(let name), .renewed(let name):
            release(name, now, out)
            if case .met = event { return [Remarks.met(nick)] }
            return []
        case .roomProtected(let room): return [Remarks.roomProtected(room, readers: readers(in: room).count)]
        case .adopted:
            publish(out)
            return [Remarks.adopted]
        case .revoked: return [Remarks.revoked]
        case .changed:
            warnOfChange(nick, now, out)
            return [Remarks.changedKeys(nick)]
        case .crossed(let isText):
            if let own = environment.peers?.own,
                exchange.mayIntroduce(to: support.caseMapping.fold(nick), now: now.monotonic)
            {
                control(ControlMessage.ready(own.chain).body, to: nick, device: nil, now, out)
            }
            if isText { environment.tally.add(.openUnknownSender) }
            return isText ? [Remarks.crossed(nick)] : []
        case .otherName(let name): return [Remarks.otherName(nick, of: name.displayName)]
        case .asked(let request):
            asked(request, by: nick, now, out)
            return []
        }
    }

    /// Somebody's keys are new here: their own sidecar takes the exchange for complete, so they read in words that it is not.
    private func warnOfChange(_ nick: String, _ now: Moment, _ out: SessionOutput) {
        let folded = support.caseMapping.fold(nick)
        guard !hasFront, exchange.warned.count < KeyExchange.nickLimit, exchange.warned.insert(folded) else { return }
        var line = ByteBuffer(string: "NOTICE \(nick) :")
        line.writeBytes(Armour.marker)
        line.writeString(Remarks.newKeysAnnouncement + "\r\n")
        forward(line, now, out)
    }

    /// Sends a control message to one device, or to all of a person's.
    package func control(_ body: Body, to nick: String, device: DeviceID?, _ now: Moment, _ out: SessionOutput) {
        let folded = support.caseMapping.fold(nick)
        let peer = environment.peers.map { person(folded, $0) }
        var name = AccountID.nick(folded)
        if case .capable(let known) = peer { name = known }
        let ticket = outbound.reserve()
        seals[ticket] = PendingSeal(target: nick, clientLabel: nil, body: body, peer: name, verb: "NOTICE")
        out.jobs.append(
            .seal(
                SealJob(
                    connection: id, ticket: ticket, sender: account, recipient: name, target: nick,
                    senderName: support.caseMapping.fold(self.nick ?? ""), recipientName: folded, verb: "NOTICE",
                    body: body, capacity: lineCapacity(verb: "NOTICE", target: nick), device: device)))
    }

    /// An envelope could not be opened. Its sender may not know that our keys are new.
    package func notOpened(_ failure: OpenFailure, _ open: PendingOpen, _ now: Moment, _ out: SessionOutput) {
        if failure == .olderVersion {
            // Their program tells them as well, once it sees a form of introduction that it does not know.
            if exchange.outdated.count >= 10_000 { exchange.outdated.removeAll() }
            if exchange.outdated.insert(support.caseMapping.fold(open.sourceNick)) {
                introduce(to: open.sourceNick, now, out)
            }
        } else if let room = room(open.target) {
            guard roomMembers.contains(support.caseMapping.fold(open.sourceNick), in: room.name) else { return }
            if failure == .unknownSender { introduce(to: open.sourceNick, now, out) }
            if failure == .keyMissing { askForKey(of: room.name, from: open.sourceNick, now, out) }
        } else if failure == .unknownSender || failure == .notAuthentic {
            introduce(to: open.sourceNick, now, out)
        }
    }

    // MARK: Waiting for keys

    /// There is no session with somebody whose keys are known: the message waits until there is one.
    package func keysMissing(_ ticket: UInt64, _ now: Moment, _ out: SessionOutput) {
        guard let seal = seals.removeValue(forKey: ticket) else { return }
        outbound.resolve(ticket, with: [])
        guard seal.body.kind != .control else { return }
        let message = OutboundMessage(
            verb: seal.verb, target: seal.target, body: seal.body, clientLabel: seal.clientLabel, tags: [])
        guard exchange.waiting.count < settings.heldLines else { return refuseForKeys(message, out) }
        wait(.init(message: message, peer: seal.peer), now, out)
        introduce(to: seal.target, now, out)
    }

    private func wait(_ entry: KeyExchange.Waiting, _ now: Moment, _ out: SessionOutput) {
        exchange.waiting.append(entry)
        exchange.deadline = exchange.deadline ?? now.monotonic + KeyExchange.patience
        scheduleWake(now, out)
    }

    /// Whether a message waits because keys are on their way to somebody who has asked for them.
    func waitsForKeys(_ message: OutboundMessage, _ recipient: Recipient, _ now: Moment, _ out: SessionOutput) -> Bool {
        let nick = support.caseMapping.fold(message.target)
        guard environment.peers != nil, recipient == .outsider, outage == nil,
            exchange.introduced.contains(where: { $0.nick == nick && $0.at + KeyExchange.patience > now.monotonic }),
            exchange.waiting.count < settings.heldLines, message.body.kind == .text
        else { return false }
        wait(.init(message: message), now, out)
        return true
    }

    /// Whether a message waits because its recipient has not answered the beginning of the session.
    func waitsForAnswer(_ message: OutboundMessage, _ peer: AccountID, _ now: Moment, _ out: SessionOutput) -> Bool {
        guard exchange.awaitsAnswer(of: peer, now: now.monotonic), outage == nil, message.body.kind == .text,
            exchange.waiting.count < settings.heldLines
        else { return false }
        wait(.init(message: message, peer: peer, isBegun: true), now, out)
        return true
    }

    private func release(_ peer: AccountID, _ now: Moment, _ out: SessionOutput) {
        func isReady(_ entry: KeyExchange.Waiting) -> Bool {
            if let waited = entry.peer { return waited == peer }
            let nick = support.caseMapping.fold(entry.message.target)
            return environment.peers.map { person(nick, $0) } == .capable(peer)
        }
        let ready = exchange.waiting.filter(isReady)
        exchange.waiting.removeAll(where: isReady)
        if exchange.waiting.isEmpty { exchange.deadline = nil }
        for entry in ready { seal(entry.message, for: peer, now, out) }
    }

    func giveUpKeys(_ now: Moment, _ out: SessionOutput) {
        guard let deadline = exchange.deadline, deadline <= now.monotonic else { return }
        exchange.deadline = nil
        let overdue = exchange.waiting
        exchange.waiting = []
        for entry in overdue {
            if let peer = entry.peer {
                if entry.isBegun {
                    // Somebody slow, or the beginning was lost: it goes once more, before what has waited.
                    if exchange.endAwaiting(peer), let own = environment.peers?.own {
                        control(ControlMessage.ready(own.chain).body, to: entry.message.target, device: nil, now, out)
                    }
                    seal(entry.message, for: peer, now, out)
                } else {
                    refuseForKeys(entry.message, out)
                }
                continue
            }
            exchange.introduced.removeAll { $0.nick == support.caseMapping.fold(entry.message.target) }
            send(entry.message, now, out)
        }
    }

    private func refuseForKeys(_ message: OutboundMessage, _ out: SessionOutput) {
        environment.tally.add(.failed)
        reply(531, [message.target], Remarks.noKeys(message.target), label: message.clientLabel, out)
    }
}
