// Sending of committed requests: in order, as fast as the backend allows, until the backend has acknowledged them.

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
    /// The prefix of the gateway's labels, which distinguishes them from the client's.
    ///
    /// A sidecar has another one, because there may be a gateway in front with labels of its own.
    var labelPrefix: String { environment.peers == nil ? "pawl" : "pawls" }

    // MARK: Replies of the vault

    package func sealed(
        _ ticket: UInt64, _ request: Request, _ first: Bool, _ keys: [Request], _ now: Timestamp, _ out: MachineOutput
    ) {
        guard let seal = seals.removeValue(forKey: ticket) else { return }
        if seal.body.kind != .control { environment.tally.add(environment.peers == nil ? .sentGateway : .sentDevice) }
        let outboundRequest = OutboundRequest(
            request: request, body: seal.body, clientLabel: seal.clientLabel,
            announces: first && environment.peers == nil)
        if environment.peers != nil, let room = AccountID(text: request.peer).roomName {
            if first { notify(Notices.roomProtected(request.target, readers: readers(in: room).count), out) }
            noteSealed(room, out)
        }
        let keyEntries = keys.map { OutboundEntry.request(.init(request: $0, body: .noText, clientLabel: nil)) }
        let sender = AccountID(text: request.account)
        let isHeld = held.contains { $0.request.peer == request.peer }
        if sender.isVerified, sender != account, environment.peers == nil {
            // Its sender has logged out meanwhile. It waits for their next login.
            outbound.resolve(ticket, with: [])
        } else if outage == nil, isHeld || isAwaited(AccountID(text: request.peer), now) {
            outbound.resolve(ticket, with: keyEntries)
            hold(outboundRequest, now)
        } else {
            outbound.resolve(ticket, with: keyEntries + [.request(outboundRequest)])
        }
    }

    package func sealFailed(_ ticket: UInt64, _ reason: String, _ out: MachineOutput) {
        guard let seal = seals.removeValue(forKey: ticket) else { return }
        environment.tally.add(.failed)
        outbound.resolve(ticket, with: [])
        reply(531, [seal.target], reason, label: seal.clientLabel, out)
    }

    package func fail(_ entry: OutboundRequest, _ reason: String, _ out: MachineOutput) {
        environment.tally.add(.failed)
        out.jobs.append(.failed(id: entry.request.id, reason: reason))
        reply(531, [entry.request.target], reason, label: entry.clientLabel, out)
    }

    // MARK: Sending

    /// Sends the entries that may be sent now.
    package func pump(_ now: Timestamp, _ out: MachineOutput) {
        guard !isUpstreamClosed, outage == nil, !isFrontAwaited(now) else { return }
        while let entry = outbound.first {
            switch entry {
            case .line(let raw):
                guard !isProtecting || pacer.spend(raw.readableBytes, now: now.monotonic) else {
                    return scheduleWake(now, out)
                }
                out.upstream.writeImmutableBuffer(raw)
                _ = outbound.popFirst()
            case .request(let request):
                guard advance(request, now, out) else { return scheduleWake(now, out) }
            }
        }
    }

    /// Writes the next lines of a request; false if it has to wait.
    private func advance(_ outboundRequest: OutboundRequest, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        var request = outboundRequest
        let peer = AccountID(text: request.request.peer)
        if request.next == 0, isAwaited(peer, now) || isBehindHeld(request.request) {
            _ = outbound.popFirst()
            hold(request, now)
            return true
        }
        guard let target = currentTarget(request.request, peer) else {
            _ = outbound.popFirst()
            fail(request, Notices.refusal(.outsider, target: request.request.target, texts: settings.texts), out)
            return true
        }
        let folded = support.caseMapping.fold(target)
        let isLabelled = capabilities.has("labeled-response") && capabilities.has("echo-message")
        if request.next == 0 {
            if !isLabelled, outstanding.isBusy(folded) { return false }
            // From here on an operator can neither hold it nor drop it.
            switch environment.requests.gate.begin(request.request) {
            case .go: break
            case .held:
                _ = outbound.popFirst()
                hold(request, now)
                return true
            case .dropped:
                // The reply of the vault notifies its sender.
                _ = outbound.popFirst()
                return true
            }
        }
        while request.next < request.request.bodies.count {
            if request.announces {
                guard pacer.spend(512, now: now.monotonic) else { return wait(request) }
                request.announces = false
                announce(to: target, out)
            }
            guard pacer.spend(512, now: now.monotonic) else { return wait(request) }
            if request.next == 0 {
                environment.requests.traces.note(.sent, of: request.request.id, at: now.wall)
                outstanding.begin(
                    .init(
                        outbound: request, target: folded, echoesMissing: request.request.bodies.count,
                        isLabelled: isLabelled))
            }
            write(request.request, request.next, target: target, isLabelled: isLabelled, out)
            request.next += 1
        }
        _ = outbound.popFirst()
        if !isLabelled {
            pacer.charge(64, now: now.monotonic)
            out.upstream.writeString("PING :\(labelPrefix)-\(request.request.id)\r\n")
        }
        return true
    }

    /// Leaves a request at the front until the pacer allows its next line.
    private func wait(_ request: OutboundRequest) -> Bool {
        if request.next == 0 { environment.requests.gate.end(request.request.id) }
        outbound.replaceFirst(.request(request))
        return false
    }

    /// The nick to send to: the original target if its owner still has it, else another nick of the owner; nil if none.
    private func currentTarget(_ request: Request, _ peer: AccountID) -> String? {
        guard peer.roomName == nil, environment.peers == nil else { return request.target }
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
        out.upstream.writeTags(tags)
        out.upstream.writeString("\(request.verb) \(target) :")
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
        guard let entry = outstanding.end(id) else { return }
        guard !entry.failed else { return }
        out.jobs.append(.acknowledged(id: id, remoteID: remoteID))
        guard capabilities.clientHas("echo-message"), let body = entry.outbound.body else { return }
        if let echo { showEcho(of: body, entry, echo, out) }
    }

    /// The backend, or a filter of it, has refused a request.
    package func refused(_ id: UInt64, reason: String, _ out: MachineOutput) {
        guard var entry = outstanding[id], !entry.failed else { return }
        entry.failed = true
        outstanding[id] = entry
        environment.tally.add(.failed)
        out.jobs.append(.failed(id: id, reason: reason))
        if entry.isLabelled { outstanding.end(id) }
    }

    private func showEcho(
        of body: Body, _ entry: OutstandingRequests.Entry, _ echo: IRCLine, _ out: MachineOutput
    ) {
        var tags = visibleTags(echo).filter { $0.key != PawlCapability.tag && $0.key != "label" && $0.key != "batch" }
        if let label = entry.outbound.clientLabel, capabilities.clientHas("labeled-response") {
            tags.insert(IRCTag(key: "label", value: label), at: 0)
        }
        let verb = echo.string(echo.verbSpan)
        for line in textLines(
            tags: tags, source: echo.string(echo.source), verb: verb, target: echo.text(0) ?? "", body: body)
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
        if id == 0 { awaitsLastPong = false }
        if outstanding[id]?.failed == true {
            outstanding.end(id)
        } else {
            acknowledge(id, remoteID: nil, echo: nil, out)
        }
        return true
    }
}
