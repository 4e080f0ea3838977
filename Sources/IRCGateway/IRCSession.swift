// One client's connection with its connection to the backend, as a machine: bytes, answers and time go in; bytes and
// jobs come out. It knows neither sockets nor threads nor the store.
//
// Order holds in both directions: a line that waits (for a commit, an acknowledgement, a slot of the pacer) holds back
// what comes behind it, and nothing else.

import DequeModule
import Devices
package import Envelope
package import IRCCodec
package import NIOCore
import Outbox
package import Protection
import Reports
package import RequestQueue
package import Vault

/// The machine of one IRC connection. Confined to one event loop.
package final class IRCSession {
    package let id: ConnectionID
    package let environment: IRCEnvironment
    package private(set) var settings: IRCSettings

    // Who this is.
    package var nick: String?
    package var account: AccountID
    /// Accounts of this connection before it logged in or out: envelopes for them may still be under way.
    var previousAccounts: [AccountID] = []
    package var logouts = 0
    package var isRegistered = false
    package var support = ServerSupport() {
        didSet { lastRoom = nil }
    }
    /// The room that the last copy was for.
    var lastRoom: LastRoom?
    /// The longest source that the backend has shown for this connection, in bytes.
    var knownSourceLength = 0
    package var software = ""

    // What applies to it.
    package var policies: PolicySnapshot
    private var policyVersion: UInt64
    package var policy: Policy
    package var capabilities = CapabilityNegotiation()
    var negotiationTicket: Lane<OutboundEntry>.Ticket?
    var negotiationDeadline: Int64?

    // Lines.
    var downstreamLines = LineSplitter(limit: IRCLimits.clientTagsLength + IRCLimits.lineLength)
    var upstreamLines = LineSplitter(limit: IRCLimits.tagsLength + IRCLimits.lineLength)
    /// After STARTTLS under `off` the stream is not ours to read any more.
    package var isOpaque = false
    package var outbound = Lane<OutboundEntry>()
    package var inbound = Lane<InboundEntry>()
    package var pacer: Pacer
    package var seals: [UInt64: PendingSeal] = [:]
    package var opens: [UInt64: PendingOpen] = [:]
    package var copies: [UInt64: PendingCopy] = [:]
    /// Messages to rooms that came after those, in their order.
    var postponed: Deque<PostponedOpening> = []
    /// Places for what an account finds waiting when it comes back: the outbound ticket, with the inbound one.
    var recoveries: [UInt64: UInt64] = [:]
    var outstanding = OutstandingRequests()
    /// Requests of before a restart, and what must not overtake them, until their recipient is here.
    package var held: [OutboundRequest] = []
    var heldDeadline: Int64?
    package var assembler: FragmentAssembler?
    package var services = ServiceDirectory()
    package var observations = ObservationBook()
    package var registration = Registration()
    var isKilled = false
    var outage: Outage?
    /// When the last outage ended.
    var returnedAt: Int64?
    /// Verbs that were said again after an outage and not answered yet.
    var resaid: Set<VerbKey> = []
    /// Rooms that are being joined again after an outage, folded; the client has never left them.
    var rejoining: Set<ExactText> = []
    /// Rooms that the backend has let this connection into, folded.
    package var rooms: Set<ExactText> = []
    /// Lines of before a restart for rooms that the client has not joined again.
    var roomLines: [RecoveredLine] = []
    package var history = RoomHistory()
    var strippedVerbs: Set<VerbKey> = []
    /// Rooms, folded, of which a protected person has been told that they are not protected.
    var plainRooms: Set<ExactText> = []
    /// Of a sidecar: how people are called, and whom keys are being exchanged with.
    var nameBook = NameBook()
    /// Folded nicks that known people have taken while this connection saw them.
    var newNicks: [ExactText: AccountID] = [:]
    package var exchange = KeyExchange()
    var roomMembers = RoomMembers()
    package var front = FrontGateway()
    /// Of a front gateway: what the client has shown of its own device.
    var clientDevice = ClientDevice()
    var isUpstreamClosed = false
    /// The gateway is being stopped, and the backend has not answered the last question.
    var awaitsLastPong = false

    /// - Parameters:
    ///   - id: a random number that is never used twice; the account of a connection without a login is made of it.
    package init(id: ConnectionID, environment: IRCEnvironment) {
        self.id = id
        self.environment = environment
        settings = environment.settings
        account = environment.peers == nil ? .connection(id.value) : .own
        policyVersion = environment.policies.version
        policies = environment.policies.snapshot
        policy = policies.policy(of: nil)
        pacer = Pacer(settings.flood)
        capabilities.visibility = settings.visibility
        capabilities.visibility.onlyTranslatable = isProtecting
        capabilities.isCapable = environment.peers != nil
    }

    /// Whether the gateway speaks with the backend by itself: where it seals, and in a sidecar always.
    package var isProtecting: Bool { policy.demandsProtection || environment.peers != nil }

    // MARK: Events

    /// The backend has been reached.
    package func begin(at now: Moment, _ out: SessionOutput) {
        renewPolicy(now, out)
        if outage != nil { resume(now, out) } else { negotiateIfNeeded(now, out) }
    }

    /// Bytes from the client.
    package func fromDownstream(_ bytes: ByteBuffer, at now: Moment, _ out: SessionOutput) {
        renewPolicy(now, out)
        var chunk = bytes
        if !policy.takesPart {
            out.upstream.writeImmutableBuffer(chunk)
            guard !isOpaque else { return }
            while let piece = downstreamLines.next(&chunk) {
                if case .line(let raw, let content) = piece, let line = parse(raw, content) { trackClient(line, raw) }
            }
            return
        }
        while let piece = downstreamLines.next(&chunk) {
            switch piece {
            case .line(let raw, let content): clientLine(raw, content, now, out)
            case .overlong(let raw, let ended): clientOverlong(raw, ended: ended, now, out)
            }
            // Whoever stands between could have written what follows in the clear: the rest of the chunk is dropped.
            guard !out.startsTLS else { break }
        }
        pump(now, out)
    }

    /// Bytes from the backend.
    package func fromUpstream(_ bytes: ByteBuffer, at now: Moment, _ out: SessionOutput) {
        renewPolicy(now, out)
        var chunk = bytes
        if !policy.takesPart {
            out.downstream.writeImmutableBuffer(chunk)
            guard !isOpaque else { return }
            while let piece = upstreamLines.next(&chunk) {
                if case .line(let raw, let content) = piece, let line = parse(raw, content) {
                    if line.key.numeric == 670 { isOpaque = true }
                    trackServer(line, now, out)
                }
            }
            return
        }
        while let piece = upstreamLines.next(&chunk) {
            switch piece {
            case .line(let raw, let content): serverLine(raw, content, now, out)
            case .overlong(let raw, _):
                environment.tally.add(.badLines)
                deliver(raw, out)
            }
        }
        pump(now, out)
        flushInbound(now, out)
    }

    /// Answers of the vault.
    package func answered(_ reply: VaultReply, at now: Moment, _ out: SessionOutput) {
        switch reply {
        case .sealed(let ticket, let request, let first, let keys): sealed(ticket, request, first, keys, now, out)
        case .sealFailed(let ticket, let reason): sealFailed(ticket, reason, out)
        case .opened(let ticket, let opened): self.opened(ticket, opened, now, out)
        case .openFailed(let ticket, let failure): openFailed(ticket, failure, now, out)
        case .copied(let ticket, let message): copied(ticket, message, now, out)
        case .recovered(let ticket, let requests, let lines): recovered(ticket, requests, lines, now, out)
        case .notSeen(_, let target): notify(Remarks.notSeen(target: target), out)
        case .remark(let text): notify(text, out)
        case .dropped(let id, let target): dropped(id, target, out)
        case .lapsed(let target, let count): lapsed(target, count, out)
        case .recall: recall(out)
        case .directory(let number, let message): directoryAnswer(number, message, now, out)
        case .proven(let number, let device, let oneTime): proven(number, device, oneTime, now, out)
        case .mail: break
        case .ask(let message): ask(message, out)
        case .met(let ticket, let event, let answers): met(ticket, event, answers, now, out)
        case .rooms(let answer): answer(roomReports())
        case .askRoom(let job): askRoom(job, out)
        case .roomAsked(let job, let body): roomAsked(job, body, now, out)
        case .letter(let name, let body): control(body, to: name.displayName, device: nil, now, out)
        case .introduction(let ticket, let bodies): introduce(ticket, bodies, now, out)
        case .keysMissing(let ticket): keysMissing(ticket, now, out)
        // For backends that keep what was said.
        case .wrote, .writeFailed, .read: break
        }
        pump(now, out)
        flushInbound(now, out)
    }

    /// The time that was asked for has come.
    package func woken(at now: Moment, _ out: SessionOutput) {
        renewPolicy(now, out)
        if let deadline = negotiationDeadline, deadline <= now.monotonic { giveUpNegotiation(now, out) }
        expireFragments(now, out)
        expireProbes(now, out)
        releaseHeld(now, out)
        giveUpKeys(now, out)
        giveUpQuestions(now, out)
        flushObservations(now, out, force: false)
        pump(now, out)
        flushInbound(now, out)
        scheduleWake(now, out)
    }

    /// The client has ended its side; what was kept of an unfinished line goes on as it is below `hosted`.
    package func downstreamEnded(at now: Moment, _ out: SessionOutput) {
        guard let rest = downstreamLines.takePartial(), !isProtecting, policy.takesPart else { return }
        out.upstream.writeImmutableBuffer(rest)
    }

    /// The backend has ended its side.
    package func upstreamEnded(at now: Moment, _ out: SessionOutput) {
        let isSurprised = isProtecting && isRegistered && !registration.isQuitting && !isKilled
        if isSurprised, !outlivesBackend, !isUpstreamClosed { notify(Remarks.loginNotRepeatable, out) }
        isUpstreamClosed = true
        if let rest = upstreamLines.takePartial(), policy.takesPart { deliver(rest, out) }
        // The backend knows nobody by this nick any more, however long the client keeps its socket.
        environment.roster.remove(id, now: now.monotonic)
        leaveRooms()
        giveBack(out)
        flushInbound(now, out)
    }

    /// Nothing goes to the backend any more; what was accepted is the vault's again.
    private func giveBack(_ out: SessionOutput) {
        if (previousAccounts + [account]).contains(where: \.isVerified) { out.jobs.append(.left(id)) }
    }

    /// Whether lines for the client still wait for the vault.
    package var hasPendingDeliveries: Bool { !inbound.isEmpty }

    /// Whether lines for the backend still wait.
    package var hasPendingLines: Bool { !outbound.isEmpty }

    /// Whether so much waits that the client should not be read.
    package var isCongested: Bool { outbound.count + held.count >= settings.heldLines }

    /// Whether so much waits that the backend should not be read.
    package var isDeliveryCongested: Bool { inbound.count >= settings.heldLines }

    /// Both sides are gone. Nothing is sent any more; what ends with the connection ends here.
    package func finish(at now: Moment, _ out: SessionOutput) {
        environment.roster.remove(id, now: now.monotonic)
        leaveRooms()
        flushObservations(now, out, force: true)
        if isRegistered { recordEvidence(now, out, registrations: 0) }
        giveBack(out)
        for gone in previousAccounts + [account] where !gone.isVerified {
            environment.latches.forget(gone)
            if isRegistered { out.jobs.append(.forget(gone, reason: Remarks.gone)) }
        }
    }

    // MARK: Policy

    private func renewPolicy(_ now: Moment, _ out: SessionOutput) {
        guard environment.policies.version != policyVersion else { return }
        policyVersion = environment.policies.version
        policies = environment.policies.snapshot
        settings = environment.settings
        pacer.renew(settings.flood)
        capabilities.visibility = settings.visibility
        applyPolicy(now, out)
    }

    /// Takes the policy of the account that this connection now has.
    func applyPolicy(_ now: Moment, _ out: SessionOutput) {
        let before = policy
        policy = policies.policy(of: account)
        capabilities.visibility.onlyTranslatable = isProtecting
        guard before != policy else { return }
        if !before.takesPart, isOpaque {
            // Nobody can protect what cannot be read.
            out.closesDownstream = true
            out.closesUpstream = true
        }
        if isRegistered { updateRoster(now) }
        negotiateIfNeeded(now, out)
    }

    /// Whether any message could be due protection, so that recipients have to be looked up.
    var isGuarded: Bool {
        isProtecting || policies.strictest.demandsProtection || !environment.latches.isEmpty
    }

    // MARK: Negotiation of the gateway's own

    private func negotiateIfNeeded(_ now: Moment, _ out: SessionOutput) {
        guard outage == nil, isProtecting, capabilities.stage == .notStarted else { return }
        guard let line = capabilities.begin() else { return }
        out.upstream.writeString(line + "\r\n")
        guard !isRegistered else { return }
        // Registration waits until the gateway has what it needs, or the backend is known not to have it.
        negotiationTicket = outbound.reserve()
        capabilities.holdsClient = true
        expectCapabilities(now, out)
    }

    /// Ours: how long a backend may take to answer CAP before its silence is an answer. In nanoseconds.
    private static let capabilityPatience: Int64 = 5_000_000_000

    /// Has the session woken when no answer to CAP comes.
    func expectCapabilities(_ now: Moment, _ out: SessionOutput) {
        guard negotiationDeadline == nil else { return }
        negotiationDeadline = now.monotonic + Self.capabilityPatience
        scheduleWake(now, out)
    }

    /// The backend has not answered, or goes on without having answered.
    func giveUpNegotiation(_ now: Moment, _ out: SessionOutput) {
        negotiationDeadline = nil
        var answers: [String] = []
        capabilities.giveUp(answers: &answers)
        for answer in answers { deliver(answer, out) }
        finishNegotiation(now, out)
        continueResumption(out)
    }

    func finishNegotiation(_ now: Moment, _ out: SessionOutput) {
        if negotiationTicket != nil { negotiationDeadline = nil }
        guard let ticket = negotiationTicket else { return }
        negotiationTicket = nil
        capabilities.holdsClient = false
        let end = capabilities.backendKnowsCAP == true ? [OutboundEntry.line(ByteBuffer(string: "CAP END\r\n"))] : []
        outbound.resolve(ticket, with: end)
        pump(now, out)
    }

    // MARK: Helpers

    package func parse(_ raw: ByteBuffer, _ content: Int) -> IRCLine? {
        guard let slice = raw.getSlice(at: raw.readerIndex, length: content) else { return nil }
        return try? IRCLine(slice)
    }

    /// A line for the client, behind what already waits for it.
    package func deliver(_ line: ByteBuffer, _ out: SessionOutput) {
        if inbound.isEmpty {
            out.downstream.writeImmutableBuffer(line)
        } else {
            inbound.append(InboundEntry(line: line))
        }
    }

    package func deliver(_ line: String, _ out: SessionOutput) {
        deliver(ByteBuffer(string: line + "\r\n"), out)
    }

    func flushInbound(_ now: Moment, _ out: SessionOutput) {
        while let entry = inbound.popFirst() { write(entry, now, out) }
    }

    /// Hands a line to the client's socket.
    package func write(_ entry: InboundEntry, _ now: Moment, _ out: SessionOutput) {
        out.downstream.writeImmutableBuffer(entry.line)
        if let sequence = entry.sequence { out.delivered.append(sequence) }
        guard entry.message != 0, environment.peers == nil else { return }
        environment.requests.traces.note(.shown, of: entry.message, at: now.wall)
    }

    /// A remark of the gateway to its client.
    ///
    /// - Parameter room: the room whose window it is shown in; nil for the client as a whole.
    package func notify(_ text: String, inRoom room: String? = nil, _ out: SessionOutput) {
        deliver(":\(capabilities.serverName) NOTICE \(room ?? nick ?? "*") :*** \(text)", out)
    }

    func scheduleWake(_ now: Moment, _ out: SessionOutput) {
        if let negotiationDeadline { out.wake(at: negotiationDeadline) }
        if let deadline = assembler?.nextDeadline { out.wake(at: deadline) }
        if let deadline = history.assembler?.nextDeadline { out.wake(at: deadline) }
        if let deadline = services.nextDeadline { out.wake(at: deadline) }
        if let deadline = observations.deadline { out.wake(at: deadline) }
        if let deadline = front.awaitedUntil { out.wake(at: deadline) }
        if let deadline = front.questions.values.map(\.deadline).min() { out.wake(at: deadline) }
        if let deadline = exchange.deadline { out.wake(at: deadline) }
        if !held.isEmpty { out.wake(at: now.monotonic + 250_000_000) }
        if case .line = outbound.first { out.wake(at: pacer.nextSlot(now: now.monotonic)) }
        if case .request = outbound.first {
            out.wake(at: max(pacer.nextSlot(now: now.monotonic), now.monotonic + 5_000_000))
        }
    }
}
