// Outages of the backend. The client stays connected; when the backend is back, the session registers it again and
// sends the waiting messages.
//
// The client is notified once; the gateway answers PING; what the client writes is sealed and waits in its lane. The
// gateway repeats PASS, capabilities, NICK, USER, SASL PLAIN, the client's modes and AWAY, which are kept in memory
// only, and joins its rooms again with their keys. The client sees none of it.
//
// The vault returns every request that it does not know to have been opened (job `lost`), before everything that was
// written meanwhile; recipients drop copies. A login that cannot be repeated (SCRAM, EXTERNAL, or one made by hand with
// a service) ends the connection with the reason, and what was not sent waits for the next login. Without a login the
// requests under way end with a notice to their sender. KILL, QUIT and a backend that does not accept the client again
// end the connection too.

import IRCCodec
import NIOCore
package import Protection
import Reports
import RequestQueue
import StorePort
import Vault

/// The state of an outage of the backend while the client stays connected.
struct Outage {
    package enum Stage {
        /// There is no connection to the backend.
        case down
        case negotiating, loggingIn, registering
        /// The backend has accepted the registration and is sending its welcome numerics.
        case welcomed
    }

    package var stage = Stage.down
    /// Rooms to join again, folded.
    package var rooms: Set<ExactText>
    /// The position for requests that the vault returns, before everything written during the outage.
    package var ticket: UInt64?
    var nickAttempts = 0
    var loginRefusals = 0
    /// How often the backend was found without its services.
    var absences = 0
    /// Whether the backend is now there without its services.
    package var awaitsServices = false
    var isLoggedIn = false
}

extension IRCConnectionMachine {
    /// Whether the client stays connected during an outage: it is protected, and its login can be repeated.
    package var outlivesBackend: Bool {
        guard isProtecting, isRegistered, !isOpaque, !registration.isQuitting, !isKilled else { return false }
        guard account.isVerified else { return true }
        switch registration.login {
        case .plain: return true
        case .none: return registration.password != nil || environment.peers != nil
        case .unrepeatable: return false
        }
    }

    /// Whether there is an outage: it lasts until the backend has registered this connection again.
    package var isSuspended: Bool { outage != nil }

    /// Whether the backend is back without its services, which accept logins.
    package var awaitsServices: Bool { outage?.awaitsServices == true }

    /// The connection to the backend was lost, or an attempt to reach it again has failed.
    package func suspend(at now: Timestamp, _ out: MachineOutput) {
        upstreamLines = LineSplitter(limit: IRCLimits.tagsLength + IRCLimits.lineLength)
        assembler = nil
        history.suspended()
        capabilities.restart()
        negotiationDeadline = nil
        guard outage == nil else {
            outage?.stage = .down
            outage?.nickAttempts = 0
            outage?.isLoggedIn = false
            return
        }
        loseFront(out)
        outage = Outage(rooms: rooms.union(rejoining))
        for room in rooms.union(rejoining) { environment.rooms.suspend(id, in: room.text) }
        rooms.removeAll()
        rejoining.removeAll()
        updateRoster(now)
        if let ticket = negotiationTicket {
            negotiationTicket = nil
            capabilities.holdsClient = false
            outbound.resolve(ticket, with: [])
        }
        takeBack(out)
        notify(Notices.backendUnreachable, out)
    }

    /// Returns unfinished requests to the vault. Those of senders without a login fail.
    private func takeBack(_ out: MachineOutput) {
        var requests = held + outstanding.entries.values.filter { !$0.failed }.map(\.outbound)
        for case .request(let request) in outbound.removeReady(where: \.isRequest) { requests.append(request) }
        held = []
        outstanding = OutstandingRequests()
        for request in requests.sorted(by: { $0.request.id < $1.request.id })
        where !AccountID(text: request.request.account).isVerified {
            fail(request, Notices.backendLost(target: request.request.target), out)
        }
        if account.isVerified { outage?.ticket = outbound.reserveFirst() }
        if (previousAccounts + [account]).contains(where: \.isVerified) { out.jobs.append(.lost(id)) }
    }

    /// The backend has been reached again: repeats the client's registration.
    package func resume(_ now: Timestamp, _ out: MachineOutput) {
        outage?.stage = .negotiating
        outage?.awaitsServices = false
        pacer = Pacer(settings.flood)
        if let password = registration.password { out.upstream.writeImmutableBuffer(password) }
        if let line = capabilities.begin() { out.upstream.writeString(line + "\r\n") }
        out.upstream.writeString("NICK \(nick ?? "")\r\n")
        if let user = registration.user { out.upstream.writeImmutableBuffer(user) }
        pacer.charge(512, now: now.monotonic)
        expectCapabilities(now, out)
    }

