// Lines from the backend: updates the state of the connection, consumes answers to the gateway's own commands, and
// translates the other lines to the client's capabilities. The connection's rooms follow these lines too.

import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCConnectionMachine {
    /// Handles one line of the backend.
    func serverLine(_ raw: ByteBuffer, _ content: Int, _ now: Timestamp, _ out: MachineOutput) {
        guard let line = parse(raw, content), !isGuarded || !line.containsNULOrCR else {
            return unreadable(raw, isBlank: content == 0, out)
        }
        if phase.isSuspended { return resumptionLine(line, raw, content, now, out) }
        serverLine(line, raw, now, out)
    }

    /// Handles one line of a backend that has registered this connection.
    func serverLine(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        guard !imitatesControl(line) else { return environment.tally.add(.badLines) }
        if !line.tags.isEmpty, answersOurLabel(line, raw, out) { return }
        if case .sidecar(let sidecar) = role { follow(line, sidecar, now, out) }
        switch line.key {
        case .privmsg, .notice, .tagmsg: return serverMessage(line, raw, now, out)
        case .kill:
            if line.text(0).map(support.caseMapping.fold) == nick.map(support.caseMapping.fold) {
                registration.killed()
            }
        case .cap: return serverCAP(line, raw, now, out)
        case .pawl where capabilities.has(PawlCapability.name):
            if case .sidecar(let sidecar) = role { return frontLine(line, sidecar, now, out) }
        case .pong where pong(line, out): return
        case .pong where inbound.isRetrying:
            // Behind the lines that wait the client would take the connection for dead, and lose them.
            if let line = translated(line, raw) { out.downstream.writeImmutableBuffer(line) }
            return
        case .ping where answersPing(line, now, out): return
        case .batch: trackHistory(line, out)
        default: break
        }
        if let numeric = line.key.numeric {
            // A backend that registers a client without having answered its CAP does not know CAP.
            if numeric == 1, capabilities.awaitsFirstAnswer { giveUpNegotiation(now, out) }
            guard !consumes(numeric, line, raw, now, out) else { return }
        }
        if line.key == .error {
            noteKill(line)
            if outlivesBackend { return }
        }
        if !answersRepeated(line, out), isShown(line), let translated = translated(line, raw) {
            deliver(translated, out)
        }
        trackServer(line, now, out)
        if case .sidecar(let sidecar) = role { noteMembers(line, sidecar, now, out) }
    }

    /// Counts a line that is not IRC, or part of one that is too long.
    ///
    /// Where a message could require protection it is dropped: a client that drops CR, or accepts longer lines, would
    /// read a message of a person in it.
    func unreadable(_ raw: ByteBuffer, isBlank: Bool = false, _ out: MachineOutput) {
        if !isBlank { environment.tally.add(.badLines) }
        if !isGuarded, !phase.isSuspended { deliver(raw, out) }
    }

    // MARK: State

    /// Updates the state of this connection from a line.
    func trackServer(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        switch line.key.numeric {
        case 1:
            if !line.source.isEmpty { capabilities.serverName = line.string(line.source) }
            registered(as: line.text(0) ?? "*", now, out)
        case 5, 376, 422:
            let foldsOtherwise = identity.absorb(line)
            rooms.supportChanged()
            if foldsOtherwise { caseMappingChanged(now) }
            if let name = identity.takeUndecided() { loggedIn(name, now, out) }
        case 900: if let name = line.text(2) { loggedIn(name, now, out) }
        case 901: loggedOut(now, out)
        case 903: registration.ended(accepted: true)
        case 902, 904, 905, 906, 907: registration.ended(accepted: false)
        default:
            trackSelf(line, now)
            trackRooms(line, now, out)
        }
    }

    private func trackSelf(_ line: IRCLine, _ now: Timestamp) {
        guard !line.source.isEmpty else { return }
        if !line.sourceIsPerson, !isRegistered, line.key.numeric != nil {
            capabilities.serverName = line.string(line.source)
        }
        guard isSelf(line) else { return }
        if line.sourceIsPerson { identity.sawSource(length: line.source.count) }
        // Clients follow a NICK without user and host too. A gateway in front sends one after an outage.
        if line.key == .nick, let new = line.text(0) {
            renamed(to: new)
            updateRoster(now)
        }
    }

    /// Notes that an operator of the backend has ended this connection, so that there is no outage.
    ///
    /// Some servers send KILL, others only an ERROR with that text.
    private func noteKill(_ line: IRCLine) {
        if line.parameters.last.map(line.string)?.lowercased().contains("killed") == true { registration.killed() }
    }

    // MARK: CAP

    func serverCAP(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        if !line.sourceIsPerson, !line.source.isEmpty, !isRegistered {
            capabilities.serverName = line.string(line.source)
        }
        var answers: [String] = []
        var requests: [String] = []
        let passes = capabilities.fromBackend(line, answers: &answers, requests: &requests)
        if passes { deliver(raw, out) }
        for answer in answers { deliver(answer, out) }
        for request in requests { out.upstream.writeString(request + "\r\n") }
        if capabilities.stage == .done { finishNegotiation(now, out) }
        let isOver = capabilities.stage == .done || capabilities.stage == .notStarted
        guard isOver, capabilities.owesEnd, capabilities.lateLists == 0 else { return }
        // The negotiation was given up, and the backend has answered late: it waits for CAP END.
        capabilities.owesEnd = false
        if !isRegistered || phase.isSuspended { out.upstream.writeString("CAP END\r\n") }
    }

    func refusesCAP(_ numeric: Int, _ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard numeric == 421 || numeric == 451, capabilities.backendKnowsCAP == nil else { return false }
        if numeric == 421 {
            guard let verb = line.parameter(1), line.matches(verb, "CAP") else { return false }
        }
        var answers: [String] = []
        guard capabilities.backendRefusedCAP(answers: &answers) else { return false }
        for answer in answers { deliver(answer, out) }
        if capabilities.stage == .done { finishNegotiation(now, out) }
        return true
    }

    // MARK: Numerics

    /// Handles a numeric; returns whether it is consumed, not forwarded.
    private func consumes(
        _ numeric: Int, _ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput
    ) -> Bool {
        if refusesCAP(numeric, line, now, out) { return true }
        if numeric == 908, settings.visibility.hidesExternal { return showMechanisms(line, out) }
        if IRCRouteTable.whois.contains(numeric), answersProbe(numeric, line, now, out) { return true }
        guard let span = line.parameter(1), !outbound.outstanding.isEmpty else { return false }
        let target = line.folded(span, support.caseMapping)
        guard let id = outbound.outstanding.unlabelled(target) else { return false }
        let isError = IRCRouteTable.messageErrors.contains(numeric)
        guard isError || numeric == 301 else { return false }
        // The person has not sent a control message.
        let isControl = outbound.outstanding[id]?.outbound.body?.kind == .control
        let repeated = !outbound.outstanding.answered(id, numeric: numeric)
        if isError { refused(id, reason: errorText(numeric, line), out) }
        return repeated || isControl
    }

    private func errorText(_ numeric: Int, _ line: IRCLine) -> String {
        "\(numeric) \(line.parameters.last.map(line.string) ?? "")"
    }

    private func showMechanisms(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard let list = line.text(1), list.uppercased().contains("EXTERNAL") else { return false }
        let others = list.split(separator: ",").filter { $0.uppercased() != "EXTERNAL" }
        reply(908, [others.joined(separator: ",")], "are available SASL mechanisms", out)
        return true
    }

    // MARK: Answers to the gateway's labels

    /// Handles an answer to a command of the gateway, found by its label or its batch; returns whether it is one.
    private func answersOurLabel(_ line: IRCLine, _ raw: ByteBuffer, _ out: MachineOutput) -> Bool {
        var request: UInt64?
        if let label = line.tag("label"), let own = requestID(inLabel: label) {
            request = own
        } else if let batch = line.tag("batch") {
            request = outbound.outstanding.request(ofBatch: batch)
        }
        // A message of another person is never an answer, whatever label it has.
        guard let id = request, !line.key.isText || !line.sourceIsPerson || isSelf(line) else { return false }
        if line.key == .batch, let reference = line.text(0), reference.hasPrefix("+") {
            outbound.outstanding.beginBatch(String(reference.dropFirst()), of: id)
            return true
        }
        guard outbound.outstanding[id] != nil else { return true }
        answered(id, line, out)
        return true
    }

    /// The request of a label of the gateway, 0 if it is the label of something else; nil if the label is not ours.
    private func requestID(inLabel label: String) -> UInt64? {
        guard label.hasPrefix(labelPrefix) else { return nil }
        let rest = label.dropFirst(labelPrefix.count)
        guard rest.first == "-" else { return nil }
        return UInt64(rest.dropFirst().prefix { $0 != "-" }) ?? 0
    }

    private func answered(_ id: UInt64, _ line: IRCLine, _ out: MachineOutput) {
        if line.key.isText, isSelf(line) { return echoed(id, line, out) }
        if line.key == .ack {
            return refuseByFilter(id, out)
        }
        let numeric = line.key.numeric ?? 0
        let isControl = outbound.outstanding[id]?.outbound.body?.kind == .control
        if outbound.outstanding.answered(id, numeric: numeric), !isControl {
            deliver(relabelled(line, outbound.outstanding[id]?.outbound.clientLabel), out)
        }
        let isRefusal = line.key == .fail || line.key == .notice || IRCRouteTable.messageErrors.contains(numeric)
        if isRefusal { refused(id, reason: errorText(numeric, line), out) }
    }

    private func refuseByFilter(_ id: UInt64, _ out: MachineOutput) {
        guard let entry = outbound.outstanding[id], !entry.failed else { return }
        let target = entry.outbound.request.target
        notSent(target, Notices.filtered(target: target), label: entry.outbound.clientLabel, out)
        refused(id, reason: "the server accepted it without an echo", out)
    }

    private func echoed(_ id: UInt64, _ line: IRCLine, _ out: MachineOutput) {
        guard outbound.outstanding.echoed(id) else { return }
        acknowledge(id, remoteID: line.tag("msgid"), echo: line, out)
    }

    /// Handles an echo without a label; returns whether the line is consumed.
    func isEcho(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard capabilities.has("echo-message") else { return false }
        if line.key.isText, let span = line.parameter(1) {
            let body = Array(line.slice(span).readableBytesView)
            // A message to oneself arrives twice: as a delivery and, labelled, as an echo.
            if Armour.hasMarker(body), let id = outbound.outstanding.unlabelled(body: body) {
                echoed(id, line, out)
                return true
            }
        }
        let toSelf = line.text(0).map(support.caseMapping.fold) == nick.map(support.caseMapping.fold)
        return !toSelf && !capabilities.clientHas("echo-message")
    }

    // MARK: Translation

    /// Whether a line is for the client: not if it ends a batch that answers the gateway, nor if it is of a batch that
    /// the gateway takes by itself.
    private func isShown(_ line: IRCLine) -> Bool {
        if line.key == .batch, capabilities.ownsMultiline, multiline.refuses(line) { return false }
        guard line.key == .batch, let reference = line.text(0), reference.hasPrefix("-") else { return true }
        return !outbound.outstanding.endBatch(String(reference.dropFirst()))
    }

    /// A line translated to the client's capabilities; nil if the client does not get such lines.
    func translated(_ line: IRCLine, _ raw: ByteBuffer) -> ByteBuffer? {
        let claims = !line.tags.isEmpty && (multiline.hasForeign || line.tag(ProtectionMarks.tag) != nil)
        guard capabilities.isTranslating || claims else { return raw }
        if line.key == .batch, !capabilities.clientHas("batch") { return nil }
        if line.key == .tagmsg, !capabilities.clientHas("message-tags") { return nil }
        let trims = line.key == .join && !capabilities.clientHas("extended-join") && line.parameter(1) != nil
        guard !line.tags.isEmpty || trims else { return raw }
        let tags = visibleTags(line)
        var buffer = ByteBuffer()
        buffer.writeTags(tags)
        if trims {
            buffer.writeString(":\(line.string(line.source)) JOIN \(line.text(0) ?? "")")
        } else {
            buffer.writeImmutableBuffer(line.withoutTags)
        }
        buffer.writeString("\r\n")
        return buffer
    }

    /// The tags of a line that the client's capabilities include.
    func visibleTags(_ line: IRCLine) -> [IRCTag] {
        guard !line.tags.isEmpty, !capabilities.isTranslating || capabilities.clientHasTags else { return [] }
        // The tag for the protection of a message is accepted from a gateway, not from the backend.
        let tags = line.tagList.filter {
            if multiline.isForeign($0) { return false }
            return switch $0.key {
            case ProtectionMarks.tag: role.hasFront && $0.value == Protection.gateway.name
            case "label": !$0.value.hasPrefix(labelPrefix + "-")
            default: true
            }
        }
        guard capabilities.isTranslating else { return tags }
        return tags.filter { tag in
            switch tag.key {
            case "time": capabilities.clientHas("server-time") || capabilities.clientHas("message-tags")
            case "account": capabilities.clientHas("account-tag")
            case "label": capabilities.clientHas("labeled-response")
            case "batch": capabilities.clientHas("batch")
            default: capabilities.clientHas("message-tags")
            }
        }
    }

    /// A reply to a command of the gateway, as the reply to the client's command.
    private func relabelled(_ line: IRCLine, _ label: String?) -> ByteBuffer {
        var tags = visibleTags(line).filter { $0.key != "label" && $0.key != "batch" }
        if let label, capabilities.clientHas("labeled-response") {
            tags.insert(IRCTag(key: "label", value: label), at: 0)
        }
        var buffer = ByteBuffer()
        buffer.writeTags(tags)
        buffer.writeImmutableBuffer(line.withoutTags)
        buffer.writeString("\r\n")
        return buffer
    }

    // MARK: Rooms

    func room(_ target: String) -> (name: String, status: String)? { identity.room(target) }

    /// Whether the source of a line is this connection's own nick.
    func isSelf(_ line: IRCLine) -> Bool { identity.isSelf(line) }

    /// Whether the client sees itself in a room, also during an outage.
    package func isMember(of room: String) -> Bool {
        rooms.isMember(of: room) || phase.outage?.rooms.contains(room) == true
    }

    /// Whether a held request can be sent to its recipient now.
    func isReachable(_ peer: AccountID, _ now: Timestamp) -> Bool {
        // A sidecar learns only from the server's answer whether the recipient is there.
        if role.isSidecar, peer.roomName == nil { return true }
        return !isAwaited(peer, now) && (peer.roomName.map(rooms.contains) ?? environment.roster.isPresent(peer))
    }

    /// Updates the rooms of this connection from a line of the backend.
    func trackRooms(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        switch line.key {
        case .join:
            for room in names(line, 0) {
                if isSelf(line) {
                    joined(room, at: line.tag("time"), now, out)
                } else {
                    environment.rooms.saw([source(line)], in: room)
                }
            }
        case .part: for room in names(line, 0) { memberLeft(source(line), from: room) }
        case .kick: for room in names(line, 0) { memberLeft(names(line, 1).first ?? "", from: room) }
        case .quit: environment.rooms.lost(source(line), from: rooms.names)
        case .nick: environment.rooms.renamed(source(line), to: names(line, 0).first ?? "")
        default: if line.key.numeric == 353 { listed(line) }
        }
    }

    private func source(_ line: IRCLine) -> String { line.folded(line.sourceNick, support.caseMapping) }

    /// RPL_NAMREPLY: `me = #room :@nick +nick nick!user@host`.
    private func listed(_ line: IRCLine) {
        guard let room = line.text(2), rooms.contains(support.caseMapping.fold(room)), let list = line.text(3) else {
            return
        }
        environment.rooms.saw(RoomMembers.nicks(in: list, support.caseMapping.fold), in: support.caseMapping.fold(room))
    }

    private func memberLeft(_ nick: String, from room: String) {
        if ExactText(nick) == ExactText(foldedNick) {
            left(room)
        } else {
            environment.rooms.lost(nick, from: [room])
        }
    }

    private func names(_ line: IRCLine, _ index: Int) -> [String] {
        line.names(index).map(support.caseMapping.fold)
    }

    private func joined(_ room: String, at time: String?, _ now: Timestamp, _ out: MachineOutput) {
        guard rooms.join(room, at: time) else { return }
        if policy.takesPart { environment.rooms.put(id, of: account, as: foldedNick, into: room) }
        inbound.joined(room)
        releaseHeld(now, out)
    }

    private func left(_ room: String) {
        rooms.leave(room)
        environment.rooms.remove(id, as: foldedNick, from: room)
    }

    /// Updates the connection's entries in the room table after a login or a change of policy.
    func updateRooms() {
        for room in rooms.names {
            if policy.takesPart {
                environment.rooms.put(id, of: account, as: foldedNick, into: room)
            } else {
                environment.rooms.remove(id, as: foldedNick, from: room)
            }
        }
    }

    /// Removes the connection from all its rooms.
    package func leaveRooms() {
        for room in rooms.all.union(phase.outage?.rooms ?? []).lazy.map(\.text) {
            environment.rooms.remove(id, as: foldedNick, from: room)
        }
        rooms.leaveAll()
    }
}
