// Identifies services by WHOIS before plaintext is sent to them, and before their plaintext is accepted.

import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue

extension IRCConnectionMachine {
    /// Holds a message to a possible service until WHOIS has answered.
    func probe(_ message: OutboundMessage, _ now: Timestamp, _ out: MachineOutput) {
        let folded = support.caseMapping.fold(message.target)
        let begun = services.keep(.message(message, at: outbound.reserve()), until: folded, now: now.monotonic)
        if begun == .full { return refuse(.outsider, message, out) }
        if begun == .asked { ask(about: message.target, now, out) }
    }

    /// Holds a line of a possible service until WHOIS has answered.
    func probe(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        let folded = line.folded(line.sourceNick, support.caseMapping)
        switch services.keep(.line(line, raw: raw, at: inbound.reserve()), until: folded, now: now.monotonic) {
        case .asked: ask(about: line.string(line.sourceNick), now, out)
        case .waits: break  // The answer is on its way.
        case .full:
            let text = line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? []
            show(shown(line, raw, text, exempt: false), out)
        }
    }

    private func ask(about nick: String, _ now: Timestamp, _ out: MachineOutput) {
        outbound.charge(64, now: now.monotonic)
        out.upstream.writeString("WHOIS \(nick)\r\n")
        scheduleWake(now, out)
    }

    /// Handles a reply to a WHOIS of the gateway; returns whether it is one.
    func answersProbe(_ numeric: Int, _ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard let span = line.parameter(1) else { return false }
        let nick = line.folded(span, support.caseMapping)
        switch services.answered(numeric, nick, now: now.monotonic, text: { line.text($0) }) {
        case .foreign: return false
        case .hidden: return true
        case .finished(let waiting):
            for entry in waiting { finish(entry, now, out) }
            return true
        }
    }

    func expireProbes(_ now: Timestamp, _ out: MachineOutput) {
        for entry in services.expire(now: now.monotonic) { finish(entry, now, out) }
    }

    /// Resolves the place of a message or a line that has waited for WHOIS.
    private func finish(_ entry: ServiceDirectory.Waiting, _ now: Timestamp, _ out: MachineOutput) {
        switch entry {
        case .message(let message, let ticket):
            let known: Recipient =
                if case .known(let found) = recipient(message.target, now) { found } else { .outsider }
            guard verdict(known, message) == .plaintext else {
                outbound.resolve(ticket, with: [])
                return refuse(.outsider, message, out)
            }
            environment.tally.add(known == .exempt ? .sentExempt : .sentPlaintext)
            outbound.resolve(ticket, with: message.lines.map { .line($0) })
        case .line(let line, let raw, let ticket):
            let text = line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? []
            let lines = shown(line, raw, text, exempt: exemption(line, now) == .proven)
            inbound.resolve(ticket, with: lines.map { InboundEntry(line: $0) })
        }
    }
}
