// The machine of a sidecar's key exchanges with peers: who has been sent keys, whose answer is awaited, and which
// messages wait for it.
//
// On a bare server a first plaintext line carries an announcement (``Announcement``). A sidecar that receives it sends an
// introduction: device list, bundle and one one-time prekey, signed, with a time. The reader starts a session and sends
// `ready`, and the other end sends `acknowledge`. Other users see no key exchange. A message to a peer that has just
// received keys waits for the peer's, for ``KeyExchange/patience`` at most. If both ends start at the same time, the
// session of the lower key stays: see `SessionRecord` in DoubleRatchet.
//
// The machine knows no lines, no vault and no policy: the connection reports events, and performs the actions.

import Devices
import Envelope
import Protection
import Reports
import RequestQueue
import Vault

/// A nick as written, and folded for comparison.
struct Nick: Equatable {
    let written: String
    let folded: String
}

/// The state of the key exchanges on one connection.
struct KeyExchange {
    /// What the connection does next.
    enum Action: Equatable {
        /// Have the vault make an introduction; see ``introductionMade(_:)``.
        case introduce(ticket: UInt64, nick: String)
        /// Send the beginning of a session: this sidecar's device list.
        case begin(with: String)
        /// Send the vault's answer to the beginning of a session.
        case answer(Opened.Answer, to: String)
        /// Request the key of a room from a sender.
        case askForKey(room: String, from: String)
        /// Announce to a peer with new keys that they are not accepted yet: its sidecar cannot know that.
        case warn(nick: String)
        /// Notify the person, in the conversation with a nick.
        case notify(String, about: String)
        case seal(OutboundMessage, for: AccountID)
        /// Judge a message again: its recipient has sent no keys.
        case send(OutboundMessage)
        /// Refuse a message: there are no keys for it.
        case refuse(OutboundMessage)
    }

    /// Where an envelope that could not be opened was sent to.
    enum Place: Equatable {
        case direct
        /// A room, by its folded name, in which the sender is a member.
        case room(String)
        /// A room in which the sender is not a member.
        case foreignRoom
    }

    /// A message that waits for keys.
    private struct Waiting {
        enum Reason {
            /// The recipient has received this sidecar's keys, and has not sent its own.
            case keys(nick: ExactText)
            /// The recipient's keys are known, and there is no session.
            case session(AccountID)
            /// The beginning of the session was sent, and is not answered.
            case answer(AccountID)

            /// Whose messages keep their order.
            var recipient: AccountID {
                switch self {
                case .keys(let nick): .nick(nick.text)
                case .session(let peer), .answer(let peer): peer
                }
            }
        }

        let message: OutboundMessage
        let reason: Reason
        /// When it has waited long enough, in nanoseconds. The same for all messages to one recipient.
        let until: Int64
    }

    /// Ours: the period of the limits below, in nanoseconds. An introduction has about eight lines, and anybody can cause
    /// one; an answer has up to eight.
    static let introductionPeriod: Int64 = 60_000_000_000
    static let introductionsPerNick = 4
    static let introductionLimit = 30
    static let answersPerSender = 16
    static let answerLimit = 120
    /// Ours: in nanoseconds. A peer that loses keys, or messages of an exchange, needs a few introductions and no more.
    static let longPeriod: Int64 = 3_600_000_000_000
    /// Ours: introductions to one nick in ``longPeriod``.
    static let introductionsPerNickAndHour = 24
    /// Ours: how long a message waits for keys, in nanoseconds.
    static let patience: Int64 = 20_000_000_000
    /// Ours: the pause before the first repeated announcement, in nanoseconds; then four times as long each time. A
    /// line of a key exchange may be lost without notice.
    static let announcementPause: Int64 = 60_000_000_000
    /// Ours: how long messages wait for the answer to the beginning of a session, in nanoseconds. At one line a second
    /// an answer takes some seconds.
    static let answerPatience: Int64 = 15_000_000_000
    /// Ours: the pause before the same missing key of a room is requested again, in nanoseconds.
    static let askingPause: Int64 = 15_000_000_000

