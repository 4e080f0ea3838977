// The machine of a sidecar's connection with a gateway in front: whether the gateway knows the sidecar's device, and the
// queries to its directory.
//
// A message to an unknown person waits in its place in the lane until the directory has answered. When the gateway is
// lost, every waiting message is returned: it must not be sent without the answer.
//
// While a gateway that was there is lost, or has not accepted the device yet, it is not known how a message without keys
// would go. Such a message waits in its place too, until the gateway is there, or is known not to be.

import DeviceDirectory
import Envelope
import IRCCodec
import Protection
import RequestQueue

/// The state of a sidecar's connection with the gateway in front.
struct FrontLink {
    /// Ours: how long an answer that a person has no keys is cached, in nanoseconds.
    static let memory: Int64 = 30_000_000_000
    /// Ours: how long an answer may take, in nanoseconds.
    static let patience: Int64 = 10_000_000_000
    /// Ours: how often keys are generated for a gateway in `keysPeriod`; each time about fifty.
    static let keysLimit = 10
    /// In nanoseconds.
    static let keysPeriod: Int64 = 60_000_000_000

    /// Ours: queries about members of rooms in `memberPeriod`. A gateway answers twice as many in all, and refuses those of
    /// messages too, which are then sent without keys.
    static let memberLimit = ClientDevice.questionLimit / 2
    /// In nanoseconds.
    static let memberPeriod = ClientDevice.questionPeriod

    private enum Phase {
        /// There is no gateway in front, or it has not accepted the sidecar's device.
        case absent
        /// The connection with the gateway was lost, and there is no other one yet.
        case lost
        /// Nothing is sent until this time, because the gateway does not know the device yet.
        case awaited(until: Int64)
        /// The gateway has refused the device. Until this time a login may make it accept the device.
        case refused(until: Int64)
        case ready

        /// When the wait for the gateway ends; nil if there is none.
        var end: Int64? {
            switch self {
            case .absent, .lost, .ready: nil
            case .awaited(let until), .refused(let until): until
            }
        }
    }

    /// A query about the keys of a nick.
    struct Question {
        enum Purpose {
            /// The message waits in its place in the outbound lane.
            case message(OutboundMessage, at: OutboundLane.Ticket)
            /// The first message to a room has to find the keys.
            case room
        }

        /// Folded.
        let nick: String
        let purpose: Purpose
        fileprivate let deadline: Int64
    }

    /// The last challenge of the gateway.
    struct Challenge {
        let nonce: [UInt8]
        let account: String
    }

    /// A message that waits in its place in the outbound lane until the gateway is there, or is known not to be.
    struct Deferred {
        let message: OutboundMessage
        let slot: OutboundLane.Ticket
    }

    private var phase = Phase.absent
    private var deferred: [Deferred] = []
    private var frames = ControlFrames()
    private var lastNumber: UInt32 = 0
    /// Kept for a device list that changes later.
    private(set) var challenge: Challenge?
    private var keys = RateLimit(Self.keysLimit, in: Self.keysPeriod)
    /// Queries without an answer, by their number in the control plane.
    private var questions: [UInt32: Question] = [:]
    /// The number of those queries by folded nick.
    private var asked: [ExactText: Int] = [:]
    /// The times of the queries about members of rooms in the last period.
    private var memberQueries: [Int64] = []
    /// Answered queries for which the vault is beginning sessions, by ticket.
    private var startingSessions: [UInt64: Question] = [:]
    private var lastTicket: UInt64 = 0
    /// Folded nicks without keys, with the time at which the cached answer expires.
    private var without: [ExactText: Int64] = [:]

    // MARK: The gateway

    /// Whether the gateway has accepted the proof of the sidecar's device.
    var isReady: Bool {
        if case .ready = phase { true } else { false }
    }

    /// Whether there is no gateway in front, and none is expected.
    var isAbsent: Bool {
        if case .absent = phase { true } else { false }
    }

