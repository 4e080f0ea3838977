// A sidecar's connection behind a front gateway: it publishes its keys there, and asks there for the keys of others.

package import DeviceDirectory
import Devices
import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
package import RequestQueue
import StorePort
package import Vault

/// What a sidecar has with the gateway in front.
package struct FrontGateway {
    /// Ours: how long the directory's answer holds for somebody without keys, and how long an answer may take.
    package static let memory: Int64 = 30_000_000_000
    package static let patience: Int64 = 10_000_000_000

    package var frames = ControlFrames()
    package var lastID: UInt32 = 0
    /// The last challenge, for a list that changes later.
    package var challenge: (nonce: [UInt8], account: String)?
    /// When keys were made for the gateway.
    var madeKeys: [Int64] = []
    /// Whether the gateway has taken our proof.
    package var isReady = false
    /// Until when nothing goes out, because the gateway does not know our device yet.
    var awaitedUntil: Int64?
    /// Questions under way: who was asked for, and the message that waits.
    var questions: [UInt32: Question] = [:]
    /// Sessions that the vault is beginning.
    var meetings: [UInt64: Question] = [:]
    var lastTicket: UInt64 = 0
    /// Folded nicks without keys of their own, until when that holds.
    package var without: [ExactText: Int64] = [:]

    /// Ours: how often keys are made for a gateway in a time in nanoseconds; each time it is some fifty.
    static let keysLimit = 10
    static let keysPeriod: Int64 = 60_000_000_000

    /// Whether keys may be made now; if so, it is noted.
    mutating func mayMakeKeys(now: Int64) -> Bool {
        madeKeys.removeAll { $0 + Self.keysPeriod <= now }
        guard madeKeys.count < Self.keysLimit else { return false }
        madeKeys.append(now)
        return true
    }

    struct Question {
        package var nick: String
        package var message: OutboundMessage?
        /// The place of the message among the lines to the backend.
        package var place: UInt64?
        package var deadline: Int64
    }
}

extension IRCSession {
    /// Whether keys are asked for at a gateway in front, and not in band.
    var hasFront: Bool { front.isReady }

    /// The gateway in front passes envelopes only of a device that it knows: what is to go out waits for that.
    func awaitFront(_ now: Moment, _ out: SessionOutput) {
        guard environment.peers != nil, capabilities.has(PawlCapability.name) else { return }
        front.awaitedUntil = now.monotonic + FrontGateway.patience
        scheduleWake(now, out)
    }

    /// Whether lines to the backend wait for the gateway in front.
    func isFrontAwaited(_ now: Moment) -> Bool { front.awaitedUntil.map { $0 > now.monotonic } ?? false }

    /// A line of the control plane from the gateway in front.
    func frontLine(_ line: IRCLine, _ now: Moment, _ out: SessionOutput) {
        guard !line.sourceIsPerson, case .whole(let number, let bytes) = front.frames.take(line, now: now.monotonic),
            let message = try? DirectoryMessage(bytes)
        else { return }
        switch message {
        case .challenge(let nonce, let account):
            guard front.mayMakeKeys(now: now.monotonic) else { return }
            front.challenge = (nonce, account)
            publish(out)
        case .low: if front.mayMakeKeys(now: now.monotonic) { out.jobs.append(.replenish(id)) }
        case .done:
            if !front.isReady { notify(Remarks.frontFound, out) }
            front.isReady = true
            front.awaitedUntil = nil
            if let peers = environment.peers, !peers.hasHadFront {
                peers.hasHadFront = true
                out.jobs.append(
                    .record([.putRecord(RecordRow(kind: .ownDevices, name: DeviceKeeper.frontRecord, value: []))]))
            }
            askForRooms(now, out)
        case .found(let entry): found(entry, number, now, out)
        case .refused(let reason):
            front.awaitedUntil = nil
            if front.questions[number] != nil { return found(.legacy, number, now, out) }
            notify(Remarks.frontRefused(reason), out)
        default: break
        }
    }

    /// Proves our device, and publishes our list.
    package func publish(_ out: SessionOutput) {
        guard let (nonce, account) = front.challenge else { return }
        out.jobs.append(.publish(connection: id, nonce: nonce, account: account))
    }

    /// Sends something to the directory.
    @discardableResult
    package func ask(_ message: DirectoryMessage, _ out: SessionOutput) -> UInt32 {
        front.lastID += 1
        for line in ControlFrames.lines(message.bytes, id: front.lastID) { out.upstream.writeString(line + "\r\n") }
        return front.lastID
    }

    // MARK: Asking

    /// Whether a message waits for the directory's answer about somebody of whom nothing is known.
    func asksFirst(_ message: OutboundMessage, _ recipient: Recipient, _ now: Moment, _ out: SessionOutput) -> Bool {
        guard hasFront, recipient == .outsider, outage == nil else { return false }
        let nick = support.caseMapping.fold(message.target)
        if let until = front.without[nick], until > now.monotonic { return false }
        guard nick != self.nick.map(support.caseMapping.fold), front.questions.count < settings.heldLines else {
            return false
        }
        ask(about: nick, for: message, now, out)
        return true
    }