    /// Handles a line of the client during an outage.
    ///
    /// - Returns: whether the line is handled.
    func answeredInOutage(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard outage != nil else { return false }
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

    // MARK: Registering again

    /// Handles a line of the backend before it has registered this connection again. The client sees none of them.
    func resumptionLine(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        switch line.key {
        case .cap: serverCAP(line, raw, now, out)
        case .ping: out.upstream.writeString("PONG :\(line.text(0) ?? "")\r\n")
        case .authenticate:
            guard case .plain(let lines) = registration.login, outage?.stage == .loggingIn else { return }
            for line in lines { out.upstream.writeImmutableBuffer(line) }
        default: resumptionNumeric(line, now, out)
        }
        continueResumption(out)
    }

    private func resumptionNumeric(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        guard let numeric = line.key.numeric else { return }
        switch numeric {
        case 1: welcomed(line, now, out)
        case 5: trackServer(line, now, out)
        case 376, 422: if outage?.stage == .welcomed { resumed(now, out) }
        case 421, 451: _ = refusesCAP(numeric, line, now, out)
        case 432, 433, 436, 437: takeOtherNick(out)
        case 464, 465, 466: endForGood(Notices.registrationRefused, out)
        case 900 where environment.peers != nil: outage?.isLoggedIn = true
        case 900: outage?.isLoggedIn = line.text(2).map(support.caseMapping.fold) == account.text
        case 903: endNegotiation(out)
        case 902, 904, 905, 906, 907, 908: tryLoginLater(out)
        default: break
        }
    }

    /// Continues when the capability negotiation is done.
    func continueResumption(_ out: MachineOutput) {
        guard outage?.stage == .negotiating, capabilities.stage == .done else { return }
        negotiationDeadline = nil
        if case .plain = registration.login, account.isVerified {
            guard capabilities.has("sasl") else { return awaitServices(out) }
            outage?.stage = .loggingIn
            out.upstream.writeString("AUTHENTICATE PLAIN\r\n")
        } else {
            endNegotiation(out)
        }
    }

    /// Ours: the number of refused logins after which the session gives up.
    private static let loginRefusals = 8

    /// Ours: how often a backend is found without its services before the session gives up. With pauses of some seconds
    /// that is more than a minute.
    private static let absences = 40

    private func awaitServices(_ out: MachineOutput) {
        let absences = (outage?.absences ?? 0) + 1
        outage?.absences = absences
        guard absences < Self.absences else { return endForGood(Notices.loginRefused, out) }
        outage?.awaitsServices = true
        out.closesUpstream = true
    }

    private func tryLoginLater(_ out: MachineOutput) {
        let refusals = (outage?.loginRefusals ?? 0) + 1
        outage?.loginRefusals = refusals
        guard refusals < Self.loginRefusals else { return endForGood(Notices.loginRefused, out) }
        out.closesUpstream = true
    }

    private func endNegotiation(_ out: MachineOutput) {
        outage?.stage = .registering
        if capabilities.backendKnowsCAP == true { out.upstream.writeString("CAP END\r\n") }
    }

    /// Ours: other nicks to try while the first one is taken, perhaps by this person's own dead connection.
    private static let nickAttempts = 5

    private func takeOtherNick(_ out: MachineOutput) {
        let attempts = (outage?.nickAttempts ?? 0) + 1
        outage?.nickAttempts = attempts
        guard attempts <= Self.nickAttempts else {
            out.closesUpstream = true
            return
        }
        let room = max(support.nickLength - attempts, 1)
        let tried = (nick ?? "guest").prefix(room) + String(repeating: "_", count: attempts)
        out.upstream.writeString("NICK \(tried)\r\n")
    }

    private func welcomed(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        outage?.stage = .welcomed
        if !line.source.isEmpty { capabilities.serverName = line.string(line.source) }
        guard let new = line.text(0), let old = nick, new != old else { return }
        deliver(":\(old) NICK :\(new)", out)
        nick = new
        capabilities.nick = new
    }

    /// Whether the connection needs an accepted login to continue as its account.
    private var needsLogin: Bool {
        guard environment.peers == nil else {
            if case .plain = registration.login { return true }
            return false
        }
        return account.isVerified
    }

    private func resumed(_ now: Timestamp, _ out: MachineOutput) {
        guard let ended = outage else { return }
        guard ended.isLoggedIn || !needsLogin else { return endForGood(Notices.loginRefused, out) }
        outage = nil
        returnedAt = now.monotonic
        heldDeadline = now.monotonic + Self.heldPatience
        updateRoster(now)
        repeatModesAndAway(now, out)
        rejoining = ended.rooms
        for room in ended.rooms.sorted() {
            guard isNameable(room.text) else {
                rejoining.remove(room)
                environment.rooms.remove(id, as: foldedNick, from: room.text)
                notify(Notices.foreignRoom(room.text), out)
                continue
            }
            pacer.charge(64, now: now.monotonic)
            out.upstream.writeString("JOIN \(room)\(registration.keys[room].map { " " + $0 } ?? "")\r\n")
        }
        if let ticket = ended.ticket {
            recoveries[ticket] = inbound.reserve()
            out.jobs.append(.recover(connection: id, ticket: ticket, account: account))
        }
        awaitFront(now, out)
        notify(Notices.backendBack, out)
        pump(now, out)
        scheduleWake(now, out)
    }

    /// Repeats the client's modes and its AWAY.
    private func repeatModesAndAway(_ now: Timestamp, _ out: MachineOutput) {
        repeatedVerbs = []
        if let modes = registration.wantedModes {
            out.upstream.writeString("MODE \(nick ?? "") \(modes)\r\n")
            pacer.charge(64, now: now.monotonic)
            repeatedVerbs.insert(.mode)
        }
        if let away = registration.away {
            // Under `hosted` the server never received the text.
            out.upstream.writeImmutableBuffer(
                policy.demandsProtection ? ByteBuffer(string: "AWAY \(Self.strippedAway)\r\n") : away)
            pacer.charge(64, now: now.monotonic)
            repeatedVerbs.insert(.away)
        }
    }

    /// Whether a line answers a repeated MODE or AWAY. The client has seen that answer before.
    private func answersRepeatedVerb(_ line: IRCLine) -> Bool {
        if line.key.numeric == 306 { return repeatedVerbs.remove(.away) != nil }
        guard line.key == .mode, line.text(0).map(support.caseMapping.fold) == foldedNick else { return false }
        return repeatedVerbs.remove(.mode) != nil
    }

    /// Notifies the client that its registration cannot be repeated, and ends its connection.
    func endForGood(_ reason: String, _ out: MachineOutput) {
        deliver("ERROR :Closing link: \(reason)", out)
        out.closesDownstream = true
        out.closesUpstream = true
    }

    // MARK: Rooms

    /// Ours: how long a message to a room waits for members who are not back yet, in nanoseconds. Longer than the
    /// longest pause between two attempts to connect.
    private static let roomPatience: Int64 = 35_000_000_000

    /// Whether a recipient is expected back after an outage.
    package func isAwaited(_ peer: AccountID, _ now: Timestamp) -> Bool {
        guard let room = peer.roomName else { return environment.roster.isSuspended(peer) }
        if outage?.rooms.contains(room) == true || (rejoining.contains(room) && !rooms.contains(room)) { return true }
        guard let returnedAt, now.monotonic < returnedAt + Self.roomPatience else { return false }
        return environment.rooms.isAwaiting(room)
    }

    /// Whether a line answers a JOIN of the session for a room that the client has not left, or a repeated command.
    func answersRejoin(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        if !repeatedVerbs.isEmpty, answersRepeatedVerb(line) { return true }
        guard !rejoining.isEmpty else { return false }
        if line.key == .join, isSelf(line) { return rejoining.contains(support.caseMapping.fold(line.text(0) ?? "")) }
        guard let numeric = line.key.numeric, let room = line.text(numeric == 353 ? 2 : 1) else { return false }
        let folded = support.caseMapping.fold(room)
        guard rejoining.contains(folded) else { return false }
        switch numeric {
        case 324, 329, 332, 333, 353: return true
        case 366:
            rejoining.remove(folded)
            return true
        case 403, 405, 471, 473, 474, 475, 476, 477, 489:
            rejoining.remove(folded)
            environment.rooms.remove(id, as: foldedNick, from: folded)
            deliver(":\(capabilities.serverName) KICK \(room) \(nick ?? "*") :The server did not let you in again", out)
            return false
        default: return false
        }
    }
}
