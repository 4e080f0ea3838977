// Sending of committed requests: in order, as fast as the backend allows, until the backend has acknowledged them.
// Requests that wait for their recipient or for an operator are held beside the lane, so that nothing else waits.

import Devices
import Envelope
package import IRCCodec
import NIOCore
import Outbox
package import Protection
import Reports
import RequestQueue
package import StorePort
import Vault

extension IRCConnectionMachine {
    var labelPrefix: String { role.labelPrefix }

    // MARK: Replies of the vault

    package func sealed(
        _ ticket: UInt64, _ request: Request, _ first: Bool, _ keys: [Request], _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let seal = outbound.endSeal(ticket) else { return }
        if seal.body.kind != .control { environment.tally.add(role.sentTally) }
        let outboundRequest = OutboundRequest(
            request: request, body: seal.body, clientLabel: seal.clientLabel,
            announces: first && !role.isSidecar)
        if case .sidecar(let sidecar) = role, let room = AccountID(text: request.peer).roomName {
            if first {
                notify(Notices.roomProtected(request.target, readers: sidecar.people.readers(in: room).count), out)
            }
            noteSealed(room, sidecar, now, out)
        }
        let keyEntries = keys.map { OutboundEntry.request(.init(request: $0, body: .noText, clientLabel: nil)) }
        let sender = AccountID(text: request.account)
        let isHeld = outbound.isHolding(for: request.peer)
        if sender.isVerified, sender != account, !role.isSidecar {
            // Its sender has logged out meanwhile. It waits for their next login.
            outbound.resolve(ticket, with: [])
        } else if !phase.isSuspended, isHeld || isAwaited(AccountID(text: request.peer), now) {
            outbound.resolve(ticket, with: keyEntries)
            outbound.hold(outboundRequest, now: now.monotonic)
        } else {
            outbound.resolve(ticket, with: keyEntries + [.request(outboundRequest)])
        }
    }

    package func sealFailed(_ ticket: UInt64, _ failure: IRCSealFailure, _ out: MachineOutput) {
        guard let seal = outbound.cancelSeal(ticket) else { return }
        environment.tally.add(.failed)
        let text =
            switch failure {
            case .notCommitted where role.isSidecar: Notices.notStored(target: seal.target)
            case .notCommitted: Notices.notCommitted(target: seal.target)
            case .tooManyPending: Notices.tooManyPending
            case .tooLong: seal.body.kind == .lines ? Notices.tooManyBytes : Notices.messageTooLong
            }
        notSent(seal.target, text, label: seal.clientLabel, out)
    }

    package func fail(_ entry: OutboundRequest, _ reason: String, _ out: MachineOutput) {
        environment.tally.add(.failed)
        out.jobs.append(.failed(id: entry.request.id, reason: reason))
        notSent(entry.request.target, reason, label: entry.clientLabel, out)
    }

    // MARK: Sending

    /// Sends the entries that may be sent now.
    package func pump(_ now: Timestamp, _ out: MachineOutput) {
        guard phase.isOpen, !isFrontAwaited(now) else { return }
        while let entry = outbound.first {
            switch entry {
            case .line(let raw):
                guard !isProtecting || outbound.spend(raw.readableBytes, now: now.monotonic) else {
                    return scheduleWake(now, out)
                }
                out.upstream.writeImmutableBuffer(raw)
                outbound.popFirst()
            case .request(let request):
                guard advance(request, now, out) else { return scheduleWake(now, out) }
            }
        }
        while let raw = outbound.firstBehind {
            guard outbound.spend(raw.readableBytes, now: now.monotonic) else { return scheduleWake(now, out) }
            out.upstream.writeImmutableBuffer(raw)
            outbound.popBehind()
        }
    }

