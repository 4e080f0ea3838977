// The state machine of one client's connection and its connection to the backend. Inputs are bytes, replies of the
// participants and time; outputs are bytes and jobs. It knows no sockets, threads or store.
//
// Order is kept in both directions: a line that waits (for a commit, an acknowledgement or the pacer) delays the lines
// behind it, and nothing else.
//
// Under `off` the connection still tracks nick, registration and account, without changing a byte, so that a policy that
// rises at run time applies to every connection. Nothing is counted or stored. After STARTTLS under `off` the stream is
// opaque, and such a connection is closed if the policy rises.

import Devices
import Envelope
package import IRCCodec
package import NIOCore
import Outbox
package import Protection
import Reports
import RequestQueue
import Vault

/// The machine of one IRC connection. Confined to one event loop.
///
/// It owns the machines of the connection's parts, routes events to them, and performs their actions. What only one
/// role has is in ``ConnectionRole``.
package final class IRCConnectionMachine {
    package let environment: IRCEnvironment
    private let mayStartTLS: Bool
    let role: ConnectionRole
    var identity: ConnectionIdentity
    var effective: EffectivePolicy
    var phase = BackendPhase()
    var registration = Registration()
    var capabilities = CapabilityNegotiation()
    var rooms = ConnectionRooms()
    var lines = ConnectionLines()
    var outbound: OutboundLane
    var inbound = InboundLane()
    var services = ServiceDirectory()
    var observations = ObservationCounts()
    var multiline = MultilineBatch()

    /// - Parameters:
    ///   - id: a random number that is never used twice. The account of a connection without a login contains it.
    ///   - mayStartTLS: false if the client's connection has TLS already, or frames under which TLS cannot begin.
    package init(id: ConnectionID, environment: IRCEnvironment, mayStartTLS: Bool = true) {
        self.environment = environment
        self.mayStartTLS = mayStartTLS
        role = ConnectionRole(environment.role, environment.latches)
        identity = ConnectionIdentity(
            id: id, account: role.firstAccount(of: id), caseMapping: environment.caseMapping)
        effective = EffectivePolicy(environment)
        outbound = OutboundLane(effective.settings.flood)
        capabilities.visibility = visibility
        capabilities.isCapable = role.isSidecar
    }

    package var id: ConnectionID { identity.id }
    package var settings: IRCSettings { effective.settings }
    /// Whether the gateway answers STARTTLS of this client with its own certificate.
    var terminatesStartTLS: Bool { settings.terminatesStartTLS && mayStartTLS }
    /// What the client sees of the backend's capabilities and of the gateway's, by its policy.
    var visibility: CapabilityNegotiation.Visibility {
        var visibility = settings.visibility
        if !mayStartTLS { visibility.hidesStartTLS = true }
        visibility.onlyTranslatable = isProtecting
        if isProtecting { visibility.multiline = settings.multiline }
        return visibility
    }
    var nick: String? { identity.nick }
    var foldedNick: String { identity.foldedNick }
    var account: AccountID { identity.account }
    var support: ServerSupport { identity.support }
    var policies: PolicySnapshot { effective.snapshot }
    var policy: Policy { effective.policy }
    var isRegistered: Bool { phase.isRegistered }

    /// Whether the gateway protects this connection's messages, and negotiates with the backend. Always in a sidecar.
    package var isProtecting: Bool { policy.demandsProtection || role.isSidecar }

    // MARK: Events

    /// The backend has been reached.
    package func begin(at now: Timestamp, _ out: MachineOutput) {
        renewPolicy(now, out)
        if phase.isSuspended { resume(now, out) } else { negotiateIfNeeded(now, out) }
    }

    /// Bytes from the client.
    package func fromDownstream(_ bytes: ByteBuffer, at now: Timestamp, _ out: MachineOutput) {
        renewPolicy(now, out)
        var chunk = lines.takeBacklog(bytes)
        if !policy.takesPart {
            out.upstream.writeImmutableBuffer(chunk)
            guard !lines.isOpaque else { return }
            while let piece = lines.downstream.next(&chunk) {
                if case .line(let raw, let content) = piece, let line = parse(raw, content) { trackClient(line, raw) }
            }
            return
        }
        clientLines(chunk, now, out)
        pump(now, out)
    }

    /// Handles lines of the client, as long as not too many of its own messages wait. The others are kept.
    private func clientLines(_ bytes: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        var chunk = bytes
        while !isAhead(now), let piece = lines.downstream.next(&chunk) {
            switch piece {
            case .line(let raw, let content): clientLine(raw, content, now, out)
            case .overlong(let raw, let ended): clientOverlong(raw, ended: ended, now, out)
            }
            // An attacker in the network could have added cleartext after STARTTLS: the rest of the chunk is dropped.
            guard !out.startsTLS else { return }
        }
        if chunk.readableBytes > 0 { lines.backlog = chunk }
        // An answer that never comes wakes nothing.
        if isAhead(now) { out.wake(at: now.monotonic + Self.answerInterval) }
    }

    /// Handles lines of the client that had to wait.
    func resumeClient(_ now: Timestamp, _ out: MachineOutput) {
        guard !isAhead(now) else { return out.wake(at: now.monotonic + Self.answerInterval) }
        guard lines.backlog != nil else { return }
        if policy.takesPart {
            clientLines(lines.takeBacklog(), now, out)
        } else {
            out.upstream.writeImmutableBuffer(lines.takeBacklog())
        }
        pump(now, out)
        scheduleWake(now, out)
    }

    /// Whether so many of the client's messages are under way that it has to wait for them.
    ///
    /// It is slowed long before the vault refuses a message, because waiting helps. In an outage waiting does not help,
    /// so that the client is read, and the vault refuses what is too much. Unpaced, more may be under way, because they
    /// end at once.
    private func isAhead(_ now: Timestamp) -> Bool {
        guard !phase.isSuspended else { return false }
        return outbound.hasUnderWay(
            max(settings.pendingRequests / (outbound.isUnlimited ? 2 : 4), 1), now: now.monotonic)
    }

    /// Ours: how often a client that waits for answers is looked at without one, in nanoseconds.
    private static let answerInterval: Int64 = 1_000_000_000

    /// Bytes from the backend.
    package func fromUpstream(_ bytes: ByteBuffer, at now: Timestamp, _ out: MachineOutput) {
        renewPolicy(now, out)
        var chunk = bytes
        if !policy.takesPart {
            out.downstream.writeImmutableBuffer(chunk)
            guard !lines.isOpaque else { return }
            while let piece = lines.upstream.next(&chunk) {
                if case .line(let raw, let content) = piece, let line = parse(raw, content) {
                    if line.key.numeric == 670 { lines.becomeOpaque() }
                    trackServer(line, now, out)
                }
            }
            return
        }
        while let piece = lines.upstream.next(&chunk) {
            switch piece {
            case .line(let raw, let content): serverLine(raw, content, now, out)
            case .overlong(let raw, _): unreadable(raw, out)
            }
        }
        pump(now, out)
        resumeClient(now, out)
        flushInbound(now, out)
    }

    /// A reply of the participants.
    package func answered(_ reply: IRCReply, at now: Timestamp, _ out: MachineOutput) {
        switch reply {
        case .sealed(let ticket, let request, let first, let keys): sealed(ticket, request, first, keys, now, out)
        case .sealFailed(let ticket, let failure): sealFailed(ticket, failure, out)
        case .opened(let ticket, let opened): self.opened(ticket, opened, now, out)
        case .openFailed(let ticket, let failure): openFailed(ticket, failure, now, out)
        case .copied(let ticket, let message): copied(ticket, message, now, out)
        case .copyFailed(let ticket, let failure): copyFailed(ticket, failure, now, out)
        case .recovered(let ticket, let requests, let lines): recovered(ticket, requests, lines, now, out)
        case .unopened(_, let target): notify(Notices.unopened(target: target), about: target, out)
        case .notice(let text): notify(text, out)
        case .dropped(let id, let target): dropped(id, target, out)
        case .expired(let target, let count): expired(target, count, out)
        case .requestsWaiting: recoverWaiting(out)
        case .directory(let number, let message):
            guard case .front(let device) = role else { preconditionFailure("a sidecar has no directory") }
            directoryAnswer(number, message, device, now, out)
        case .proven(let number, let proven, let oneTime):
            guard case .front(let device) = role else { preconditionFailure("a sidecar has no directory") }
            self.proven(number, proven, oneTime, device, now, out)
        case .sidecar(let reply):
            guard case .sidecar(let sidecar) = role else { preconditionFailure("a reply for a sidecar") }
            answered(reply, sidecar, now, out)
        }
        pump(now, out)
        resumeClient(now, out)
        flushInbound(now, out)
    }

    /// A reply that only a sidecar gets.
    private func answered(
        _ reply: SidecarReply, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        switch reply {
        case .ask(let message): ask(message, sidecar, out)
        case .sessionsStarted(let ticket, let event, let answers):
            sessionsStarted(ticket, event, answers, sidecar, now, out)
        case .rooms(let answer): answer(roomReports(sidecar))
        case .askRoom(let job): askRoom(job, out)
        case .roomAsked(let job, let body): roomAsked(job, body, sidecar, now, out)
        case .controlMessage(let name, let body): control(body, to: name.displayName, device: nil, sidecar, now, out)
        case .introduction(let ticket, let bodies): introduce(ticket, bodies, sidecar, now, out)
        case .farewell(let nick, let bodies): notice(bodies, to: nick)
        case .keysMissing(let ticket): keysMissing(ticket, sidecar, now, out)
        case .said(let lines): say(lines, out)
        }
    }

    /// The time requested in ``MachineOutput/wakeAt`` has come.
    package func woken(at now: Timestamp, _ out: MachineOutput) {
        renewPolicy(now, out)
        if capabilities.isOverdue(now: now.monotonic) { giveUpNegotiation(now, out) }
        expireFragments(now, out)
        out.jobs += inbound.dueRetries(now: now.monotonic).map { .open($0) }
        expireProbes(now, out)
        releaseHeld(now, out)
        giveUpRooms(now, out)
        if case .sidecar(let sidecar) = role {
            giveUpKeys(sidecar, now, out)
            giveUpQuestions(sidecar, now, out)
        }
        flushObservations(now, out, force: false)
        pump(now, out)
        resumeClient(now, out)
        flushInbound(now, out)
        scheduleWake(now, out)
    }

    /// The client has ended its side. Below `hosted` an incomplete line is forwarded.
    package func downstreamEnded(at now: Timestamp, _ out: MachineOutput) {
        guard let rest = lines.downstream.takePartial(), !isProtecting, policy.takesPart else { return }
        out.upstream.writeImmutableBuffer(rest)
    }

    /// The backend has ended its side.
    package func upstreamEnded(at now: Timestamp, _ out: MachineOutput) {
        giveUpOutage(at: now, out)
        let isSurprised = isProtecting && isRegistered && !registration.isEnding
        if isSurprised, !outlivesBackend, !phase.isClosed { notify(Notices.loginNotRepeatable, out) }
        leaveRooms()
        phase.close()
        // Where messages are protected it is dropped: it was not read, and the next line of the gateway would complete it.
        if let rest = lines.upstream.takePartial(), policy.takesPart, !isGuarded { deliver(rest, out) }
        // The backend has released this nick, however long the client keeps its socket.
        environment.roster.remove(id, now: now.monotonic)
        giveBack(out)
        flushInbound(now, out)
    }

    /// Returns accepted requests to the vault. Nothing is sent to the backend any more.
    private func giveBack(_ out: MachineOutput) {
        if identity.accounts.contains(where: \.isVerified) { out.jobs.append(.left(id)) }
    }

    /// Whether lines for the client still wait for the vault.
    package var hasPendingDeliveries: Bool { !inbound.isEmpty }

    /// Whether lines for the backend still wait.
    package var hasPendingLines: Bool { !outbound.isEmpty || lines.backlog != nil }

    /// Whether so many lines wait that the client should not be read.
    package func isCongested(at now: Timestamp) -> Bool {
        lines.backlog != nil || isAhead(now) || outbound.count >= settings.heldLines
    }

    /// Whether so many lines wait that the backend should not be read.
    package var isDeliveryCongested: Bool { inbound.count >= settings.heldLines }

    /// Both sides have closed. Releases everything that belongs to the connection; nothing is sent any more.
    package func finish(at now: Timestamp, _ out: MachineOutput) {
        environment.roster.remove(id, now: now.monotonic)
        leaveRooms()
        flushObservations(now, out, force: true)
        if isRegistered { recordEvidence(now, out, registrations: 0) }
        giveBack(out)
        for gone in identity.accounts.reversed() where !gone.isVerified {
            environment.latches.forget(gone)
            if isRegistered { out.jobs.append(.forget(gone, reason: Notices.connectionEnded)) }
        }
    }

    // MARK: Policy

    private func renewPolicy(_ now: Timestamp, _ out: MachineOutput) {
        guard effective.renew(environment) else { return }
        outbound.renewPace(settings.flood)
        capabilities.visibility = visibility
        applyPolicy(now, out)
    }

    /// Applies the policy of the connection's current account.
    func applyPolicy(_ now: Timestamp, _ out: MachineOutput) {
        let before = effective.apply(to: account)
        capabilities.visibility = visibility
        guard let before else { return }
        if !before.takesPart, lines.isOpaque {
            // An unreadable stream cannot be protected.
            out.closesDownstream = true
            out.closesUpstream = true
        }
        if isRegistered { updateRoster(now) }
        if let offer = capabilities.lateOffer() { deliver(offer, out) }
        negotiateIfNeeded(now, out)
    }

    /// Whether a message could require protection, so that recipients have to be looked up.
    var isGuarded: Bool {
        isProtecting || policies.strictest.demandsProtection || !environment.latches.isEmpty
    }

    // MARK: The gateway's own negotiation

    private func negotiateIfNeeded(_ now: Timestamp, _ out: MachineOutput) {
        guard !phase.isSuspended, isProtecting, capabilities.stage == .notStarted else { return }
        guard let line = capabilities.begin() else { return }
        out.upstream.writeString(line + "\r\n")
        guard !isRegistered else { return }
        // Registration waits until the gateway has its capabilities, or knows that the backend does not have them.
        capabilities.hold(at: outbound.reserve())
        expectCapabilities(now, out)
    }

    /// Sets the deadline for an answer to CAP.
    func expectCapabilities(_ now: Timestamp, _ out: MachineOutput) {
        capabilities.expectAnswer(now: now.monotonic)
        scheduleWake(now, out)
    }

    /// The backend has not answered CAP in time, or continues without an answer.
    func giveUpNegotiation(_ now: Timestamp, _ out: MachineOutput) {
        var answers: [String] = []
        capabilities.giveUp(answers: &answers)
        for answer in answers { deliver(answer, out) }
        finishNegotiation(now, out)
        continueResumption(now, out)
    }

    func finishNegotiation(_ now: Timestamp, _ out: MachineOutput) {
        guard let ticket = capabilities.release() else { return }
        let end = capabilities.backendKnowsCAP == true ? [OutboundEntry.line(ByteBuffer(string: "CAP END\r\n"))] : []
        outbound.resolve(ticket, with: end)
        pump(now, out)
    }

    // MARK: Helpers

    package func parse(_ raw: ByteBuffer, _ content: Int) -> IRCLine? {
        guard let slice = raw.getSlice(at: raw.readerIndex, length: content) else { return nil }
        return try? IRCLine(slice)
    }

    /// Sends a line to the client, behind what already waits for it.
    package func deliver(_ line: ByteBuffer, _ out: MachineOutput) {
        if inbound.isEmpty {
            out.downstream.writeImmutableBuffer(line)
        } else {
            inbound.append(InboundEntry(line: line))
        }
    }

    /// Sends a line of the gateway to the client. Texts of others in it cannot end it.
    package func deliver(_ line: String, _ out: MachineOutput) {
        deliver(ByteBuffer(line: line), out)
    }

    func flushInbound(_ now: Timestamp, _ out: MachineOutput) {
        while let entry = inbound.popFirst() { write(entry, now, out) }
    }

    /// Writes a line to the client.
    package func write(_ entry: InboundEntry, _ now: Timestamp, _ out: MachineOutput) {
        out.downstream.writeImmutableBuffer(entry.line)
        if let sequence = entry.sequence { out.delivered.append(sequence) }
        guard entry.message != 0, !role.isSidecar else { return }
        environment.requests.traces.note(.shown, of: entry.message, at: now.wall)
    }

    /// Sends a notice of the gateway to its client.
    ///
    /// - Parameter room: the room in whose window it is shown; nil if it concerns no room.
    package func notify(_ text: String, inRoom room: String? = nil, _ out: MachineOutput) {
        deliver(":\(capabilities.serverName) NOTICE \(room ?? nick ?? "*") :*** \(text)", out)
    }

    func scheduleWake(_ now: Timestamp, _ out: MachineOutput) {
        if let deadline = capabilities.deadline { out.wake(at: deadline) }
        if let deadline = inbound.fragments.nextDeadline { out.wake(at: deadline) }
        if let deadline = inbound.retryAt { out.wake(at: deadline) }
        if let deadline = services.nextDeadline { out.wake(at: deadline) }
        if let deadline = observations.deadline { out.wake(at: deadline) }
        if let deadline = rooms.deadline { out.wake(at: deadline) }
        if case .sidecar(let sidecar) = role {
            if let deadline = sidecar.front.nextDeadline { out.wake(at: deadline) }
            if let deadline = sidecar.exchange.deadline { out.wake(at: deadline) }
        }
        // Nothing is sent before the end of an outage, or of the wait for a gateway in front.
        guard phase.isOpen, !isFrontAwaited(now) else { return }
        if let time = outbound.nextWake(now: now.monotonic) { out.wake(at: time) }
    }
}
