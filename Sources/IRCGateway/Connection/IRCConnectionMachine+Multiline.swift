// Messages of several lines: the client's batches, and how such a message is shown.

import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports

extension IRCConnectionMachine {
    /// Handles a line of a batch of several lines.
    ///
    /// - Returns: whether the line belongs to such a batch.
    func takesMultiline(_ line: IRCLine, _ now: Timestamp, _ out: MachineOutput) -> Bool {
        guard let limits = settings.multiline, capabilities.ownsMultiline else { return false }
        do throws(MultilineBatch.Refusal) {
            if line.key == .batch { return try takesBatch(line, now, out) }
            guard multiline.isOpen, let reference = line.tag("batch"), multiline.collects(reference) else {
                return false
            }
            let target = line.text(0).flatMap { $0.isEmpty ? nil : $0 } ?? "*"
            let isLine = line.key == .privmsg && !line.containsNULOrCR
            try multiline.add(
                isLine ? line.parameter(1).map { Array(line.slice($0).readableBytesView) } : nil,
                continues: line.tag(MultilineLimits.concatenation) != nil, to: target,
                isTarget: { support.caseMapping.fold($0) == support.caseMapping.fold(target) }, limits)
        } catch {
            refuse(error, out)
        }
        return true
    }

    /// Whether a line begins or ends a batch that would be taken here under `hosted`. Its lines count as messages.
    func isMultilineBatch(_ line: IRCLine) -> Bool {
        guard line.key == .batch, settings.multiline != nil else { return false }
        return line.text(1) == MultilineLimits.capability || line.text(0)?.hasPrefix("-") == true
    }

    private func takesBatch(
        _ line: IRCLine, _ now: Timestamp, _ out: MachineOutput
    ) throws(MultilineBatch.Refusal) -> Bool {
        guard let word = line.text(0), let sign = word.first else { return false }
        let reference = String(word.dropFirst())
        switch sign {
        case "+" where line.text(1) == MultilineLimits.capability:
            let targets = line.names(2)
            let isOne = targets.count == 1 && !line.containsNULOrCR
            try multiline.begin(
                reference, target: isOne ? targets[0] : nil, label: line.tag("label"),
                tags: clientTags(line))
        case "-" where multiline.collects(reference):
            guard let message = try multiline.end() else { return true }
            guard isRegistered else {
                reply(451, [], "You have not registered", out)
                return true
            }
            if takesControl(message, out) { return true }
            send(
                OutboundMessage(
                    verb: "PRIVMSG", target: message.target, body: message.body, clientLabel: message.label,
                    tags: clientTags(of: message.body)), now, out)
        default: return false
        }
        return true
    }

    /// The client-only tags of a body.
    ///
    /// The sender's device has written them: what is not such a tag, or more than a client may send, is dropped.
    func clientTags(of body: Body) -> [IRCTag] {
        guard body.tags.count <= IRCLimits.clientTagsLength else { return [] }
        return String(decoding: body.tags, as: UTF8.self).split(separator: ";").compactMap { piece in
            let equals = piece.firstIndex(of: "=")
            let tag = IRCTag(
                key: String(equals.map { piece[..<$0] } ?? piece),
                value: equals.map { TagValue.unescape(piece[piece.index(after: $0)...]) } ?? "")
            return tag.isValidClientOnly ? tag : nil
        }
    }

    // MARK: Showing

    /// The lines that show a message of several lines to the client: a batch, or, without the capability, the lines that
    /// are not blank.
    ///
    /// - Parameters:
    ///   - tags: those of the whole message.
    ///   - mark: that of the body; nil if it has none.
    func multilineText(
        tags: [IRCTag], source: String, verb: String, target: String, body: Body, mark: String?
    ) -> [ByteBuffer] {
        let head = ":\(source) \(verb) \(target) :"
        guard capabilities.showsMultiline, verb == "PRIVMSG" else {
            // An id names one message, and what is about the whole message is said once.
            let others = tags.filter { !$0.isClientOnly && $0.key != "msgid" && $0.key != "label" }
            let pieces = body.separateLines(mark: mark).flatMap {
                ProtectionMark.pieces($0, behind: head.utf8.count, mark)
            }
            return pieces.enumerated().map { assemble($0 == 0 ? tags : others, head, $1) }
        }
        let batch = IRCTag(key: "batch", value: multiline.nextReference())
        let continued = IRCTag(key: MultilineLimits.concatenation, value: "")
        var lines = [
            assemble(tags, ":\(source) BATCH +\(batch.value) \(MultilineLimits.capability) \(target)", nil)
        ]
        for line in body.lines {
            let pieces = ProtectionMark.pieces(line.text, behind: head.utf8.count, mark, isJoined: true)
            for (index, piece) in pieces.enumerated() {
                lines.append(assemble(line.continues || index > 0 ? [batch, continued] : [batch], head, piece))
            }
        }
        return lines + [assemble([], ":\(capabilities.serverName) BATCH -\(batch.value)", nil)]
    }

    private func refuse(_ refusal: MultilineBatch.Refusal, _ out: MachineOutput) {
        environment.tally.add(.failed)
        let (words, text): (String, String) =
            switch refusal.failure {
            case .bytes(let limit): ("MULTILINE_MAX_BYTES \(limit)", Notices.tooManyBytes)
            case .lines(let limit): ("MULTILINE_MAX_LINES \(limit)", Notices.tooManyLines)
            case .target(let batch, let line): ("MULTILINE_INVALID_TARGET \(batch) \(line)", Notices.otherTarget)
            case .invalid: ("MULTILINE_INVALID", Notices.invalidBatch)
            }
        var line = ":\(capabilities.serverName) FAIL BATCH \(words) :\(text)"
        if let label = refusal.label, capabilities.clientHas("labeled-response") {
            line = "@label=\(TagValue.escape(label)) " + line
        }
        deliver(line, out)
    }
}
