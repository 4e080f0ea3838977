// The messages of an answer, or of a WebSocket message, on their way to a client that cannot read envelopes.
//
// One unreadable message does not affect the others. A message that cannot be read, marked or opened is replaced by
// words if the backend's form allows it, otherwise removed. The whole answer is refused only if the messages in it
// cannot be found, and only to readers for whom plaintext would have to be marked or withheld.

import DeviceDirectory
import Devices
import Envelope
import JSONCodec
package import NIOCore
package import Protection
import Reports
package import Vault

/// The messages of one document from the backend, and how each is handled.
package struct IncomingMessages: Sendable {
    /// How a message is handled, by its envelope.
    private enum Handling: Sendable, Equatable {
        /// The message has no envelope.
        case words
        /// The vault opens the envelope; the value is the index in ``items``.
        case item(Int)
        /// A device of the sender has sealed the message; the readers' own devices open it.
        case sealedByDevice
    }

    /// Whether the reader's client opens envelopes itself.
    private let readsEnvelopes: Bool
    let document: JSONDocument
    private let messages: [FoundMessage]
    private let unread: [UnreadMessage]
    /// The fault because of which messages may be missing from both lists; nil if none are.
    private let obstacle: MessageFault?
    private let label: Mapping.Label
    private let reader: AccountID
    /// The envelopes for the vault, in order.
    private let items: [OpenMessagesJob.Item]
    /// The jobs sent to the vault, with the number of their items and their outcomes, in the order of ``items``.
    private var asked: [(ticket: UInt64, count: Int, outcomes: [OpenOutcome]?)] = []
    /// One element for each message.
    private let handlings: [Handling]

    init(
        _ document: JSONDocument, _ shapes: [MessageShape], label: Mapping.Label, reader: AccountID,
        readsEnvelopes: Bool, target: TargetValues = TargetValues(),
        directory: DirectoryCache
    ) {
        self.readsEnvelopes = readsEnvelopes
        self.document = document
        self.label = label
        self.reader = reader
        let reading = MessageReading(document, shapes, target: target, isRequest: false)
        messages = reading.messages
        unread = reading.unread
        obstacle = reading.obstacles.first
        var items: [OpenMessagesJob.Item] = []
        var handlings: [Handling] = []
        for message in messages {
            guard let envelope = message.envelope, let claim = Self.claim(of: envelope) else {
                handlings.append(.words)
                continue
            }
            if !directory.isEmpty, directory.publishes(claim.sender, by: message.sender.map { .services($0) }) {
                handlings.append(.sealedByDevice)
                continue
            }
            handlings.append(.item(items.count))
            items.append(
                OpenMessagesJob.Item(
                    envelope: envelope, sender: message.sender.map { .services($0) },
                    conversation: .room(message.conversation)))
        }
        self.items = items
        self.handlings = handlings
    }

    /// Remembers where the reader has met messages, for requests that name a message only.
    private func noteConversations(_ environment: JSONEnvironment) {
        guard environment.mapping.findsMessages else { return }
        for message in messages {
            guard let id = message.remoteID else { continue }
            environment.messages.remember(message.conversation, of: id, for: reader)
        }
    }

    /// The claim of bytes that can be an envelope, by length and header. Many words are valid Base64.
    private static func claim(of bytes: [UInt8]) -> (kind: Envelope.Kind, sender: DeviceID)? {
        bytes.count > Envelope.headerLength ? Envelope.claim(of: bytes) : nil
    }

    /// Creates the jobs for the vault; empty if there are no envelopes.
    package mutating func jobs(_ connection: ConnectionID, _ environment: JSONEnvironment) -> [OpenMessagesJob] {
        OpenMessagesJob.runs(items).map { items in
            let ticket = environment.nextTicket()
            asked.append((ticket, items.count, nil))
            return OpenMessagesJob(connection: connection, ticket: ticket, reader: reader, items: items)
        }
    }

    /// Stores the outcomes of a job.
    ///
    /// - Returns: whether the job is one of these messages.
    package mutating func take(_ outcomes: [OpenOutcome], for ticket: UInt64) -> Bool {
        guard let index = asked.firstIndex(where: { $0.ticket == ticket }) else { return false }
        asked[index].outcomes = outcomes
        return true
    }

    /// Whether all jobs have outcomes.
    package var isComplete: Bool { asked.allSatisfy { $0.outcomes != nil } }

    /// A document with opened messages.
    package struct Opened: Sendable {
        package let bytes: ByteBuffer
        package let written: [Range<Int>]?
        package let isCopy: Bool
    }

    /// Edits the document: opens or marks messages, replaces those that fail by notices, and removes copies from lists.
    ///
    /// - Returns: the document, the ranges of what the gateway has written into it (nil if they are unknown), and whether
    ///   it holds a copy that could not be removed.
    /// - Throws: ``MessageFault`` if an unmarked message would be left in the document.
    package func opened(_ environment: JSONEnvironment) throws(MessageFault) -> Opened {
        let outcomes = asked.flatMap { asked in
            (asked.outcomes ?? [])
                + Array(repeating: .failed(.store), count: max(0, asked.count - (asked.outcomes?.count ?? 0)))
        }
        let policies = environment.policies.snapshot
        if let obstacle, environment.inbound(to: reader, in: nil, policies) != .deliver { throw obstacle }
        noteConversations(environment)
        var edits = MessageEdits(document)
        var isCopy = false
        for message in unread where environment.inbound(to: reader, in: message.conversation, policies) != .deliver {
            try blank(message, &edits, environment)
        }
        for (message, handling) in zip(messages, handlings) {
            do throws(MessageFault) {
                if try put(message, handling, outcomes, policies, &edits, environment) { isCopy = true }
            } catch {
                try blank(UnreadMessage(message, error), &edits, environment)
            }
        }
        let (bytes, written) = try edits.changed()
        return Opened(bytes: bytes, written: written, isCopy: isCopy)
    }

    /// Edits one message.
    ///
    /// - Returns: whether the message is a copy that could not be removed.
    private func put(
        _ message: FoundMessage, _ handling: Handling, _ outcomes: [OpenOutcome], _ policies: PolicySnapshot,
        _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) -> Bool {
        var isCopy = false
        switch handling {
        case .sealedByDevice:
            try putSealed(message, &edits, environment)
            return false
        case .item(let number) where outcomes.indices.contains(number):
            if isRepeated(outcomes[number], message, environment) {
                environment.tally.add(.openCopy)
                if edits.drop(message) { return false }
                isCopy = true
            }
            if try put(outcomes[number], message, &edits, environment) { return isCopy }
        case .words, .item:
            if message.isFlagged { environment.tally.add(.flagWithoutEnvelope) }
        }
        try plaintext(message, policies, &edits, environment)
        return isCopy
    }

    /// Replaces or removes a message that cannot be read or changed. Other messages are not affected.
    private func blank(
        _ message: UnreadMessage, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) {
        environment.tally.add(.withheld)
        try edits.blank(message, with: Notices.withheldUnread)
    }

    /// Whether the backend hands out the same message a second time, under another id.
    private func isRepeated(_ outcome: OpenOutcome, _ message: FoundMessage, _ environment: JSONEnvironment) -> Bool {
        guard case .text(_, _, _, let id) = outcome, let remoteID = message.remoteID else { return false }
        return environment.duplicateFilter.isCopy(id, as: message.conversation + " " + remoteID)
    }

    /// Handles an envelope of a person's own device: unchanged for a client that opens it, a notice for others.
    private func putSealed(
        _ message: FoundMessage, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) {
        if !readsEnvelopes { try edits.replace(message, with: Notices.forOwnDevice(from: message.sender)) }
        environment.tally.add(.openedDevice)
    }

    /// Applies the vault's outcome for an envelope.
    ///
    /// - Returns: false if the bytes were not an envelope, but a text that looked like one.
    private func put(
        _ outcome: OpenOutcome, _ message: FoundMessage, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) -> Bool {
        switch outcome {
        case .text(let plaintext, _, let protection, _):
            try edits.open(message, SealedContent(plaintext))
            if !message.isFlagged { environment.tally.add(.envelopeWithoutFlag) }
            environment.tally.add(protection == .device ? .openedDevice : .openedGateway)
        case .failed(let failure):
            if failure == .malformed, !message.isFlagged { return false }
            try edits.replace(message, with: Notices.notOpened(failure, from: message.sender))
            environment.tally.add(TallyKind(failure))
        }
        return true
    }

    /// Whether the message has the fallback text but no envelope, because the client has requested parts of messages
    /// only.
    private func isWithoutItsEnvelope(_ message: FoundMessage) -> Bool {
        guard message.shape.envelope != nil, message.envelopePlace == nil, !message.shape.fallback.isEmpty,
            let text = message.text.flatMap({ try? document.text($0) })
        else { return false }
        return text == message.shape.fallback
    }

    /// Handles a plaintext message: delivers, marks or withholds it.
    private func plaintext(
        _ message: FoundMessage, _ policies: PolicySnapshot, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) {
        if isWithoutItsEnvelope(message) {
            environment.tally.add(.withheld)
            return try edits.replace(message, with: Notices.withoutEnvelope(from: message.sender ?? "somebody"))
        }
        switch environment.inbound(to: reader, in: message.conversation, policies) {
        case .deliver: environment.tally.add(.deliveredPlaintext)
        case .mark:
            try edits.mark(message, with: Notices.notEncrypted + " ")
            environment.tally.add(.deliveredMarked)
        case .withhold where label.isHistory || message.shape.isHistory:
            // Messages from before the protection of the conversation are shown with a mark.
            try edits.mark(message, with: Notices.notEncrypted + " ")
            environment.tally.add(.deliveredMarked)
        case .withhold:
            let source = message.sender ?? "somebody"
            let latch = environment.latches.latch(of: .ofRoom(message.conversation))
            try edits.replace(
                message,
                with: latch > .plaintext ? Notices.withheldHere(from: source) : Notices.withheldByPolicy(from: source))
            environment.tally.add(.withheld)
        }
    }
}
