// The messages of an answer, or of a WebSocket message, on their way to a client that cannot read envelopes.

import DeviceDirectory
import Devices
import Envelope
import JSONCodec
package import NIOCore
package import Protection
import Reports
package import Vault

/// What a backend hands out, and what is to become of it.
package struct IncomingMessages: Sendable {
    /// What a message has in the place of an envelope.
    private enum Handling: Sendable, Equatable {
        /// Nothing that could be one.
        case words
        /// For the vault, under this number in ``items``.
        case item(Int)
        /// Sealed by a device of the named sender's own: it is for the readers' own devices to open.
        case sealedByDevice
    }

    /// Whether the reader's client opens envelopes itself.
    private let readsEnvelopes: Bool
    private let document: JSONDocument
    private let messages: [FoundMessage]
    private let unread: [UnreadMessage]
    /// Why there may be more than those, where there may.
    private let obstacle: MessageFault?
    private let label: Mapping.Label
    private let reader: AccountID
    /// For the vault: the envelopes, in order.
    private let items: [ReadJob.Item]
    /// What has been asked of the vault: its ticket, and how many answers it has, in the order of ``items``.
    private var asked: [(ticket: UInt64, count: Int, outcomes: [ReadOutcome]?)] = []
    /// By message, what is known of its envelope.
    private let handlings: [Handling]

    init(
        _ document: JSONDocument, _ shapes: [MessageShape], label: Mapping.Label, reader: AccountID,
        readsEnvelopes: Bool, target: TargetValues = TargetValues(),
        directory: DirectoryTable
    ) {
        self.readsEnvelopes = readsEnvelopes
        self.document = document
        self.label = label
        self.reader = reader
        let reading = MessageReading(document, shapes, target: target, isRequest: false)
        messages = reading.messages
        unread = reading.unread
        obstacle = reading.obstacles.first
        var items: [ReadJob.Item] = []
        var handlings: [Handling] = []
        for message in messages {
            guard let envelope = message.envelope, Self.maybeEnvelope(envelope) else {
                handlings.append(.words)
                continue
            }
            if let claim = Envelope.claim(of: envelope),
                directory.publishes(claim.sender, by: message.sender.map { .services($0) })
            {
                handlings.append(.sealedByDevice)
                continue
            }
            handlings.append(.item(items.count))
            items.append(
                ReadJob.Item(
                    envelope: envelope, sender: message.sender.map { .services($0) },
                    conversation: .room(message.conversation)))
        }
        self.items = items
        self.handlings = handlings
    }

    /// Many a word is Base64 by chance; an envelope says so in its first byte and is longer than most of them.
    private static func maybeEnvelope(_ bytes: [UInt8]) -> Bool {
        bytes.count > Envelope.headerLength && Envelope.claim(of: bytes) != nil
    }

    /// What is to be asked of the vault; often nothing.
    package mutating func jobs(_ connection: ConnectionID, _ environment: JSONEnvironment) -> [ReadJob] {
        ReadJob.runs(items).map { items in
            let ticket = environment.nextTicket()
            asked.append((ticket, items.count, nil))
            return ReadJob(connection: connection, ticket: ticket, reader: reader, items: items)
        }
    }

    /// Takes an answer.
    ///
    /// - Returns: whether it is one to a question of these messages.
    package mutating func take(_ outcomes: [ReadOutcome], for ticket: UInt64) -> Bool {
        guard let index = asked.firstIndex(where: { $0.ticket == ticket }) else { return false }
        asked[index].outcomes = outcomes
        return true
    }

    /// Whether all answers are there.
    package var isComplete: Bool { asked.allSatisfy { $0.outcomes != nil } }

    /// The document with opened texts in it, or with words about what could not be opened. Of copies in lists nothing is left.
    ///
    /// - Returns: the document, and whether all of it is a copy of what was seen before.
    /// - Throws: ``MessageFault`` where the document cannot be changed so that nothing unmarked is left in it.
    package func opened(_ environment: JSONEnvironment) throws(MessageFault) -> (bytes: ByteBuffer, isCopy: Bool) {
        let outcomes = asked.flatMap { asked in
            (asked.outcomes ?? [])
                + Array(repeating: .failed(.store), count: max(0, asked.count - (asked.outcomes?.count ?? 0)))
        }
        let policies = environment.policies.snapshot
        if let obstacle, environment.inbound(to: reader, in: nil, policies) != .deliver { throw obstacle }
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
        return (try edits.apply(), isCopy)
    }

    /// What becomes of one message.
    ///
    /// - Returns: whether it is a copy that could not be taken out.
    private func put(
        _ message: FoundMessage, _ handling: Handling, _ outcomes: [ReadOutcome], _ policies: PolicySnapshot,
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

    /// A message that nobody can read, or change where it has to be changed: the others are not lost with it.
    private func blank(
        _ message: UnreadMessage, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) {
        environment.tally.add(.withheld)
        try edits.blank(message, with: Remarks.withheldUnread)
    }

    /// Whether the backend hands out the same message a second time, under another id.
    private func isRepeated(_ outcome: ReadOutcome, _ message: FoundMessage, _ environment: JSONEnvironment) -> Bool {
        guard case .text(_, _, _, let id) = outcome, let remoteID = message.remoteID else { return false }
        return environment.firstSights.isCopy(id, as: "\(message.conversation) \(remoteID)")
    }

    /// An envelope of a person's own device: untouched for those who can open it, words for the others.
    private func putSealed(
        _ message: FoundMessage, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) {
        if !readsEnvelopes { try edits.replace(message, with: Remarks.forOwnDevice(from: message.sender)) }
        environment.tally.add(.openedDevice)
    }

    /// What the vault says to an envelope.
    ///
    /// - Returns: whether it was one; else it is a text that looked like one.
    private func put(
        _ outcome: ReadOutcome, _ message: FoundMessage, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) -> Bool {
        switch outcome {
        case .text(let plaintext, _, let protection, _):
            try edits.open(message, SealedContent(plaintext))
            if !message.isFlagged { environment.tally.add(.envelopeWithoutFlag) }
            environment.tally.add(protection == .device ? .openedDevice : .openedGateway)
        case .failed(let failure):
            if failure == .malformed, !message.isFlagged { return false }
            try edits.replace(message, with: Remarks.notOpened(failure, from: message.sender))
            environment.tally.add(TallyKind(failure))
        }
        return true
    }

    /// Whether only the words are left that the gateway has put in the place of a sealed text: clients may ask a backend for parts of
    /// messages.
    private func isWithoutItsEnvelope(_ message: FoundMessage) -> Bool {
        guard message.shape.envelope != nil, message.envelopePlace == nil, !message.shape.fallback.isEmpty,
            let text = message.text.flatMap({ try? document.text($0) })
        else { return false }
        return text == message.shape.fallback
    }

    /// Plain text from whomever.
    private func plaintext(
        _ message: FoundMessage, _ policies: PolicySnapshot, _ edits: inout MessageEdits, _ environment: JSONEnvironment
    ) throws(MessageFault) {
        if isWithoutItsEnvelope(message) {
            environment.tally.add(.withheld)
            return try edits.replace(message, with: Remarks.withoutEnvelope(from: message.sender ?? "somebody"))
        }
        switch environment.inbound(to: reader, in: message.conversation, policies) {
        case .deliver: environment.tally.add(.deliveredPlaintext)
        case .mark:
            try edits.mark(message, with: Remarks.notEncrypted + " ")
            environment.tally.add(.deliveredMarked)
        case .withhold where label.isHistory || message.shape.isHistory:
            // What was said before the conversation was protected is shown as what it is.
            try edits.mark(message, with: Remarks.notEncrypted + " ")
            environment.tally.add(.deliveredMarked)
        case .withhold:
            let source = message.sender ?? "somebody"
            let latch = environment.latches.latch(of: .ofRoom(message.conversation))
            try edits.replace(
                message,
                with: latch > .plaintext ? Remarks.withheldHere(from: source) : Remarks.withheldByPolicy(from: source))
            environment.tally.add(.withheld)
        }
    }
}
