// Copies of messages to rooms. Each member's connection receives the message; the vault opens it for one of them, and
// the others get the opened message here.

import DequeModule
import Devices
import Envelope
package import IRCCodec
package import NIOCore
package import Protection
import Reports
import RequestQueue
import Vault

/// The state of a connection when it received an envelope.
package struct OpeningContext: Sendable {
    /// The account of the connection.
    package var account: AccountID
    /// The room of the line; nil if it is not for a room.
    package var room: AccountID?
    package var presence: RoomPresence?
    /// Whether the backend marks the line as a replay.
    package var isReplay = false
}

/// A line that the vault is opening for another connection.
package struct PendingCopy: Sendable {
    package var line: IRCLine
    package var raw: ByteBuffer
    package var context: OpeningContext
}

/// A message to a room that waits until the vault has opened those before it.
struct PostponedOpening: Sendable {
    package var ticket: UInt64
    package var envelope: [UInt8]
    /// The last of its lines.
    package var copy: PendingCopy
}

extension IRCConnectionMachine {
    /// Handles a line to a room that the vault has opened, or is opening, for another member's connection.
    ///
    /// - Returns: whether the line is handled; else this connection has to send it to the vault.
    func takesCopy(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard sharesOpenings, isWholeEnvelope(line), let room = rooms.target(of: line, room: { identity.room($0) }),
            !rooms.history.isReplay(line, in: room.name)
        else {
            return false
        }
        let answer = withIdentity(line) { bytes in
            environment.opened.ask(bytes, to: room.account, by: id, now: now.monotonic) { inbound.reserve() }
        }
        switch answer {
        case .unknown: return false
        case .waits(let ticket):
            let presence = environment.rooms.presence(of: id, in: room.name)
            let context = OpeningContext(account: account, room: room.account, presence: presence)
            inbound.awaitCopy(PendingCopy(line: line, raw: raw, context: context), at: ticket)
        case .opened(let message):
            let isKnown = message.hasDelivery(for: account)
            let presence = isKnown ? nil : environment.rooms.presence(of: id, in: room.name)
            // If it is not for this connection, or was shown to it, the vault returns the reason.
            guard case .message(let opened) = message.copy(for: id, of: account, presence) else { return false }
            let entries = entries(message, opened, line)
            if inbound.isEmpty {
                for entry in entries { write(entry, now, out) }
            } else {
                for entry in entries { inbound.append(entry) }
            }
        }
        if capabilities.has("message-tags"), line.tag(PawlCapability.tag) == nil {
            environment.tally.add(.envelopeWithoutFlag)
        }
        return true
    }

    /// Whether this connection takes part: only hosted devices open its envelopes, as for the other members.
    private var sharesOpenings: Bool { role.clientDevice == nil && !role.isSidecar }

    /// Announces that this connection sends a line of a room to the vault, so that others wait for the result.
    func announceOpening(_ line: IRCLine, at context: OpeningContext, _ now: Timestamp) -> OpenedMessages.Line? {
        guard sharesOpenings, let room = context.room, !context.isReplay, isWholeEnvelope(line) else { return nil }
        return withIdentity(line) { environment.opened.begin($0, to: room, now: now.monotonic) }
    }

    /// Another connection's result has arrived. If there is no copy, this connection sends the line to the vault.
    package func copied(_ ticket: UInt64, _ message: OpenedMessage?, _ now: Timestamp, _ out: MachineOutput) {
        guard let copy = inbound.endAwaiting(ticket) else { return }
        if !shows(message, ticket, copy) {
            let text = copy.line.parameter(1).map { Array(copy.line.slice($0).readableBytesView) } ?? []
            if case .whole(let bytes) = Armour.parse(text[...]) {
                open(bytes, copy.line, [copy.raw], at: copy.context, ticket, nil, now, out)
            } else {
                inbound.resolve(ticket, with: [])
            }
        }
        while let next = inbound.nextPostponed() { open(next, now, out) }
    }