    /// Whether a gateway is expected that is not there, or has not accepted the device yet.
    var isUncertain: Bool {
        switch phase {
        case .absent, .ready: false
        case .lost, .awaited, .refused: true
        }
    }

    /// Whether the gateway has refused the device, and may accept it after a login.
    var isRefused: Bool {
        if case .refused = phase { true } else { false }
    }

    /// The targets of the messages that wait, as written.
    var waitingTargets: [String] {
        let asked = (Array(questions.values) + Array(startingSessions.values)).compactMap { question in
            if case .message(let message, _) = question.purpose { message.target } else { nil }
        }
        return deferred.map(\.message.target) + asked
    }

    /// Whether lines to the backend wait for the gateway.
    func isAwaited(now: Int64) -> Bool {
        if case .awaited(let until) = phase { until > now } else { false }
    }

    /// The time of the next event that does not depend on a line; nil if there is none.
    var nextDeadline: Int64? {
        (questions.values.map(\.deadline) + [phase.end].compactMap(\.self)).min()
    }

    /// The connection is registered, and the backend offers the capability.
    mutating func expectAcceptance(now: Int64) {
        if !isReady { phase = .awaited(until: now + Self.patience) }
    }

    /// The gateway has accepted the device; returns whether it is the first time.
    mutating func accepted() -> Bool {
        defer { phase = .ready }
        return !isReady
    }

    /// The gateway has refused something. Lines wait no more, for the login may be one of them.
    mutating func refused() {
        if case .awaited(let until) = phase { phase = .refused(until: until) }
    }

    /// The gateway demands a proof; returns false if it has demanded keys too often.
    mutating func challenged(_ challenge: Challenge, now: Int64) -> Bool {
        guard mayMakeKeys(now: now) else { return false }
        self.challenge = challenge
        return true
    }

    /// Whether a message for the directory is of use: a proof holds for the last challenge of this connection.
    func isCurrent(_ message: DirectoryMessage) -> Bool {
        guard case .publish(let deviceList, let device, let signature) = message else { return true }
        return challenge.map {
            DirectoryMessage.isProof(signature, nonce: $0.nonce, account: $0.account, deviceList, device)
        } ?? false
    }

    /// Whether keys may be generated now; if so, counts it.
    mutating func mayMakeKeys(now: Int64) -> Bool { keys.allows(at: now) }

    /// The gateway was lost. Deferred messages go on waiting.
    ///
    /// - Returns: the queries that nobody will answer.
    mutating func lose() -> [Question] {
        let unanswered = Array(questions.values) + Array(startingSessions.values)
        var new = FrontLink()
        if !isAbsent { new.phase = .lost }
        new.deferred = deferred
        self = new
        return unanswered
    }

    /// The backend is back, and offers no gateway.
    ///
    /// - Returns: whether a gateway was lost.
    mutating func isMissing() -> Bool {
        guard case .lost = phase else { return false }
        phase = .absent
        return true
    }

    // MARK: Deferred messages

    /// Keeps a message until the gateway is there, or is known not to be.
    ///
    /// - Parameters:
    ///   - slot: its place in the outbound lane.
    ///   - limit: messages that may wait.
    /// - Returns: false if too many wait.
    mutating func keep(
        _ message: OutboundMessage, at slot: @autoclosure () -> OutboundLane.Ticket, limit: Int
    ) -> Bool {
        guard deferred.count < limit else { return false }
        deferred.append(Deferred(message: message, slot: slot()))
        return true
    }

    /// Removes and returns the messages that wait for the gateway, in order.
    mutating func takeDeferred() -> [Deferred] {
        defer { deferred = [] }
        return deferred
    }

    // MARK: Control plane

    /// Adds a frame of the control plane.
    mutating func take(_ line: IRCLine, now: Int64) -> ControlFrames.Outcome { frames.take(line, now: now) }

