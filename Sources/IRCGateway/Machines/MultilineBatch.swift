// The batch of a client that sends several lines as one message. The gateway offers `draft/multiline` by itself where it
// protects messages, because the backend has to see neither the lines nor their number: they are sealed as one message.
// A sidecar offers it too.
//
// IRCv3 draft/multiline, https://ircv3.net/specs/extensions/multiline.

import Devices
import Envelope
import IRCCodec
import RequestQueue
import Vault

/// What a batch of lines may hold, as the gateway announces it.
package struct MultilineLimits: Sendable, Equatable {
    package static let capability = "draft/multiline"
    /// The tag of a line that continues the line before.
    package static let concatenation = "draft/multiline-concat"
    /// Ours: readers without the capability are shown as many messages.
    package static let lines = 64
    /// Ours: fewer bytes are not worth a capability.
    private static let leastBytes = 512
    /// Ours: the room for an envelope in a line with long names, in bytes.
    private static let lineCapacity = 300
    /// Ours: the header and the ratchet's part of an envelope, and client-only tags, in bytes.
    private static let overhead = 500
    /// Ours: the parts of an envelope for all devices of two people but the sender's. The beginning of a session is
    /// shorter.
    private static let deviceOverhead = (2 * DeviceList.deviceLimit - 1) * Vault.recipientOverhead

    /// The bytes of all lines, with one for each line after the first.
    package let bytes: Int

    /// Nil if there is no room.
    ///
    /// - Parameters:
    ///   - messageLines: the number of lines to the backend that a message may take.
    ///   - devices: whether messages are sealed for people's own devices, each with a part of the envelope.
    package init?(messageLines: Int, devices: Bool = false) {
        let overhead = Self.overhead + (devices ? Self.deviceOverhead : 0)
        bytes = Armour.capacity(lines: messageLines, of: Self.lineCapacity) - overhead
        guard bytes >= Self.leastBytes else { return nil }
    }

    /// The capability in CAP LS.
    package var token: String { "\(Self.capability)=max-bytes=\(bytes),max-lines=\(Self.lines)" }
}

/// The machine of a client's batches: it collects one at a time.
struct MultilineBatch {
    /// A message of several lines.
    struct Message: Equatable {
        var target: String
        var label: String?
        var body: Body
    }

    /// Why a batch is not sent. The rest of it is dropped.
    enum Failure: Equatable {
        case bytes(limit: Int)
        case lines(limit: Int)
        case target(batch: String, line: String)
        case invalid
    }

    /// A failure, with the label of the command that opened the batch.
    struct Refusal: Error, Equatable {
        var failure: Failure
        var label: String?
    }

    private struct Open {
        var reference: String
        var target: String
        var label: String?
        var tags: [UInt8]
        var lines: [Body.Line] = []
        var bytes = 0
        var hasFailed = false
    }

    /// Ours: batches of the backend that are remembered. A line of another one has a tag that means nothing.
    private static let foreignLimit = 64

    private var open: Open?
    private var shown = 0
    /// Batches of several lines that the backend has opened, although it was not asked for them.
    private var foreign: Set<String> = []

    /// Whether a batch is open; then lines with its reference belong to it.
    var isOpen: Bool { open != nil }

    /// Whether a reference is that of the open batch.
    func collects(_ reference: String) -> Bool { open.map { ExactText($0.reference) == ExactText(reference) } ?? false }

    /// The client opens a batch.
    ///
    /// - Parameters:
    ///   - target: nil if the command has none, or several.
    ///   - tags: the client-only tags of the message.
    mutating func begin(_ reference: String, target: String?, label: String?, tags: [UInt8]) throws(Refusal) {
        let isNested = open != nil
        open = Open(reference: reference, target: target ?? "", label: label, tags: tags)
        // Neither of two batches at once is sent.
        guard !isNested, let target, !target.isEmpty else { throw fail(.invalid) }
    }

    /// A line of the open batch.
    ///
    /// - Parameters:
    ///   - text: nil if the line is not a PRIVMSG with a text that can be one of several.
    ///   - isTarget: whether its target, `target`, is that of the batch.
    mutating func add(
        _ text: [UInt8]?, continues: Bool, to target: String, isTarget: (String) -> Bool, _ limits: MultilineLimits
    ) throws(Refusal) {
        guard var batch = open, !batch.hasFailed else { return }
        guard isTarget(batch.target) else { throw fail(.target(batch: batch.target, line: target)) }
        // A line that readers without the capability would be shown as a CTCP of its own is not one of several lines.
        guard let text, text.first != 0x01, !(continues && text.isEmpty), !text.contains(0x0D) else {
            throw fail(.invalid)
        }
        guard batch.lines.count < MultilineLimits.lines else { throw fail(.lines(limit: MultilineLimits.lines)) }
        let isFirst = batch.lines.isEmpty
        batch.bytes += text.count + (isFirst || continues ? 0 : 1)
        guard batch.bytes <= limits.bytes else { throw fail(.bytes(limit: limits.bytes)) }
        batch.lines.append(Body.Line(text: text, continues: continues && !isFirst))
        open = batch
    }

    /// The client ends the open batch.
    ///
    /// - Returns: the message; nil if the batch has failed before.
    mutating func end() throws(Refusal) -> Message? {
        guard let batch = open else { return nil }
        open = nil
        guard !batch.hasFailed else { return nil }
        guard batch.lines.contains(where: { !$0.text.isEmpty }) else {
            throw Refusal(failure: .invalid, label: batch.label)
        }
        let body =
            batch.lines.count == 1
            ? Body(tags: batch.tags, text: batch.lines[0].text) : Body(lines: batch.lines, tags: batch.tags)
        return Message(target: batch.target, label: batch.label, body: body)
    }

    /// The reference of the next batch that the client is shown. Those of the backend are not like it.
    mutating func nextReference() -> String {
        shown &+= 1
        return "pawl-\(shown)"
    }

    // MARK: Batches of the backend

    /// Whether a BATCH line of the backend begins or ends a message of several lines.
    ///
    /// The gateway takes the capability by itself, so no honest backend sends one. Its lines would be shown as one text,
    /// although each was read by itself.
    mutating func refuses(_ line: IRCLine) -> Bool {
        guard let word = line.text(0), let sign = word.first else { return false }
        let reference = String(word.dropFirst())
        guard sign == "+", line.text(1) == MultilineLimits.capability else {
            return sign == "-" && foreign.remove(reference) != nil
        }
        if foreign.count < Self.foreignLimit { foreign.insert(reference) }
        return true
    }

    /// Whether there are such messages.
    var hasForeign: Bool { !foreign.isEmpty }

    /// Whether a tag makes its line a part of such a message.
    func isForeign(_ tag: IRCTag) -> Bool {
        guard !foreign.isEmpty else { return false }
        switch tag.key {
        case "batch": return foreign.contains(tag.value)
        case MultilineLimits.concatenation: return true
        default: return false
        }
    }

    private mutating func fail(_ failure: Failure) -> Refusal {
        open?.hasFailed = true
        open?.lines = []
        return Refusal(failure: failure, label: open?.label)
    }
}