    /// Writes the next lines of a request; false if it has to wait.
    private func advance(_ outboundRequest: OutboundRequest, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        var request = outboundRequest
        let peer = AccountID(text: request.request.peer)
        if request.next == 0, isAwaited(peer, now) || outbound.isBehindHeld(request.request) {
            outbound.popFirst()
            outbound.hold(request, now: now.monotonic)
            return true
        }
        guard let target = currentTarget(request.request, peer) else {
            outbound.popFirst()
            fail(request, Notices.refusal(.outsider, target: request.request.target, texts: settings.texts), out)
            return true
        }
        let folded = support.caseMapping.fold(target)
        let isLabelled = capabilities.has("labeled-response") && capabilities.has("echo-message")
        if request.next == 0 {
            if !isLabelled, outbound.outstanding.isBusy(folded) { return false }
            // From here on an operator can neither hold it nor drop it.
            switch environment.requests.gate.begin(request.request) {
            case .go: break
            case .held:
                outbound.popFirst()
                outbound.hold(request, now: now.monotonic)
                return true
            case .dropped:
                // The reply of the vault notifies its sender.
                outbound.popFirst()
                return true
            }
        }
        while request.next < request.request.bodies.count {
            if request.announces {
                guard outbound.spend(512, now: now.monotonic) else { return wait(request) }
                request.announces = false
                announce(to: target, out)
            }
            guard outbound.spend(512, now: now.monotonic) else { return wait(request) }
            if request.next == 0 {
                environment.requests.traces.note(.sent, of: request.request.id, at: now.wall)
                outbound.outstanding.begin(
                    .init(outbound: request, target: folded, isLabelled: isLabelled, at: now.monotonic))
            }
            write(request.request, request.next, target: target, isLabelled: isLabelled, out)
            request.next += 1
        }
        outbound.popFirst()
        if !isLabelled {
            outbound.charge(64, now: now.monotonic)
            out.upstream.writeString("PING :\(labelPrefix)-\(request.request.id)\r\n")
        }
        return true
    }

    /// Leaves a request at the front until the pacer allows its next line.
    private func wait(_ request: OutboundRequest) -> Bool {
        if request.next == 0 { environment.requests.gate.end(request.request.id) }
        outbound.replaceFirst(request)
        return false
    }

    /// The nick to send to: the original target if its owner still has it, else another nick of the owner; nil if none.
    private func currentTarget(_ request: Request, _ peer: AccountID) -> String? {
        guard peer.roomName == nil, !role.isSidecar else { return request.target }
        let nicks = environment.roster.nicks(of: peer)
        let folded = support.caseMapping.fold(request.target)
        return nicks.first { ExactText(support.caseMapping.fold($0)) == ExactText(folded) } ?? nicks.first
    }

    private func write(_ request: Request, _ index: Int, target: String, isLabelled: Bool, _ out: MachineOutput) {
        var tags: [IRCTag] = []
        if isLabelled {
            tags.append(IRCTag(key: "label", value: "\(labelPrefix)-\(request.id)-\(index)"))
        }
        if capabilities.has("message-tags") { tags.append(IRCTag(key: PawlCapability.tag, value: "")) }
        // For the tags and the line, so that the buffer does not grow with each part.
        out.upstream.reserveCapacity(
            minimumWritableBytes: 128 + request.verb.utf8.count + target.utf8.count + request.bodies[index].count)
        out.upstream.writeTags(tags)
        out.upstream.writeString(request.verb)
        out.upstream.writeString(" ")
        out.upstream.writeString(target)
        out.upstream.writeString(" :")
        out.upstream.writeBytes(request.bodies[index])
        out.upstream.writeString("\r\n")
    }

    private func announce(to target: String, _ out: MachineOutput) {
        if capabilities.has("labeled-response") {
            out.upstream.writeString("@label=\(labelPrefix)-remark ")
        }
        out.upstream.writeString("NOTICE \(target) :")
        out.upstream.writeBytes(Armour.marker)
        out.upstream.writeString(Notices.announcement() + "\r\n")
    }

    // MARK: Acknowledgement

    /// The backend has acknowledged a request.
    package func acknowledge(_ id: UInt64, remoteID: String?, echo: IRCLine?, _ out: MachineOutput) {
        guard let entry = outbound.outstanding.end(id) else { return }
        guard !entry.failed else { return }
        out.jobs.append(.acknowledged(id: id, remoteID: remoteID))
        if capabilities.clientHas("echo-message"), let body = entry.outbound.body, let echo {
            showEcho(of: body, entry, echo, out)
        } else if !entry.hasReplies {
            acknowledge(label: entry.outbound.clientLabel, out)
        }
    }

    /// Sends the client the answer that a label demands if there is no other one.
    func acknowledge(label: String?, _ out: MachineOutput) {
        guard let label, capabilities.clientHas("labeled-response") else { return }
        let tags = [IRCTag(key: "label", value: label)]
        deliver(assemble(tags, ":\(capabilities.serverName) ACK", nil), out)
    }

    /// The backend, or a filter of it, has refused a request.
    package func refused(_ id: UInt64, reason: String, _ out: MachineOutput) {
        guard outbound.outstanding.refused(id) else { return }
        environment.tally.add(.failed)
        out.jobs.append(.failed(id: id, reason: reason))
    }

