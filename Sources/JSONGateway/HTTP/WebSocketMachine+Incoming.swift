// Messages of the backend over a WebSocket to the client.

import DequeModule
import Envelope
import JSONCodec
package import NIOCore
package import Protection
import Reports
package import Vault

extension WebSocketMachine {
    package mutating func receivedFromBackend(
        _ bytes: ByteBuffer, _ isText: Bool, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard toClient.count < Self.waitingLimit else {
            return actions.append(.close(code: 1008, reason: "Too many messages wait for the gateway."))
        }
        guard !isAnswer(bytes) else { return }
        // Messages are not read if nothing can have to be opened.
        guard readsBackend else {
            guard !toClient.isEmpty else { return actions.append(.toClient(bytes, isText: isText)) }
            return toClient.append(Slot(ticket: environment.nextTicket(), message: (bytes, isText), isReady: true))
        }
        let ticket = environment.nextTicket()
        toClient.append(Slot(ticket: ticket, message: (bytes, isText)))
        read(bytes, isText, ticket, now, &actions)
    }

    /// Decides what becomes of a message of the backend, in its slot.
    mutating func read(
        _ bytes: ByteBuffer, _ isText: Bool, _ ticket: UInt64, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        // Some clients read JSON in binary messages too.
        var document = try? JSONDocument(bytes)
        // Only the gateway answers calls. A client might read an unreadable message as an answer.
        guard document.map({ !InBandCall.isReserved($0) }) ?? !(isText && calls.isInUse) else {
            environment.tally.add(.unknownFromBackend)
            return put(nil, in: ticket)
        }
        var frame: FrameRoute?
        do {
            guard let whole = document else { throw MessageFault.noMessage }
            frame = try environment.mapping.knownFrame(for: whole, .fromBackend)
            if let frame { document = try whole.parsing(for: frame.shapes) }
        } catch {
            if environment.mapping.readsBackendFrames, !environment.passesUnread(to: account) {
                return withhold(document, in: ticket)
            }
        }
        if let document, let login = frame?.login, !logIn(login, document, now, &actions), environment.isProtecting {
            return withhold(document, in: ticket)
        }
        if isGated, frame?.label != .passthrough { return withhold(document, in: ticket) }
        guard let document, let frame, !frame.shapes.isEmpty, opensMessages else {
            return put((bytes, isText), in: ticket)
        }
        var incoming = IncomingMessages(
            document, frame.shapes, label: .sync, reader: account, readsEnvelopes: provenDevice != nil,
            directory: environment.directory)
        for job in incoming.jobs(connection, environment) { actions.append(.submit(.open(job))) }
        guard !incoming.isComplete else { return finish(ticket, incoming, &actions) }
        opening.append((ticket, incoming))
    }

    private mutating func withhold(_ document: JSONDocument?, in ticket: UInt64) {
        environment.tally.add(.withheld)
        put((ByteBuffer(string: unreadable(document)), true), in: ticket)
    }

    /// Fills a slot of the messages for the client; with nil, the client gets none.
    mutating func put(_ message: (ByteBuffer, Bool)?, in ticket: UInt64) {
        guard let index = toClient.firstIndex(where: { $0.ticket == ticket }) else { return }
        (toClient[index].message, toClient[index].isReady) = (message.map { ($0.0, $0.1) }, true)
    }

    package mutating func opened(_ ticket: UInt64, _ outcomes: [OpenOutcome], _ actions: inout [WebSocketAction]) {
        for index in opening.indices where opening[index].messages.take(outcomes, for: ticket) {
            guard opening[index].messages.isComplete else { return }
            let (slot, incoming) = opening.remove(at: index)
            return finish(slot, incoming, &actions)
        }
        unexpected("opened", &actions)
    }

    private mutating func finish(
        _ ticket: UInt64, _ incoming: IncomingMessages, _ actions: inout [WebSocketAction]
    ) {
        do {
            let opened = try incoming.opened(environment)
            settle(ticket, in: \.toClient, opened.isCopy ? copy(incoming.document) : opened.bytes)
        } catch {
            // A message without the required changes must not reach the client.
            settle(ticket, in: \.toClient, ByteBuffer(string: unreadable(incoming.document)))
        }
    }

    /// What the client gets in place of a message that the gateway cannot read.
    ///
    /// - Parameter withheld: nil if it is not JSON.
    private func unreadable(_ withheld: JSONDocument?) -> String {
        let no = ExchangeRefusal.answerUnreadable
        let words = no.words(nil, environment.texts)
        return environment.mapping.withheld?.filled(no.code, words, for: withheld)
            ?? environment.mapping.refusal.frame(no, words: words, localID: nil)
    }

    /// What the client gets in place of a copy of an earlier message; nil if that is nothing.
    private func copy(_ withheld: JSONDocument) -> ByteBuffer? {
        environment.mapping.withheld.map {
            ByteBuffer(string: $0.filled("pawl_copy", Notices.copyWithheld, for: withheld))
        }
    }
}
