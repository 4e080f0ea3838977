// Commands that a person writes in a private message to `*pawl`, a nick of the sidecar that no server can have.
//
// Such a message never leaves the sidecar. The program executes the command and answers with
// ``SidecarReply/said(_:)``, which is shown as messages of that nick. Messages of the backend under that nick are
// dropped: nothing else may speak for the sidecar.

import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue

/// The nick of the sidecar itself.
package enum ControlNick {
    /// No server accepts a nick with `*` (RFC 2812, section 2.3.1).
    package static let name = "*pawl"
    static let source = "\(name)!pawl@localhost"
}

extension IRCConnectionMachine {
    private func isControl(_ name: String) -> Bool { support.caseMapping.fold(name) == ControlNick.name }

    /// The targets of a message other than the sidecar itself.
    func withoutControl(_ names: [String]) -> [String] { role.isSidecar ? names.filter { !isControl($0) } : names }

    /// Handles a message of the client that is for the sidecar itself.
    ///
    /// Only PRIVMSG is a command: a NOTICE is never answered, and a CTCP or TAGMSG has no words.
    ///
    /// - Returns: whether nothing of it is for others.
    func takesControl(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard role.isSidecar else { return false }
        let names = line.names(0)
        guard names.contains(where: isControl) else { return false }
        let text = line.text(1)
        if line.key == .privmsg, let text, !text.hasPrefix("\u{1}") { out.commands.append(text) }
        acknowledgeControl(line, text, out)
        return text == nil && line.key != .tagmsg || names.allSatisfy(isControl)
    }

    /// Sends the client the answer that its capabilities promise.
    private func acknowledgeControl(_ line: IRCLine, _ text: String?, _ out: MachineOutput) {
        var tags: [IRCTag] = []
        if let label = line.tag("label"), capabilities.clientHas("labeled-response") {
            tags = [IRCTag(key: "label", value: label)]
        }
        var answer = ByteBuffer()
        answer.writeTags(tags)
        if capabilities.clientHas("echo-message"), line.key.isText, let text {
            answer.writeString(
                ":\(nick ?? "*") \(line.string(line.verbSpan).uppercased()) \(ControlNick.name) :\(text)\r\n")
        } else if !tags.isEmpty {
            answer.writeString(":\(capabilities.serverName) ACK\r\n")
        } else {
            return
        }
        deliver(answer, out)
    }

    /// Handles a message of several lines: each is a command.
    ///
    /// - Returns: whether it is for the sidecar itself.
    func takesControl(_ message: MultilineBatch.Message, _ out: MachineOutput) -> Bool {
        guard role.isSidecar, isControl(message.target) else { return false }
        let commands = message.body.joinedText.split(separator: 0x0A)
        out.commands += commands.map { String(decoding: $0, as: UTF8.self) }
        var tags: [IRCTag] = []
        if let label = message.label, capabilities.clientHas("labeled-response") {
            tags = [IRCTag(key: "label", value: label)]
        }
        if capabilities.clientHas("echo-message") {
            let echo = textLines(
                tags: tags, source: nick ?? "*", verb: "PRIVMSG", target: ControlNick.name, body: message.body)
            for line in echo { deliver(line, out) }
        } else if !tags.isEmpty {
            deliver(assemble(tags, ":\(capabilities.serverName) ACK", nil), out)
        }
        return true
    }

    /// Answers WHOIS for the sidecar itself; clients send it when a person opens the window.
    ///
    /// - Returns: whether the line is one.
    func answersWhois(_ line: IRCLine, _ out: MachineOutput) -> Bool {
        guard role.isSidecar, isRegistered, line.key == .whois,
            let last = line.parameters.last.map(line.string), isControl(last)
        else { return false }
        let label = line.tag("label")
        reply(
            311, [ControlNick.name, "pawl", "localhost", "*"], "Your sidecar. Write help to it.", label: label, out)
        reply(318, [ControlNick.name], "End of WHOIS list", out)
        return true
    }

    /// Whether a line of the backend is a message under the nick of the sidecar.
    func imitatesControl(_ line: IRCLine) -> Bool {
        role.isSidecar && (line.key.isText || line.key == .tagmsg) && isControl(line.string(line.sourceNick))
    }

    /// Shows lines of the sidecar in its own window.
    func say(_ lines: [String], _ out: MachineOutput) {
        for line in lines {
            let text = line.utf8.filter { $0 != 0 && $0 != 0x0A && $0 != 0x0D }
            let body = Body(text: text.isEmpty ? [UInt8(ascii: " ")] : text)
            let pieces = textLines(
                tags: [], source: ControlNick.source, verb: "PRIVMSG", target: nick ?? "*", body: body)
            for piece in pieces { deliver(piece, out) }
        }
    }
}
