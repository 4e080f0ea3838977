// A sidecar's connection behind a front gateway: publishes its keys there, and requests the keys of others.
//
// The sidecar requests `pawl/e2ee`, is challenged, and publishes list, bundle and one-time prekeys, signed over
// challenge and account. The gateway is not trusted for keys: pins and safety numbers are the sidecar's own. To people
// without devices the sidecar sends plaintext, which the gateway seals end-to-gateway between hosted devices of both
// accounts, and marks what the gateway opened.

package import DeviceDirectory
import Devices
import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
package import RequestQueue
import StorePort
import Vault

/// The state of a sidecar's connection with the gateway in front.
package struct FrontGateway {
    /// Ours: how long an answer that a person has no keys is cached, in nanoseconds.
    package static let memory: Int64 = 30_000_000_000
    /// Ours: how long an answer may take, in nanoseconds.
    package static let patience: Int64 = 10_000_000_000

    package var frames = ControlFrames()
    package var lastID: UInt32 = 0
    /// The last challenge, for a device list that changes later.
    package var challenge: (nonce: [UInt8], account: String)?
    /// The times at which keys were generated for the gateway.
    var madeKeys: [Int64] = []
    /// Whether the gateway has accepted the proof of the sidecar's device.
    package var isReady = false
    /// The time until which nothing is sent, because the gateway does not know the sidecar's device yet.
    var awaitedUntil: Int64?
    /// Queries without an answer, by their number in the control plane.
    var questions: [UInt32: Question] = [:]
    /// Answered queries for which the vault is beginning sessions, by ticket.
    var startingSessions: [UInt64: Question] = [:]
    var lastTicket: UInt64 = 0
    /// Folded nicks without keys, with the time at which the cached answer expires.
    package var without: [ExactText: Int64] = [:]

    /// Ours: how often keys are generated for a gateway in `keysPeriod`; each time about fifty.
    static let keysLimit = 10
    /// In nanoseconds.
    static let keysPeriod: Int64 = 60_000_000_000

    /// Whether keys may be generated now; if so, counts it.
    mutating func mayMakeKeys(now: Int64) -> Bool {
        madeKeys.removeAll { $0 + Self.keysPeriod <= now }
        guard madeKeys.count < Self.keysLimit else { return false }
        madeKeys.append(now)
        return true
    }

    struct Question {
        package var nick: String
        package var message: OutboundMessage?
        /// The position of the message in the outbound lane.
        package var slot: UInt64?
        package var deadline: Int64
    }
}

extension IRCConnectionMachine {
    /// Whether keys are requested from a gateway in front, and not in band.
    var hasFront: Bool { front.isReady }

    /// Delays sending until the gateway in front knows the device: it forwards no envelopes of unknown devices.
    func awaitFront(_ now: Timestamp, _ out: MachineOutput) {
        guard environment.peers != nil, capabilities.has(PawlCapability.name) else { return }
        front.awaitedUntil = now.monotonic + FrontGateway.patience
        scheduleWake(now, out)
    }

    /// Whether lines to the backend wait for the gateway in front.
    func isFrontAwaited(_ now: Timestamp) -> Bool { front.awaitedUntil.map { $0 > now.monotonic } ?? false }