    /// Folded nicks and rooms to which this connection sent an announcement: how often, and the time of the last one.
    private var announced: [ExactText: (times: Int, at: Int64)] = [:]
    /// The folded nicks to which keys were sent, with the time; those for which a message has waited in vain are removed.
    private var introduced: [(nick: ExactText, at: Int64)] = []
    /// The folded nicks to which keys were sent in ``longPeriod``, with the time.
    private var counted: [(nick: ExactText, at: Int64)] = []
    /// Targets of introductions that the vault is preparing.
    private var introductions: [UInt64: String] = [:]
    private var lastTicket: UInt64 = 0
    /// The answers to the beginnings of sessions in ``introductionPeriod``, with the time.
    private var answers: [(sender: AccountID, at: Int64)] = []
    /// Peers to which the beginning of a session was sent, with the time until which messages wait for the answer.
    ///
    /// Until the answer each message would repeat the beginning, which is eight lines.
    private var unanswered: [AccountID: Int64] = [:]
    private var waiting: [Waiting] = []
    /// Nicks with the other name of their keys, for which the person has had the notice.
    private var named: Set<ExactText> = []
    /// Nicks with an older version of Pawl to which this connection has sent a newer introduction.
    private var outdated: Set<ExactText> = []
    /// Nicks with other keys than the pinned ones that have received the announcement about it.
    private var warned: Set<ExactText> = []
    /// Nicks of devices that the person has removed, which this connection has sent the list without them.
    private var dismissed: Set<ExactText> = []
    /// The times of requests for keys of rooms, by nick and room.
    private var asked: [ExactText: Int64] = [:]

    /// The targets of the messages that wait, as written.
    var waitingTargets: [String] { waiting.map(\.message.target) }

    /// When the next message has waited long enough; nil if none waits.
    var deadline: Int64? { waiting.map(\.until).min() }

    // MARK: Announcement

    /// Whether an announcement to a nick or room is due; if so, counts it.
    mutating func isAnnouncementDue(_ name: String, now: Int64) -> Bool {
        let last = announced[name]
        if let last, last.at + Self.announcementPause << (2 * Int64(min(last.times - 1, 8))) > now { return false }
        if announced.count >= SidecarPeople.nickLimit { announced.removeAll() }
        announced[name] = ((last?.times ?? 0) + 1, now)
        return true
    }

    /// A member has joined a room: the announcement there is due again.
    mutating func memberJoined(_ room: String) { announced[room] = nil }

    /// A person without known keys has announced a sidecar.
    mutating func announced(by nick: Nick, now: Int64) -> [Action] { introduce(nick, now: now) }

    // MARK: Introductions

    /// The vault has made an introduction.
    ///
    /// - Returns: whom it is for; nil if there is no such ticket.
    mutating func introductionMade(_ ticket: UInt64) -> String? { introductions.removeValue(forKey: ticket) }

    private mutating func introduce(_ nick: Nick, now: Int64) -> [Action] {
        guard mayIntroduce(to: nick, now: now) else { return [] }
        lastTicket += 1
        introductions[lastTicket] = nick.written
        return [.introduce(ticket: lastTicket, nick: nick.written)]
    }

    /// A device that the person has removed is there. An introduction has the list without it; it is sent once, because
    /// the device keeps the list and answers nothing.
    mutating func sawRemovedDevice(_ nick: Nick, now: Int64) -> [Action] {
        guard !dismissed.contains(nick.folded), dismissed.count < SidecarPeople.nickLimit else { return [] }
        let actions = introduce(nick, now: now)
        if !actions.isEmpty { dismissed.insert(nick.folded) }
        return actions
    }

    /// Whether keys may be sent to a nick now; if so, counts it.
    private mutating func mayIntroduce(to nick: Nick, now: Int64) -> Bool {
        introduced.removeAll { $0.at + Self.introductionPeriod <= now }
        counted.removeAll { $0.at + Self.longPeriod <= now }
        let name = ExactText(nick.folded)
        let recent = counted.filter { $0.at + Self.introductionPeriod > now }
        guard recent.count < Self.introductionLimit,
            recent.count(where: { $0.nick == name }) < Self.introductionsPerNick,
            counted.count(where: { $0.nick == name }) < Self.introductionsPerNickAndHour
        else { return false }
        introduced.append((name, now))
        counted.append((name, now))
        return true
    }

