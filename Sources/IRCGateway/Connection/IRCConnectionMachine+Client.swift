// Lines from the client: applies the route table; messages go to IRCConnectionMachine+Messages.

import Envelope
import IRCCodec
package import NIOCore
package import Protection
import Reports
import RequestQueue

extension IRCConnectionMachine {
    /// Handles one line of the client.
    func clientLine(_ raw: ByteBuffer, _ content: Int, _ now: Timestamp, _ out: MachineOutput) {
        guard let line = parse(raw, content) else { return malformedClientLine(raw, content, now, out) }
        if line.key == .batch || multiline.isOpen, takesMultiline(line, now, out) { return }
        // A backend that ends lines at CR would read the rest as a command of its own.
        guard !isGuarded || !line.containsNULOrCR else {
            environment.tally.add(.badLines)
            return reply(421, [line.string(line.verbSpan)], "A line must not contain NUL or CR", out)
        }
        if line.key.isText || line.key == .tagmsg { return message(line, raw, now, out) }
        if answersWhois(line, out) { return }
        guessSoftware(line, now, out)
        let demanded = commandPolicy(line)
        let isRefused = demanded.demandsProtection && refuses(line, demanded)
        // A refused command changes nothing that could be repeated, and a refused QUIT ends nothing.
        if !isRefused { registration.note(line, raw, nick: foldedNick, support.caseMapping.fold) }
        if answeredInOutage(line, out) { return }
        switch line.key {
        case .pawl where capabilities.clientAsked:
            if case .front(let device) = role { return controlLine(line, device, now, out) }
        case .cap: return clientCAP(line, raw, now, out)
        case .starttls: return startTLS(raw, now, out)
        case .authenticate where isExternal(line): return refuseExternal(out)
        case .whois: trackWhois(line)
        default: break
        }
        if isRegistered, !role.isSidecar, !isMultilineBatch(line) { observe(line, now, out) }
        guard demanded.demandsProtection else {
            if IRCRouteTable.client(line.key)?.hosted == .secret { environment.tally.add(.sentExempt) }
            return forward(raw, now, out)
        }
        guarded(line, raw, demanded, now, out)
    }

    /// Counts a command that `hosted` refuses, or whose text it does not send.
    private func observe(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) {
        let verb = line.string(line.verbSpan).uppercased()
        if hasText(line) {
            observations.note(verb, .commandText, now: now.monotonic)
        } else if refuses(line, .hosted) {
            let isKnown = IRCRouteTable.client(line.key) != nil
            observations.note(isKnown ? verb : "an unknown command", .verb, now: now.monotonic)
        } else {
            return
        }
        if observations.isFull { flushObservations(now, out, force: true) }
        scheduleWake(now, out)
    }

    /// Notes a line of a connection whose bytes pass unchanged.
    func trackClient(_ line: IRCLine, _ raw: ByteBuffer) {
        registration.note(line, raw, nick: foldedNick, support.caseMapping.fold)
        if line.key == .whois { trackWhois(line) }
    }

    /// Sends a line to the backend, behind what already waits.
    package func forward(_ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        if outbound.isEmpty, !phase.isSuspended, !isFrontAwaited(now), outbound.isUnlimited || !isProtecting {
            outbound.charge(64, now: now.monotonic)
            out.upstream.writeImmutableBuffer(raw)
        } else {
            outbound.append(.line(raw))
        }
    }

    private func forward(_ line: String, _ now: Timestamp, _ out: MachineOutput) {
        forward(ByteBuffer(string: line + "\r\n"), now, out)
    }

    // MARK: Bad input

    private func malformedClientLine(_ raw: ByteBuffer, _ content: Int, _ now: Timestamp, _ out: MachineOutput) {
        guard isGuarded else { return forward(raw, now, out) }
        guard content > 0 else { return }
        environment.tally.add(.badLines)
        reply(421, ["*"], "Unknown command: the line is not IRC", out)
    }

    func clientOverlong(_ raw: ByteBuffer, ended: Bool, _ now: Timestamp, _ out: MachineOutput) {
        // A backend that cuts it off would relay the beginning, also in a protected conversation.
        guard isGuarded else {
            // The backend handles it, as it would without a gateway.
            out.upstream.writeImmutableBuffer(raw)
            return
        }
        guard ended else { return }
        environment.tally.add(.badLines)
        reply(417, [], "Input line was too long", out)
    }

    // MARK: The route table under `hosted` and above

    /// - Parameter demanded: the policy for this command, ``commandPolicy(_:)``.
    private func guarded(
        _ line: IRCLine, _ raw: ByteBuffer, _ demanded: Policy, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard !refuses(line, demanded), let route = IRCRouteTable.client(line.key) else { return refuseVerb(line, out) }
        switch route.hosted {
        case .pass, .handled: forward(raw, now, out)
        case .secret:
            environment.tally.add(.sentExempt)
            forward(raw, now, out)
        case .count:
            forward(raw, now, out)
        case .strip(let index): strip(line, raw, parameter: index, now, out)
        case .text(let text, let index):
            switch settings.commandTexts[text, under: demanded] {
            case .strip, .refuse: strip(line, raw, parameter: index, now, out)
            case .pass:
                if commandText(line) != nil { environment.tally.add(.passedText) }
                forward(raw, now, out)
            }
        case .refuse, .seal: refuseVerb(line, out)
        }
    }

    /// Whether a command has a text that is not sent where protection is demanded, or only as the operator chooses.
    private func hasText(_ line: IRCLine) -> Bool {
        switch IRCRouteTable.client(line.key)?.hosted {
        case .strip(let index), .text(_, let index): line.parameter(index).map { !$0.isEmpty } ?? false
        case .seal, .pass, .count, .refuse, .handled, .secret, nil: false
        }
    }