    /// The lines of a message for the directory, without CR LF.
    mutating func lines(of message: DirectoryMessage) -> [String] {
        lastNumber += 1
        return ControlFrames.lines(message.bytes, id: lastNumber)
    }

    // MARK: Queries

    /// Whether the directory is asked about a nick before a message is sent to it.
    ///
    /// - Parameter limit: queries that may wait at a time.
    func asks(about nick: String, now: Int64, limit: Int) -> Bool {
        isReady && !isKnownWithout(nick, now: now) && questions.count < limit
    }

    /// The members of rooms whose keys are to be requested, sorted.
    ///
    /// - Parameter strangers: folded nicks without known keys. Not evaluated before the gateway is ready.
    func membersToAsk(_ strangers: @autoclosure () -> Set<ExactText>, now: Int64) -> [String] {
        guard isReady else { return [] }
        let left = Self.memberLimit - memberQueries.count { $0 + Self.memberPeriod > now }
        guard left > 0 else { return [] }
        return strangers().filter { asked[$0] == nil && !isKnownWithout($0.text, now: now) }.sorted().prefix(left)
            .map(\.text)
    }

    private func isKnownWithout(_ nick: String, now: Int64) -> Bool { without[nick].map { $0 > now } ?? false }

    /// Begins a query; returns its lines, without CR LF.
    mutating func ask(about nick: String, for purpose: Question.Purpose, now: Int64) -> [String] {
        let lines = lines(of: .find(nick: nick))
        questions[lastNumber] = Question(nick: nick, purpose: purpose, deadline: now + Self.patience)
        asked[nick] = (asked[nick] ?? 0) + 1
        if case .room = purpose {
            memberQueries.removeAll { $0 + Self.memberPeriod <= now }
            memberQueries.append(now)
        }
        return lines
    }

    /// Removes and returns a query that was answered; nil if it is not expected any more.
    mutating func answered(_ number: UInt32) -> Question? {
        guard let question = questions.removeValue(forKey: number) else { return nil }
        let others = (asked[question.nick] ?? 1) - 1
        asked[question.nick] = others > 0 ? others : nil
        return question
    }

    /// Ours: bytes of the name of an account. Servers allow some thirty.
    private static let nameLimit = 200

    /// The account that a directory names; nil if it gives no information beyond the nick.
    ///
    /// On IRC the name of a connection without a login begins with `~`. The gateway is not trusted: a name in another case
    /// would be another person's, and one that is no name would be stored.
    static func account(_ name: String, _ mapping: CaseMapping) -> AccountID? {
        let bytes = name.utf8
        guard let first = bytes.first, first != UInt8(ascii: "~"), bytes.count <= nameLimit,
            bytes.allSatisfy({ $0 > 0x20 && $0 != 0x7F && $0 != UInt8(ascii: ",") }),
            !name.unicodeScalars.contains("\u{FFFD}")
        else { return nil }
        return .services(mapping.fold(name))
    }

    /// Caches that a person has no keys.
    mutating func noteWithout(_ nick: String, now: Int64) {
        if without.count >= SidecarPeople.nickLimit { without.removeAll() }
        without[nick] = now + Self.memory
    }

    /// Removes and returns the queries that were not answered in time. Ends the wait for the gateway if it is over.
    mutating func expire(now: Int64) -> [Question] {
        if let end = phase.end, end <= now { phase = .absent }
        return questions.filter { $0.value.deadline <= now }.keys.sorted().compactMap { answered($0) }
    }

    /// The vault begins sessions with the devices that were found; returns the ticket.
    mutating func startSessions(for question: Question) -> UInt64 {
        lastTicket += 1
        startingSessions[lastTicket] = question
        return lastTicket
    }

    /// Removes and returns the query whose sessions were begun; nil if the gateway was lost meanwhile.
    mutating func sessionsStarted(_ ticket: UInt64) -> Question? { startingSessions.removeValue(forKey: ticket) }
}