    /// The line that another connection has sent to the vault cannot be opened by any.
    func copyFailed(_ ticket: UInt64, _ failure: OpenFailure, _ now: Timestamp, _ out: MachineOutput) {
        guard let copy = inbound.endAwaiting(ticket) else { return }
        environment.tally.add(TallyKind(failure))
        let text = Notices.failure(failure, from: copy.line.string(copy.line.sourceNick))
        inbound.resolve(ticket, with: text.map { [InboundEntry(line: noticeLine($0))] } ?? [])
        while let next = inbound.nextPostponed() { open(next, now, out) }
    }

    /// Resolves the ticket with a message if the message is for this connection; returns whether it is.
    private func shows(_ message: OpenedMessage?, _ ticket: UInt64, _ copy: PendingCopy) -> Bool {
        guard sharesOpenings, let message,
            case .message(let opened) = message.copy(for: id, of: copy.context.account, copy.context.presence)
        else { return false }
        inbound.resolve(ticket, with: entries(message, opened, copy.line))
        return true
    }

    /// Opens a postponed message, unless another connection has requested it in the meantime.
    private func open(_ next: PostponedOpening, _ now: Timestamp, _ out: MachineOutput) {
        let line = next.copy.line
        var shared: OpenedMessages.Line?
        if sharesOpenings, let room = next.copy.context.room, !next.copy.context.isReplay, isWholeEnvelope(line) {
            let answer = withIdentity(line) { bytes in
                environment.opened.ask(bytes, to: room, by: id, now: now.monotonic) { next.ticket }
            }
            switch answer {
            case .waits:
                inbound.awaitCopy(next.copy, at: next.ticket)
                return
            case .opened(let message): if shows(message, next.ticket, next.copy) { return }
            case .unknown: shared = announceOpening(line, at: next.copy.context, now)
            }
        }
        open(next.envelope, line, [next.copy.raw], at: next.copy.context, next.ticket, shared, now, out)
    }

    /// The lines of a copy for this client.
    private func entries(_ message: OpenedMessage, _ opened: Opened, _ line: IRCLine) -> [InboundEntry] {
        environment.tally.add(.openedGateway)
        let tags = visibleTags(line).filter { $0.key != PawlCapability.tag }
        func rendered() -> [ByteBuffer] {
            textLines(
                tags: tags, source: line.string(line.source), verb: line.string(line.verbSpan),
                target: line.text(0) ?? "", body: opened.body)
        }
        let showsBodyTags = !opened.body.tags.isEmpty && capabilities.clientHas("message-tags")
        // Lines of a batch have tags of their own.
        guard tags.isEmpty, opened.body.kind == .text, !showsBodyTags else {
            return entries(rendered(), opened)
        }
        return entries(message.lines(rendered), opened)
    }

    private func entries(_ lines: [ByteBuffer], _ opened: Opened) -> [InboundEntry] {
        guard lines.count != 1 else {
            return [InboundEntry(line: lines[0], sequence: opened.sequence, message: opened.message)]
        }
        var entries = lines.map { InboundEntry(line: $0) }
        if entries.isEmpty { entries.append(InboundEntry(line: ByteBuffer())) }
        entries[entries.count - 1].sequence = opened.sequence
        entries[entries.count - 1].message = opened.message
        return entries
    }

    /// The bytes that identify a line: all but its tags.
    private func withIdentity<Result>(_ line: IRCLine, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        line.bytes.withUnsafeReadableBytes { raw in
            body(UnsafeRawBufferPointer(rebasing: raw[max(0, Int(line.source.start) - 1)...]))
        }
    }

    /// Whether the text looks like an envelope in one piece. A fragment has a comma behind eight digits.
    private func isWholeEnvelope(_ line: IRCLine) -> Bool {
        let start = Armour.marker.count
        guard let span = line.parameter(1), span.count > start + 9 else { return false }
        return line.bytes.withUnsafeReadableBytes { raw in
            let text = raw[span.range]
            return text[text.startIndex + start] == UInt8(ascii: ":")
                && text[text.startIndex + start + 9] != UInt8(ascii: ",") && text.starts(with: Armour.marker)
        }
    }
}
