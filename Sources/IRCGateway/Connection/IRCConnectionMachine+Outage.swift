// Outages of the backend. The client stays connected; when the backend is back, the gateway registers it again and
// sends the waiting messages.
//
// The client is notified once; the gateway answers PING; what the client writes is sealed and waits in its lane. The
// gateway repeats PASS, capabilities, NICK, USER, SASL PLAIN, the client's modes and AWAY, which are kept in memory
// only, and joins its rooms again with their keys. The client sees none of it.
//
// A server may deliver messages as soon as it has accepted the registration (001), before the end of its welcome (376 or
// 422). They are kept, and handled when the outage ends.
//
// The vault returns every request that it does not know to have been opened (job `lost`), before everything that was
// written meanwhile; recipients drop copies. A login that cannot be repeated (SCRAM, EXTERNAL, or one made by hand with
// a service) ends the connection with the reason, and what was not sent waits for the next login. Without a login the
// requests under way end with a notice to their sender. KILL, QUIT and a backend that does not accept the client again
// end the connection too.

import Envelope
import IRCCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCConnectionMachine {
    /// Whether the client stays connected during an outage: it is protected, and its login can be repeated.
    package var outlivesBackend: Bool {
        guard isProtecting, isRegistered, !phase.isClosed, !lines.isOpaque, !registration.isEnding else { return false }
        guard identity.isLoggedIn else { return true }
        switch registration.login {
        case .plain: return true
        case .none: return registration.password != nil || role.isSidecar
        case .unrepeatable: return false
        }
    }

    /// Whether there is an outage: it lasts until the backend has registered this connection again.
    package var isSuspended: Bool { phase.isSuspended }

    /// Whether the backend is back without its services, which accept logins.
    package var awaitsServices: Bool { phase.outage?.awaitsServices == true }

    /// The connection to the backend was lost, or an attempt to reach it again has failed.
    package func suspend(at now: Timestamp, _ out: MachineOutput) {
        showEarlyMessages(now, out)
        lines.backendLost()
        inbound.fragments = FragmentCollector()
        dropRaws()
        rooms.history.suspended()
        capabilities.restart(isAgain: phase.isSuspended)
        guard phase.inOutage({ $0.lost() }) == nil else { return }
        if case .sidecar(let sidecar) = role { loseFront(sidecar, out) }
        let left = rooms.suspend()
        for room in left { environment.rooms.suspend(id, in: room.text) }
        phase.suspend(Outage(rooms: left, ticket: account.isVerified ? outbound.reserveFirst() : nil))
        updateRoster(now)
        if let ticket = capabilities.release() { outbound.resolve(ticket, with: []) }
        takeBack(out)
        notify(Notices.backendUnreachable, out)
        resumeClient(now, out)
    }

    /// Returns unfinished requests to the vault. Those of senders without a login fail.
    private func takeBack(_ out: MachineOutput) {
        let returns: (OutboundRequest) -> Bool = { AccountID(text: $0.request.account).isVerified }
        for request in outbound.takeBack(returns) where !returns(request) {
            fail(request, Notices.backendLost(target: request.request.target), out)
        }
        if identity.accounts.contains(where: \.isVerified) { out.jobs.append(.lost(id)) }
    }

    /// The backend has been reached again: repeats the client's registration.
    package func resume(_ now: Timestamp, _ out: MachineOutput) {
        phase.inOutage { $0.reached() }
        outbound.restartPace(settings.flood)
        if let password = registration.password { out.upstream.writeImmutableBuffer(password) }
        if let line = capabilities.begin(first: true) { out.upstream.writeString(line + "\r\n") }
        out.upstream.writeString("NICK \(nick ?? "")\r\n")
        if let user = registration.user { out.upstream.writeImmutableBuffer(user) }
        outbound.charge(512, now: now.monotonic)
        expectCapabilities(now, out)
    }

    /// Handles a line of the client during an outage.
    ///
    /// - Returns: whether the line is handled.
    func answeredInOutage(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard phase.isSuspended else { return false }
        switch line.key {
        case .ping:
            let name = capabilities.serverName
            deliver(":\(name) PONG \(name) :\(line.text(0) ?? "")", out)
        case .quit:
            deliver("ERROR :Closing link: you have left.", out)
            out.closesDownstream = true
        default: return false
        }
        return true
    }

    /// Answers a PING of the backend that would wait behind lines for the client; returns whether it is answered.
    ///
    /// They may wait for the store for longer than the backend waits for PONG, which ngIRCd does for 20 seconds.
    func answersPing(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard !inbound.isEmpty else { return false }
        let answer = "PONG :\(line.text(0) ?? "")\r\n"
        outbound.charge(answer.utf8.count, now: now.monotonic)
        out.upstream.writeString(answer)
        return true
    }

    // MARK: Registering again

    /// Handles a line of the backend before it has registered this connection again. The client sees none of them.
    func resumptionLine(
        _ line: IRCLine, _ raw: ByteBuffer, _ content: Int, _ now: Timestamp, _ out: MachineOutput
    ) {
        switch line.key {
        case .cap: serverCAP(line, raw, now, out)
        case .ping: out.upstream.writeString("PONG :\(line.text(0) ?? "")\r\n")
        case .pawl where capabilities.has(PawlCapability.name):
            // The challenge of a gateway in front, which may come before the welcome has ended, comes once.
            if case .sidecar(let sidecar) = role { frontLine(line, sidecar, now, out) }
        case .authenticate: perform(phase.inOutage { $0.loginAsked() }, now, out)
        case .nick where isSelf(line): if let new = line.text(0) { renamedInOutage(to: new, out) }
        default:
            if isEarly(line) {
                if lines.keepEarly(raw, content) { showEarlyMessages(now, out) }
            } else if let numeric = line.key.numeric {
                resumptionNumeric(numeric, line, now, out)
            }
        }
        continueResumption(now, out)
    }

    /// Whether a line is not part of the welcome, but a message or the news of a room that a service has put the client
    /// into.
    private func isEarly(_ line: IRCLine) -> Bool {
        guard phase.outage?.isWelcomed == true else { return false }
        switch line.key {
        case .error, .kill, .pong: return false
        // The client knows its own modes.
        case .mode: return line.text(0).map { !identity.isOwn(support.caseMapping.fold($0)) } ?? false
        default: return line.key.numeric.map(Self.roomNumerics.contains) ?? true
        }
    }

    /// RPL_CHANNELMODEIS, RPL_CREATIONTIME, RPL_TOPIC and RPL_TOPICWHOTIME, RPL_NAMREPLY and RPL_ENDOFNAMES.
    private static let roomNumerics: Set<Int> = [324, 329, 332, 333, 353, 366]

    /// Handles the lines that were kept: the outage has ended.
    private func handleEarlyLines(_ now: Timestamp, _ out: MachineOutput) {
        for (raw, content) in lines.takeEarly() {
            if let line = parse(raw, content) { serverLine(line, raw, now, out) }
        }
    }

    /// Shows the messages among the lines that were kept: the backend is lost again, or they are too many.
    private func showEarlyMessages(_ now: Timestamp, _ out: MachineOutput) {
        for (raw, content) in lines.takeEarly() {
            guard let line = parse(raw, content), line.key.isText || line.key == .tagmsg else { continue }
            serverLine(line, raw, now, out)
        }
    }

    private func resumptionNumeric(_ numeric: Int, _ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        switch numeric {
        case 1: welcomed(line, now, out)
        case 5: trackServer(line, now, out)
        case 376, 422: perform(phase.inOutage { $0.welcomeEnded(needsLogin: needsLogin) }, now, out)
        case 421, 451: _ = refusesCAP(numeric, line, now, out)
        case 432, 433, 436, 437: perform(phase.inOutage { $0.nickRefused() }, now, out)
        case 464, 465, 466: perform(phase.inOutage { $0.registrationRefused() }, now, out)
        case 900:
            let isOwn = role.isSidecar || line.text(2).map(identity.isLogin) == true
            phase.inOutage { $0.loggedIn(isOwn: isOwn) }
        case 903: perform(phase.inOutage { $0.loginAccepted() }, now, out)
        case 902, 904, 905, 906, 907, 908: perform(phase.inOutage { $0.loginRefused() }, now, out)
        default: break  // The client has seen the other numerics of a registration.
        }
    }

    /// Continues when the capability negotiation is done.
    func continueResumption(_ now: Timestamp, _ out: MachineOutput) {
        guard phase.isSuspended, capabilities.stage == .done else { return }
        capabilities.endWait()
        let repeatsLogin = registration.repeatableLogin != nil && identity.isLoggedIn
        let hasLogin = capabilities.has("sasl")
        perform(phase.inOutage { $0.negotiated(repeatsLogin: repeatsLogin, hasLogin: hasLogin) }, now, out)
    }

    private func perform(_ action: Outage.Action?, _ now: Timestamp, _ out: MachineOutput) {
        switch action {
        case nil, .nothing: break
        case .authenticate: out.upstream.writeString("AUTHENTICATE PLAIN\r\n")
        case .sendLogin: for line in registration.repeatableLogin ?? [] { out.upstream.writeImmutableBuffer(line) }
        case .endNegotiation: if capabilities.backendKnowsCAP == true { out.upstream.writeString("CAP END\r\n") }
        case .tryNick(let attempt):
            let room = max(support.nickLength - attempt, 1)
            let tried = (nick ?? "guest").prefix(room) + String(repeating: "_", count: attempt)
            out.upstream.writeString("NICK \(tried)\r\n")
        case .reconnect: out.closesUpstream = true
        case .end(let reason): endForGood(reason, now, out)
        case .resume: resumed(now, out)
        }
    }

    private func welcomed(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        phase.inOutage { $0.welcomed() }
        if !line.source.isEmpty { capabilities.serverName = line.string(line.source) }
        if let new = line.text(0) { renamedInOutage(to: new, out) }
    }

    private func renamedInOutage(to new: String, _ out: MachineOutput) {
        guard let old = nick, new != old else { return }
        deliver(":\(old) NICK :\(new)", out)
        renamed(to: new)
    }

    /// Whether the connection needs an accepted login to continue as its account.
    private var needsLogin: Bool {
        switch role {
        case .front: identity.isLoggedIn
        case .sidecar: registration.repeatableLogin != nil
        }
    }

    private func resumed(_ now: Timestamp, _ out: MachineOutput) {
        guard let ended = phase.resume() else { return }
        outbound.extendHolding(now: now.monotonic)
        updateRoster(now)
        rooms.restore(ended.rooms, repeating: repeatModesAndAway(now, out), now: now.monotonic)
        for room in ended.rooms.sorted() {
            guard isNameable(room.text) else {
                rooms.cannotRestore(room.text)
                environment.rooms.remove(id, as: foldedNick, from: room.text)
                notify(Notices.foreignRoom(room.text), out)
                continue
            }
            outbound.charge(64, now: now.monotonic)
            out.upstream.writeString("JOIN \(room)\(registration.keys[room].map { " " + $0 } ?? "")\r\n")
            if CapabilityNegotiation.noImplicitNames.contains(where: capabilities.has) {
                // The end of the names ends the restoration of the room.
                outbound.charge(64, now: now.monotonic)
                out.upstream.writeString("NAMES \(room)\r\n")
            }
        }
        if let ticket = ended.ticket { askForWaiting(at: ticket, out) }
        notify(Notices.backendBack, out)
        notifyOfMissingFront(out)
        resumedFront(now, out)
        handleEarlyLines(now, out)
        pump(now, out)
        scheduleWake(now, out)
    }

    /// Repeats the client's modes and its AWAY; returns the verbs that the backend will answer.
    private func repeatModesAndAway(_ now: Timestamp, _ out: MachineOutput) -> Set<VerbKey> {
        var verbs: Set<VerbKey> = []
        if let modes = registration.wantedModes {
            out.upstream.writeString("MODE \(nick ?? "") \(modes)\r\n")
            outbound.charge(64, now: now.monotonic)
            verbs.insert(.mode)
        }
        if let away = registration.away {
            // Where the text is not passed on, the server never received it.
            let passes = settings.commandTexts[.away, under: policy] == .pass
            out.upstream.writeImmutableBuffer(passes ? away : ByteBuffer(string: "AWAY \(Self.strippedAway)\r\n"))
            outbound.charge(64, now: now.monotonic)
            verbs.insert(.away)
        }
        return verbs
    }

    /// The outage has lasted too long, and the connection ends. Notifies the client of messages that are not sent.
    package func giveUpOutage(at now: Timestamp, _ out: MachineOutput) {
        guard phase.isSuspended else { return }
        showEarlyMessages(now, out)
        var counts: [ExactText: Int] = [:]
        for target in unsentTargets() { counts[ExactText(target), default: 0] += 1 }
        for (target, count) in counts.sorted(by: { $0.key < $1.key }) {
            notify(Notices.notSentInOutage(count, target: target.text), about: target.text, out)
        }
    }

    /// The targets of messages of this client that nothing sends after its connection. Stored ones are sent after its next
    /// login.
    private func unsentTargets() -> [String] {
        let unsent = outbound.takeUnsent()
        let requests = unsent.entries.compactMap(\.asRequest) + unsent.held
        var targets = requests.filter { $0.body?.kind != .control && !survives($0.request) }.map(\.request.target)
        for case .line(let raw) in unsent.entries { targets += self.targets(of: raw) }
        let isStored = role.isSidecar || account.isVerified
        targets += unsent.seals.filter { $0.body.kind != .control && !(isStored && $0.peer.isVerified) }.map(\.target)
        if case .sidecar(let sidecar) = role {
            targets += sidecar.exchange.waitingTargets + sidecar.front.waitingTargets
        }
        return targets
    }

    /// Notifies the client that its registration cannot be repeated, and ends its connection.
    private func endForGood(_ reason: String, _ now: Timestamp, _ out: MachineOutput) {
        giveUpOutage(at: now, out)
        deliver("ERROR :Closing link: \(reason)", out)
        out.closesDownstream = true
        out.closesUpstream = true
    }

    // MARK: Rooms

    /// Whether a recipient is expected back after an outage.
    package func isAwaited(_ peer: AccountID, _ now: Timestamp) -> Bool {
        guard let room = peer.roomName else { return environment.roster.isSuspended(peer) }
        if !rooms.contains(room), isMember(of: room) { return true }
        return rooms.awaitsMembers(now: now.monotonic) && environment.rooms.isAwaiting(room)
    }

    /// Whether a line answers a JOIN of the gateway for a room that the client has not left, or a repeated command.
    func answersRepeated(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        switch rooms.answer(line, identity) {
        case .unrelated: return false
        case .hidden: return true
        case .refused(let room):
            notLetIn(line.text(1) ?? room, room, out)
            return false
        }
    }

    /// Ends the rooms that the backend has not let the client into again in time.
    func giveUpRooms(_ now: Timestamp, _ out: MachineOutput) {
        for room in rooms.expire(now: now.monotonic) { notLetIn(room, room, out) }
    }

    /// - Parameters:
    ///   - name: as it is shown to the client.
    ///   - room: folded.
    private func notLetIn(_ name: String, _ room: String, _ out: MachineOutput) {
        environment.rooms.remove(id, as: foldedNick, from: room)
        deliver(":\(capabilities.serverName) KICK \(name) \(nick ?? "*") :The server did not let you in again", out)
    }
}
