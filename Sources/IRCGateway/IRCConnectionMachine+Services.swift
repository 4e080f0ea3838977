// Identifies services by WHOIS before plaintext is sent to them, and before their plaintext is accepted.

import Envelope
package import IRCCodec
package import NIOCore
package import Protection
import Reports
import RequestQueue

extension IRCConnectionMachine {
    /// Holds a message to a possible service until WHOIS has answered.
    package func probe(_ message: OutboundMessage, _ now: Timestamp, _ out: MachineOutput) {
        let folded = support.caseMapping.fold(message.target)
        guard beginProbe(folded, message.target, now, out) else { return refuse(.outsider, message, out) }
        let ticket = outbound.reserve()
        services.probes[folded]?.outbound.append((ticket, message))
    }

    package func probe(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        let folded = line.folded(line.sourceNick, support.caseMapping)
        guard beginProbe(folded, line.string(line.sourceNick), now, out) else {
            let text = line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? []
            return show(shown(line, raw, text, exempt: false), out)
        }
        let ticket = inbound.reserve()
        services.probes[folded]?.inbound.append((ticket, line, raw))
    }

    private func beginProbe(_ folded: String, _ nick: String, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        if services.probes[folded] != nil { return true }
        guard services.probes.count < ServiceDirectory.probeLimit else { return false }
        services.probes[folded] = .init(nick: nick, deadline: now.monotonic + ServiceDirectory.patience)
        outbound.charge(64, now: now.monotonic)
        out.upstream.writeString("WHOIS \(nick)\r\n")
        scheduleWake(now, out)
        return true
    }

    /// Handles a reply to a WHOIS of the gateway; returns whether it is one.
    func answersProbe(_ numeric: Int, _ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard let span = line.parameter(1) else { return false }
        let nick = line.folded(span, support.caseMapping)
        if let waiting = services.clientQuestions[nick], waiting > 0 {
            if numeric == 318 { services.clientQuestions[nick] = waiting == 1 ? nil : waiting - 1 }
            return false
        }
        guard services.probes[nick] != nil else { return false }
        switch numeric {
        case 311: services.probes[nick]?.host = line.text(3) ?? ""
        case 312: services.probes[nick]?.server = line.text(2) ?? ""
        case 318: finishProbe(nick, now, out)
        default: break
        }
        return true
    }

    func expireProbes(_ now: Timestamp, _ out: MachineOutput) {
        for (nick, probe) in services.probes where probe.deadline <= now.monotonic { finishProbe(nick.text, now, out) }
    }

    private func finishProbe(_ nick: String, _ now: Timestamp, _ out: MachineOutput) {
        guard let probe = services.probes.removeValue(forKey: nick) else { return }
        services.learn(nick, host: probe.host, server: probe.server, now: now.monotonic)
        for (ticket, message) in probe.outbound {
            let known: Recipient =
                if case .known(let found) = recipient(message.target, now) { found } else { .outsider }
            if verdict(known, message) == .plaintext {
                environment.tally.add(known == .exempt ? .sentExempt : .sentPlaintext)
                outbound.resolve(ticket, with: [.line(message.line)])
            } else {
                outbound.resolve(ticket, with: [])
                refuse(.outsider, message, out)
            }
        }
        for (ticket, line, raw) in probe.inbound { answerInbound(ticket, line, raw, now) }
    }

    /// Resolves the position of a line that waited for WHOIS.
    private func answerInbound(_ ticket: UInt64, _ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp) {
        let text = line.parameter(1).map { Array(line.slice($0).readableBytesView) } ?? []
        let lines = shown(line, raw, text, exempt: exemption(line, now) == .proven)
        inbound.resolve(ticket, with: lines.map { InboundEntry(line: $0) })
    }
}
