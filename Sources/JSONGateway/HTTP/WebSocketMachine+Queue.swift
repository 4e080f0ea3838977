// Messages of a WebSocket that are queued. They leave the connection's order when they are stored; the queue sends them, one
// after the other in a conversation, over this connection or a later one of the account.
//
// The backend's answer is the outcome of the write, so the client receives it once it is committed, at its place among the
// backend's messages. An answer to a write of another connection is for no client.

import DequeModule
import Envelope
import HTTPCodec
import JSONCodec
import NIOCore
import Protection
import RequestQueue
import Vault

extension WebSocketMachine {
    /// A message of this client that is in the queue.
    struct QueuedText: Sendable {
        /// The client's message.
        var request: ByteBuffer
        var conversation: String
        var localID: String?
        var recipient: NamedRecipient?
        var messageID: JSONPath?
        /// Names the write; nil until it is stored.
        var token: RequestToken?
        /// The place of the backend's answer among the messages for the client; nil until it comes.
        var slot: UInt64?
    }

    /// A queued message that this connection has sent.
    struct CarriedText: Sendable {
        let write: SocketWrite
        let acknowledgement: Acknowledgement
        let reference: String
    }

    /// Whether the backend has still to answer a queued message of this client.
    package var awaitsAnswers: Bool { !queued.isEmpty }

    /// Whether an answer of the backend waits for its commit.
    package var holdsAnswers: Bool { queued.values.contains { $0.slot != nil } }

    /// Queues a message if its answer can be recognised.
    ///
    /// - Parameter plaintext: the text to seal; nil if the message is sent as it is.
    /// - Returns: false if it has to be sent without the queue.
    mutating func enqueue(_ ticket: UInt64, _ plaintext: [UInt8]?, _ actions: inout [WebSocketAction]) -> Bool {
        guard let text = sending[ticket], let acknowledgement = text.acknowledgement, let credential,
            let body = toBackend.first(where: { $0.ticket == ticket })?.message?.bytes,
            plaintext == nil || isKept(acknowledgement, in: text.outgoing, body)
        else { return false }
        guard queued.count < Self.waitingLimit else {
            refuse(ticket, .notQueued(.full), &actions)
            return true
        }
        let (outgoing, conversation) = (text.outgoing, text.outgoing.conversation)
        let key = outgoing.localID.map {
            environment.writes.keys.key(
                of: account, "WEBSOCKET", conversation, id: $0, content: plaintext ?? Array(body.readableBytesView))
        }
        let createsMessage = acknowledgement.messageID != nil
        var write = QueuedWrite(
            account: account, credential: credential, lane: conversation, key: key, head: RequestHead("POST", "/"),
            body: body, text: plaintext.map { QueuedWrite.Text($0, in: outgoing, of: text.room) },
            ownName: createsMessage
                ? outgoing.localID.map { WaitingWrites.name($0, of: account, in: conversation) } : nil,
            remoteID: acknowledgement.messageID.map { RemoteIDSource($0) })
        write.frame = ticket
        queued[ticket] = QueuedText(
            request: body, conversation: conversation, localID: outgoing.localID, recipient: text.recipient,
            messageID: acknowledgement.messageID)
        actions.append(.enqueue(write))
        return true
    }

    /// Whether the reference is still in the message when its text is sealed.
    private func isKept(_ acknowledgement: Acknowledgement, in outgoing: OutgoingMessage, _ body: ByteBuffer) -> Bool {
        guard let whole = try? JSONDocument(body), let reference = acknowledgement.reference(in: whole),
            let sealed = try? outgoing.sealed([0]), let document = try? JSONDocument(sealed)
        else { return false }
        return acknowledgement.reference(in: document) == reference
    }

    /// Takes the reply of the queue.
    mutating func stored(
        _ ticket: UInt64, _ result: Result<KnownWrite, ExchangeRefusal>, _ actions: inout [WebSocketAction]
    ) {
        guard queued[ticket] != nil else { return unexpected("queuedFrame", &actions) }
        switch result {
        case .success(let known):
            queued[ticket]?.token = known.token
            sending[ticket] = nil
            settle(ticket, in: \.toBackend, nil)
            actions.append(.await(known.token, ticket: ticket))
        case .failure(let no):
            queued[ticket] = nil
            refuse(ticket, no, &actions)
        }
    }