    private func showEcho(
        of body: Body, _ entry: OutstandingRequests.Entry, _ echo: IRCLine, _ out: MachineOutput
    ) {
        var tags = visibleTags(echo).filter { $0.key != PawlCapability.tag && $0.key != "label" && $0.key != "batch" }
        if let label = entry.outbound.clientLabel, capabilities.clientHas("labeled-response") {
            tags.insert(IRCTag(key: "label", value: label), at: 0)
        }
        var body = body
        var mark: String?
        if case .sidecar(let sidecar) = role {
            // The backend's word for it is worth nothing, but this line was sealed here.
            if settings.marks != .off {
                tags.append(IRCTag(key: ProtectionMarks.tag, value: Protection.device.name))
            }
            let isVerified = sidecar.peers[AccountID(text: entry.outbound.request.peer)]?.isVerified == true
            if settings.marks == .text {
                mark = isVerified ? ProtectionMark.device.verified : ProtectionMark.device.plain
            }
        }
        if let mark { body.mark(mark) }
        let verb = echo.string(echo.verbSpan)
        for line in textLines(
            tags: tags, source: echo.string(echo.source), verb: verb, target: echo.text(0) ?? "", body: body,
            mark: mark)
        {
            deliver(line, out)
        }
    }

    /// Handles a PONG.
    ///
    /// - Returns: whether it answers a PING of the gateway.
    package func pong(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard let last = line.parameters.last else { return false }
        let token = line.string(last)
        guard token.hasPrefix(labelPrefix + "-"),
            let id = UInt64(token.dropFirst(labelPrefix.utf8.count + 1))
        else { return false }
        // No request has this number; see `askForLastPong`.
        if id == 0 { outbound.outstanding.lastPong() }
        acknowledge(id, remoteID: nil, echo: nil, out)
        return true
    }

    // MARK: Held requests

    package func recovered(
        _ ticket: UInt64, _ requests: [Request], _ lines: [RecoveredLine], _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let recovery = outbound.endRecovery(ticket, returned: Set(requests.map(\.id))) else { return }
        inbound.recovered(lines.map(broken), at: recovery.lines) { rooms.contains($0) }
        var ready: [OutboundEntry] = []
        for request in requests {
            let known = recovery.known[request.id]
            let entry = OutboundRequest(request: request, body: known?.body, clientLabel: known?.clientLabel)
            if isReachable(AccountID(text: request.peer), now) {
                ready.append(.request(entry))
            } else {
                outbound.hold(entry, now: now.monotonic)
            }
        }
        outbound.resolve(ticket, with: ready)
        scheduleWake(now, out)
    }

    /// The stored lines of a text, broken as those of a text that was opened just now.
    private func broken(_ recovered: RecoveredLine) -> RecoveredLine {
        let separator: [UInt8] = [0x0D, 0x0A]
        let lines = recovered.line.split(separator: separator)
        guard lines.contains(where: { $0.count > IRCLimits.lineLength - 2 }) else { return recovered }
        let mark = role.isSidecar && settings.marks == .text ? ProtectionMark.stored(in: lines) : nil
        var broken = recovered
        broken.line = Array(
            lines.flatMap { line in
                let head = ProtectionMark.head(of: line)
                let pieces = ProtectionMark.pieces(Array(line[head.endIndex...]), behind: head.count, mark)
                return pieces.map { head + $0 }
            }.joined(separator: separator))
        return broken
    }

    /// Moves held requests into the lane if their recipients are back and no operator holds them.
    func releaseHeld(_ now: Timestamp, _ out: MachineOutput) {
        guard phase.isOpen else { return }
        let expired = outbound.releaseHeld(now: now.monotonic) { entry in
            if environment.requests.gate.isHeld(entry.request) { return .stopped }
            return isReachable(AccountID(text: entry.request.peer), now) ? .reachable : .unreachable
        }
        for entry in expired { fail(entry, Notices.expired(target: entry.request.target), out) }
    }

    // MARK: Ends without sending

    /// Removes a request that an operator has dropped, and notifies its sender.
    package func dropped(_ id: UInt64, _ target: String, _ out: MachineOutput) {
        let dropped = outbound.drop(id)
        environment.tally.add(.failed)
        notSent(target, Notices.dropped(target: target), label: dropped?.clientLabel, out)
    }

    /// Notifies the sender of requests that expired while the person or the backend was away.
    package func expired(_ target: String, _ count: Int, _ out: MachineOutput) {
        environment.tally.add(.failed, count)
        notSent(target, Notices.expired(count, target: target), label: nil, out)
    }
}