    /// Handles a line of the control plane from the gateway in front.
    func frontLine(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
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
            if !front.isReady { notify(Notices.frontFound, out) }
            front.isReady = true
            front.awaitedUntil = nil
            if let peers = environment.peers, !peers.hasHadFront {
                peers.hasHadFront = true
                out.jobs.append(
                    .record([.putRecord(RecordRow(kind: .ownDevices, name: OwnDeviceState.frontRecord, value: []))]))
            }
            askForRooms(now, out)
        case .found(let entry): found(entry, number, now, out)
        case .refused(let reason):
            front.awaitedUntil = nil
            if front.questions[number] != nil { return found(.legacy, number, now, out) }
            notify(Notices.frontRefused(reason), out)
        default: break
        }
    }

    /// Proves the sidecar's device and publishes its device list.
    package func publish(_ out: MachineOutput) {
        guard let (nonce, account) = front.challenge else { return }
        out.jobs.append(.publish(connection: id, nonce: nonce, account: account))
    }

    /// Sends a message to the directory; returns its number.
    @discardableResult
    package func ask(_ message: DirectoryMessage, _ out: MachineOutput) -> UInt32 {
        front.lastID += 1
        for line in ControlFrames.lines(message.bytes, id: front.lastID) { out.upstream.writeString(line + "\r\n") }
        return front.lastID
    }

    // MARK: Asking

    /// Whether a message waits for the directory's answer about an unknown recipient. Sends the query.
    func asksFirst(_ message: OutboundMessage, _ recipient: Recipient, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard hasFront, recipient == .outsider, outage == nil else { return false }
        let nick = support.caseMapping.fold(message.target)
        if let until = front.without[nick], until > now.monotonic { return false }
        guard nick != self.nick.map(support.caseMapping.fold), front.questions.count < settings.heldLines else {
            return false
        }
        ask(about: nick, for: message, now, out)
        return true
    }

    private func ask(about nick: String, for message: OutboundMessage?, _ now: Timestamp, _ out: MachineOutput) {
        let slot = message == nil ? nil : outbound.reserve()
        front.questions[ask(.find(nick: nick), out)] = .init(
            nick: nick, message: message, slot: slot, deadline: now.monotonic + FrontGateway.patience)
        scheduleWake(now, out)
    }

    /// Queries the keys of all unknown members of small rooms, so that the first message there can be protected.
    func askForRooms(_ now: Timestamp, _ out: MachineOutput) {
        guard hasFront, let peers = environment.peers else { return }
        let asked = Set(front.questions.values.map { ExactText($0.nick) })
        for nick in roomMembers.smallRooms(limit: IRCConnectionMachine.automaticMembers).subtracting(asked).map(\.text)
        {
            if let until = front.without[nick], until > now.monotonic { continue }
            if person(nick, peers) == .outsider { ask(about: nick, for: nil, now, out) }
        }
    }

    private func found(_ entry: DirectoryEntry, _ number: UInt32, _ now: Timestamp, _ out: MachineOutput) {
        guard let question = front.questions.removeValue(forKey: number) else { return }
        guard case .capable(let account, let deviceList, let devices) = entry else {
            if front.without.count > 10_000 { front.without.removeAll() }
            front.without[question.nick] = now.monotonic + FrontGateway.memory
            return sendPlain(question, now, out)
        }
        front.lastTicket += 1
        front.startingSessions[front.lastTicket] = question
        // On IRC the name of a connection without a login begins with `~`. It gives no information beyond the nick.
        let known: AccountID = account.utf8.first == UInt8(ascii: "~") ? AccountID(text: account) : .services(account)
        nickAccounts.note(question.nick, account: known)
        out.jobs.append(
            .found(
                FoundJob(
                    connection: id, ticket: front.lastTicket,
                    names: (known.isVerified ? [known] : []) + [.nick(question.nick)], nick: question.nick,
                    deviceList: deviceList,
                    devices: devices)))
    }

    /// The vault has begun sessions with the devices that the directory returned.
    package func sessionsStarted(
        _ ticket: UInt64, _ event: PeerEvent?, _ answers: [Opened.Answer], _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let question = front.startingSessions.removeValue(forKey: ticket) else { return }
        for answer in answers { control(answer.body, to: question.nick, device: answer.device, now, out) }
        if !answers.isEmpty, let peers = environment.peers,
            case .capable(let name) = person(support.caseMapping.fold(question.nick), peers)
        {
            exchange.awaitAnswer(of: name, now: now.monotonic)
        }
        switch event {
        case .keysExchanged where question.message != nil: notify(Notices.keysExchanged(question.nick), out)
        case .changed: notify(Notices.changedKeys(question.nick), out)
        default: break
        }
        guard let message = question.message, let slot = question.slot else { return }
        outbound.resolve(slot, with: [])
        if case .known(let recipient) = recipient(message.target, now), recipient != .outsider {
            return send(message, now, out)
        }
        environment.tally.add(.failed)
        reply(531, [message.target], Notices.noKeys(message.target), label: message.clientLabel, out)
    }

    /// Sends a message to a recipient without keys as plaintext. The gateway in front applies its own policy.
    private func sendPlain(_ question: FrontGateway.Question, _ now: Timestamp, _ out: MachineOutput) {
        guard let message = question.message, let slot = question.slot else { return }
        if case .known(let recipient) = recipient(message.target, now), recipient != .outsider {
            // Keys have arrived by another way in the meantime.
            outbound.resolve(slot, with: [])
            return send(message, now, out)
        }
        switch verdict(.outsider, message) {
        case .refuse(let refusal):
            outbound.resolve(slot, with: [])
            refuse(refusal, message, out)
        default:
            environment.tally.add(.sentPlaintext)
            outbound.resolve(slot, with: [.line(message.line)])
        }
    }

    /// The gateway in front was lost. Fails the messages that wait for its answers: they must not be sent without them.
    func loseFront(_ out: MachineOutput) {
        let lost = Array(front.questions.values) + Array(front.startingSessions.values)
        front = FrontGateway()
        for question in lost {
            guard let message = question.message, let slot = question.slot else { continue }
            outbound.resolve(slot, with: [])
            environment.tally.add(.failed)
            reply(531, [message.target], Notices.noKeys(message.target), label: message.clientLabel, out)
        }
    }

    /// Gives up expired queries: their messages are sent as if the recipients had no keys.
    func giveUpQuestions(_ now: Timestamp, _ out: MachineOutput) {
        if !isFrontAwaited(now) { front.awaitedUntil = nil }
        for (number, question) in front.questions where question.deadline <= now.monotonic {
            front.questions[number] = nil
            sendPlain(question, now, out)
        }
    }
}