    /// The text of a command for which the operator chooses; nil if it has none.
    private func commandText(_ line: IRCLine) -> CommandText? {
        guard case .text(let text, _)? = IRCRouteTable.client(line.key)?.hosted, hasText(line) else { return nil }
        return text
    }

    /// The policy for a line that is not a message: that of the connection's account, and for the text of a command
    /// also that of the rooms that are shown it.
    private func commandPolicy(_ line: IRCLine) -> Policy {
        guard !role.isSidecar, isGuarded, commandText(line) != nil,
            case .text(let text, let index)? = IRCRouteTable.client(line.key)?.hosted
        else { return policy }
        let shown: [String]
        switch text {
        case .topic, .kick, .part: shown = (0..<index).flatMap { line.names($0) }.compactMap { room($0)?.name }
        case .quit: shown = Array(rooms.names)
        case .away, .wallops: shown = []
        }
        return judgement.command(by: account, shownIn: shown.lazy.map { .room($0) })
    }

    /// Whether a policy that demands protection refuses a line that is not a message.
    private func refuses(_ line: IRCLine, _ demanded: Policy) -> Bool {
        guard let route = IRCRouteTable.client(line.key) else { return true }
        return switch route.hosted {
        case .refuse, .seal: true
        case .text(let text, _):
            commandText(line) != nil && settings.commandTexts[text, under: demanded] == .refuse
        case .pass, .handled, .secret, .count, .strip: false
        }
    }

    private func refuseVerb(_ line: IRCLine, _ out: MachineOutput) {
        environment.tally.add(.refusedVerb)
        let verb = line.string(line.verbSpan).uppercased()
        let label = line.tag("label")
        let words =
            commandText(line) == nil
            ? Notices.refusal(.verb, target: verb, texts: settings.texts) : Notices.refusedText(verb)
        reply(421, [verb], words, label: label, out)
    }

    private func strip(_ line: IRCLine, _ raw: ByteBuffer, parameter index: Int, _ now: Timestamp, _ out: MachineOutput)
    {
        guard let span = line.parameter(index), !span.isEmpty else { return forward(raw, now, out) }
        environment.tally.add(.strippedText)
        let verb = line.string(line.verbSpan).uppercased()
        if effective.isNoticeDue(stripped: line.key) { notify(Notices.stripped(verb), out) }
        var stripped = ByteBuffer()
        stripped.writeTags(line.tagList.filter { !$0.isClientOnly })
        stripped.writeString(verb)
        for span in line.parameters.prefix(index) { stripped.writeString(" " + line.string(span)) }
        if let replacement = Self.replacement(of: commandText(line)) { stripped.writeString(" " + replacement) }
        stripped.writeString("\r\n")
        forward(stripped, now, out)
    }

    /// Replaces a text without which the command would mean something else; nil if it can be omitted.
    ///
    /// Without a text AWAY means that the person is back, TOPIC asks for the topic, and servers refuse WALLOPS.
    private static func replacement(of text: CommandText?) -> String? {
        switch text {
        case .away: strippedAway
        case .topic: ":"
        case .wallops: ":(text removed)"
        case .kick, .part, .quit, nil: nil
        }
    }

    /// Replaces the text of AWAY.
    static let strippedAway = ":Away"

    // MARK: What the gateway handles

    private func clientCAP(_ line: IRCLine, _ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        var answers: [String] = []
        let asked = capabilities.clientAsked
        let outcome = capabilities.fromClient(line, answers: &answers)
        switch outcome {
        case .forward: forward(raw, now, out)
        case .replace(let replacement): forward(replacement, now, out)
        case .consumed: break
        }
        for answer in answers { deliver(answer, out) }
        if capabilities.awaitsFirstAnswer, !isRegistered { expectCapabilities(now, out) }
        if capabilities.clientAsked != asked, isRegistered {
            updateRoster(now)
            recordEvidence(now, out, registrations: 0)
            challenge(out)
        }
    }

    private func startTLS(_ raw: ByteBuffer, _ now: Timestamp, _ out: MachineOutput) {
        if terminatesStartTLS, !isRegistered {
            reply(670, [], "STARTTLS successful, proceed with TLS handshake", out)
            out.startsTLS = true
        } else if visibility.hidesStartTLS {
            reply(421, ["STARTTLS"], "Unknown command", out)
        } else {
            forward(raw, now, out)
        }
    }

    private func isExternal(_ line: IRCLine) -> Bool {
        guard settings.visibility.hidesExternal, let mechanism = line.parameter(0) else { return false }
        return line.matches(mechanism, "EXTERNAL")
    }

    private func refuseExternal(_ out: MachineOutput) {
        reply(904, [], role.isSidecar ? Notices.noOwnCertificate : Notices.noCertificates, out)
    }

    private func trackWhois(_ line: IRCLine) {
        let parameters = line.parameters
        guard let last = parameters.last else { return }
        for nick in line.string(last).split(separator: ",") {
            services.clientAsked(about: support.caseMapping.fold(String(nick)))
        }
    }

    /// Sends a numeric of the gateway to its client.
    package func reply(
        _ numeric: Int, _ parameters: [String], _ text: String, label: String? = nil, _ out: MachineOutput
    ) {
        var line = ""
        if let label, capabilities.clientHas("labeled-response") { line = "@label=\(TagValue.escape(label)) " }
        line += ":\(capabilities.serverName) "
        line += String(repeating: "0", count: numeric < 100 ? 1 : 0) + "\(numeric) \(nick ?? "*")"
        for parameter in parameters { line += " " + parameter }
        deliver(line + " :" + text, out)
    }
}