    /// Passes the backend's answer to the client, or a notice in its place.
    mutating func written(
        _ ticket: UInt64, _ outcome: WriteOutcome, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard let text = queued.removeValue(forKey: ticket) else { return }
        let slot = text.slot ?? environment.nextTicket()
        if text.slot == nil { toClient.append(Slot(ticket: slot)) }
        switch outcome {
        case .answered(let head, let body, let message):
            if let message, head.isFinalRefusal {
                let room = AccountID.room(text.conversation)
                actions.append(.submit(.refused(ConversationID(room, room), message)))
            }
            noteConversation(of: text, head, body)
            guard body.readableBytes > 0 else {
                return put(refusal(.failed("the chat server did not accept it"), of: text), in: slot)
            }
            read(body, true, slot, now, &actions)
        case .dropped: put(refusal(.dropped, of: text), in: slot)
        case .waits: put(refusal(.stillWaiting, of: text), in: slot)
        case .failed(let reason): put(refusal(.failed(reason), of: text), in: slot)
        }
    }

    private mutating func put(_ words: String, in slot: UInt64) { put((ByteBuffer(string: words), true), in: slot) }

    /// Remembers the conversation of a message under the backend's id.
    private func noteConversation(of text: QueuedText, _ head: ResponseHead, _ body: ByteBuffer) {
        guard environment.mapping.findsMessages, (200..<300).contains(head.status),
            let source = text.messageID.map({ RemoteIDSource($0) }), let document = try? JSONDocument(body),
            let id = source.id(in: document)
        else { return }
        environment.messages.remember(text.conversation, of: id, for: account)
    }

    /// Tells the client that its queued messages are kept, because this connection ends before they are answered.
    mutating func tellOfUnanswered() {
        for (ticket, text) in queued.sorted(by: { $0.key < $1.key }) where text.token != nil {
            queued[ticket] = nil
            if let slot = text.slot { put(nil, in: slot) } else { give(refusal(.stillWaiting, of: text)) }
        }
    }

    // MARK: Sending

    /// Sends a queued message of the account.
    mutating func carry(_ write: SocketWrite) {
        carried.removeAll { $0.write.isOver }
        guard isLoggedIn, !isIdentifying, toBackend.count < Self.waitingLimit,
            let document = try? JSONDocument(write.bytes),
            let acknowledgement = environment.mapping.frame(for: document, .fromClient)?.acknowledgement,
            let reference = acknowledgement.reference(in: document)
        else {
            write.end(.unsent)
            return
        }
        guard !carried.contains(where: { $0.reference == reference }) else {
            write.end(.busy)
            return
        }
        releaseAnswer(to: write.token)
        carried.append(CarriedText(write: write, acknowledgement: acknowledgement, reference: reference))
        toBackend.append(Slot(ticket: environment.nextTicket(), message: (write.bytes, true), isReady: true))
    }

    /// Gives up the place of an answer that came too late for its attempt: messages behind it need not wait for the next.
    private mutating func releaseAnswer(to token: RequestToken) {
        guard let ticket = queued.first(where: { $0.value.token == token })?.key, let slot = queued[ticket]?.slot
        else { return }
        queued[ticket]?.slot = nil
        put(nil, in: slot)
    }

    /// Takes the backend's answer to a message that this connection has sent.
    ///
    /// - Returns: false if the message of the backend is for the client now.
    mutating func isAnswer(_ bytes: ByteBuffer) -> Bool {
        guard !carried.isEmpty, let document = try? JSONDocument(bytes) else { return false }
        for (index, one) in carried.enumerated() {
            guard let answer = one.acknowledgement.answer(in: document), answer.references.contains(one.reference)
            else { continue }
            carried.remove(at: index)
            // The attempt may have ended before, and the queue sends the message again.
            guard one.write.end(.answered(answer.verdict, bytes)) else { return false }
            // The client waits for the answer to a later attempt.
            if answer.verdict == .postponed { return true }
            if let ticket = queued.first(where: { $0.value.token == one.write.token })?.key,
                queued[ticket]?.slot == nil
            {
                let slot = environment.nextTicket()
                toClient.append(Slot(ticket: slot))
                queued[ticket]?.slot = slot
            }
            return true
        }
        return false
    }

    /// Ends the attempts of this connection, which has ended.
    package mutating func stopCarrying() {
        for one in carried { one.write.end(.lost) }
        carried = []
    }
}
