// Messages from the backend: opens envelopes, and delivers, marks or withholds plaintext. ``RoomHistory`` recognises
// history that the backend replays; the vault decides whether a reader may open it.

package import Devices
import Envelope
package import IRCCodec
package import NIOCore
package import Protection
import Reports
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// Handles PRIVMSG, NOTICE or TAGMSG of the backend.
    func serverMessage(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        if !capabilities.isTranslating, outbound.outstanding.isEmpty, !isGuarded, line.tags.isEmpty, !isMarked(line) {
            // No protection can be required: the line passes unchanged.
            if line.key.isText, line.sourceIsPerson { environment.tally.add(.deliveredPlaintext) }
            return deliver(raw, out)
        }
        if isSelf(line), !isReplay(line), isEcho(line, out) { return }
        guard speaks(line), line.key.isText, let span = line.parameter(1) else {
            return pass(line, raw, out)
        }
        if takesCopy(line, raw, now, out) { return }
        let text = Array(line.slice(span).readableBytesView)
        let isFlagged = !line.tags.isEmpty && line.tag(PawlCapability.tag) != nil
        if let armour = Armour.parse(text[...]) {
            if !isFlagged, armour != .notice, capabilities.has("message-tags") {
                environment.tally.add(.envelopeWithoutFlag)
            }
            return envelope(armour, line, raw, now, out)
        }
        if isFlagged { environment.tally.add(.flagWithoutEnvelope) }
        plaintext(line, raw, text, now, out)
    }

    /// Whether a client shows a line as the message of a person.
    ///
    /// Clients show a source without user and host as a nick too, unless it is the server's name.
    private func speaks(_ line: IRCLine) -> Bool {
        guard !line.sourceIsPerson, !line.source.isEmpty else { return line.sourceIsPerson }
        let name = line.folded(line.source, support.caseMapping)
        if environment.latches.isProtectedName(name, for: account) || role.isKnownPeer(name) { return true }
        return !name.utf8.contains(UInt8(ascii: ".")) && line.string(line.source) != capabilities.serverName
    }

    /// Whether the text begins with the marker of envelopes. Copies nothing.
    private func isMarked(_ line: IRCLine) -> Bool {
        guard let span = line.parameter(1), span.count >= Armour.marker.count else { return false }
        return line.bytes.withUnsafeReadableBytes { raw in
            raw[Int(span.start)] == Armour.marker[0] && raw[span.range].starts(with: Armour.marker)
        }
    }

    package func pass(_ line: IRCLine, _ raw: ByteBuffer, _ out: MachineOutput) {
        if let translated = translated(line, raw) { deliver(translated, out) }
    }

    // MARK: Envelopes

    private func envelope(
        _ armour: Armour.Line, _ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput
    ) {
        switch armour {
        case .whole(let bytes):
            if !deliversToDevice(bytes, line, [raw], now, out) { open(bytes, line, [raw], now, out) }
        case .fragment(let id, let index, let count, let bytes):
            collect(id, index, count, bytes, line, raw, now, out)
        case .notice:
            switch role {
            case .front:
                // A text for people without a gateway; of no use to people behind one.
                let source = line.folded(line.sourceNick, support.caseMapping)
                let owners = environment.roster.possibleOwners(ofFoldedNick: source, now: now.monotonic)
                if owners.isEmpty, !isReplay(line) { pass(line, raw, out) }
            case .sidecar(let sidecar): receiveNotice(line, raw, sidecar, now, out)
            }
        case .damaged:
            report(.malformed, from: line.string(line.sourceNick), out)
        }
    }

    private func collect(
        _ id: UInt32, _ index: Int, _ count: Int, _ bytes: [UInt8], _ line: IRCLine,
        _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput
    ) {
        let fragment = FragmentCollector.Fragment(
            source: line.string(line.source), target: line.text(0) ?? "", id: id, index: index, count: count,
            bytes: bytes, isReplay: isReplay(line))
        let outcome = inbound.fragments.add(fragment, settings.fragments, now: now.monotonic)
        defer { scheduleWake(now, out) }
        if fragment.isReplay { return collected(replay: outcome, line, now, out) }
        switch outcome {
        case .complete(let envelope):
            let raws = takeRaws(fragment.key) + [raw]
            if !deliversToDevice(envelope, line, raws, now, out) { open(envelope, line, raws, now, out) }
        case .contradiction, .overflow:
            dropRaws()
            report(.malformed, from: line.string(line.sourceNick), out)
        case .waiting:
            guard case .front(let device) = role, clientReadsEnvelopes else { break }
            device.keep(raw, of: fragment.key) { inbound.fragments.contains($0) }
        case .duplicate: break
        }
    }

    /// Takes the kept lines of an envelope's fragments.
    private func takeRaws(_ envelope: FragmentAssembler.Key) -> [ByteBuffer] {
        switch role {
        case .front(let device): device.takeFragments(of: envelope)
        case .sidecar: []
        }
    }

    /// Drops the kept lines of envelopes that are not collected any more.
    func dropRaws() {
        if case .front(let device) = role { device.dropFragments { inbound.fragments.contains($0) } }
    }

    func expireFragments(_ now: Timestamp, _ out: MachineOutput) {
        reportReplays(inbound.fragments.expireReplays(now: now.monotonic), out)
        let lost = inbound.fragments.expire(now: now.monotonic)
        if !lost.isEmpty { dropRaws() }
        for source in lost {
            environment.tally.add(.fragmentsLost)
            let nick = String(source.prefix { $0 != "!" })
            notify(Notices.fragmentsLost(from: nick), about: nick, out)
        }
    }

    /// Opens an envelope, or reports why it may not be opened here.
    ///
    /// - Parameter raws: the original lines, in case the client's own device has to open them.
    package func open(
        _ bytes: [UInt8], _ line: IRCLine, _ raws: [ByteBuffer], _ now: Timestamp, _ out: MachineOutput
    ) {
        let room = room(line.text(0) ?? "")
        if let room, !rooms.contains(room.name) {
            // A connection that has left a room reads none of its messages, whatever the backend delivers.
            return report(.notAuthentic, from: line.string(line.sourceNick), out)
        }
        if case .sidecar(let sidecar) = role, let room,
            !sidecar.people.isMember(line.folded(line.sourceNick, support.caseMapping), of: room.name)
        {
            return report(.notInRoom, from: line.string(line.sourceNick), out)
        }
        var context = OpeningContext(account: account)
        if let room {
            context.room = .room(room.name, status: room.status)
            context.presence = environment.rooms.presence(of: id, in: room.name)
            context.isReplay = isReplay(line)
        }
        let ticket = inbound.reserve()
        if room != nil, inbound.awaitsCopies, let raw = raws.last {
            // Another connection has requested the ones before it: the vault opens and stores those first.
            let copy = PendingCopy(line: line, raw: raw, context: context)
            inbound.postpone(PostponedOpening(ticket: ticket, envelope: bytes, copy: copy))
            return
        }
        let shared = announceOpening(line, at: context, now)
        open(bytes, line, raws, at: context, ticket, shared, now, out)
    }

    /// Sends the vault a job to open an envelope.
    ///
    /// - Parameter shared: the line that other connections may wait for; see ``announceOpening(_:at:_:)``.
    package func open(
        _ bytes: [UInt8], _ line: IRCLine, _ raws: [ByteBuffer], at context: OpeningContext, _ ticket: UInt64,
        _ shared: OpenedMessages.Line?, _ now: Timestamp, _ out: MachineOutput
    ) {
        let source = line.string(line.source)
        let target = line.text(0) ?? ""
        let verb = line.string(line.verbSpan)
        let name = line.folded(line.sourceNick, support.caseMapping)
        var job = OpenJob(
            connection: id, ticket: ticket, account: context.account,
            recipients: context.room.map { [$0] } ?? identity.accounts,
            senders: possibleSenders(line, name, now),
            envelope: bytes, lineHead: Array(":\(source) \(verb) \(target) :".utf8), sourceName: name, line: shared)
        if role.isSidecar, settings.marks == .text { job.mark = .device }
        job.latchesRoom = role.hasFront
        job.presence = context.presence
        job.isReplay = context.isReplay
        let open = PendingOpen(
            room: context.room?.roomName, isReplay: context.isReplay,
            tags: visibleTags(line).filter { $0.key != PawlCapability.tag }, source: source,
            sourceNick: line.string(line.sourceNick), verb: verb, target: target,
            raws: clientReadsEnvelopes ? raws : [], job: job)
        guard inbound.beginOpening(open, at: ticket, now: now.monotonic) else { return scheduleWake(now, out) }
        out.jobs.append(.open(job))
    }

    /// The accounts that may have sent a line.
    private func possibleSenders(_ line: IRCLine, _ name: String, _ now: Timestamp) -> [AccountID] {
        switch role {
        case .front: environment.roster.possibleOwners(ofFoldedNick: name, now: now.monotonic)
        case .sidecar(let sidecar): isSelf(line) ? [.own] : sidecar.people.accountNames(name)
        }
    }

    package func opened(_ ticket: UInt64, _ opened: Opened, _ now: Timestamp, _ out: MachineOutput) {
        guard var open = inbound.endOpening(ticket) else { return }
        if opened.body.kind != .control {
            environment.tally.add(opened.protection == .device ? .openedDevice : .openedGateway)
        }
        var entries: [InboundEntry] = []
        let isTagged: Bool
        switch role {
        case .front(let device): isTagged = device.id != nil
        case .sidecar(let sidecar):
            isTagged = settings.marks != .off
            entries += learnt(opened, from: open.sourceNick, sidecar, now, out)
                .map { InboundEntry(line: $0) }
            if let room = open.room, sidecar.protection.isProtected(room) || sidecar.people.isWhole(room) {
                noteSealed(room, sidecar, now, out)
            }
        }
        if isTagged { open.tags.append(IRCTag(key: ProtectionMarks.tag, value: opened.protection.name)) }
        if opened.gap > 0 {
            environment.tally.add(.gaps, opened.gap)
            let text = Notices.gap(opened.gap, from: open.sourceNick)
            entries.append(InboundEntry(line: noticeLine(text, open)))
        }
        let mark = open.job.mark.map { opened.isVerified ? $0.verified : $0.plain }
        let lines = textLines(
            tags: open.tags, source: open.source, verb: open.verb, target: open.target, body: opened.body, mark: mark)
        entries.append(contentsOf: lines.map { InboundEntry(line: $0) })
        if entries.isEmpty { entries.append(InboundEntry(line: ByteBuffer())) }
        entries[entries.count - 1].sequence = opened.sequence
        entries[entries.count - 1].message = opened.message
        inbound.resolve(ticket, with: entries)
    }

    package func openFailed(_ ticket: UInt64, _ failure: OpenFailure, _ now: Timestamp, _ out: MachineOutput) {
        if failure == .notCommitted, inbound.isTriedAgain(ticket, now: now.monotonic) { return scheduleWake(now, out) }
        guard let open = inbound.endOpening(ticket) else { return }
        var isDue = true
        if case .sidecar(let sidecar) = role {
            // A device that the person has removed was sent the list, and its messages are nothing to read.
            isDue = !sidecar.people.isRemovedDevice(support.caseMapping.fold(open.sourceNick))
            if isDue {
                notOpened(failure, open, sidecar, now, out)
                isDue = isNoticeDue(failure, from: open.sourceNick, sidecar, now)
            }
        }
        if failure == .unknownSender, !open.raws.isEmpty {
            // A device elsewhere has sealed it for the device behind this connection.
            environment.tally.add(.openedDevice)
            return inbound.resolve(ticket, with: open.raws.compactMap(translatedLine).map { InboundEntry(line: $0) })
        }
        environment.tally.add(TallyKind(failure))
        let text =
            historyNotice(failure, open)
            ?? (isDue ? Notices.failure(failure, from: open.sourceNick, inSidecar: role.isSidecar) : nil)
        inbound.resolve(
            ticket, with: text.flatMap { $0.isEmpty ? nil : [InboundEntry(line: noticeLine($0, open))] } ?? [])
    }

    package func report(_ failure: OpenFailure, from source: String, _ out: MachineOutput) {
        environment.tally.add(TallyKind(failure))
        if let text = Notices.failure(failure, from: source, inSidecar: role.isSidecar) {
            notify(text, about: source, out)
        }
    }

    /// A notice about an envelope; in a sidecar it is shown where its message would be.
    private func noticeLine(_ text: String, _ open: PendingOpen) -> ByteBuffer {
        guard role.isSidecar else { return noticeLine(text) }
        return open.room.map { noticeLine(text, to: $0) } ?? noticeLine(text, about: open.sourceNick)
    }

    func noticeLine(_ text: String, to room: String? = nil) -> ByteBuffer {
        ByteBuffer(line: ":\(capabilities.serverName) NOTICE \(room ?? nick ?? "*") :*** \(text)")
    }

    // MARK: Plaintext

    private func plaintext(
        _ line: IRCLine, _ raw: ByteBuffer, _ text: [UInt8], _ now: Timestamp, _ out: MachineOutput
    ) {
        if case .sidecar(let sidecar) = role, let bare = receiveAnnouncement(line, text, sidecar, now, out) {
            return plaintext(bare.line, bare.raw, bare.text, now, out)
        }
        if role.isSidecar, settings.marks == .text, isSelf(line), imitatesSidecar(line, text) {
            environment.tally.add(.deliveredMarked)
            return show(marked(line, text, line.string(line.sourceNick), Notices.notEncrypted), out)
        }
        guard isGuarded, !isSelf(line) || isInLatchedRoom(line) else {
            environment.tally.add(.deliveredPlaintext)
            return pass(line, raw, out)
        }
        switch exemption(line, now) {
        case .proven: show(shown(line, raw, text, exempt: true), out)
        case .none: show(shown(line, raw, text, exempt: false), out)
        case .unknown: probe(line, raw, now, out)
        }
    }

    /// Whether a line is for a room whose latch is up; always false in a sidecar, which has rules of its own.
    ///
    /// The gateway sends no plaintext there, so a plaintext line under the reader's own name is not the reader's.
    private func isInLatchedRoom(_ line: IRCLine) -> Bool {
        guard !role.isSidecar, let room = line.text(0).flatMap(room) else { return false }
        return environment.latches.latch(of: .ofRoom(room.name)) > .plaintext
    }

    enum ExemptionProof { case proven, none, unknown }

    func exemption(_ line: IRCLine, _ now: Timestamp) -> ExemptionProof {
        let nick = line.string(line.sourceNick)
        let candidates = settings.exemptions.filter { Mask.matches($0.nick, nick) }
        guard !candidates.isEmpty else { return .none }
        let host = line.string(line.sourceHost)
        if candidates.contains(where: { $0.isProven(host: host, server: "") }) { return .proven }
        guard let identity = services.identity(support.caseMapping.fold(nick), now: now.monotonic) else {
            return .unknown
        }
        let proven = candidates.contains { $0.isProven(host: host, server: identity.server) }
        return proven && identity.host == host ? .proven : .none
    }

    package func show(_ lines: [ByteBuffer], _ out: MachineOutput) {
        for line in lines { deliver(line, out) }
    }

    /// What the client sees of a plaintext: the text, the marked text, or a notice in its place.
    package func shown(_ line: IRCLine, _ raw: ByteBuffer, _ text: [UInt8], exempt: Bool) -> [ByteBuffer] {
        let source = line.string(line.sourceNick)
        let target = line.text(0) ?? ""
        let audience = inboundAudience(line, target)
        switch judgement.inbound(to: account, audience, isExempt: exempt) {
        case .deliver
        where role.hasFront && settings.marks == .text && line.tag(ProtectionMarks.tag) == Protection.gateway.name:
            environment.tally.add(.openedGateway)
            return marked(line, text, source, ProtectionMark.gateway)
        case .deliver
        where role.isSidecar && settings.marks == .text && imitatesSidecar(line, text):
            // The text imitates a mark of the sidecar.
            environment.tally.add(.deliveredMarked)
            return marked(line, text, source, Notices.notEncrypted)
        case .deliver:
            environment.tally.add(.deliveredPlaintext)
            return translated(line, raw).map { [$0] } ?? []
        case .mark:
            environment.tally.add(.deliveredMarked)
            return marked(line, text, source, Notices.notEncrypted)
        case .withhold:
            environment.tally.add(.withheld)
            if case .sidecarRoom(let room, _, _) = audience {
                let name = room.roomName ?? target
                return [noticeLine(Notices.withheld(from: source, inRoom: name), to: name)]
            }
            guard case .one(_, let latch) = audience, latch > .plaintext else {
                return [noticeLine(Notices.withheldByPolicy(from: source), about: source)]
            }
            guard case .sidecar(let sidecar) = role,
                sidecar.ownLines.isNoticeDue(withheldFrom: support.caseMapping.fold(source))
            else { return [noticeLine(Notices.withheld(from: source), about: source)] }
            return [noticeLine(Notices.withheld(from: source) + " " + Notices.stoppedSidecar(source), about: source)]
        }
    }

    /// The sender of a plaintext, and where it would be shown.
    private func inboundAudience(_ line: IRCLine, _ target: String) -> InboundAudience {
        let name = line.folded(line.sourceNick, support.caseMapping)
        let sender = role.isSidecar ? nil : environment.roster.owner(ofFoldedNick: name)?.account
        if support.caseMapping.fold(target) == nick.map(support.caseMapping.fold) {
            return .one(sender: sender, latch: latch(of: line))
        }
        guard let room = room(target)?.name else {
            // Clients show it in the conversation with its sender, whatever target it has.
            let latch = latch(of: line)
            return latch > .plaintext ? .one(sender: sender, latch: latch) : .many
        }
        switch role {
        case .front: return .room(.room(room), sender: sender)
        case .sidecar(let sidecar):
            return .sidecarRoom(
                .room(room), isKnownPeer: sidecar.people.isKnownPeer(name),
                isSealed: sidecar.protection.isSealed(room))
        }
    }

    /// The latch of the conversation in which a line would be shown.
    private func latch(of line: IRCLine) -> Protection {
        guard !environment.latches.isEmpty else { return .plaintext }
        let name = line.folded(line.sourceNick, support.caseMapping)
        if !role.isSidecar, let entry = environment.roster.owner(ofFoldedNick: name) {
            return environment.latches.latch(of: ConversationID(account, entry.account))
        }
        if let tagged = line.tag("account") {
            let peer = AccountID.services(support.caseMapping.fold(tagged))
            let latch = environment.latches.latch(of: ConversationID(account, peer))
            if latch > .plaintext { return latch }
        }
        if case .sidecar(let sidecar) = role, sidecar.people.person(name) != .outsider {
            return sidecar.people.isKnownPeer(name) ? .device : .plaintext
        }
        return environment.latches.isProtectedName(name, for: account) ? .gateway : .plaintext
    }

    private func marked(_ line: IRCLine, _ text: [UInt8], _ source: String, _ mark: String) -> [ByteBuffer] {
        var before: [ByteBuffer] = []
        var body = Body(text: text)
        body.mark(mark)
        if body.text == text, mark == Notices.notEncrypted {
            // A mark inside would break the CTCP, so a notice before it has the mark.
            before = [noticeLine(Notices.markedCTCP(from: source), about: source)]
        }
        return before
            + textLines(
                tags: visibleTags(line), source: line.string(line.source), verb: line.string(line.verbSpan),
                target: line.text(0) ?? "", body: body, mark: mark)
    }

    // MARK: Text for people

    /// The lines that show a body to the client. Long texts become several lines, so that nothing is cut off.
    ///
    /// - Parameter mark: the mark of the body; nil if it has none.
    func textLines(
        tags: [IRCTag], source: String, verb: String, target: String, body: Body, mark: String? = nil
    ) -> [ByteBuffer] {
        // A client with its own device understands this tag even if the server has no tags.
        var shown =
            capabilities.clientHas("message-tags") || role.clientDevice != nil
            ? tags : tags.filter { $0.key != ProtectionMarks.tag }
        if capabilities.clientHas("message-tags"), !body.tags.isEmpty { shown += clientTags(of: body) }
        switch body.kind {
        case .control: return []
        case .tagsOnly:
            guard capabilities.clientHas("message-tags") else { return [] }
            return [assemble(shown, ":\(source) TAGMSG \(target)", nil)]
        case .lines:
            return multilineText(tags: shown, source: source, verb: verb, target: target, body: body, mark: mark)
        case .text: break
        }
        let head = ":\(source) \(verb) \(target) :"
        return ProtectionMark.pieces(body.text, behind: head.utf8.count, mark).map { assemble(shown, head, $0) }
    }

    func assemble(_ tags: [IRCTag], _ head: String, _ text: [UInt8]?) -> ByteBuffer {
        var buffer = ByteBuffer()
        // At once, if there are no tags.
        buffer.reserveCapacity(minimumWritableBytes: head.utf8.count + (text?.count ?? 0) + 2)
        buffer.writeTags(tags)
        buffer.writeString(head)
        if let text { buffer.writeBytes(text) }
        buffer.writeString("\r\n")
        return buffer
    }

    // MARK: History

    /// Whether the backend marks a line as a replay.
    package func isReplay(_ line: IRCLine) -> Bool {
        guard !line.tags.isEmpty else { return false }
        return rooms.history.isReplay(line, in: room(line.text(0) ?? "")?.name)
    }

    /// Tracks the batches that replay history.
    func trackHistory(_ line: IRCLine, _ out: MachineOutput) {
        if rooms.history.track(line) { reportReplays(inbound.fragments.endReplays(), out) }
    }

    /// Handles a replayed envelope or a part of it.
    func collected(
        replay outcome: FragmentAssembler.Outcome, _ line: IRCLine, _ now: Timestamp, _ out: MachineOutput
    ) {
        switch outcome {
        case .complete(let envelope): open(envelope, line, [], now, out)
        case .contradiction, .overflow: report(.malformed, from: line.string(line.sourceNick), out)
        case .waiting, .duplicate: break
        }
    }

    /// Notifies the client of messages that were replayed only in part.
    func reportReplays(_ sources: [String], _ out: MachineOutput) {
        for source in sources {
            environment.tally.add(.fragmentsLost)
            let nick = String(source.prefix { $0 != "!" })
            notify(Notices.truncated(from: nick), about: nick, out)
        }
    }

    /// The notice for old messages that are not shown, once for each room; then an empty text.
    ///
    /// - Returns: nil if the failure has another notice.
    func historyNotice(_ failure: OpenFailure, _ open: PendingOpen) -> String? {
        guard let room = open.room else { return nil }
        switch failure {
        case .notRecipient:
            return rooms.history.isNoticeDue(of: room) ? Notices.beforeJoining(room) : ""
        case .forgotten, .unknownSender, .wrongSource:
            guard open.isReplay else { return nil }
            return rooms.history.isNoticeDue(of: room) ? Notices.notKept(room) : ""
        default: return nil
        }
    }
}