    private func ask(about nick: String, for message: OutboundMessage?, _ now: Moment, _ out: SessionOutput) {
        let place = message == nil ? nil : outbound.reserve()
        front.questions[ask(.find(nick: nick), out)] = .init(
            nick: nick, message: message, place: place, deadline: now.monotonic + FrontGateway.patience)
        scheduleWake(now, out)
    }

    /// Asks about everybody in a room who is not known, so that it can be protected once somebody speaks.
    func askForRooms(_ now: Moment, _ out: SessionOutput) {
        guard hasFront, let peers = environment.peers else { return }
        let asked = Set(front.questions.values.map { ExactText($0.nick) })
        for nick in roomMembers.smallRooms(limit: IRCSession.automaticMembers).subtracting(asked).map(\.text) {
            if let until = front.without[nick], until > now.monotonic { continue }
            if person(nick, peers) == .outsider { ask(about: nick, for: nil, now, out) }
        }
    }

    private func found(_ entry: DirectoryEntry, _ number: UInt32, _ now: Moment, _ out: SessionOutput) {
        guard let question = front.questions.removeValue(forKey: number) else { return }
        guard case .capable(let account, let chain, let devices) = entry else {
            if front.without.count > 10_000 { front.without.removeAll() }
            front.without[question.nick] = now.monotonic + FrontGateway.memory
            return sendPlain(question, now, out)
        }
        front.lastTicket += 1
        front.meetings[front.lastTicket] = question
        // On IRC a directory writes a connection without a login with `~`: such a name says nothing beyond the nick.
        let known: AccountID = account.utf8.first == UInt8(ascii: "~") ? AccountID(text: account) : .services(account)
        nameBook.note(question.nick, account: known)
        out.jobs.append(
            .found(
                FoundJob(
                    connection: id, ticket: front.lastTicket,
                    names: (known.isVerified ? [known] : []) + [.nick(question.nick)], nick: question.nick,
                    chain: chain,
                    devices: devices)))
    }

    /// The vault has begun sessions with those whom the directory named.
    package func met(
        _ ticket: UInt64, _ event: PeerEvent?, _ answers: [Opened.Answer], _ now: Moment, _ out: SessionOutput
    ) {
        guard let question = front.meetings.removeValue(forKey: ticket) else { return }
        for answer in answers { control(answer.body, to: question.nick, device: answer.device, now, out) }
        if !answers.isEmpty, let peers = environment.peers,
            case .capable(let name) = person(support.caseMapping.fold(question.nick), peers)
        {
            exchange.awaitAnswer(of: name, now: now.monotonic)
        }
        switch event {
        case .met where question.message != nil: notify(Remarks.met(question.nick), out)
        case .changed: notify(Remarks.changedKeys(question.nick), out)
        default: break
        }
        guard let message = question.message, let place = question.place else { return }
        outbound.resolve(place, with: [])
        if case .known(let recipient) = recipient(message.target, now), recipient != .outsider {
            return send(message, now, out)
        }
        environment.tally.add(.failed)
        reply(531, [message.target], Remarks.noKeys(message.target), label: message.clientLabel, out)
    }

    /// Somebody has no keys of their own: the gateway in front does what its policy says.
    private func sendPlain(_ question: FrontGateway.Question, _ now: Moment, _ out: SessionOutput) {
        guard let message = question.message, let place = question.place else { return }
        if case .known(let recipient) = recipient(message.target, now), recipient != .outsider {
            // Keys have come by another way in the meantime.
            outbound.resolve(place, with: [])
            return send(message, now, out)
        }
        switch verdict(.outsider, message) {
        case .refuse(let refusal):
            outbound.resolve(place, with: [])
            refuse(refusal, message, out)
        default:
            environment.tally.add(.sentPlaintext)
            outbound.resolve(place, with: [.line(message.line)])
        }
    }

    /// The gateway in front has gone: nothing that waits for its answer may go out unasked.
    func loseFront(_ out: SessionOutput) {
        let lost = Array(front.questions.values) + Array(front.meetings.values)
        front = FrontGateway()
        for question in lost {
            guard let message = question.message, let place = question.place else { continue }
            outbound.resolve(place, with: [])
            environment.tally.add(.failed)
            reply(531, [message.target], Remarks.noKeys(message.target), label: message.clientLabel, out)
        }
    }

    /// Questions without an answer: what waits goes on as if there were no keys.
    func giveUpQuestions(_ now: Moment, _ out: SessionOutput) {
        if !isFrontAwaited(now) { front.awaitedUntil = nil }
        for (number, question) in front.questions where question.deadline <= now.monotonic {
            front.questions[number] = nil
            sendPlain(question, now, out)
        }
    }
}