    /// Whether the beginning of a session may be answered now; if so, counts it.
    private mutating func mayAnswer(_ sender: AccountID, now: Int64) -> Bool {
        answers.removeAll { $0.at + Self.introductionPeriod <= now }
        guard answers.count < Self.answerLimit,
            answers.count(where: { $0.sender == sender }) < Self.answersPerSender
        else { return false }
        answers.append((sender, now))
        return true
    }

    // MARK: Opened and unopened envelopes

    /// The vault has opened a message of a peer.
    ///
    /// - Parameters:
    ///   - isOnBareServer: whether peers are reached without a gateway in front.
    ///   - person: whose keys belong to a folded nick now.
    mutating func opened(
        _ opened: Opened, from nick: Nick, isOnBareServer: Bool, now: Int64, person: (String) -> Recipient
    ) -> [Action] {
        var actions: [Action] = []
        if opened.protection == .device, unanswered.removeValue(forKey: opened.sender) != nil {
            actions += release(opened.sender, person)
        }
        if let answer = opened.answer, mayAnswer(opened.sender, now: now) {
            actions.append(.answer(answer, to: nick.written))
            if opened.protection != .device { sessionBegun(with: opened.sender, now: now) }
        }
        switch opened.event {
        case .keysExchanged(let name):
            actions += release(name, person)
            actions.append(.notify(Notices.keysExchanged(nick.written), about: nick.written))
        case .renewed(let name): actions += release(name, person)
        case .removedDevices(let name):
            actions += release(name, person)
            actions.append(.notify(Notices.removedDevices(nick.written), about: nick.written))
        case .changed:
            if isOnBareServer, warned.count < SidecarPeople.nickLimit, warned.insert(nick.folded) {
                actions.append(.warn(nick: nick.written))
            }
            actions.append(.notify(Notices.changedKeys(nick.written), about: nick.written))
        case .forked(let name, isNew: true):
            actions.append(
                .notify(Notices.forkedList(of: name.displayName, shownBy: nick.written), about: nick.written))
        case .forked(_, isNew: false): break
        case .crossed(let isText):
            if mayIntroduce(to: nick, now: now) { actions.append(.begin(with: nick.written)) }
            if isText { actions.append(.notify(Notices.crossed(nick.written), about: nick.written)) }
        case .otherName(let name):
            actions.append(.notify(Notices.otherName(nick.written, of: name.displayName), about: nick.written))
        // No events of a key exchange.
        case .roomProtected, .adopted, .revoked, .asked, nil: break
        }
        return actions
    }

    /// The vault could not open an envelope: its sender may have old keys of this sidecar.
    mutating func notOpened(_ failure: OpenFailure, from nick: Nick, in place: Place, now: Int64) -> [Action] {
        if failure == .olderVersion {
            // The sender's program shows a notice too when it receives the newer form of introduction.
            if outdated.count >= SidecarPeople.nickLimit { outdated.removeAll() }
            return outdated.insert(nick.folded) ? introduce(nick, now: now) : []
        }
        switch (place, failure) {
        case (.direct, .unknownSender), (.direct, .notAuthentic), (.room, .unknownSender):
            return introduce(nick, now: now)
        case (.room(let room), .keyMissing): return askForKey(of: room, from: nick, now: now)
        case (.direct, _), (.room, _), (.foreignRoom, _): return []
        }
    }

    private mutating func askForKey(of room: String, from nick: Nick, now: Int64) -> [Action] {
        let name = "\(nick.folded) \(room)"
        asked = asked.filter { $0.value + Self.askingPause > now }
        guard asked[name] == nil else { return [] }
        asked[name] = now
        return [.askForKey(room: room, from: nick.written)]
    }

    /// Whether the notice that messages to a nick are encrypted for keys with another name is due; true once.
    mutating func isNameNoticeDue(_ nick: String, keysOf peer: AccountID) -> Bool {
        if named.count >= SidecarPeople.nickLimit { named.removeAll() }
        return named.insert("\(nick) \(peer.text)")
    }

    // MARK: Waiting messages

    /// The beginning of a session is sent to a peer.
    mutating func sessionBegun(with peer: AccountID, now: Int64) {
        unanswered = unanswered.filter { $0.value > now }
        unanswered[peer] = now + Self.answerPatience
    }

    /// Whether a message to a peer waits, which later ones must not overtake.
    ///
    /// A folded nick without known keys is `AccountID.nick`.
    func isWaiting(for peer: AccountID) -> Bool { waiting.contains { $0.reason.recipient == peer } }

    /// Keeps a message to a folded nick without known keys, if the nick has just been sent an introduction, or if an
    /// earlier message to it waits.
    ///
    /// - Parameter limit: messages that may wait.
    /// - Returns: whether the message waits.
    mutating func keepsForKeys(_ message: OutboundMessage, to nick: String, limit: Int, now: Int64) -> Bool {
        let name = ExactText(nick)
        let isIntroduced = introduced.contains { $0.nick == name && $0.at + Self.patience > now }
        guard message.body.isText, waiting.count < limit, isIntroduced || isWaiting(for: .nick(nick)) else {
            return false
        }
        keep(message, .keys(nick: name), now)
        return true
    }

    /// Keeps a message if its recipient has not yet answered the beginning of the session, or if an earlier message to
    /// it waits.
    ///
    /// - Returns: whether the message waits.
    mutating func keepsForAnswer(_ message: OutboundMessage, of peer: AccountID, limit: Int, now: Int64) -> Bool {
        let isUnanswered = unanswered[peer].map { $0 > now } ?? false
        let earlier = waiting.first { $0.reason.recipient == peer }
        guard message.body.isText, waiting.count < limit, isUnanswered || earlier != nil else { return false }
        keep(message, earlier?.reason ?? .answer(peer), now)
        return true
    }

    /// The vault has no session for a message to a peer whose keys are known: it waits for one.
    mutating func sessionMissing(
        _ message: OutboundMessage, to nick: Nick, of peer: AccountID, limit: Int, now: Int64
    ) -> [Action] {
        guard waiting.count < limit else { return [.refuse(message)] }
        keep(message, .session(peer), now)
        return introduce(nick, now: now)
    }

    private mutating func keep(_ message: OutboundMessage, _ reason: Waiting.Reason, _ now: Int64) {
        let earlier = waiting.first { $0.reason.recipient == reason.recipient }
        waiting.append(Waiting(message: message, reason: reason, until: earlier?.until ?? now + Self.patience))
    }

    /// Removes the messages for a peer that can be sealed now.
    private mutating func release(_ peer: AccountID, _ person: (String) -> Recipient) -> [Action] {
        func isReady(_ entry: Waiting) -> Bool {
            switch entry.reason {
            case .keys(let nick): person(nick.text) == .capable(peer)
            case .session(let waited), .answer(let waited): waited == peer
            }
        }
        let ready = waiting.filter(isReady)
        waiting.removeAll(where: isReady)
        return ready.map { .seal($0.message, for: peer) }
    }

    /// Time has passed: gives up the messages that have waited long enough.
    mutating func expire(now: Int64) -> [Action] {
        let overdue = waiting.filter { $0.until <= now }
        waiting.removeAll { $0.until <= now }
        return overdue.flatMap { entry -> [Action] in
            switch entry.reason {
            case .keys(let nick):
                introduced.removeAll { $0.nick == nick }
                return [.send(entry.message)]
            case .session: return [.refuse(entry.message)]
            case .answer(let peer):
                // The peer is slow, or the beginning was lost: it is sent again before the waiting messages.
                let isFirst = unanswered.removeValue(forKey: peer) != nil
                return (isFirst ? [.begin(with: entry.message.target)] : []) + [.seal(entry.message, for: peer)]
            }
        }
    }
}
